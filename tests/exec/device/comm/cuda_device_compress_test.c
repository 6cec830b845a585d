/* cuda_device_compress_test.c - one GPU's gradients against what the host makes of them.
 *
 * PowerSGD near exec/worker/compress_math.c: matrices narrower and longer than a tile, of zeros and
 * of low rank, and what travels whole; the same bits again.  Top-k as exec/worker/compress_math.c
 * to the bit: many equal ones, zeros, NaN, more than a tile.  Exit code 77 without a device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpus.h"
#include "base/philox.h"
#include "exec/worker/compress.h"
#include "t.h"

enum { N_ROWS = 48, STEP = 7 };

typedef struct shape {
    uint32_t rows, cols;
    enum { ANY, WHOLE, ZEROS, RANK_ONE } kind;
} shape;

static const shape shapes[] = {{37, 53, ANY}, {1, 300, WHOLE}, {300, 777, ANY},    {2, 900, ANY},
                               {700, 2, ANY}, {64, 40, ZEROS}, {90, 260, RANK_ONE}};

enum { N_SLOTS = TTI_COUNT(shapes) };

/* Host copies of what the device has; two buckets, the second one from slot 3 on. */
typedef struct bench {
    tti_powersgd_slot slots[N_SLOTS];
    size_t n_grads, n_message, n_scratch;
    float *grads, *residual, *message;
    tti_step_args args;
} bench;

static size_t take(size_t *n, size_t n_elems) {
    size_t at = *n;
    *n += (n_elems + 3) & ~(size_t)3;
    return at;
}

static float draw(uint64_t key, size_t i) {
    return 2 * tti_philox_unit(tti_philox_draw(key, 0, i).v[0]) - 1;
}

static float *floats(size_t n) {
    float *memory = calloc(n + 1, sizeof *memory);
    assert_non_null(memory);
    return memory;
}

static float grad_of(const shape *s, size_t i) {
    if (s->kind == ZEROS) return 0;
    if (s->kind == RANK_ONE) return draw(5, i / s->cols) * draw(6, i % s->cols);
    return draw(s->rows, i);
}

static void bench_open(bench *b, uint32_t r) {
    *b = (bench){.args = {.step = STEP, .loss_scale = 2, .inv_rows = 1.0f / N_ROWS}};
    for (size_t i = 0; i < N_SLOTS; i++) {
        const shape *s = &shapes[i];
        size_t n = (size_t)s->rows * s->cols;
        uint32_t own = s->kind == WHOLE ? 0 : r;
        tti_powersgd_slot *slot = &b->slots[i];
        *slot = (tti_powersgd_slot){.key = 100 + i, .rows = s->rows, .cols = s->cols, .r = own};
        slot->grads = take(&b->n_grads, n);
        slot->left = take(&b->n_message, own ? (size_t)own * s->rows : n);
        slot->right = take(&b->n_message, (size_t)own * s->cols);
        slot->scratch = take(&b->n_scratch, tti_powersgd_scratch(slot));
    }
    b->grads = floats(b->n_grads);
    b->residual = floats(b->n_grads);
    b->message = floats(b->n_message);
    for (size_t i = 0; i < N_SLOTS; i++)
        for (size_t e = 0; e < (size_t)shapes[i].rows * shapes[i].cols; e++) {
            b->grads[b->slots[i].grads + e] = 10 * grad_of(&shapes[i], e);
            if (shapes[i].kind == ANY) b->residual[b->slots[i].grads + e] = draw(9, e) / N_ROWS;
        }
}

static void bench_close(bench *b) {
    free(b->grads);
    free(b->residual);
    free(b->message);
}

static float *on_device(const float *from, size_t n) {
    float *memory = cuda->alloc(n * sizeof *memory + 64);
    assert_non_null(memory);
    if (from) T_OK(cuda->device->queues.copy(TTI_QUEUE_COMPUTE, memory, from, n * sizeof *memory));
    T_OK(cuda->device->queues.sync());
    return memory;
}

static void back(float *to, const float *from, size_t n) {
    T_OK(cuda->device->queues.copy(TTI_QUEUE_COMPUTE, to, from, n * sizeof *to));
}

