/* predict_images.c - runs images through a trained model: JPEG, PNG, and IDX files.
 *
 * Every image is converted to RGB pixels, then to a stored sample like those of the training data,
 * so it is processed like a test sample. */
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/formats/idx.h"
#include "data/image/image_set.h"
#include "train/infer/predicting.h"

/* True if stored samples are u8 [H,W] or [1,H,W]. */
static bool is_grey(const tutti_dataset *ds) {
    const tutti_shape *s = &tti_dataset_stored(ds)->shape;
    return tti_dataset_spec(ds)->pixels.n_channels == 1 &&
           (s->n_dims == 2 || (s->n_dims == 3 && s->dim[0] == 1));
}

bool tti_predict_takes_images(const tti_predicting *r) {
    return tti_dataset_spec(r->ds)->pixels.n_channels == 3 || is_grey(r->ds);
}

/* Writes an image with one channel in the size of the model's input. */
static tutti_status place_grey(tti_predicting *r, const tti_image *image, uint8_t *x) {
    const tutti_shape *shape = &tti_dataset_stored(r->ds)->shape;
    int64_t h = shape->dim[shape->n_dims - 2], w = shape->dim[shape->n_dims - 1];
    const uint8_t *rgb = image->rgb;
    if (image->h != h || image->w != w) {
        tti_resize how = {{0, 0, image->h, image->w}, h, w, {0, 0, h, w}, false};
        TTI_TRY(tti_buffer_reserve(&r->ws.file, (size_t)(h * w * 3)));
        TTI_TRY(tti_image_resize(image, &how, &r->ws, r->ws.file.bytes));
        rgb = r->ws.file.bytes;
    }
    for (int64_t i = 0; i < h * w; i++) /* same conversion as PIL to "L" */
        x[i] = (uint8_t)((rgb[3 * i] * 19595 + rgb[3 * i + 1] * 38470 + rgb[3 * i + 2] * 7471 +
                          0x8000) >>
                         16);
    return TUTTI_OK;
}

static tutti_status add_image(tti_predicting *r, const tti_image *image, tti_predict_sample who) {
    static const tti_sample_key key;
    const tti_image_set *set = tti_dataset_state(r->ds);
    who.h = image->h, who.w = image->w;
    if (tutti_dataset_get_info(r->ds)->n_fields > 0) {
        uint8_t *pixels;
        TTI_TRY(tti_image_set_pixels(set, &r->ws, &pixels));
        TTI_TRY(tti_image_set_place(set, &key, image, &r->ws, pixels));
        memset(r->chain[0], 0, tti_type_bytes(tti_dataset_stored(r->ds))); /* the mask is unknown */
        tti_image_set_finish(set, &key, &r->ws, r->chain[0]);
    } else if (is_grey(r->ds))
        TTI_TRY(place_grey(r, image, r->chain[0]));
    else
        TTI_TRY(tti_image_set_place(set, &key, image, &r->ws, r->chain[0]));
    return tti_predict_add(r, who);
}

static tutti_status add_pixels(tti_predicting *r, const tti_idx_header *head, const uint8_t *pixels,
                               tti_predict_sample who) {
    int64_t h = head->shape.dim[1], w = head->shape.dim[2];
    for (int64_t i = 0; i < h * w; i++) memset(r->rgb.bytes + 3 * i, pixels[i], 3);
    return add_image(r, &(tti_image){h, w, r->rgb.bytes}, who);
}

static tutti_status add_idx(tti_predicting *r, tti_reader *reader, const char *file) {
    tti_idx_header head;
    uint8_t *pixels = NULL;
    TTI_TRY(tti_idx_read_header(reader, 3, &head));
    int64_t h = head.shape.dim[1], w = head.shape.dim[2], n = head.shape.dim[0];
    if (h > TTI_MAX_IMAGE_SIDE || w > TTI_MAX_IMAGE_SIDE || h * w > TTI_MAX_IMAGE_PIXELS)
        return tti_fail(TUTTI_E_DATA, "%s: images of %lld x %lld are too large", file, (long long)h,
                        (long long)w);
    TTI_TRY(tti_buffer_reserve(&r->rgb, (size_t)(h * w * 3) + TTI_IMAGE_PAD_BYTES));
    TTI_TRY(tti_idx_read_elems(reader, &head, &pixels));
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; i < n && st == TUTTI_OK; i++)
        st = add_pixels(r, &head, pixels + i * h * w,
                        (tti_predict_sample){.file = file, .index = i, .n_in_file = n});
    free(pixels);
    return st;
}

static tutti_status add_encoded(tti_predicting *r, const char *file) {
    tti_image_head head;
    tti_image image;
    TTI_TRY(tti_fetch_bytes(file, 0, 0, &r->ws));
    tti_blob blob = {r->ws.file.bytes, r->ws.file.n_bytes, file, r->b->config.data.max_pixels};
    TTI_TRY(tti_image_read_head(&blob, &head));
    TTI_TRY(tti_image_decode(&blob, &head, &(tti_box){0, 0, head.h, head.w}, &r->ws, &image));
    return add_image(r, &image, (tti_predict_sample){.file = file, .n_in_file = 1});
}

/* Recognizes IDX files, plain or gzipped, by two zero bytes at the beginning, which no encoded
 * image has. */
tutti_status tti_predict_images(tti_predicting *r, const tti_predict_input *input) {
    const char *file = input->file;
    uint8_t magic[2];
    tti_reader *reader;
    TTI_TRY(tti_reader_open(file, &reader));
    tutti_status st = tti_reader_read(reader, magic, sizeof magic, "header");
    tti_reader_close(reader);
    TTI_TRY(st);
    if (magic[0] != 0 || magic[1] != 0) return add_encoded(r, file);
    TTI_TRY(tti_reader_open(file, &reader));
    st = add_idx(r, reader, file);
    tti_reader_close(reader);
    return st;
}
