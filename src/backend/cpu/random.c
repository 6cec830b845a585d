/* random.c - dropout and its gradient: the same mask twice, from a counter-based generator.
 *
 * Element e of sample s is kept if draw (key, step, s*2^28 + e/4), lane e%4, is at least p; e
 * counts in N,C,H,W order whatever the layout.  Masks are drawn in blocks whose draws vectorize. */
#include "ops/random.h"
#include "backend/cpu/simd.h"
#include "base/philox.h"

enum { DRAWS = 64, BLOCK = 4 * DRAWS };

/* Tensor shards are cut from values in N,C,H,W order only. */
static bool can_run(const tti_node *node) {
    bool is_shard = tti_attr_has(node, "cut_dim") && tti_attr_int(node, "cut_dim") >= 0;
    return tti_all_f32(node) && tti_one_layout(node) && !(is_shard && tti_is_last(node->out[0]));
}

/* factor[lane] for n_draws draws from counter on: scale where kept, else 0.  Planes of one word of
 * the generator's state: the loops over draws are plain 32-bit arithmetic. */
static void draw_block(uint64_t key, uint64_t step, uint64_t counter, uint32_t limit, float scale,
                       float factor[BLOCK]) {
    uint32_t c0[DRAWS], c1[DRAWS], c2[DRAWS], c3[DRAWS];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (uint32_t i = 0; i < DRAWS; i++) {
        uint64_t c = counter + i;
        c0[i] = (uint32_t)c, c1[i] = (uint32_t)(c >> 32);
        c2[i] = (uint32_t)step, c3[i] = (uint32_t)(step >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < DRAWS; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            c1[i] = (uint32_t)p1;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c3[i] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < DRAWS; i++) {
        factor[4 * i] = (c0[i] >> 8) >= limit ? scale : 0.0f;
        factor[4 * i + 1] = (c1[i] >> 8) >= limit ? scale : 0.0f;
        factor[4 * i + 2] = (c2[i] >> 8) >= limit ? scale : 0.0f;
        factor[4 * i + 3] = (c3[i] >> 8) >= limit ? scale : 0.0f;
    }
}

typedef struct dropout {
    uint64_t key, step;
    uint32_t limit; /* of the upper 24 bits: keep from here on, the same as unit >= p */
    float scale;
} dropout;

static dropout read_dropout(const tti_kargs *a) {
    double p = tti_attr_float(a->node, "p");
    return (dropout){
        .key = tti_mix64(a->run->seed, (uint64_t)tti_attr_int(a->node, "key")),
        .step = a->run->step,
        .limit = (uint32_t)__builtin_ceil(p * 0x1p24),
        .scale = p < 1.0 ? (float)(1.0 / (1.0 - p)) : 0.0f,
    };
}

/* n elements of a sample in row-major order, from element `from` on. */
static void plain_run(const dropout *d, uint64_t sample, size_t from, const float *x, float *y,
                      size_t n) {
    float factor[BLOCK];
    for (size_t done = 0; done < n;) {
        size_t at = from + done, skip = at % 4, m = TTI_MIN((size_t)BLOCK - skip, n - done);
        draw_block(d->key, d->step, (sample << 28) + at / 4, d->limit, d->scale, factor);
        TTI_IVDEP
        for (size_t i = 0; i < m; i++) y[done + i] = x[done + i] * factor[skip + i];
        done += m;
    }
}

/* One sample, or the runs of it that a tensor shard has. */
static void plain_sample(const dropout *d, const tti_sample_runs *runs, uint64_t sample,
                         const float *x, float *y) {
    for (size_t r = 0; r < runs->n_runs; r++)
        plain_run(d, sample, runs->first + r * runs->step, x + r * runs->n_elems,
                  y + r * runs->n_elems, runs->n_elems);
}

/* One sample in H,W,C order: element i of the C,H,W order lies at (i % hw)*c + i/hw. */
static void last_sample(const dropout *d, uint64_t sample, const float *x, float *y, size_t c,
                        size_t hw) {
    float factor[BLOCK];
    for (size_t first = 0; first < c * hw; first += BLOCK) {
        size_t m = TTI_MIN((size_t)BLOCK, c * hw - first), pixel = first % hw, channel = first / hw;
        draw_block(d->key, d->step, (sample << 28) + first / 4, d->limit, d->scale, factor);
        for (size_t i = 0; i < m; i++) {
            y[pixel * c + channel] = x[pixel * c + channel] * factor[i];
            if (++pixel == hw) pixel = 0, channel++;
        }
    }
}

static tutti_status run_dropout(void *state, const tti_kargs *a) {
    const tutti_shape *shape = &a->node->out[0]->type.shape;
    dropout d = read_dropout(a);
    size_t n_samples = shape->n_dims ? (size_t)shape->dim[0] : 1;
    size_t n = n_samples ? tti_n_elems(a->node->out[0]) / n_samples : 0;
    bool last = tti_is_last(a->node->out[0]);
    tti_sample_runs runs = tti_dropout_runs(a->node);
    const float *x = a->in[0];
    float *y = a->out[0];
    (void)state;
    for (size_t s = 0; s < n_samples && n; s++, x += n, y += n) {
        if (last)
            last_sample(&d, a->run->sample0 + s, x, y, (size_t)shape->dim[1],
                        (size_t)(shape->dim[2] * shape->dim[3]));
        else
            plain_sample(&d, &runs, a->run->sample0 + s, x, y);
    }
    return TUTTI_OK;
}

/* ---- drop_path: one draw for each sample ---- */

static tutti_status path_run(void *state, const tti_kargs *a) {
    size_t n_samples = (size_t)a->node->out[0]->type.shape.dim[0];
    size_t n = n_samples ? tti_n_elems(a->node->out[0]) / n_samples : 0;
    dropout d = read_dropout(a);
    const float *x = a->in[0];
    float *y = a->out[0];
    (void)state;
    for (size_t s = 0; s < n_samples && n; s++, x += n, y += n) {
        tti_philox r = tti_philox_draw(d.key, d.step, (a->run->sample0 + s) << 28);
        float factor = (r.v[0] >> 8) >= d.limit ? d.scale : 0.0f;
        TTI_IVDEP
        for (size_t i = 0; i < n; i++) /* dropped: 0, but NaN stays */
            y[i] = factor == 0.0f ? x[i] - x[i] : x[i] * factor;
    }
    return TUTTI_OK;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_random)[];
const tti_kernel TTI_VARIANT(tti_kernels_random)[] = {
    {.op = "dropout", .name = TTI_ISA_TEXT, .can_run = can_run, .run = run_dropout},
    {.op = "dropout_grad", .name = TTI_ISA_TEXT, .can_run = can_run, .run = run_dropout},
    {.op = "drop_path", .name = TTI_ISA_TEXT, .can_run = can_run, .run = path_run},
    {.op = "drop_path_grad", .name = TTI_ISA_TEXT, .can_run = can_run, .run = path_run},
    {0},
};