/* A step of a worker that has no others: messages are their own sums. */
static void run(bench *b) {
    const tti_device_ops *ops = cuda->device;
    static const int first[] = {0, 3, N_SLOTS};
    float *grads = on_device(b->grads, b->n_grads), *residual = on_device(b->residual, b->n_grads);
    float *message = on_device(NULL, b->n_message), *own = on_device(NULL, b->n_message);
    float *scratch = on_device(NULL, b->n_scratch),
          *args = on_device((float *)&b->args, sizeof b->args / 4);
    void *powersgd;
    T_OK(ops->powersgd.create(
        &(tti_powersgd_desc){.slots = b->slots,
                             .first = first,
                             .n_buckets = 2,
                             .grads = grads,
                             .residual = residual,
                             .message = message,
                             .own = own,
                             .scratch = scratch,
                             .n_message = b->n_message,
                             .args = (const tti_step_args *)(const void *)args},
        &powersgd));
    for (int bucket = 0; bucket < 2; bucket++) {
        T_OK(ops->powersgd.left(powersgd, bucket));
        T_OK(ops->powersgd.right(powersgd, bucket));
        T_OK(ops->powersgd.end(powersgd, bucket));
    }
    T_OK(ops->queues.sync());
    back(b->grads, grads, b->n_grads);
    back(b->residual, residual, b->n_grads);
    back(b->message, message, b->n_message);
    T_OK(ops->queues.sync());
    ops->powersgd.destroy(powersgd);
    float *all[] = {grads, residual, message, own, scratch, args};
    for (size_t i = 0; i < TTI_COUNT(all); i++) cuda->release(all[i], 0);
}

static void expect_near(const float *got, const float *want, size_t n, double tolerance) {
    double most = 1;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs((double)want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance * most))
            fail_msg("element %zu of %zu: %g, want %g", i, n, (double)got[i], (double)want[i]);
}

/* Against the host's P, Q and P Q^T of the same matrix m. */
static void expect_as_the_host(const bench *b, size_t i, float *m) {
    const tti_powersgd_slot *s = &b->slots[i];
    tti_low_rank of = {s->rows, s->cols, (int)s->r};
    size_t n_left = (size_t)s->r * s->rows, n_right = (size_t)s->r * s->cols;
    float *p = floats(n_left), *q = floats(n_right);
    for (uint32_t k = 0; k < s->r; k++)
        for (uint32_t e = 0; e < s->cols; e++) {
            uint64_t hi = (uint64_t)STEP << 16 | k;
            q[k * s->cols + e] = 2 * tti_philox_unit(tti_philox_draw(s->key, hi, e).v[0]) - 1;
        }
    tti_low_rank_left(&of, m, q, p);
    tti_low_rank_orthonormalize(p, (int)s->r, s->rows);
    tti_low_rank_right(&of, m, p, q);
    expect_near(b->message + s->left, p, n_left, 1e-4);
    expect_near(b->message + s->right, q, n_right, 1e-4);
    tti_low_rank_product(&of, p, q, m);
    expect_near(b->grads + s->grads, m, (size_t)s->rows * s->cols, 1e-4);
    free(p);
    free(q);
}

static void check(uint32_t r) {
    bench before, b, again;
    bench_open(&before, r);
    bench_open(&b, r);
    bench_open(&again, r);
    run(&b);
    run(&again);
    const float unit = N_ROWS * b.args.loss_scale;
    for (size_t i = 0; i < N_SLOTS; i++) {
        size_t n = (size_t)shapes[i].rows * shapes[i].cols, at = b.slots[i].grads;
        float *m = floats(n), *kept = floats(n);
        for (size_t e = 0; e < n; e++) {
            m[e] = before.grads[at + e] + before.residual[at + e] * unit;
            kept[e] = b.grads[at + e] + b.residual[at + e] * unit; /* nothing is lost */
        }
        expect_near(kept, m, n, 1e-5);
        if (shapes[i].kind == WHOLE)
            assert_memory_equal(b.grads + at, before.grads + at, n * sizeof *m);
        if (shapes[i].kind == RANK_ONE) expect_near(b.grads + at, m, n, 1e-4);
        if (shapes[i].kind == ANY && r <= TTI_MIN(shapes[i].rows, shapes[i].cols))
            expect_as_the_host(&b, i, m);
        free(m);
        free(kept);
    }
    assert_memory_equal(b.grads, again.grads, b.n_grads * sizeof *b.grads);
    assert_memory_equal(b.residual, again.residual, b.n_grads * sizeof *b.grads);
    assert_memory_equal(b.message, again.message, b.n_message * sizeof *b.message);
    bench_close(&before);
    bench_close(&b);
    bench_close(&again);
}

