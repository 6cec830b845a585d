/* image_planes.h - pixels to planes of floats, through a table of each channel. */
#ifndef TTI_DATA_IMAGE_PLANES_H
#define TTI_DATA_IMAGE_PLANES_H

#include <stdint.h>

/* The float of each byte value of a channel, and the four bytes of that float, lowest first. */
typedef struct tti_plane_table {
    float value[256];
    uint8_t byte[4][256];
} tti_plane_table;

/* Sets byte from value. */
void tti_plane_table_split(tti_plane_table *table);

/* u8 [n_pixels,3] to f32 [3,n_pixels]; the same bits with vectors and without. */
void tti_to_planes(const uint8_t *rgb, int64_t n_pixels, const tti_plane_table table[3],
                   float *out);

/* The same without vectors. */
void tti_to_planes_plain(const uint8_t *rgb, int64_t n_pixels, const tti_plane_table table[3],
                         float *out);

#endif /* TTI_DATA_IMAGE_PLANES_H */
