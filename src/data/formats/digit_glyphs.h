/* digit_glyphs.h - how the ten digits are written: pen strokes as points that are joined smoothly.
 */
#ifndef TTI_DATA_DIGIT_GLYPHS_H
#define TTI_DATA_DIGIT_GLYPHS_H

#include <stdint.h>

enum { TTI_GLYPH_POINTS = 12, TTI_GLYPH_STROKES = 2, TTI_GLYPH_STYLES = 3 };

/* Points in hundredths of the digit's box, x to the right, y down.  A repeated point is a corner.
 */
typedef struct tti_glyph_stroke {
    int n_points; /* 0: no such stroke */
    int8_t point[TTI_GLYPH_POINTS][2];
} tti_glyph_stroke;

typedef struct tti_glyph {
    tti_glyph_stroke stroke[TTI_GLYPH_STROKES];
} tti_glyph;

/* [digit][style]; every style has a first stroke. */
extern const tti_glyph tti_glyphs[10][TTI_GLYPH_STYLES];

#endif /* TTI_DATA_DIGIT_GLYPHS_H */
