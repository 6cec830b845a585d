/* image_jpeg.c - decodes the requested part of JPEG files with libjpeg-turbo.
 *
 * A random crop needs part of the image; rows above and below and columns beside it are
 * entropy-decoded but not transformed, so a damaged file is found whatever the crop.  The pixels
 * are those of a full decode, bit for bit (tests/data/image/image_decode_test.c).  The library
 * calls back on errors and must not get control again: error_exit jumps out.  Warnings that mean
 * lost pixels are errors here; PIL refuses such files too. */
#include "data/image/image.h"

#if TUTTI_HAVE_JPEG
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "base/error.h"

/* MARGIN: a pixel of colour is interpolated from its neighbours, which a cut edge does not have. */
enum { MAX_SCANS = 500, MAX_EXPANSION = 4096, MARGIN = 16 };

typedef struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    const char *name;
    tutti_status status;
} decoder;

static void fail_with(decoder *d, const char *what) {
    d->status = tti_fail(TUTTI_E_DATA, "%s: damaged JPEG: %s", d->name, what);
    longjmp(d->failed, 1);
}

static void on_error(j_common_ptr jpeg) {
    decoder *d = jpeg->client_data;
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    if (jpeg->err->msg_code == JERR_OUT_OF_MEMORY) {
        d->status = tti_fail(TUTTI_E_NOMEM, "%s: out of memory for the JPEG", d->name);
        longjmp(d->failed, 1);
    }
    fail_with(d, text);
}

/* level -1 is a warning, others are chatter. */
static void on_message(j_common_ptr jpeg, int level) {
    int code = jpeg->err->msg_code;
    bool harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR ||
                    code == JWRN_ADOBE_XFORM || code == JWRN_BOGUS_PROGRESSION ||
                    code == JWRN_NOT_SEQUENTIAL;
    if (level < 0 && !harmless) on_error(jpeg);
}

/* A small progressive file may ask for thousands of passes over all its pixels. */
static void on_progress(j_common_ptr jpeg) {
    decoder *d = jpeg->client_data;
    if (d->jpeg.input_scan_number > MAX_SCANS) fail_with(d, "more than 500 scans");
}

static void open_decoder(decoder *d, const tti_blob *blob) {
    *d = (decoder){.name = blob->name, .status = TUTTI_OK};
    d->jpeg.err = jpeg_std_error(&d->errors);
    d->errors.error_exit = on_error;
    d->errors.emit_message = on_message;
    d->jpeg.client_data = d;
}

/* Up to the first scan.  Called with the jump set. */
static void read_header(decoder *d, const tti_blob *blob) {
    jpeg_create_decompress(&d->jpeg);
    d->jpeg.client_data = d;
    d->progress.progress_monitor = on_progress;
    d->jpeg.progress = &d->progress;
    jpeg_mem_src(&d->jpeg, blob->bytes, (unsigned long)blob->n_bytes);
    jpeg_read_header(&d->jpeg, TRUE);
    uint64_t n_pixels = (uint64_t)d->jpeg.image_width * d->jpeg.image_height;
    if (n_pixels / MAX_EXPANSION > blob->n_bytes)
        fail_with(d, "more pixels than its bytes can hold");
    d->status = tti_image_check_pixels(blob, d->jpeg.image_height, d->jpeg.image_width);
    if (d->status != TUTTI_OK) longjmp(d->failed, 1);
}

tutti_status tti_jpeg_read_head(const tti_blob *blob, int64_t *h, int64_t *w) {
    decoder d;
    open_decoder(&d, blob);
    if (setjmp(d.failed) == 0) {
        read_header(&d, blob);
        *h = d.jpeg.image_height;
        *w = d.jpeg.image_width;
    }
    jpeg_destroy_decompress(&d.jpeg);
    return d.status;
}

/* As PIL does: Adobe files store 255 - ink. */
static void convert_cmyk(const uint8_t *cmyk, int64_t w, uint8_t *rgb) {
    for (int64_t i = 0; i < w; i++, cmyk += 4, rgb += 3)
        for (int c = 0; c < 3; c++) {
            int product = (255 - cmyk[c]) * cmyk[3] + 128;
            int ink = ((product >> 8) + product) >> 8;
            rgb[c] = (uint8_t)TTI_MAX(cmyk[3] - ink, 0);
        }
}

/* Leaves columns out that are far from the box.  The first one that is left. */
static int64_t cut_columns(decoder *d, const tti_box *box) {
    int64_t w = d->jpeg.output_width, first = TTI_MAX(box->x - MARGIN, 0);
    JDIMENSION from = (JDIMENSION)first;
    JDIMENSION n = (JDIMENSION)(TTI_MIN(box->x + box->w + MARGIN, w) - first);
    if (n < w) jpeg_crop_scanline(&d->jpeg, &from, &n);
    return from;
}

/* Skips the rows below the box but reads the last one, because skipping it would leave the rest of
 * the file unchecked. */
static void read_to_the_end(decoder *d, uint8_t *last_row) {
    JDIMENSION left = d->jpeg.output_height - d->jpeg.output_scanline;
    if (left == 0) return;
    if (left > 1) jpeg_skip_scanlines(&d->jpeg, left - 1);
    if (jpeg_read_scanlines(&d->jpeg, &last_row, 1) != 1) fail_with(d, "rows are missing");
}

/* Called with the jump set. */
static void read_rows(decoder *d, const tti_box *box, tti_buffer *row, uint8_t *rgb) {
    bool cmyk = d->jpeg.jpeg_color_space == JCS_CMYK || d->jpeg.jpeg_color_space == JCS_YCCK;
    d->jpeg.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&d->jpeg);
    int64_t h = d->jpeg.output_height, w = d->jpeg.output_width;
    int64_t first_column = cut_columns(d, box);
    if (cmyk) {
        d->status = tti_buffer_reserve(row, (size_t)w * 4);
        if (d->status != TUTTI_OK) longjmp(d->failed, 1);
    }
    if (box->y > 0) jpeg_skip_scanlines(&d->jpeg, (JDIMENSION)box->y);
    for (int64_t y = box->y; y < box->y + box->h; y++) {
        uint8_t *out = rgb + (y * w + first_column) * 3;
        JSAMPROW target = cmyk ? row->bytes : out;
        if (jpeg_read_scanlines(&d->jpeg, &target, 1) != 1) fail_with(d, "rows are missing");
        if (cmyk) convert_cmyk(row->bytes, d->jpeg.output_width, out);
    }
    read_to_the_end(d, cmyk ? row->bytes : rgb + ((h - 1) * w + first_column) * 3);
}

tutti_status tti_jpeg_decode(const tti_blob *blob, const tti_box *box, tti_buffer *row,
                             uint8_t *rgb) {
    decoder d;
    open_decoder(&d, blob);
    if (setjmp(d.failed) == 0) {
        read_header(&d, blob);
        read_rows(&d, box, row, rgb);
    }
    jpeg_destroy_decompress(&d.jpeg);
    return d.status;
}

#else

#include "base/error.h"

static tutti_status fail_without(const tti_blob *blob) {
    return tti_fail(TUTTI_E_UNSUPPORTED, "%s: this build has no libjpeg, so it reads no JPEG",
                    blob->name);
}

tutti_status tti_jpeg_read_head(const tti_blob *blob, int64_t *h, int64_t *w) {
    (void)h, (void)w;
    return fail_without(blob);
}

tutti_status tti_jpeg_decode(const tti_blob *blob, const tti_box *box, tti_buffer *row,
                             uint8_t *rgb) {
    (void)box, (void)row, (void)rgb;
    return fail_without(blob);
}

#endif
