/* image_png.c - PNG files through libpng, row by row.
 *
 * Every kind becomes 8-bit RGB as in PIL's convert("RGB"): palettes and low depths are expanded, 16
 * bits lose the low byte (PIL cuts grey levels off at 255 instead), alpha and transparency are
 * dropped, gamma and colour profiles are ignored.  All rows are read, so a damaged file is found
 * whatever the crop. libpng calls back on errors and must not get control again: on_error jumps
 * out. */
#include "data/image/image.h"

#if TUTTI_HAVE_PNG
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "base/error.h"
#include "base/files/atomic_file.h"

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
    uint64_t n_raw = (uint64_t)png_get_rowbytes(d->png, d->info) * (uint64_t)d->h;
    if (n_raw / MAX_RATIO > d->blob.n_bytes)
        on_error(d->png, "more pixels than its bytes can hold");
    d->status = tti_image_check_pixels(&d->blob, d->h, d->w);
    if (d->status != TUTTI_OK) longjmp(d->failed, 1);
}

/* ---- orientation ---- */

/* The data of the chunk eXIf, wherever it is; NULL: there is none.  libpng gives no more than the
 * chunks before the pixels. */
static const uint8_t *find_exif(const tti_blob *blob, size_t *n_bytes) {
    const uint8_t *b = blob->bytes;
    for (size_t at = 8; blob->n_bytes - at >= 12;) {
        size_t n =
            (size_t)b[at] << 24 | (size_t)b[at + 1] << 16 | (size_t)b[at + 2] << 8 | b[at + 3];
        if (n > blob->n_bytes - at - 12) break;
        if (memcmp(b + at + 4, "eXIf", 4) == 0) {
            *n_bytes = n;
            return b + at + 8;
        }
        at += n + 12;
    }
    return NULL;
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

/* ImageMagick's text: newline, name, newline, length, newline, then hexadecimal digits in lines. */
static int profile_orientation(const char *text, size_t n_text) {
    enum { MAX_PROFILE = 1 << 16 };
    const char *end = text + n_text;
    for (int line = 0; line < 3 && text; line++) {
        text = memchr(text, '\n', (size_t)(end - text));
        text = text ? text + 1 : NULL;
    }
    uint8_t *bytes = text ? malloc(MAX_PROFILE) : NULL;
    size_t n = 0;
    for (; bytes && n < 2 * MAX_PROFILE && text < end; text++) {
        int digit = digit_of(*text);
        if (digit < 0) continue;
        if (n % 2 == 0) bytes[n / 2] = 0;
        bytes[n / 2] = (uint8_t)(bytes[n / 2] << 4 | digit);
        n++;
    }
    int orientation = bytes ? tti_exif_orientation(bytes, n / 2) : 0;
    free(bytes);
    return orientation;
}

static const png_text *find_text(const decoder *d, const char *key) {
    png_textp text = NULL;
    int n = 0;
    png_get_text(d->png, d->info, &text, &n);
    for (int i = 0; i < n; i++)
        if (strcmp(text[i].key, key) == 0 && text[i].text) return &text[i];
    return NULL;
}

static int read_orientation(const decoder *d) {
    size_t n = 0;
    const uint8_t *exif = find_exif(&d->blob, &n);
    const png_text *profile = find_text(d, "Raw profile type exif");
    const png_text *xmp = find_text(d, "XML:com.adobe.xmp");
    int orientation = exif ? tti_exif_orientation(exif, n) : 0;
    if (!exif && profile) orientation = profile_orientation(profile->text, strlen(profile->text));
    if (orientation == 0 && xmp) orientation = tti_xmp_orientation(xmp->text, strlen(xmp->text));
    return orientation ? orientation : 1;
}

/* ---- the two calls ---- */

tutti_status tti_png_read_head(const tti_blob *blob, int64_t *h, int64_t *w, int *orientation) {
    decoder d;
    TTI_TRY(open_decoder(&d, blob));
    if (setjmp(d.failed) == 0) {
        read_header(&d);
        *orientation = read_orientation(&d);
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
static void read_rows(decoder *d, uint8_t *rgb) {
    int n_passes = d->interlaced ? PNG_INTERLACE_ADAM7_PASSES : 1;
    for (int pass = 0; pass < n_passes; pass++)
        for (int64_t y = 0; y < d->h; y++) png_read_row(d->png, rgb + y * d->w * 3, NULL);
    png_read_end(d->png, NULL); /* checksum of the pixels, end of the file */
}

tutti_status tti_png_decode(const tti_blob *blob, uint8_t *rgb) {
    decoder d;
    TTI_TRY(open_decoder(&d, blob));
    if (setjmp(d.failed) == 0) {
        read_header(&d);
        ask_for_rgb(&d);
        read_rows(&d, rgb);
    }
    png_destroy_read_struct(&d.png, &d.info, NULL);
    return d.status;
}

/* ---- labels ---- */

/* Called with the jump set: from here on rows are one byte, or two as this machine has them. */
static void ask_for_labels(decoder *d) {
    int type = png_get_color_type(d->png, d->info);
    if (type & PNG_COLOR_MASK_COLOR && type != PNG_COLOR_TYPE_PALETTE) {
        d->status = tti_fail(TUTTI_E_DATA,
                             "%s: its pixels are colours; a mask has the class of each pixel as a "
                             "grey level or as the place in a palette",
                             d->blob.name);
        longjmp(d->failed, 1);
    }
    if (png_get_bit_depth(d->png, d->info) == 16) png_set_swap(d->png);
    png_set_packing(d->png);
    png_set_strip_alpha(d->png);
    png_set_interlace_handling(d->png);
    png_read_update_info(d->png, d->info);
}

/* Called with the jump set.  Bytes are read to the second half and widened from the front. */
static void read_labels(decoder *d, uint16_t *labels) {
    size_t n = (size_t)(d->h * d->w), row_bytes = png_get_rowbytes(d->png, d->info);
    bool is_wide = png_get_bit_depth(d->png, d->info) == 16;
    uint8_t *bytes = (uint8_t *)labels + (is_wide ? 0 : n);
    int n_passes = d->interlaced ? PNG_INTERLACE_ADAM7_PASSES : 1;
    if (row_bytes != (size_t)d->w * (is_wide ? 2 : 1)) on_error(d->png, "it has no labels");
    for (int pass = 0; pass < n_passes; pass++)
        for (int64_t y = 0; y < d->h; y++)
            png_read_row(d->png, bytes + (size_t)y * row_bytes, NULL);
    png_read_end(d->png, NULL);
    for (size_t i = 0; i < n && !is_wide; i++) labels[i] = bytes[i];
}

tutti_status tti_png_decode_labels(const tti_blob *blob, uint16_t *labels) {
    decoder d;
    TTI_TRY(open_decoder(&d, blob));
    if (setjmp(d.failed) == 0) {
        read_header(&d);
        ask_for_labels(&d);
        read_labels(&d, labels);
    }
    png_destroy_read_struct(&d.png, &d.info, NULL);
    return d.status;
}

static tutti_status write_whole(const char *path, const uint8_t *bytes, size_t n_bytes) {
    tti_atomic_file *file;
    TTI_TRY(tti_atomic_file_create(path, n_bytes, &file));
    tutti_status st = tti_atomic_file_write(file, bytes, n_bytes);
    if (st == TUTTI_OK) st = tti_atomic_file_commit(file);
    tti_atomic_file_destroy(file);
    return st;
}

tutti_status tti_png_write_labels(const char *path, const uint16_t *labels, int64_t h, int64_t w) {
    uint16_t most = 0;
    size_t n = (size_t)(h * w), n_bytes = 0;
    for (size_t i = 0; i < n; i++) most = TTI_MAX(most, labels[i]);
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)w,
                       .height = (png_uint_32)h,
                       .format = most > 255 ? PNG_FORMAT_LINEAR_Y : PNG_FORMAT_GRAY};
    uint8_t *bytes = most > 255 ? NULL : malloc(n + 1), *file = NULL;
    for (size_t i = 0; bytes && i < n; i++) bytes[i] = (uint8_t)labels[i];
    const void *pixels = most > 255 ? (const void *)labels : bytes;
    tutti_status st = pixels ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    if (st == TUTTI_OK && !png_image_write_get_memory_size(image, n_bytes, 0, pixels, 0, NULL))
        st = tti_fail(TUTTI_E_INTERNAL, "%s: %s", path, image.message);
    if (st == TUTTI_OK && !(file = malloc(n_bytes)))
        st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    if (st == TUTTI_OK && !png_image_write_to_memory(&image, file, &n_bytes, 0, pixels, 0, NULL))
        st = tti_fail(TUTTI_E_INTERNAL, "%s: %s", path, image.message);
    if (st == TUTTI_OK) st = write_whole(path, file, n_bytes);
    free(bytes);
    free(file);
    return st;
}

#else

#include "base/error.h"

static tutti_status fail_without(const tti_blob *blob) {
    return tti_fail(TUTTI_E_UNSUPPORTED, "%s: this build has no libpng, so it reads no PNG",
                    blob->name);
}

tutti_status tti_png_read_head(const tti_blob *blob, int64_t *h, int64_t *w, int *orientation) {
    (void)h, (void)w, (void)orientation;
    return fail_without(blob);
}

tutti_status tti_png_decode(const tti_blob *blob, uint8_t *rgb) {
    (void)rgb;
    return fail_without(blob);
}

tutti_status tti_png_decode_labels(const tti_blob *blob, uint16_t *labels) {
    (void)labels;
    return fail_without(blob);
}

tutti_status tti_png_write_labels(const char *path, const uint16_t *labels, int64_t h, int64_t w) {
    (void)labels, (void)h, (void)w;
    return tti_fail(TUTTI_E_UNSUPPORTED, "%s: this build has no libpng, so it writes no PNG", path);
}

#endif
