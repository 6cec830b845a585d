/* mask_folder.c - the format "masks": images and, for each, a PNG of the same name whose pixels are
 * classes.  Fields of a sample: x f32[3,S,S] and mask i32[S,S].
 *
 * Both are cut, resized and mirrored alike, the mask to the nearest pixel.  Masks whose only values
 * are 0 and 255 have the classes 0 and 1; otherwise classes are the values.  Without data.classes
 * all masks for training are read once to find them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/number.h"
#include "base/problem.h"
#include "data/fields.h"
#include "data/files/byte_reader.h"
#include "data/files/file_names.h"
#include "data/formats/image_walk.h"
#include "data/formats/mask_files.h"
#include "data/image/image_set.h"
#include "data/table/row_split.h"

enum { MAX_CLASSES = 1 << 16, USUAL_IGNORED = 255 };

static const tti_image_usual usual = {
    .size = 224,
    .fit = TTI_FIT_FILL,
    .augment = {.min_area = 0.25, .flip = 0.5},
    .mean = {0.485, 0.456, 0.406},
    .std = {0.229, 0.224, 0.225},
};

typedef struct masks {
    tti_image_set set; /* first */
    tti_mask_files files;
    int64_t n_classes;
    int64_t ignored;   /* value of pixels that do not count; -1: none */
    bool is_two_level; /* 255 stands for class 1 */
} masks;

/* ---- one mask ---- */

/* Reads the labels of a file in memory to ws->pixels, u16 [h,w]. */
static tutti_status decode_mask(const tti_blob *blob, tti_workspace *ws, tti_image_head *head) {
    TTI_TRY(tti_image_read_head(blob, head));
    if (!head->is_png)
        return tti_fail(TUTTI_E_DATA,
                        "%s: a mask must be a PNG; JPEG changes the values of its pixels",
                        blob->name);
    TTI_TRY(tti_buffer_reserve(&ws->pixels, (size_t)(head->h * head->w) * sizeof(uint16_t)));
    return tti_png_decode_labels(blob, (uint16_t *)(void *)ws->pixels.bytes);
}

/* The class of a value, -1: it has none. */
static int64_t class_of(const masks *m, int64_t value) {
    if (m->is_two_level) return value == 255 ? 1 : value == 0 ? 0 : -1;
    return value == m->ignored || value < m->n_classes ? value : -1;
}

static tutti_status bad_value(const masks *m, const char *name, int64_t value, int64_t y,
                              int64_t x) {
    char text[48] = "";
    if (m->ignored >= 0 && !m->is_two_level)
        snprintf(text, sizeof text, ", and %lld for pixels that do not count",
                 (long long)m->ignored);
    return tti_fail(TUTTI_E_DATA,
                    "%s: pixel (%lld, %lld) is %lld, but the classes are %s%s (data.classes gives "
                    "their number, train.ignore_index the value of pixels that do not count)",
                    name, (long long)x, (long long)y, (long long)value,
                    m->is_two_level ? "0 and 255" : "numbers below data.classes", text);
}

/* The part that the image shows, to the nearest pixel as PIL resizes. */
static tutti_status cut_mask(const masks *m, const char *name, const uint16_t *from, int64_t width,
                             const tti_resize *how, int32_t *out) {
    double down = (double)how->from.h / (double)how->h,
           across = (double)how->from.w / (double)how->w;
    for (int64_t i = 0; i < how->window.h; i++) {
        int64_t y = how->from.y + (int64_t)(((double)(how->window.y + i) + 0.5) * down);
        for (int64_t k = 0; k < how->window.w; k++) {
            int64_t x = how->from.x + (int64_t)(((double)(how->window.x + k) + 0.5) * across);
            int64_t label = class_of(m, from[y * width + x]);
            if (label < 0) return bad_value(m, name, from[y * width + x], y, x);
            out[i * how->window.w + (how->flip ? how->window.w - 1 - k : k)] = (int32_t)label;
        }
    }
    return TUTTI_OK;
}

