/* image_files.h - small images for tests: drawn, and written as JPEG and PNG by the libraries. */
#ifndef TTI_TESTS_IMAGE_FILES_H
#define TTI_TESTS_IMAGE_FILES_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <jpeglib.h>
#include <png.h>

#include "data/idx_files.h"
#include "data/image/image.h"

/* The image that tests/golden/make_images.py draws too. */
static inline uint8_t t_pixel(int y, int x, int c) {
    return (uint8_t)(x * 37 + y * 101 + c * 59 + x * y % 97 * 3 + (x / 5 + y / 7) % 2 * 90);
}

/* [h,w,3], and TTI_IMAGE_PAD_BYTES that may be read; freed by the caller. */
static inline uint8_t *t_image(int h, int w) {
    uint8_t *rgb = calloc(1, (size_t)h * (size_t)w * 3 + TTI_IMAGE_PAD_BYTES), *at = rgb;
    assert_non_null(rgb);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < 3; c++) *at++ = t_pixel(y, x, c);
    return rgb;
}

static inline uint64_t t_hash(const void *bytes, size_t n_bytes) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n_bytes; i++) h = (h ^ ((const uint8_t *)bytes)[i]) * 0x100000001B3u;
    return h;
}

/* A smooth image, as photographs are; the phase makes others. */
static inline uint8_t t_smooth(int y, int x, int c, int phase) {
    return (uint8_t)(128 + 60 * sin(0.05 * x + phase + c) + 60 * cos(0.07 * y - phase + 2 * c));
}

typedef struct t_jpeg_kind {
    int h, w, quality, phase, h_sampling; /* 1: 4:4:4, 2: 4:2:0 */
    bool progressive;
} t_jpeg_kind;

/* *bytes is freed by the caller. */
static inline size_t t_jpeg(const t_jpeg_kind *kind, uint8_t **bytes) {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned long n_bytes = 0;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    *bytes = NULL;
    jpeg_mem_dest(&jpeg, bytes, &n_bytes);
    jpeg.image_width = (JDIMENSION)kind->w;
    jpeg.image_height = (JDIMENSION)kind->h;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, kind->quality, TRUE);
    jpeg.comp_info[0].h_samp_factor = jpeg.comp_info[0].v_samp_factor = kind->h_sampling;
    if (kind->progressive) jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    uint8_t *row = malloc((size_t)kind->w * 3);
    for (int y = 0; y < kind->h; y++) {
        for (int i = 0; i < kind->w * 3; i++) row[i] = t_smooth(y, i / 3, i % 3, kind->phase);
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    free(row);
    return n_bytes;
}

static inline void t_write_jpeg(const char *path, int h, int w, int phase) {
    uint8_t *bytes;
    size_t n = t_jpeg(
        &(t_jpeg_kind){.h = h, .w = w, .quality = 85, .phase = phase, .h_sampling = 2}, &bytes);
    t_write(path, bytes, n);
    free(bytes);
}

/* A PNG of t_pixel; interlaced or with 16 bits, which the golden files are not. */
static inline size_t t_png(int h, int w, bool interlaced, bool deep, uint8_t *out, size_t n_out) {
    FILE *f = fmemopen(out, n_out, "wb");
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_init_io(png, f);
    png_set_IHDR(png, info, (png_uint_32)w, (png_uint_32)h, deep ? 16 : 8, PNG_COLOR_TYPE_RGB,
                 interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_BASE,
                 PNG_FILTER_TYPE_BASE);
    png_write_info(png, info);
    size_t n_sample = deep ? 2 : 1, n_row = (size_t)w * 3 * n_sample;
    uint8_t **rows = malloc((size_t)h * sizeof *rows);
    for (int y = 0; y < h; y++) {
        rows[y] = malloc(n_row);
        for (size_t i = 0; i < n_row; i++) {
            int elem = (int)(i / n_sample);
            rows[y][i] = i % n_sample ? 0x5A : t_pixel(y, elem / 3, elem % 3);
        }
    }
    png_write_image(png, rows);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    long n = ftell(f);
    fclose(f);
    for (int y = 0; y < h; y++) free(rows[y]);
    free(rows);
    return (size_t)n;
}

#endif /* TTI_TESTS_IMAGE_FILES_H */
