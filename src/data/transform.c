/* transform.c - runs a chain of steps over one sample; contains the step that every image set
 * needs: pixels to normalised floats.
 *
 * A step never works in place, so it may change the type; the sample alternates between two scratch
 * buffers and the last step writes directly into the batch. */
#include "data/transform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

size_t tti_type_bytes(const tutti_type *type) {
    return (size_t)tutti_shape_n_elems(&type->shape) * tutti_dtype_bytes(type->dtype);
}

tutti_status tti_chain_append(tti_chain *chain, const tti_chain *tail) {
    if (chain->n + tail->n > TTI_MAX_TRANSFORMS)
        return tti_fail(TUTTI_E_INVALID, "transforms: %d steps, at most %d are supported",
                        chain->n + tail->n, TTI_MAX_TRANSFORMS);
    for (int i = 0; i < tail->n; i++) chain->step[chain->n++] = tail->step[i];
    return TUTTI_OK;
}

tutti_status tti_chain_infer(const tti_chain *chain, const tutti_type *in, tutti_type *out,
                             size_t *max_bytes) {
    tutti_type now = *in;
    size_t most = tti_type_bytes(&now);
    for (int i = 0; i < chain->n; i++) {
        tutti_type next;
        TTI_TRY(chain->step[i]->infer(chain->step[i], &now, &next));
        now = next;
        most = TTI_MAX(most, tti_type_bytes(&now));
    }
    *out = now;
    *max_bytes = (most + 63) & ~(size_t)63; /* so that two scratch buffers in a row stay aligned */
    return TUTTI_OK;
}

void tti_chain_apply(const tti_chain *chain, const tti_sample_key *key, void *const scratch[2],
                     size_t in_bytes, void *out) {
    if (chain->n == 0) memcpy(out, scratch[0], in_bytes);
    for (int i = 0; i < chain->n; i++) {
        void *to = i == chain->n - 1 ? out : scratch[(i + 1) % 2];
        chain->step[i]->apply(chain->step[i], key, scratch[i % 2], to);
    }
}

void tti_chain_destroy(tti_chain *chain) {
    for (int i = 0; i < chain->n; i++) chain->step[i]->destroy(chain->step[i]);
    *chain = (tti_chain){0};
}

/* ---- normalise ---- */

typedef struct normalise {
    tti_transform base;
    size_t n_elems; /* of one sample */
    float value[256];
} normalise;

static tutti_status normalise_infer(const tti_transform *self, const tutti_type *in,
                                    tutti_type *out) {
    if (in->dtype != TUTTI_U8)
        return tti_fail(TUTTI_E_INVALID, "%s: takes u8 pixels, got %s", self->name,
                        tutti_dtype_text(in->dtype));
    *out = (tutti_type){TUTTI_F32, in->shape};
    return TUTTI_OK;
}

static void normalise_apply(const tti_transform *self, const tti_sample_key *key, const void *in,
                            void *out) {
    (void)key;
    const normalise *step = (const normalise *)self;
    const uint8_t *pixel = in;
    float *x = out;
    for (size_t i = 0; i < step->n_elems; i++) x[i] = step->value[pixel[i]];
}

static void normalise_destroy(tti_transform *self) { free(self); }

static bool normalise_table(const tti_transform *self, tti_pixel_table *out) {
    const normalise *step = (const normalise *)self;
    out->n_channels = 1;
    memcpy(out->value[0], step->value, sizeof step->value);
    return true;
}

tutti_status tti_normalise_create(double mean, double std, const tutti_shape *shape,
                                  tti_transform **out) {
    *out = NULL;
    if (!isfinite(mean) || !isfinite(std) || std < 0)
        return tti_fail(TUTTI_E_INVALID,
                        "normalise: mean and std must be finite and std > 0, got %g and %g", mean,
                        std);
    normalise *step = malloc(sizeof *step);
    if (!step) return tti_fail(TUTTI_E_NOMEM, "normalise: out of memory");
    step->base = (tti_transform){"normalise", normalise_infer, normalise_apply, normalise_destroy,
                                 normalise_table};
    step->n_elems = (size_t)tutti_shape_n_elems(shape);
    for (int i = 0; i < 256; i++)
        step->value[i] = (float)((i / 255.0 - mean) / (std > 0 ? std : 1.0));
    *out = &step->base;
    return TUTTI_OK;
}
