/* image_decode.c - decodes any image file to upright RGB: finds the decoder by the first bytes,
 * rotates by EXIF. A rotated image is decoded as stored and then copied; its rows are columns of
 * the stored one, so all of it is decoded. */
#include <string.h>

#include "base/error.h"
#include "data/image/image.h"

static const uint8_t png_magic[8] = {0x89, 'P', 'N', 'G', 0x0D, 0x0A, 0x1A, 0x0A};

tutti_status tti_image_check_pixels(const tti_blob *blob, int64_t h, int64_t w) {
    int64_t most = blob->max_pixels > 0 ? blob->max_pixels : TTI_MAX_IMAGE_PIXELS;
    if (h <= TTI_MAX_IMAGE_SIDE && w <= TTI_MAX_IMAGE_SIDE && h * w <= most) return TUTTI_OK;
    if (h > TTI_MAX_IMAGE_SIDE || w > TTI_MAX_IMAGE_SIDE)
        return tti_fail(TUTTI_E_DATA, "%s: %lld x %lld pixels, a side may have %d at most",
                        blob->name, (long long)w, (long long)h, TTI_MAX_IMAGE_SIDE);
    return tti_fail(TUTTI_E_DATA,
                    "%s: %lld x %lld pixels, %lld in all, are more than data.max_pixels=%lld "
                    "allows (the largest possible value is %d)",
                    blob->name, (long long)w, (long long)h, (long long)(h * w), (long long)most,
                    1 << 30);
}

/* Orientations from 5 on exchange rows and columns. */
static bool is_sideways(int orientation) { return orientation >= 5; }

tutti_status tti_image_read_head(const tti_blob *blob, tti_image_head *out) {
    const uint8_t *b = blob->bytes;
    tti_image_head head = {.orientation = 1};
    head.is_png = blob->n_bytes >= 8 && memcmp(b, png_magic, 8) == 0;
    bool is_jpeg = blob->n_bytes >= 3 && b[0] == 0xFF && b[1] == 0xD8 && b[2] == 0xFF;
    if (blob->n_bytes == 0) return tti_fail(TUTTI_E_DATA, "%s: the file is empty", blob->name);
    if (!head.is_png && !is_jpeg)
        return tti_fail(TUTTI_E_DATA, "%s: neither JPEG nor PNG by its first bytes", blob->name);
    TTI_TRY(head.is_png ? tti_png_read_head(blob, &head.h, &head.w, &head.orientation)
                        : tti_jpeg_read_head(blob, &head.h, &head.w));
    if (is_jpeg) head.orientation = tti_jpeg_orientation(b, blob->n_bytes);
    if (is_sideways(head.orientation)) {
        int64_t h = head.h;
        head.h = head.w;
        head.w = h;
    }
    *out = head;
    return TUTTI_OK;
}

/* The stored pixel of pixel (y, x) of the image as shown, whose size is h x w. */
static const uint8_t *stored_pixel(const uint8_t *stored, int orientation, const tti_image *shown,
                                   int64_t y, int64_t x) {
    int64_t h = shown->h, w = shown->w, row = y, column = x, stored_w = w;
    bool mirror = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    bool upend = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    if (is_sideways(orientation)) {
        row = x, column = y, stored_w = h;
        if (upend) row = w - 1 - x;
        if (mirror) column = h - 1 - y;
    } else {
        if (upend) row = h - 1 - y;
        if (mirror) column = w - 1 - x;
    }
    return stored + (row * stored_w + column) * 3;
}

static void turn(const uint8_t *stored, int orientation, const tti_image *shown, uint8_t *out) {
    for (int64_t y = 0; y < shown->h; y++)
        for (int64_t x = 0; x < shown->w; x++, out += 3)
            memcpy(out, stored_pixel(stored, orientation, shown, y, x), 3);
}

tutti_status tti_image_decode(const tti_blob *blob, const tti_image_head *head, const tti_box *box,
                              tti_workspace *ws, tti_image *out) {
    bool turned = head->orientation != 1;
    bool sideways = is_sideways(head->orientation);
    tti_box all = {0, 0, sideways ? head->w : head->h, sideways ? head->h : head->w};
    const tti_box *stored = turned ? &all : box;
    size_t n_bytes = (size_t)(head->h * head->w * 3) + TTI_IMAGE_PAD_BYTES;
    TTI_TRY(tti_buffer_reserve(&ws->pixels, n_bytes));
    TTI_TRY(head->is_png ? tti_png_decode(blob, ws->pixels.bytes)
                         : tti_jpeg_decode(blob, stored, &ws->rows, ws->pixels.bytes));
    *out = (tti_image){head->h, head->w, ws->pixels.bytes};
    if (!turned) return TUTTI_OK;
    TTI_TRY(tti_buffer_reserve(&ws->turned, n_bytes));
    turn(ws->pixels.bytes, head->orientation, out, ws->turned.bytes);
    out->rgb = ws->turned.bytes;
    return TUTTI_OK;
}