/* As pad_crop shifts the image; what comes in does not count. */
static tutti_status shift_mask(const masks *m, const tti_sample_key *key, tti_workspace *ws,
                               int32_t *mask) {
    int64_t n = m->set.size, dy, dx;
    size_t n_bytes = (size_t)(n * n) * sizeof *mask;
    TTI_TRY(tti_buffer_reserve(&ws->pixels, n_bytes));
    int32_t *from = (int32_t *)(void *)ws->pixels.bytes;
    memcpy(from, mask, n_bytes);
    tti_random_shift(m->set.augment.pad, key, &dy, &dx);
    for (int64_t y = 0; y < n; y++)
        for (int64_t x = 0; x < n; x++) {
            bool inside = y + dy >= 0 && y + dy < n && x + dx >= 0 && x + dx < n;
            mask[y * n + x] = inside ? from[(y + dy) * n + x + dx] : (int32_t)m->ignored;
        }
    return TUTTI_OK;
}

/* ---- a sample: both files one after the other, the length of the first before them ---- */

static tutti_status fetch(const tti_source *source, int64_t index, tti_workspace *ws, int32_t *y) {
    const masks *m = source->state;
    char image[TTI_WALK_PATH], mask[TTI_WALK_PATH];
    TTI_TRY(tti_mask_files_image(&m->files, index, image));
    TTI_TRY(tti_mask_files_mask(&m->files, index, mask));
    *y = 0;
    TTI_TRY(tti_fetch_bytes(image, 0, 0, ws));
    uint64_t n_image = ws->file.n_bytes, n_mask;
    TTI_TRY(tti_buffer_reserve(&ws->sample, sizeof n_image + n_image));
    memcpy(ws->sample.bytes, &n_image, sizeof n_image);
    memcpy(ws->sample.bytes + sizeof n_image, ws->file.bytes, n_image);
    TTI_TRY(tti_fetch_bytes(mask, 0, 0, ws));
    n_mask = ws->file.n_bytes;
    TTI_TRY(tti_buffer_reserve(&ws->pixels, n_mask + 1));
    memcpy(ws->pixels.bytes, ws->file.bytes, n_mask);
    TTI_TRY(tti_buffer_reserve(&ws->file, sizeof n_image + n_image + n_mask));
    memcpy(ws->file.bytes, ws->sample.bytes, sizeof n_image + n_image);
    memcpy(ws->file.bytes + sizeof n_image + n_image, ws->pixels.bytes, n_mask);
    return TUTTI_OK;
}

static tutti_status unpack_mask(const masks *m, const tti_blob *blob, const tti_image_head *image,
                                const tti_resize *how, tti_workspace *ws, int32_t *out) {
    tti_image_head head;
    TTI_TRY(decode_mask(blob, ws, &head));
    if (head.h != image->h || head.w != image->w)
        return tti_fail(TUTTI_E_DATA, "%s: %lld x %lld pixels, its image has %lld x %lld",
                        blob->name, (long long)head.w, (long long)head.h, (long long)image->w,
                        (long long)image->h);
    return cut_mask(m, blob->name, (const uint16_t *)(const void *)ws->pixels.bytes, head.w, how,
                    out);
}

static tutti_status unpack(const tti_source *source, const tti_sample_key *key, tti_workspace *ws,
                           void *x) {
    const masks *m = source->state;
    char image[TTI_WALK_PATH], mask[TTI_WALK_PATH];
    uint64_t n_image;
    tti_image_head head;
    tti_resize how;
    TTI_TRY(tti_mask_files_image(&m->files, (int64_t)key->index, image));
    TTI_TRY(tti_mask_files_mask(&m->files, (int64_t)key->index, mask));
    memcpy(&n_image, ws->file.bytes, sizeof n_image);
    const uint8_t *bytes = ws->file.bytes + sizeof n_image;
    const tti_blob images = {bytes, n_image, image, m->set.max_pixels};
    const tti_blob labels = {bytes + n_image, ws->file.n_bytes - sizeof n_image - n_image, mask,
                             m->set.max_pixels};
    size_t n_pixels = (size_t)(m->set.size * m->set.size);
    int32_t *out = (int32_t *)(void *)((char *)x + 3 * n_pixels * sizeof(float));
    TTI_TRY(tti_image_read_head(&images, &head));
    uint8_t *pixels;
    TTI_TRY(tti_image_set_pixels(&m->set, ws, &pixels));
    TTI_TRY(tti_image_set_unpack_blob(&m->set, key, &images, ws, pixels, &how));
    tti_image_set_finish(&m->set, key, ws, x);
    TTI_TRY(unpack_mask(m, &labels, &head, &how, ws, out));
    return m->set.augment.pad > 0 ? shift_mask(m, key, ws, out) : TUTTI_OK;
}

/* ---- the classes ---- */

