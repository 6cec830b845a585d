/* image_set.c - the steps from image file to sample that all image formats share.
 *
 * The crop is decided from the header and the sample's key before a pixel is decoded, so only the
 * rows of the crop are decoded. */
#include "data/image/image_set.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/philox.h"
#include "data/files/byte_reader.h"
#include "data/files/file_list.h"

const tti_image_usual tti_usual_photos = {
    .size = 224,
    .augment = {.min_area = 0.08, .flip = 0.5},
    .mean = {0.485, 0.456, 0.406},
    .std = {0.229, 0.224, 0.225},
};

/* On failure the chain is empty. */
static tutti_status make_chain(const tti_image_set *set, const double mean[3], const double std[3],
                               tti_chain *chain) {
    const tti_augment *a = &set->augment;
    tti_transform **step = chain->step;
    tutti_status st = TUTTI_OK;
    if (a->pad > 0) {
        TTI_TRY_GOTO(tti_pad_crop_create(set->size, a->pad, &step[chain->n]), cleanup);
        chain->n++;
    }
    if (a->jitter > 0) {
        TTI_TRY_GOTO(tti_colour_jitter_create(set->size, a->jitter, &step[chain->n]), cleanup);
        chain->n++;
    }
    TTI_TRY_GOTO(tti_to_float_create(set->size, mean, std, a->cutout, &step[chain->n]), cleanup);
    chain->n++;
cleanup:
    if (st != TUTTI_OK) tti_chain_destroy(chain);
    return st;
}

/* S of a trained model, whose images are whole samples or the first field of samples. */
static int64_t size_of(const tti_data_spec *spec) {
    return spec->n_fields > 0 ? spec->fields[0].type.shape.dim[1] : spec->stored.shape.dim[0];
}

/* For a trained model, "auto" means the values it was trained with. */
static tti_image_usual usual_of(const tti_source *source, const tti_image_usual *usual,
                                bool has_spec) {
    tti_image_usual out = *usual;
    const tti_pixel_spec *pixels = &source->spec->pixels;
    if (!has_spec || pixels->n_channels != 3) return out;
    out.size = size_of(source->spec);
    memcpy(out.mean, pixels->mean, sizeof out.mean);
    memcpy(out.std, pixels->std, sizeof out.std);
    return out;
}

tutti_status tti_image_set_init(const tutti_dataset_desc *desc, const tti_image_usual *of_format,
                                tti_source *source, tti_image_set *out) {
    const tti_image_usual trained = usual_of(source, of_format, desc->spec), *usual = &trained;
    double mean[3], std[3];
    tti_image_set set = {.fit = usual->fit, .max_pixels = desc->max_pixels};
    set.size = desc->image_size > 0 ? desc->image_size : usual->size;
    if (desc->image_size < 0 || set.size > TTI_MAX_IMAGE_SIZE)
        return tti_fail(TUTTI_E_INVALID, "data.image_size: expected 1 .. %d, got %lld",
                        TTI_MAX_IMAGE_SIZE, (long long)desc->image_size);
    TTI_TRY(tti_augment_parse(desc->augment, &usual->augment, &set.augment));
    if (desc->split != TUTTI_TRAIN) set.augment = (tti_augment){0};
    TTI_TRY(tti_channels_parse(desc->channel_mean, "data.channel_mean", usual->mean, mean));
    TTI_TRY(tti_channels_parse(desc->channel_std, "data.channel_std", usual->std, std));
    TTI_TRY(tti_source_set_pixels(desc,
                                  &(tti_pixel_spec){.n_channels = 3,
                                                    .mean = {mean[0], mean[1], mean[2]},
                                                    .std = {std[0], std[1], std[2]},
                                                    .fit = set.fit},
                                  source));
    TTI_TRY(make_chain(&set, mean, std, &source->decode));
    source->stored = (tutti_type){TUTTI_U8, TUTTI_SHAPE(set.size, set.size, 3)};
    source->info.y = (tutti_type){TUTTI_I32, {0}};
    *out = set;
    return TUTTI_OK;
}

tutti_status tti_image_set_init_from_spec(tti_source *source, tti_image_set *out) {
    const tti_pixel_spec *pixels = &source->spec->pixels;
    *out = (tti_image_set){.size = size_of(source->spec), .fit = pixels->fit};
    return make_chain(out, pixels->mean, pixels->std, &source->decode);
}

tutti_status tti_image_set_keep_chain(tti_source *source, tti_image_set *set) {
    const tutti_type image = {TUTTI_U8, TUTTI_SHAPE(set->size, set->size, 3)};
    tutti_type type;
    set->chain = source->decode;
    source->decode = (tti_chain){0};
    return tti_chain_infer(&set->chain, &image, &type, &set->chain_bytes);
}

tutti_status tti_image_set_pixels(const tti_image_set *set, tti_workspace *ws, uint8_t **pixels) {
    TTI_TRY(tti_buffer_reserve(&ws->sample, 2 * set->chain_bytes));
    *pixels = ws->sample.bytes;
    return TUTTI_OK;
}

void tti_image_set_finish(const tti_image_set *set, const tti_sample_key *key, tti_workspace *ws,
                          void *x) {
    void *const scratch[2] = {ws->sample.bytes, ws->sample.bytes + set->chain_bytes};
    tti_chain_apply(&set->chain, key, scratch, (size_t)(set->size * set->size * 3), x);
}