T_CASE(matrices_become_what_the_host_makes_of_them) {
    T_UNUSED;
    for (uint32_t r = 1; r <= 6; r++) check(r);
}

/* ---- top-k ---- */

typedef struct heap {
    uint32_t n, k, levels; /* levels: different magnitudes, at most; 0: many */
} heap;

static const heap heaps[] = {{7, 1, 0},        {8192, 100, 0}, {8193, 4000, 3}, {100000, 1000, 0},
                             {70001, 9000, 5}, {300, 300, 2},  {40000, 50, 1}};

enum { N_HEAPS = TTI_COUNT(heaps), N_RANKS = 2 };

/* Sixteenths, so that nothing is rounded when residuals are added. */
static float element_of(const heap *h, size_t i) {
    uint32_t bits = tti_philox_draw(h->n, 1, i).v[0], levels = h->levels ? h->levels : 1 << 15;
    if (h->levels == 1) return 0;
    if (h->n == 8192 && i % 2500 == 7) return i / 2500 % 2 ? NAN : -INFINITY;
    return (float)((int)(bits % levels) * (bits >> 31 ? 1 : -1)) / 16;
}

typedef struct pick_bench {
    tti_topk_slot slots[N_HEAPS];
    size_t n_grads, pairs[3];
    float *grads, *residual;
    tti_topk_pair *own, *all; /* all: of the bucket that was added last */
} pick_bench;

static const int first_heap[] = {0, 3, N_HEAPS};

static void pick_open(pick_bench *b) {
    size_t n_pairs = 0;
    *b = (pick_bench){.n_grads = 0};
    for (int i = 0; i < N_HEAPS; i++) {
        if (i == first_heap[1]) n_pairs = b->pairs[1] = (n_pairs + 1) & ~(size_t)1;
        b->slots[i] = (tti_topk_slot){.grads = take(&b->n_grads, heaps[i].n),
                                      .pairs = n_pairs,
                                      .n = heaps[i].n,
                                      .k = heaps[i].k};
        n_pairs += heaps[i].k;
    }
    b->pairs[2] = (n_pairs + 1) & ~(size_t)1;
    b->grads = floats(b->n_grads);
    b->residual = floats(b->n_grads);
    b->own = (tti_topk_pair *)(void *)floats(2 * b->pairs[2]);
    b->all = (tti_topk_pair *)(void *)floats(2 * N_RANKS * b->pairs[2]);
    for (int i = 0; i < N_HEAPS; i++)
        for (size_t e = 0; e < heaps[i].n; e++) {
            b->grads[b->slots[i].grads + e] = element_of(&heaps[i], e);
            b->residual[b->slots[i].grads + e] = heaps[i].levels ? 0 : (float)(e % 5) / 1024;
        }
}

static void pick_close(pick_bench *b) {
    free(b->grads);
    free(b->residual);
    free(b->own);
    free(b->all);
}

/* Another rank that has chosen the same elements, twice as large. */
static void fill_all(pick_bench *b, int bucket) {
    size_t n = b->pairs[bucket + 1] - b->pairs[bucket];
    memcpy(b->all, b->own + b->pairs[bucket], n * sizeof *b->all);
    for (size_t i = 0; i < n; i++)
        b->all[n + i] = (tti_topk_pair){b->all[i].index, 2 * b->all[i].value};
}

