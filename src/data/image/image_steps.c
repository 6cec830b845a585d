/* image_steps.c - the steps of a chain that work on pixels of a fixed size: shift, colours, and
 * finally the conversion to normalised planes of floats.
 *
 * Colours follow PIL to the bit: what torchvision's ColorJitter does to the images of an
 * ImageFolder.  Cutout is part of the last step, because a separate step would copy. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/philox.h"
#include "data/image/augment.h"
#include "data/image/image_planes.h"

typedef struct step {
    tti_transform base;
    int64_t size;
    int64_t pad;              /* pad_crop  */
    double strength;          /* jitter    */
    int64_t cutout;           /* to_float  */
    tti_plane_table table[3]; /* to_float  */
} step;

static void destroy(tti_transform *self) { free(self); }

static tutti_status infer_same(const tti_transform *self, const tutti_type *in, tutti_type *out) {
    const step *s = (const step *)self;
    const tutti_shape *d = &in->shape;
    bool fits = in->dtype == TUTTI_U8 && d->n_dims == 3 && d->dim[0] == s->size &&
                d->dim[1] == s->size && d->dim[2] == 3;
    if (!fits)
        return tti_fail(TUTTI_E_INVALID, "%s: takes u8 images [%lld,%lld,3]", self->name,
                        (long long)s->size, (long long)s->size);
    *out = *in;
    return TUTTI_OK;
}

static tutti_status create(const tti_transform *base, int64_t size, step **out) {
    *out = NULL;
    TTI_ASSERT(size >= 1);
    step *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", base->name);
    s->base = *base;
    s->size = size;
    *out = s;
    return TUTTI_OK;
}

static tti_philox draw(const char *name, const tti_sample_key *key) {
    return tti_philox_draw(tti_mix64(key->seed, tti_hash_name(name)), key->epoch, key->index);
}

static int64_t draw_below(uint32_t bits, int64_t n) {
    return (int64_t)(((uint64_t)bits * (uint64_t)n) >> 32);
}

/* ---- pad_crop ---- */

void tti_random_shift(int64_t pad, const tti_sample_key *key, int64_t *dy, int64_t *dx) {
    tti_philox d = draw("pad_crop", key);
    *dy = draw_below(d.v[0], 2 * pad + 1) - pad;
    *dx = draw_below(d.v[1], 2 * pad + 1) - pad;
}

static void pad_crop_apply(const tti_transform *self, const tti_sample_key *key, const void *in,
                           void *out) {
    const step *s = (const step *)self;
    int64_t dy, dx;
    tti_random_shift(s->pad, key, &dy, &dx);
    int64_t n = s->size, first = TTI_MIN(TTI_MAX(-dx, 0), n),
            last = TTI_MAX(TTI_MIN(n - dx, n), first);
    for (int64_t y = 0; y < n; y++) {
        uint8_t *row = (uint8_t *)out + y * n * 3;
        memset(row, 0, (size_t)n * 3);
        if (y + dy < 0 || y + dy >= n || first == last) continue;
        memcpy(row + first * 3, (const uint8_t *)in + ((y + dy) * n + first + dx) * 3,
               (size_t)(last - first) * 3);
    }
}

tutti_status tti_pad_crop_create(int64_t size, int64_t pad, tti_transform **out) {
    *out = NULL;
    step *s;
    TTI_TRY(
        create(&(tti_transform){"pad_crop", infer_same, pad_crop_apply, destroy, NULL}, size, &s));
    s->pad = pad;
    *out = &s->base;
    return TUTTI_OK;
}

/* ---- colour_jitter ---- */

