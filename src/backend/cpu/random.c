/* random.c - dropout and its gradient: the same mask twice, from a counter-based generator; noise,
 * and the places of rows in the batch.
 *
 * Element e of sample s is kept if draw (key, step, s*2^28 + e/4), lane e%4, is at least p; e
 * counts in N,C,H,W order whatever the layout.  Masks are drawn in blocks whose draws vectorize. */
#include "ops/random.h"
#include "backend/cpu/simd.h"
#include "base/philox.h"
#include "ops/draw.h"

enum { DRAWS = 64, BLOCK = 4 * DRAWS };

/* Tensor shards are cut from values in N,C,H,W order only. */
static bool can_run(const tti_node *node) {
    bool is_shard = tti_attr_has(node, "cut_dim") && tti_attr_int(node, "cut_dim") >= 0;
    return tti_all_f32(node) && tti_one_layout(node) && !(is_shard && tti_is_last(node->out[0]));
}

/* The words of DRAWS draws, from counter on in steps.  Planes of one word of the generator's state:
 * the loops over draws are plain 32-bit arithmetic. */
static void draw_words(uint64_t key, uint64_t step, uint64_t counter, uint64_t apart,
                       uint32_t word[4][DRAWS]) {
    uint32_t *c0 = word[0], *c1 = word[1], *c2 = word[2], *c3 = word[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (uint32_t i = 0; i < DRAWS; i++) {
        uint64_t c = counter + i * apart;
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
}

/* factor[lane]: scale where kept, else 0. */
static void draw_block(uint64_t key, uint64_t step, uint64_t counter, uint32_t limit, float scale,
                       float factor[BLOCK]) {
    uint32_t word[4][DRAWS];
    draw_words(key, step, counter, 1, word);
    for (int i = 0; i < DRAWS; i++)
        for (int lane = 0; lane < 4; lane++)
            factor[4 * i + lane] = (word[lane][i] >> 8) >= limit ? scale : 0.0f;
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

/* ---- noise: the four words of a draw are four elements; two of them make two normal ones ---- */

static bool noise_can_run(const tti_node *node) { return tti_all_f32(node) && tti_all_plain(node); }

static void noise_block(const uint32_t word[4][DRAWS], bool normal, size_t n, float *y) {
    float block[BLOCK];
    size_t n_draws = (n + 3) / 4;
    for (size_t i = 0; !normal && i < n_draws; i++)
        for (int lane = 0; lane < 4; lane++)
            block[4 * i + (size_t)lane] = tti_philox_unit(word[lane][i]);
    for (int lane = 0; normal && lane < 4; lane += 2)
        for (size_t i = 0; i < n_draws; i++) {
            double even, odd;
            tti_draw_normals(word[lane][i], word[lane + 1][i], &even, &odd);
            block[4 * i + (size_t)lane] = (float)even;
            block[4 * i + (size_t)lane + 1] = (float)odd;
        }
    memcpy(y, block, n * sizeof *y);
}

/* Samples of up to four elements: a draw for each. */
static void noise_of_few(const tti_kargs *a, uint64_t key, bool normal, size_t n_samples,
                         size_t n) {
    float *y = a->out[0], block[BLOCK];
    uint32_t word[4][DRAWS];
    for (size_t s = 0; s < n_samples; s += DRAWS) {
        size_t n_now = TTI_MIN((size_t)DRAWS, n_samples - s);
        draw_words(key, a->run->step, (a->run->sample0 + s) << 28, (uint64_t)1 << 28, word);
        noise_block(word, normal, 4 * n_now, block);
        for (size_t i = 0; i < n_now; i++)
            for (size_t e = 0; e < n; e++) *y++ = block[4 * i + e];
    }
}

static tutti_status noise_run(void *state, const tti_kargs *a) {
    size_t n_samples = (size_t)a->node->out[0]->type.shape.dim[0];
    size_t n = n_samples ? tti_n_elems(a->node->out[0]) / n_samples : 0;
    uint64_t key = tti_mix64(a->run->seed, (uint64_t)tti_attr_int(a->node, "key"));
    bool normal = tti_attr_int(a->node, "normal") != 0;
    float *y = a->out[0];
    uint32_t word[4][DRAWS];
    (void)state;
    if (n <= 4) {
        noise_of_few(a, key, normal, n_samples, n);
        return TUTTI_OK;
    }
    for (size_t s = 0; s < n_samples; s++, y += n)
        for (size_t at = 0; at < n; at += BLOCK) {
            uint64_t counter = ((a->run->sample0 + s) << 28) + at / 4;
            draw_words(key, a->run->step, counter, 1, word);
            noise_block(word, normal, TTI_MIN((size_t)BLOCK, n - at), y + at);
        }
    return TUTTI_OK;
}

/* ---- batch_rows ---- */

static bool rows_can_run(const tti_node *node) { return tti_all_plain(node); }

static tutti_status rows_run(void *state, const tti_kargs *a) {
    size_t n = tti_n_elems(a->node->in[0]);
    const int32_t *x = a->in[0];
    int32_t *y = a->out[0];
    (void)state;
    for (size_t i = 0; i < n; i++) y[i] = x[i] == -1 ? -1 : (int32_t)(a->run->sample0 + i);
    return TUTTI_OK;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_random)[];
const tti_kernel TTI_VARIANT(tti_kernels_random)[] = {
    {.op = "dropout", .name = TTI_ISA_TEXT, .can_run = can_run, .run = run_dropout},
    {.op = "dropout_grad", .name = TTI_ISA_TEXT, .can_run = can_run, .run = run_dropout},
    {.op = "drop_path", .name = TTI_ISA_TEXT, .can_run = can_run, .run = path_run},
    {.op = "noise", .name = TTI_ISA_TEXT, .can_run = noise_can_run, .run = noise_run},
    {.op = "batch_rows", .name = TTI_ISA_TEXT, .can_run = rows_can_run, .run = rows_run},
    {.op = "drop_path_grad", .name = TTI_ISA_TEXT, .can_run = can_run, .run = path_run},
    {0},
};