/* Marks the values of a mask. */
static tutti_status look_at_mask(const masks *m, const char *path, tti_workspace *ws, bool *seen) {
    tti_image_head head;
    TTI_TRY(tti_fetch_bytes(path, 0, 0, ws));
    const tti_blob blob = {ws->file.bytes, ws->file.n_bytes, path, m->set.max_pixels};
    TTI_TRY(decode_mask(&blob, ws, &head));
    const uint16_t *labels = (const uint16_t *)(const void *)ws->pixels.bytes;
    for (int64_t i = 0; i < head.h * head.w; i++) seen[labels[i]] = true;
    return TUTTI_OK;
}

static tutti_status look_at_all(const tutti_dataset_desc *desc, const masks *m,
                                const tti_mask_files *files, bool *seen) {
    tti_workspace ws = {0};
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; i < files->n && st == TUTTI_OK; i++) {
        char path[TTI_WALK_PATH];
        st = tti_mask_files_mask(files, i, path);
        if (st == TUTTI_OK) st = look_at_mask(m, path, &ws, seen);
        if (st == TUTTI_E_DATA && desc->skip_bad) st = TUTTI_OK;
    }
    tti_workspace_free(&ws);
    return st;
}

/* Grey levels such as 0, 127 and 254 make hundreds of classes. */
static void note_gaps(const masks *m, const bool *seen, tti_str *notices) {
    int64_t n_missing = 0;
    for (int64_t v = 0; v < m->n_classes; v++) n_missing += !seen[v] && v != m->ignored;
    if (n_missing == 0 || m->is_two_level) return;
    tti_str_printf(notices,
                   "masks have values up to %lld, but %lld of these %lld classes have no pixel; "
                   "number the classes 0, 1, 2 and so on if the values are grey levels\n",
                   (long long)(m->n_classes - 1), (long long)n_missing, (long long)m->n_classes);
}

/* files: of the training split. */
static tutti_status learn_classes(const tutti_dataset_desc *desc, masks *m,
                                  const tti_mask_files *files, tti_str *notices) {
    bool *seen = calloc(MAX_CLASSES, sizeof *seen);
    if (!seen) return tti_fail(TUTTI_E_NOMEM, "masks: out of memory");
    tutti_status st = look_at_all(desc, m, files, seen);
    int64_t most = -1, n_others = 0;
    for (int64_t v = 0; v < MAX_CLASSES; v++) {
        if (seen[v] && v != m->ignored) most = v;
        n_others += seen[v] && v != 0 && v != 255;
    }
    const char *text = desc->ignore_index;
    bool is_auto = !text || !*text || strcmp(text, "auto") == 0;
    m->is_two_level = st == TUTTI_OK && is_auto && n_others == 0 && seen[255];
    m->n_classes = m->is_two_level ? 2 : most + 1;
    if (m->is_two_level)
        tti_str_add(notices, "masks have only the values 0 and 255: 255 is class 1\n");
    note_gaps(m, seen, notices);
    free(seen);
    if (st != TUTTI_OK || m->n_classes > 0) return st;
    return tti_fail(TUTTI_E_DATA, "%s: train.ignore_index excludes every pixel of every mask",
                    files->mask_root);
}

/* In the run the classes of such masks are called by their values. */
static tutti_status note_two_levels(tti_data_spec *spec) {
    static const char *const names[] = {"0", "255"};
    spec->class_names = tti_arena_alloc(&spec->arena, 2 * sizeof *spec->class_names);
    if (!spec->class_names) return tti_fail(TUTTI_E_NOMEM, "masks: out of memory");
    memcpy(spec->class_names, names, sizeof names);
    return TUTTI_OK;
}

static tutti_status find_classes(const tutti_dataset_desc *desc, tti_source *source) {
    masks *m = source->state;
    if (desc->spec) {
        m->is_two_level = desc->spec->class_names != NULL;
        m->n_classes = desc->spec->n_classes;
        return TUTTI_OK;
    }
    m->n_classes = desc->n_classes;
    if (desc->n_classes > MAX_CLASSES)
        return tti_fail(TUTTI_E_INVALID, "data.classes: a mask has %d values", MAX_CLASSES);
    if (desc->n_classes > 0) return TUTTI_OK;
    if (desc->split == TUTTI_TRAIN) {
        TTI_TRY(learn_classes(desc, m, &m->files, &source->notices));
    } else {
        tti_mask_files train;
        tutti_dataset_desc of_train = *desc;
        of_train.split = TUTTI_TRAIN;
        of_train.n_samples = 0;
        TTI_TRY(tti_mask_files_find(&of_train, &train));
        tutti_status st = learn_classes(desc, m, &train, &source->notices);
        tti_mask_files_free(&train);
        TTI_TRY(st);
    }
    return m->is_two_level ? note_two_levels(source->new_spec) : TUTTI_OK;
}

