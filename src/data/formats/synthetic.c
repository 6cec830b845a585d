/* synthetic.c - the formats "random_images" and "random_tokens": noise that needs no files, for
 * measuring how fast a model trains.
 *
 * A few samples are drawn when the set is opened; sample i is a copy of one of them with its own
 * label, so that a sample costs no more than its bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/philox.h"
#include "data/format.h"
#include "data/image/augment.h"

enum { POOL = 64 };

static const int64_t default_samples[TUTTI_N_SPLITS] = {1 << 20, 1 << 10};

/* The mean and std of uniform bytes over 255, so that images have mean 0 and variance 1. */
static const double byte_mean[3] = {0.5, 0.5, 0.5}, byte_std[3] = {0.2898, 0.2898, 0.2898};

typedef struct random_state {
    void *pool; /* [POOL] of type stored */
    uint64_t key;
    int32_t *follows; /* tokens: [POOL][T], NULL for images */
} random_state;

static tutti_status image_read(const tti_source *source, int64_t index, void *x, int32_t *y) {
    const random_state *state = source->state;
    size_t n_bytes = tti_type_bytes(&source->stored);
    memcpy(x, (const char *)state->pool + (size_t)(index % POOL) * n_bytes, n_bytes);
    uint32_t draw = tti_philox_draw(state->key, 1, (uint64_t)index).v[0];
    *y = (int32_t)(draw % (uint64_t)source->info.n_classes);
    return TUTTI_OK;
}

static tutti_status token_read(const tti_source *source, int64_t index, void *x, int32_t *y) {
    const random_state *state = source->state;
    size_t n = (size_t)source->stored.shape.dim[0], at = (size_t)(index % POOL) * n;
    memcpy(x, (const int32_t *)state->pool + at, n * sizeof(int32_t));
    memcpy(y, state->follows + at, n * sizeof(int32_t));
    return TUTTI_OK;
}

static void random_close(tti_source *source) {
    random_state *state = source->state;
    free(state->pool);
    free(state->follows);
    free(state);
}

static void draw_bytes(uint64_t key, uint8_t *x, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        tti_philox draw = tti_philox_draw(key, 0, i / 16);
        memcpy(x + i, draw.v, TTI_MIN(n - i, sizeof draw.v));
    }
}

static void draw_tokens(uint64_t key, int64_t vocabulary, uint64_t stream, int32_t *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = (int32_t)(tti_philox_draw(key, stream, i).v[0] % (uint64_t)vocabulary);
}

/* The common part of both formats; type: that of a sample. */
static tutti_status open_pool(const tutti_dataset_desc *desc, tti_source *source, tutti_type type,
                              int64_t n_classes) {
    random_state *state = calloc(1, sizeof *state);
    if (!state) return tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    state->key = tti_mix64(desc->seed, (uint64_t)desc->split);
    state->pool = malloc(POOL * tti_type_bytes(&type));
    source->state = state;
    source->close = random_close;
    source->is_drawn = true;
    source->stored = type;
    source->info = (tutti_dataset_info){
        .n_samples = desc->n_samples > 0 ? desc->n_samples : default_samples[desc->split],
        .n_classes = n_classes,
        .y = {TUTTI_I32, {0}}};
    if (state->pool) return TUTTI_OK;
    random_close(source);
    return tti_fail(TUTTI_E_NOMEM, "data: out of memory for %d samples", POOL);
}

static tutti_status images_open(const tutti_dataset_desc *desc, tti_source *source) {
    int64_t side = desc->image_size > 0 ? desc->image_size : 224;
    int64_t n_classes = desc->n_classes > 0 ? desc->n_classes : 1000;
    if (side > 4096)
        return tti_fail(TUTTI_E_INVALID, "random_images: image_size %lld is above 4096",
                        (long long)side);
    tutti_type type = {TUTTI_U8, TUTTI_SHAPE(side, side, 3)};
    TTI_TRY(open_pool(desc, source, type, n_classes));
    random_state *state = source->state;
    draw_bytes(state->key, state->pool, POOL * (size_t)tutti_shape_n_elems(&type.shape));
    source->read = image_read;
    const tti_pixel_spec pixels = {.n_channels = 3,
                                   .mean = {byte_mean[0], byte_mean[1], byte_mean[2]},
                                   .std = {byte_std[0], byte_std[1], byte_std[2]},
                                   .fit = TTI_FIT_FILL};
    tutti_status st = tti_source_set_pixels(desc, &pixels, source);
    if (st == TUTTI_OK)
        st = tti_to_float_create(side, byte_mean, byte_std, 0, &source->decode.step[0]);
    source->decode.n = st == TUTTI_OK;
    if (st != TUTTI_OK) random_close(source);
    return st;
}

static tutti_status tokens_open(const tutti_dataset_desc *desc, tti_source *source) {
    int64_t n_tokens = desc->context > 0 ? desc->context : 256;
    int64_t vocabulary = desc->n_classes > 0 ? desc->n_classes : 50257;
    tutti_type type = {TUTTI_I32, TUTTI_SHAPE(n_tokens)};
    TTI_TRY(open_pool(desc, source, type, vocabulary));
    random_state *state = source->state;
    size_t n = POOL * (size_t)n_tokens;
    state->follows = malloc(n * sizeof *state->follows);
    if (!state->follows) {
        random_close(source);
        return tti_fail(TUTTI_E_NOMEM, "data: out of memory for %d samples", POOL);
    }
    draw_tokens(state->key, vocabulary, 0, state->pool, n);
    draw_tokens(state->key, vocabulary, 1, state->follows, n);
    source->info.y.shape = type.shape;
    source->read = token_read;
    return TUTTI_OK;
}

const tti_format tti_format_random_images = {
    .name = "random_images",
    .doc = "drawn images [3,image_size,image_size] in any of 1000 classes: for measuring speed",
    .open = images_open,
};

const tti_format tti_format_random_tokens = {
    .name = "random_tokens",
    .doc = "drawn tokens below data.vocabulary (50257): for measuring speed",
    .open = tokens_open,
};
