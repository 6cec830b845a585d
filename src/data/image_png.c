/* image_png.c - PNG files through libpng, row by row.
 *
 * Every kind becomes 8-bit RGB: palettes and low depths are expanded, 16 bits lose the low byte,
 * alpha and transparency are dropped, gamma and colour profiles are ignored: what PIL's
 * convert("RGB") gives.  Interlaced files need all rows, others are read only as far as asked.
 * libpng calls back on errors and must not get control again: on_error jumps out. */
#include "data/image.h"

#if TUTTI_HAVE_PNG
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "base/error.h"

enum { MAX_RATIO = 1032 /* deflate's own limit */ };

typedef struct decoder {
    png_structp png;
    png_infop info;
    jmp_buf failed;
    tti_blob blob;
    size_t at;
    tutti_status status;
    int64_t h, w;
    bool interlaced;
} decoder;

static void on_error(png_structp png, png_const_charp text) {
    decoder *d = png_get_error_ptr(png);
    d->status = tti_fail(TUTTI_E_DATA, "%s: damaged PNG: %s", d->blob.name, text);
    longjmp(d->failed, 1);
}

static void on_warning(png_structp png, png_const_charp text) { (void)png, (void)text; }

static void on_read(png_structp png, png_bytep out, png_size_t n) {
    decoder *d = png_get_io_ptr(png);
    if (n > d->blob.n_bytes - d->at) on_error(png, "truncated");
    memcpy(out, d->blob.bytes + d->at, n);
    d->at += n;
}

static tutti_status open_decoder(decoder *d, const tti_blob *blob) {
    *d = (decoder){.blob = *blob, .status = TUTTI_OK};
    d->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, d, on_error, on_warning);
    d->info = d->png ? png_create_info_struct(d->png) : NULL;
    if (d->info) return TUTTI_OK;
    png_destroy_read_struct(&d->png, NULL, NULL);
    return tti_fail(TUTTI_E_NOMEM, "%s: out of memory for the PNG", blob->name);
}

/* Called with the jump set. */
static void read_header(decoder *d) {
    png_set_read_fn(d->png, d, on_read);
    png_set_user_limits(d->png, TTI_MAX_IMAGE_SIDE, TTI_MAX_IMAGE_SIDE);
    png_set_chunk_malloc_max(d->png, 1 << 20);
    png_set_chunk_cache_max(d->png, 16);
    png_set_keep_unknown_chunks(d->png, PNG_HANDLE_CHUNK_NEVER, NULL, 0);
    png_read_info(d->png, d->info);
    d->h = png_get_image_height(d->png, d->info);
    d->w = png_get_image_width(d->png, d->info);
    d->interlaced = png_get_interlace_type(d->png, d->info) != PNG_INTERLACE_NONE;
    if (d->h * d->w > TTI_MAX_IMAGE_PIXELS) on_error(d->png, "more pixels than are possible here");
    uint64_t n_raw = (uint64_t)png_get_rowbytes(d->png, d->info) * (uint64_t)d->h;
    if (n_raw / MAX_RATIO > d->blob.n_bytes) on_error(d->png, "more pixels than so few bytes hold");
}

tutti_status tti_png_read_head(const tti_blob *blob, int64_t *h, int64_t *w) {
    decoder d;
    TTI_TRY(open_decoder(&d, blob));
    if (setjmp(d.failed) == 0) {
        read_header(&d);
        *h = d.h;
        *w = d.w;
    }
    png_destroy_read_struct(&d.png, &d.info, NULL);
    return d.status;
}

/* Called with the jump set: from here on rows come as RGB. */
static void ask_for_rgb(decoder *d) {
    png_set_expand(d->png);
    png_set_strip_16(d->png);
    png_set_gray_to_rgb(d->png);
    png_set_strip_alpha(d->png);
    png_set_interlace_handling(d->png);
    png_read_update_info(d->png, d->info);
    if (png_get_rowbytes(d->png, d->info) != (size_t)d->w * 3)
        on_error(d->png, "it cannot be made RGB");
}

/* Called with the jump set.  Seven passes of an interlaced file complete one another. */
static void read_rows(decoder *d, int64_t last, uint8_t *rgb) {
    int n_passes = d->interlaced ? PNG_INTERLACE_ADAM7_PASSES : 1;
    int64_t end = d->interlaced ? d->h : last;
    for (int pass = 0; pass < n_passes; pass++)
        for (int64_t y = 0; y < end; y++) png_read_row(d->png, rgb + y * d->w * 3, NULL);
    if (end == d->h) png_read_end(d->png, NULL); /* checksum of the pixels, end of the file */
}

tutti_status tti_png_decode(const tti_blob *blob, int64_t first, int64_t last, tti_buffer *row,
                            uint8_t *rgb) {
    (void)first, (void)row; /* each row is coded by the one above */
    decoder d;
    TTI_TRY(open_decoder(&d, blob));
    if (setjmp(d.failed) == 0) {
        read_header(&d);
        ask_for_rgb(&d);
        read_rows(&d, last, rgb);
    }
    png_destroy_read_struct(&d.png, &d.info, NULL);
    return d.status;
}

#else

#include "base/error.h"

static tutti_status fail_without(const tti_blob *blob) {
    return tti_fail(TUTTI_E_UNSUPPORTED, "%s: this build has no libpng, so it reads no PNG",
                    blob->name);
}

tutti_status tti_png_read_head(const tti_blob *blob, int64_t *h, int64_t *w) {
    (void)h, (void)w;
    return fail_without(blob);
}

tutti_status tti_png_decode(const tti_blob *blob, int64_t first, int64_t last, tti_buffer *row,
                            uint8_t *rgb) {
    (void)first, (void)last, (void)row, (void)rgb;
    return fail_without(blob);
}

#endif
