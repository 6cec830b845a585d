/* reduce_plan_test.c - plans of reductions: every element of x goes into its result once, loads
 * stay aligned, threads and parts fit what the kernels expect.  No device is needed. */
#include <stdlib.h>

#include "backend/cuda/ops/reduce.h"
#include "base/error.h"
#include "t.h"

enum { MAX_ELEMS = 1 << 20, N_RANDOM = 400, BLOCKS_OF_A_DEVICE = 528 };

/* A dense x with dim[n_dims], of which those in the bit mask are folded. */
typedef struct row {
    int n_dims;
    uint64_t dim[4];
    unsigned folded;
} row;

static tti_nest nest_of(const row *r) {
    tti_nest nest = {.n_dims = r->n_dims, .n_operands = 2};
    uint64_t x = 1, y = 1;
    for (int d = r->n_dims - 1; d >= 0; d--) {
        bool folded = r->folded >> d & 1;
        nest.dim[d] = r->dim[d];
        nest.stride[0][d] = x;
        nest.stride[1][d] = folded ? 0 : y;
        x *= r->dim[d];
        y *= folded ? 1 : r->dim[d];
    }
    tti_cuda_nest_tidy(&nest);
    return nest;
}

static uint64_t offset(const tti_nest *nest, int operand, uint64_t i) {
    uint64_t at = 0;
    for (int d = nest->n_dims - 1; d >= 0; d--) {
        at += i % nest->dim[d] * nest->stride[operand][d];
        i /= nest->dim[d];
    }
    return at;
}

/* Result of element i of x, by plain indexing. */
static uint64_t result_of(const row *r, uint64_t i) {
    uint64_t index[4], y = 0;
    for (int d = r->n_dims - 1; d >= 0; d--) {
        index[d] = i % r->dim[d];
        i /= r->dim[d];
    }
    for (int d = 0; d < r->n_dims; d++)
        if (!(r->folded >> d & 1)) y = y * r->dim[d] + index[d];
    return y;
}

/* The two nests visit each element of x once, for the result that it belongs to. */
static void check_cover(const row *r, const tti_reduce_plan *p) {
    static unsigned char seen[MAX_ELEMS];
    uint64_t n = 1;
    for (int d = 0; d < r->n_dims; d++) n *= r->dim[d];
    assert_true(n <= MAX_ELEMS);
    T_EQ(p->n_kept * p->n_folded, n);
    memset(seen, 0, n);
    for (uint64_t k = 0; k < p->n_kept; k++)
        for (uint64_t f = 0; f < p->n_folded; f++) {
            uint64_t at = offset(&p->kept, 0, k) + offset(&p->folded, 0, f);
            assert_true(at < n && !seen[at]++);
            T_EQ(offset(&p->kept, 1, k), result_of(r, at));
        }
}

/* A load is width elements side by side, at a multiple of width. */
static void check_width(const tti_reduce_plan *p, int of_16_bytes) {
    if (p->width == 1) return;
    T_EQ(p->width, of_16_bytes);
    uint64_t v = (uint64_t)p->width;
    const tti_nest *inner = p->by_columns ? &p->kept : &p->folded;
    const tti_nest *other = p->by_columns ? &p->folded : &p->kept;
    T_EQ(inner->stride[0][inner->n_dims - 1], 1);
    T_EQ(inner->dim[inner->n_dims - 1] % v, 0);
    for (int d = 0; d < inner->n_dims - 1; d++) T_EQ(inner->stride[0][d] % v, 0);
    for (int d = 0; d < other->n_dims; d++)
        if (other->dim[d] > 1) T_EQ(other->stride[0][d] % v, 0);
}

static bool is_power(int n) { return n > 0 && (n & (n - 1)) == 0; }

static void check_threads(const tti_reduce_plan *p) {
    if (p->by_columns) {
        assert_true(is_power(p->n_across) && is_power(p->n_down));
        assert_true(p->n_across * p->n_down <= 256);
    } else {
        assert_true(is_power(p->n_lanes) && (p->n_lanes <= 32 || p->n_lanes == 256));
    }
}