static uint8_t grey_of(const uint8_t *rgb) {
    return (uint8_t)((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

/* from + factor * (to - from), cut off, not rounded: PIL's blend. */
static uint8_t blend(uint8_t from, uint8_t to, float factor) {
    float x = (float)from + factor * (float)(to - from);
    return x <= 0 ? 0 : x >= 255 ? 255 : (uint8_t)x;
}

static uint8_t mean_grey(const uint8_t *rgb, int64_t n_pixels) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < n_pixels; i++) sum += grey_of(rgb + 3 * i);
    return (uint8_t)((double)sum / (double)n_pixels + 0.5);
}

/* Away from (or towards) one grey level: brightness with 0, contrast with the mean. */
static void blend_level(uint8_t *rgb, int64_t n_pixels, uint8_t level, float factor) {
    uint8_t table[256];
    for (int i = 0; i < 256; i++) table[i] = blend(level, (uint8_t)i, factor);
    for (int64_t i = 0; i < 3 * n_pixels; i++) rgb[i] = table[rgb[i]];
}

static void blend_grey(uint8_t *rgb, int64_t n_pixels, float factor) {
    for (int64_t i = 0; i < n_pixels; i++, rgb += 3) {
        uint8_t grey = grey_of(rgb);
        for (int c = 0; c < 3; c++) rgb[c] = blend(grey, rgb[c], factor);
    }
}

static void jitter_apply(const tti_transform *self, const tti_sample_key *key, const void *in,
                         void *out) {
    static const uint8_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const step *s = (const step *)self;
    int64_t n = s->size * s->size;
    memcpy(out, in, (size_t)n * 3);
    tti_philox d = draw("colour_jitter", key);
    const uint8_t *order = orders[draw_below(d.v[3], 6)];
    for (int i = 0; i < 3; i++) {
        double low = 1 - s->strength;
        float factor = (float)(low + 2 * s->strength * (double)tti_philox_unit(d.v[order[i]]));
        if (order[i] == 0) blend_level(out, n, 0, factor);
        if (order[i] == 1) blend_level(out, n, mean_grey(out, n), factor);
        if (order[i] == 2) blend_grey(out, n, factor);
    }
}

tutti_status tti_colour_jitter_create(int64_t size, double strength, tti_transform **out) {
    *out = NULL;
    step *s;
    TTI_TRY(create(&(tti_transform){"colour_jitter", infer_same, jitter_apply, destroy, NULL}, size,
                   &s));
    s->strength = strength;
    *out = &s->base;
    return TUTTI_OK;
}

/* ---- to_float ---- */

static tutti_status infer_float(const tti_transform *self, const tutti_type *in, tutti_type *out) {
    tutti_type same;
    TTI_TRY(infer_same(self, in, &same));
    const step *s = (const step *)self;
    *out = (tutti_type){TUTTI_F32, TUTTI_SHAPE(3, s->size, s->size)};
    return TUTTI_OK;
}

static void cut_out(const step *s, const tti_sample_key *key, float *x) {
    tti_philox d = draw("cutout", key);
    int64_t n = s->size, top = draw_below(d.v[0], n) - s->cutout / 2;
    int64_t left = draw_below(d.v[1], n) - s->cutout / 2;
    int64_t bottom = TTI_MIN(top + s->cutout, n), right = TTI_MIN(left + s->cutout, n);
    top = TTI_MAX(top, 0);
    left = TTI_MAX(left, 0);
    for (int c = 0; c < 3; c++)
        for (int64_t y = top; y < bottom; y++)
            for (int64_t i = left; i < right; i++) x[(c * n + y) * n + i] = 0.0f;
}

static void to_float_apply(const tti_transform *self, const tti_sample_key *key, const void *in,
                           void *out) {
    const step *s = (const step *)self;
    tti_to_planes(in, s->size * s->size, s->table, out);
    if (s->cutout > 0) cut_out(s, key, out);
}

static bool to_float_table(const tti_transform *self, tti_pixel_table *out) {
    const step *s = (const step *)self;
    out->n_channels = 3;
    for (int c = 0; c < 3; c++) memcpy(out->value[c], s->table[c].value, sizeof s->table[c].value);
    return s->cutout == 0;
}

tutti_status tti_to_float_create(int64_t size, const double mean[3], const double std[3],
                                 int64_t cutout, tti_transform **out) {
    *out = NULL;
    for (int c = 0; c < 3; c++)
        if (!isfinite(mean[c]) || !isfinite(std[c]) || std[c] <= 0)
            return tti_fail(TUTTI_E_INVALID,
                            "data: channel %d: mean %g and std %g; both must be finite and std > 0",
                            c, mean[c], std[c]);
    step *s;
    TTI_TRY(
        create(&(tti_transform){"to_float", infer_float, to_float_apply, destroy, to_float_table},
               size, &s));
    s->cutout = cutout;
    for (int c = 0; c < 3; c++) {
        for (int i = 0; i < 256; i++)
            s->table[c].value[i] = (float)((i / 255.0 - mean[c]) / std[c]);
        tti_plane_table_split(&s->table[c]);
    }
    *out = &s->base;
    return TUTTI_OK;
}
