/* digits.c - the format "digits": a synthetic MNIST that needs no files, drawn on first use.
 *
 * A digit is a pure function of (seed, split, index), so the cache never blocks: the first thread
 * to claim a digit draws it into the cache, a thread that needs it meanwhile draws its own copy,
 * and both have the same bits. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/format.h"
#include "data/formats/digit_pen.h"

enum { EMPTY, CLAIMED, READY };

/* More would be drawn for longer than anybody waits. */
static const int64_t max_samples = INT64_C(1) << 24;

typedef struct digits_state {
    uint64_t key;
    uint8_t *pixels;              /* [n_samples][28*28], touched page by page as digits are drawn */
    _Atomic unsigned char *phase; /* [n_samples] EMPTY, CLAIMED, READY */
} digits_state;

static tutti_status digits_read(const tti_source *source, int64_t index, void *x, int32_t *y) {
    const digits_state *state = source->state;
    uint8_t *cached = state->pixels + (size_t)index * TTI_DIGIT_PIXELS;
    _Atomic unsigned char *phase = &state->phase[index];
    *y = tti_digit_label(state->key, (uint64_t)index);
    if (atomic_load_explicit(phase, memory_order_acquire) == READY) {
        memcpy(x, cached, TTI_DIGIT_PIXELS);
        return TUTTI_OK;
    }
    tti_digit_draw(state->key, (uint64_t)index, x);
    unsigned char expected = EMPTY;
    if (atomic_compare_exchange_strong(phase, &expected, CLAIMED)) {
        memcpy(cached, x, TTI_DIGIT_PIXELS);
        atomic_store_explicit(phase, READY, memory_order_release);
    }
    return TUTTI_OK;
}

static void digits_close(tti_source *source) {
    digits_state *state = source->state;
    free(state->pixels);
    free((void *)state->phase);
    free(state);
}

static tutti_status check_desc(const tutti_dataset_desc *desc) {
    if (desc->n_samples > max_samples)
        return tti_fail(TUTTI_E_INVALID, "digits: %lld samples, at most %lld can be drawn",
                        (long long)desc->n_samples, (long long)max_samples);
    if (desc->n_classes != 0 && desc->n_classes < 10)
        return tti_fail(TUTTI_E_DATA, "digits: labels are 0 .. 9, %lld classes are too few",
                        (long long)desc->n_classes);
    return TUTTI_OK;
}

static tutti_status digits_open(const tutti_dataset_desc *desc, tti_source *source) {
    TTI_TRY(check_desc(desc));
    int64_t by_default = desc->split == TUTTI_TRAIN ? 60000 : 10000;
    int64_t n = desc->n_samples > 0 ? desc->n_samples : by_default;
    digits_state *state = calloc(1, sizeof *state);
    if (!state) return tti_fail(TUTTI_E_NOMEM, "digits: out of memory");
    source->state = state;
    source->read = digits_read;
    source->is_fixed = source->is_drawn = true;
    source->late_bytes = (size_t)n * (TTI_DIGIT_PIXELS + sizeof *state->phase);
    source->close = digits_close;
    source->info = (tutti_dataset_info){
        .n_samples = n, .n_classes = desc->n_classes ? desc->n_classes : 10, .y = {TUTTI_I32, {0}}};
    source->stored = (tutti_type){TUTTI_U8, TUTTI_SHAPE(1, TTI_DIGIT_SIDE, TTI_DIGIT_SIDE)};
    state->key = tti_digit_key(desc->seed, (int)desc->split);
    state->pixels = calloc((size_t)n, TTI_DIGIT_PIXELS);
    state->phase = calloc((size_t)n, sizeof *state->phase);
    tutti_status st;
    if (!state->pixels || !state->phase) {
        st = tti_fail(TUTTI_E_NOMEM, "digits: out of memory for %lld digits", (long long)n);
        goto cleanup;
    }
    TTI_TRY_GOTO(tti_source_normalise(desc, source), cleanup);
cleanup:
    if (st != TUTTI_OK) digits_close(source);
    return st;
}

const tti_format tti_format_digits = {
    .name = "digits",
    .doc = "drawn by the program: strokes with affine and elastic distortion, synthetic, no files",
    .open = digits_open,
};