/* Parts follow each other, none is empty, and no more than keep a device busy. */
static void check_parts(const tti_reduce_plan *p, size_t acc_bytes) {
    uint64_t n = p->by_columns ? p->n_folded : p->n_folded / (uint64_t)p->width;
    assert_true(p->n_splits >= 1);
    if (n > 0) {
        assert_true((p->n_splits - 1) * p->chunk < n);
        assert_true(p->n_splits * p->chunk >= n);
    }
    assert_true(p->n_splits <= BLOCKS_OF_A_DEVICE);
    size_t want = p->n_splits > 1 ? (size_t)(p->n_splits * p->n_kept) * acc_bytes : 0;
    T_EQ(tti_cuda_reduce_scratch(p), want);
}

static tti_reduce_plan check(const row *r, tutti_dtype dtype) {
    tti_nest nest = nest_of(r);
    tti_reduce_plan p;
    tti_cuda_reduce_make(TTI_FOLD_SUM, dtype, &nest, &p);
    T_EQ(p.divisor, 1);
    T_EQ(p.y_dtype, dtype);
    check_cover(r, &p);
    if (p.n_kept == 0) return p;
    check_width(&p, dtype == TUTTI_F64 ? 1 : dtype == TUTTI_F32 ? 4 : 8);
    check_threads(&p);
    check_parts(&p, dtype == TUTTI_F64 ? 8 : 4);
    return p;
}

T_CASE(known_reductions) {
    T_UNUSED;
    tti_reduce_plan p = check(&(row){2, {1024, 768}, 2}, TUTTI_F32); /* rows */
    assert_true(!p.by_columns && p.width == 4 && p.n_splits == 1);
    p = check(&(row){2, {1024, 768}, 1}, TUTTI_BF16); /* columns: a bias gradient */
    assert_true(p.by_columns && p.width == 8 && p.n_splits > 1);
    p = check(&(row){1, {1 << 20}, 1}, TUTTI_F32); /* all of it: many blocks for one result */
    assert_true(!p.by_columns && p.n_lanes == 256 && p.n_splits > 100 && p.n_kept == 1);
    p = check(&(row){2, {64, 767}, 2}, TUTTI_F32); /* rows that begin anywhere */
    T_EQ(p.width, 1);
    p = check(&(row){3, {8, 16, 1000}, 5}, TUTTI_F32); /* channels of N,C,HW */
    T_EQ(p.n_kept, 16);
    p = check(&(row){2, {8192, 3}, 1}, TUTTI_F32); /* few columns, long */
    assert_true(p.n_splits > 1);
}

T_CASE(empty_values) {
    T_UNUSED;
    tti_reduce_plan p = check(&(row){2, {0, 5}, 2}, TUTTI_F32); /* no results */
    T_EQ(p.n_kept, 0);
    p = check(&(row){2, {5, 0}, 2}, TUTTI_F32); /* five sums of nothing */
    T_EQ(p.n_kept, 5);
    T_EQ(p.n_folded, 0);
    p = check(&(row){2, {0, 5}, 1}, TUTTI_F32);
    T_EQ(p.n_kept, 5);
    T_EQ(p.n_folded, 0);
    T_EQ(p.n_splits, 1);
}

/* Counts compare element by element. */
T_CASE(counts_load_singly) {
    T_UNUSED;
    tti_nest nest = nest_of(&(row){2, {64, 64}, 2});
    tti_reduce_plan p;
    tti_cuda_reduce_make(TTI_FOLD_COUNT, TUTTI_F32, &nest, &p);
    T_EQ(p.width, 1);
}

T_CASE(any_shape) {
    T_UNUSED;
    static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F64};
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 16, 24, 31, 32, 33, 64, 96};
    uint32_t x = 12345;
    for (int i = 0; i < N_RANDOM; i++) {
        row r = {.n_dims = 1 + i % 4};
        uint64_t n = 1;
        for (int d = 0; d < r.n_dims; d++) {
            x = x * 1664525u + 1013904223u;
            r.dim[d] = sizes[(x >> 16) % TTI_COUNT(sizes)];
            if (n * r.dim[d] > 40000) r.dim[d] = 1;
            n *= r.dim[d];
        }
        x = x * 1664525u + 1013904223u;
        r.folded = x >> 20 & 15;
        check(&r, dtypes[i % 3]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_reductions), cmocka_unit_test(empty_values),
        cmocka_unit_test(counts_load_singly), cmocka_unit_test(any_shape)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