/* ---- one image ---- */

/* Rounds as torchvision's Resize and CenterCrop do. */
static void take_middle(int64_t size, int64_t shorter, int64_t h, int64_t w, tti_resize *how) {
    how->h = h <= w ? shorter : shorter * h / w;
    how->w = w <= h ? shorter : shorter * w / h;
    how->window.y = (int64_t)rint((double)(how->h - size) / 2.0);
    how->window.x = (int64_t)rint((double)(how->w - size) / 2.0);
}

static tti_resize plan(const tti_image_set *set, const tti_sample_key *key, int64_t h, int64_t w) {
    tti_resize how = {.from = {0, 0, h, w},
                      .h = set->size,
                      .w = set->size,
                      .window = {0, 0, set->size, set->size}};
    if (set->augment.min_area > 0)
        how.from = tti_random_box(h, w, set->augment.min_area, key);
    else if (set->fit == TTI_FIT_MIDDLE)
        take_middle(set->size, (int64_t)rint((double)set->size * 8.0 / 7.0), h, w, &how);
    else if (set->fit == TTI_FIT_SQUARE)
        take_middle(set->size, set->size, h, w, &how);
    how.flip = set->augment.flip > 0 && tti_random_flip(set->augment.flip, key);
    return how;
}

static void copy_row(const uint8_t *in, int64_t w, bool flip, uint8_t *out) {
    if (!flip) memcpy(out, in, (size_t)w * 3);
    for (int64_t x = 0; flip && x < w; x++) memcpy(out + 3 * x, in + 3 * (w - 1 - x), 3);
}

static tutti_status resize_or_copy(const tti_image *image, const tti_resize *how, tti_workspace *ws,
                                   uint8_t *x) {
    bool same_size = how->from.h == how->h && how->from.w == how->w;
    if (!same_size) return tti_image_resize(image, how, ws, x);
    const tti_box *window = &how->window;
    for (int64_t y = 0; y < window->h; y++)
        copy_row(
            image->rgb + ((how->from.y + window->y + y) * image->w + how->from.x + window->x) * 3,
            window->w, how->flip, x + y * window->w * 3);
    return TUTTI_OK;
}

tutti_status tti_image_set_unpack(const tti_image_set *set, const tti_sample_key *key,
                                  const char *name, tti_workspace *ws, uint8_t *x) {
    tti_blob blob = {ws->file.bytes, ws->file.n_bytes, name, set->max_pixels};
    return tti_image_set_unpack_blob(set, key, &blob, ws, x, NULL);
}

tutti_status tti_image_set_unpack_blob(const tti_image_set *set, const tti_sample_key *key,
                                       const tti_blob *blob, tti_workspace *ws, uint8_t *x,
                                       tti_resize *how) {
    tti_image_head head;
    tti_image image;
    TTI_TRY(tti_image_read_head(blob, &head));
    tti_resize made = plan(set, key, head.h, head.w);
    if (how) *how = made;
    TTI_TRY(tti_image_decode(blob, &head, &made.from, ws, &image));
    return resize_or_copy(&image, &made, ws, x);
}

tutti_status tti_image_set_place(const tti_image_set *set, const tti_sample_key *key,
                                 const tti_image *image, tti_workspace *ws, uint8_t *x) {
    tti_resize how = plan(set, key, image->h, image->w);
    return resize_or_copy(image, &how, ws, x);
}

/* ---- files ---- */

tutti_status tti_fetch_bytes(const char *path, uint64_t offset, size_t n_bytes, tti_workspace *ws) {
    int fd = -1;
    uint64_t n_file = 0;
    tutti_status st;
    TTI_TRY(tti_open_regular(path, &fd, &n_file));
    size_t n = n_bytes > 0 ? n_bytes : (size_t)n_file;
    if (n > TTI_MAX_IMAGE_FILE || (n_bytes == 0 && n_file > TTI_MAX_IMAGE_FILE)) {
        st = tti_fail(TUTTI_E_DATA, "%s: %llu bytes, an image has at most %d", path,
                      (unsigned long long)n_file, TTI_MAX_IMAGE_FILE);
        goto cleanup;
    }
    TTI_TRY_GOTO(tti_buffer_reserve(&ws->file, n), cleanup);
    TTI_TRY_GOTO(tti_pread_all(fd, path, ws->file.bytes, n, offset), cleanup);
cleanup:
    close(fd);
    return st;
}

bool tti_hash_splits(const tutti_dataset_desc *desc, const char *name) {
    double share = tti_test_share(desc);
    uint64_t hash = tti_mix64(tti_hash_name(name), tti_hash_name("split"));
    bool is_test = (double)(hash >> 40) * 0x1p-24 < share;
    return is_test == (desc->split == TUTTI_TEST);
}

tutti_status tti_image_no_split(const tutti_dataset_desc *desc, const char *root, bool divided) {
    const char *split = desc->split == TUTTI_TEST ? "test" : "training";
    if (!divided) return tti_fail(TUTTI_E_DATA, "%s: the %s split has no images", root, split);
    return tti_fail(TUTTI_E_DATA,
                    "%s: the %s split has no images: the names of the files decide, and there are "
                    "few; put images into folders train/ and val/, or give another "
                    "data.val_fraction (it is %g)",
                    root, split, tti_test_share(desc));
}