/* ---- the data set ---- */

static tutti_status read_ignored(const tutti_dataset_desc *desc, int64_t *out) {
    const char *text = desc->ignore_index;
    *out = USUAL_IGNORED;
    if (!text || strcmp(text, "auto") == 0) return TUTTI_OK;
    *out = -1;
    if (!*text || strcmp(text, "none") == 0) return TUTTI_OK;
    if (tti_parse_int(text, out) == TTI_NUMBER_OK && *out >= 0 && *out < MAX_CLASSES)
        return TUTTI_OK;
    return tti_fail(
        TUTTI_E_INVALID,
        "train.ignore_index: expected a value of masks, 0 .. %d, none or auto, got '%s'",
        MAX_CLASSES - 1, text);
}

static tutti_status make_fields(const tutti_dataset_desc *desc, tti_source *source) {
    masks *m = source->state;
    int64_t s = m->set.size;
    TTI_TRY(tti_image_set_keep_chain(source, &m->set));
    if (!desc->spec) {
        TTI_TRY(tti_data_spec_alloc_fields(source->new_spec, 2));
        source->new_spec->fields[0] = (tutti_field){"x", {TUTTI_F32, TUTTI_SHAPE(3, s, s)}};
        source->new_spec->fields[1] = (tutti_field){"mask", {TUTTI_I32, TUTTI_SHAPE(s, s)}};
    } else if (desc->spec->n_fields != 2 || desc->spec->fields[0].type.shape.dim[1] != s) {
        return tti_fail(TUTTI_E_DATA,
                        "data: the model was not trained on images and masks of this "
                        "size");
    }
    source->info.n_fields = source->spec->n_fields;
    source->info.fields = source->spec->fields;
    size_t n_bytes = tti_fields_bytes(source->info.fields, source->info.n_fields);
    source->stored = (tutti_type){TUTTI_U8, TUTTI_SHAPE((int64_t)n_bytes)};
    return TUTTI_OK;
}

static void masks_close(tti_source *source) {
    masks *m = source->state;
    tti_mask_files_free(&m->files);
    tti_chain_destroy(&m->set.chain);
    free(m);
}

static tutti_status open_masks(const tutti_dataset_desc *desc, tti_source *source) {
    masks *m = source->state;
    TTI_TRY(read_ignored(desc, &m->ignored));
    TTI_TRY(tti_mask_files_find(desc, &m->files));
    TTI_TRY(tti_image_set_init(desc, &usual, source, &m->set));
    TTI_TRY(make_fields(desc, source));
    TTI_TRY(find_classes(desc, source));
    if (m->is_two_level) m->ignored = -1;
    if (m->set.augment.pad > 0 && m->ignored < 0)
        return tti_fail(TUTTI_E_INVALID,
                        "data.augment: pad_crop brings in pixels without a class; give "
                        "train.ignore_index, or another augmentation");
    TTI_TRY(tti_count_samples(desc, m->files.n, &source->info.n_samples));
    source->listing =
        tti_crc32c(0, tti_str_text(&m->files.images.text), m->files.images.text.n_bytes);
    source->info.n_classes = m->n_classes;
    source->info.n_ignored = m->files.n_ignored;
    return TUTTI_OK;
}

static tutti_status masks_open(const tutti_dataset_desc *desc, tti_source *source) {
    if (!desc->dir || !desc->dir[0])
        return tti_fail(TUTTI_E_INVALID,
                        "masks: data.dir is missing; give the folder of images/ and masks/");
    source->state = calloc(1, sizeof(masks));
    if (!source->state) return tti_fail(TUTTI_E_NOMEM, "masks: out of memory");
    source->fetch = fetch;
    source->unpack = unpack;
    source->close = masks_close;
    tutti_status st = open_masks(desc, source);
    if (st == TUTTI_OK) return st;
    masks_close(source);
    tti_chain_destroy(&source->decode);
    return st;
}

const tti_format tti_format_masks = {
    .name = "masks",
    .doc = "folders images/ and masks/ with files of the same names; PNG masks of classes",
    .open = masks_open,
};