static void pick_run(pick_bench *b) {
    const tti_device_ops *ops = cuda->device;
    tti_step_args step = {.loss_scale = 2, .inv_rows = 1.0f / N_ROWS};
    float *grads = on_device(b->grads, b->n_grads), *residual = on_device(b->residual, b->n_grads);
    float *args = on_device((float *)&step, sizeof step / 4);
    float *own = on_device(NULL, 2 * b->pairs[2]), *all = on_device(NULL, 4 * b->pairs[2]);
    void *topk;
    T_OK(ops->topk.create(&(tti_topk_desc){.slots = b->slots,
                                           .first = first_heap,
                                           .pairs = b->pairs,
                                           .n_buckets = 2,
                                           .n_ranks = N_RANKS,
                                           .grads = grads,
                                           .residual = residual,
                                           .own = (tti_topk_pair *)(void *)own,
                                           .all = (tti_topk_pair *)(void *)all,
                                           .args = (const tti_step_args *)(const void *)args},
                          &topk));
    for (int bucket = 0; bucket < 2; bucket++) {
        T_OK(ops->topk.choose(topk, bucket));
        T_OK(ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM));
        back((float *)(void *)b->own, own, 2 * b->pairs[2]);
        T_OK(ops->queues.sync());
        fill_all(b, bucket);
        T_OK(
            ops->queues.copy(TTI_QUEUE_COMM, all, b->all,
                             N_RANKS * (b->pairs[bucket + 1] - b->pairs[bucket]) * sizeof *b->all));
        T_OK(ops->topk.add(topk, bucket));
        T_OK(ops->queues.sync());
    }
    back(b->grads, grads, b->n_grads);
    back(b->residual, residual, b->n_grads);
    T_OK(ops->queues.sync());
    ops->topk.destroy(topk);
    float *memory[] = {grads, residual, args, own, all};
    for (size_t i = 0; i < TTI_COUNT(memory); i++) cuda->release(memory[i], 0);
}

/* One NaN is as good as another. */
static bool is_same(float a, float b) { return a == b || (isnan(a) && isnan(b)); }

static void expect_topk(const pick_bench *b, const pick_bench *before, int i) {
    const tti_topk_slot *s = &b->slots[i];
    const float unit = N_ROWS * 2, inv = 1 / unit;
    uint32_t *counts = calloc(TTI_TOPK_COUNTS, sizeof *counts),
             *index = calloc(s->k, sizeof *index);
    float *m = floats(s->n), *sum = floats(s->n);
    assert_true(counts && index);
    for (uint32_t e = 0; e < s->n; e++)
        m[e] = before->grads[s->grads + e] + before->residual[s->grads + e] * unit;
    tti_topk_select(m, s->n, s->k, counts, index);
    for (uint32_t k = 0; k < s->k; k++) {
        const tti_topk_pair *pair = &b->own[s->pairs + k];
        if (pair->index != index[k] || !is_same(pair->value, m[index[k]]))
            fail_msg("slot %d, pair %u: element %u, %g; want %u, %g", i, k, pair->index,
                     (double)pair->value, index[k], (double)m[index[k]]);
        sum[index[k]] = m[index[k]] + 2 * m[index[k]];
        m[index[k]] = 0;
    }
    for (uint32_t e = 0; e < s->n; e++) {
        float got = b->grads[s->grads + e], left = b->residual[s->grads + e];
        if (!is_same(got, sum[e]) || left != m[e] * inv)
            fail_msg("slot %d, element %u: sum %g of %g, residual %g of %g", i, e, (double)got,
                     (double)sum[e], (double)left, (double)(m[e] * inv));
    }
    free(counts);
    free(index);
    free(m);
    free(sum);
}

T_CASE(the_largest_are_those_of_the_host) {
    T_UNUSED;
    pick_bench before, b;
    pick_open(&before);
    pick_open(&b);
    pick_run(&b);
    for (int i = 0; i < N_HEAPS; i++) expect_topk(&b, &before, i);
    pick_close(&before);
    pick_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_become_what_the_host_makes_of_them),
        cmocka_unit_test(the_largest_are_those_of_the_host)};
    int code = find_gpus(1);
    if (code) return code;
    if (cuda->device->open(&(tti_device_desc){.index = 0}) != TUTTI_OK) return 2;
    int n = cmocka_run_group_tests(tests, NULL, NULL);
    cuda->device->close();
    return n ? 1 : 0;
}
