/* image.h - images in memory: decoding of files, and resizing as PIL does it.
 *
 * An image is u8 RGB, [H,W,3], rows without gaps.  Pixels are borrowed from the workspace passed to
 * the call and are valid until its next use.  Results have the same bits on every machine. */
#ifndef TTI_DATA_IMAGE_H
#define TTI_DATA_IMAGE_H

#include <stdbool.h>

#include "data/workspace.h"

enum {
    TTI_MAX_IMAGE_SIDE = 65535,
    TTI_MAX_IMAGE_PIXELS = 1 << 27, /* 134 million, 384 MiB as RGB; a job may set another limit */
    TTI_IMAGE_PAD_BYTES = 64,       /* readable after the last pixel */
};

typedef struct tti_image {
    int64_t h, w;
    const uint8_t *rgb; /* [H,W,3], and TTI_IMAGE_PAD_BYTES more that may be read */
} tti_image;

/* A rectangle of pixels: rows y .. y+h-1, columns x .. x+w-1. */
typedef struct tti_box {
    int64_t y, x, h, w;
} tti_box;

/* An encoded image; name stands for it in messages. */
typedef struct tti_blob {
    const uint8_t *bytes;
    size_t n_bytes;
    const char *name;
    int64_t max_pixels; /* 0: TTI_MAX_IMAGE_PIXELS */
} tti_blob;

/* The contents of a header: the size as displayed, after rotation. */
typedef struct tti_image_head {
    int64_t h, w;
    int orientation; /* of EXIF, 1 .. 8; 1: as stored */
    bool is_png;     /* else JPEG                     */
} tti_image_head;

/* Reads the header.  TUTTI_E_DATA if the file is neither JPEG nor PNG, damaged, too large, or
 * declares more pixels than so few bytes can hold; TUTTI_E_UNSUPPORTED if this build lacks the
 * library. */
tutti_status tti_image_read_head(const tti_blob *blob, tti_image_head *out);

/* Decodes at least box (in the image as shown), and little more where that is faster: *out is the
 * whole image, pixels outside of box may be anything.  Grey becomes RGB,
 * alpha is dropped, CMYK is converted as PIL does, the image is turned upright.  head is what
 * tti_image_read_head gave.  A damaged file is TUTTI_E_DATA, wherever box lies: the file is
 * checked to its last row. */
tutti_status tti_image_decode(const tti_blob *blob, const tti_image_head *head, const tti_box *box,
                              tti_workspace *ws, tti_image *out);

/* The orientation of a JPEG, 1 where there is none or it is damaged. */
int tti_jpeg_orientation(const uint8_t *bytes, size_t n_bytes);

/* The orientation in a block of EXIF data, with or without "Exif" before it, and in XMP text; 0: it
 * has none.  EXIF goes first, as in PIL. */
int tti_exif_orientation(const uint8_t *bytes, size_t n_bytes);
int tti_xmp_orientation(const char *text, size_t n_bytes);

/* TUTTI_E_DATA with the limit for an image that is larger than blob allows. */
tutti_status tti_image_check_pixels(const tti_blob *blob, int64_t h, int64_t w);

/* The two decoders: at least the box, or all, of the image as stored, into its place of rgb
 * [H,W,3]. */
tutti_status tti_jpeg_read_head(const tti_blob *blob, int64_t *h, int64_t *w);
tutti_status tti_jpeg_decode(const tti_blob *blob, const tti_box *box, tti_buffer *row,
                             uint8_t *rgb);
tutti_status tti_png_read_head(const tti_blob *blob, int64_t *h, int64_t *w, int *orientation);
tutti_status tti_png_decode(const tti_blob *blob, uint8_t *rgb);

/* A PNG whose pixels are numbers, [H,W] of the head: grey as stored (1 to 16 bits), or the places
 * in the palette.  TUTTI_E_DATA for colours. */
tutti_status tti_png_decode_labels(const tti_blob *blob, uint16_t *labels);

/* Writes labels [h,w] as such a PNG of 8 or 16 bits; the file appears whole. */
tutti_status tti_png_write_labels(const char *path, const uint16_t *labels, int64_t h, int64_t w);

/* Resizes the part `from` of an image to h x w and writes its part `window` to out, u8 [window.h,
 * window.w, 3], mirrored if flip. */
typedef struct tti_resize {
    tti_box from;
    int64_t h, w;
    tti_box window;
    bool flip;
} tti_resize;

/* Antialiased bilinear, bit for bit the result of PIL's crop(from).resize((w, h), BILINEAR).  All
 * sizes are >= 1 and every box lies inside of its image, asserted. */
tutti_status tti_image_resize(const tti_image *image, const tti_resize *how, tti_workspace *ws,
                              uint8_t *out);

#endif /* TTI_DATA_IMAGE_H */
