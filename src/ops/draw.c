/* draw.c - draws the initial values of parameters, a few hundred at a time.
 *
 * Element i is drawn from Philox with a key of seed and parameter name and the counter i / 4, so
 * any element can be drawn alone, in any order, by any worker. */
#include "ops/draw.h"

#include "base/error.h"

enum { N_FOURS = 64 }; /* at a time: plain loops, made of vectors by the compiler */

static void draw_words(const tti_draws *d, size_t four, size_t n, uint32_t words[4][N_FOURS]) {
    for (size_t i = 0; i < n; i++) {
        tti_philox r = tti_philox_draw(d->key, 0, four + i);
        for (int lane = 0; lane < 4; lane++) words[lane][i] = r.v[lane];
    }
}

static void draw_numbers(bool is_normal, size_t n, const uint32_t words[4][N_FOURS],
                         double x[4][N_FOURS]) {
    for (int lane = 0; is_normal && lane < 4; lane += 2)
        for (size_t i = 0; i < n; i++)
            tti_draw_normals(words[lane][i], words[lane + 1][i], &x[lane][i], &x[lane + 1][i]);
    for (int lane = 0; !is_normal && lane < 4; lane++)
        for (size_t i = 0; i < n; i++) x[lane][i] = (double)tti_philox_unit(words[lane][i]);
}

void tti_draw(const tti_draws *d, float *params) {
    float *out = params + d->at;
    uint32_t words[4][N_FOURS];
    double x[4][N_FOURS];
    size_t last = d->first + d->n_elems;
    if (d->scale == 0) {
        for (size_t i = 0; i < d->n_elems; i++) out[i] = (float)d->offset;
        return;
    }
    for (size_t i = d->first; i < last;) {
        size_t begin = i / 4 * 4, end = TTI_MIN(last, begin + 4 * N_FOURS);
        size_t n = (end - begin + 3) / 4;
        draw_words(d, begin / 4, n, words);
        draw_numbers(d->is_normal, n, words, x);
        for (; i < end; i++)
            out[i - d->first] = (float)(d->offset + d->scale * x[i % 4][(i - begin) / 4]);
    }
}
