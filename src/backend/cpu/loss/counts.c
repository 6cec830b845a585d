/* counts.c - counts of classes and sums of errors of f32 values, from which metrics are computed.
 *
 * Sums of values are those of doubles in the order of the rows, so they have the reference's bits.
 */
#include "backend/cpu/simd.h"

static bool counts_can_run(const tti_node *node) {
    return node->in[0]->type.dtype == TUTTI_F32 && tti_all_plain(node);
}

/* The place of the largest of n numbers, the first of equal ones; -1: one is NaN. */
static int32_t find_best(const float *x, size_t n) {
    size_t best = 0;
    bool any_nan = false;
    for (size_t j = 0; j < n; j++) {
        any_nan |= x[j] != x[j];
        best = x[j] > x[best] ? j : best;
    }
    return any_nan ? -1 : (int32_t)best;
}

/* How many of n numbers come before number `target`. */
static size_t count_before(const float *x, size_t n, size_t target) {
    float own = x[target];
    size_t before = 0;
    for (size_t j = 0; j < target; j++) before += x[j] >= own;
    for (size_t j = target + 1; j < n; j++) before += x[j] > own;
    return before;
}

static tutti_status class_counts_run(void *state, const tti_kargs *a) {
    const tutti_shape *shape = &a->node->in[0]->type.shape;
    size_t rows = (size_t)shape->dim[0], n = (size_t)shape->dim[1];
    int64_t k = tti_attr_int(a->node, "k");
    const float *x = a->in[0];
    const int32_t *labels = a->in[1];
    int32_t *correct = a->out[0], *targets = correct + n, *predicted = targets + n,
            *hits = a->out[1];
    (void)state;
    memset(correct, 0, 3 * n * sizeof *correct);
    memset(hits, 0, 2 * sizeof *hits);
    for (size_t r = 0; r < rows; r++, x += n) {
        if (labels[r] < 0 || (size_t)labels[r] >= n) continue;
        int32_t best = find_best(x, n);
        targets[labels[r]]++;
        hits[1]++;
        if (best < 0) continue;
        predicted[best]++;
        correct[best] += best == labels[r];
        hits[0] += best == labels[r] || (int64_t)count_before(x, n, (size_t)labels[r]) < k;
    }
    return TUTTI_OK;
}

static bool sums_can_run(const tti_node *node) {
    return counts_can_run(node) && node->in[1]->type.dtype == TUTTI_F32;
}

static tutti_status value_sums_run(void *state, const tti_kargs *a) {
    const tutti_shape *shape = &a->node->in[0]->type.shape;
    size_t rows = (size_t)shape->dim[0], n = (size_t)shape->dim[1];
    const float *x = a->in[0], *t = a->in[1];
    const int32_t *labels = a->in[2];
    double *count = a->out[0], *size = count + n, *square = size + n, *mean = square + n;
    double *deviation = mean + n;
    (void)state;
    memset(count, 0, 5 * n * sizeof *count);
    for (size_t r = 0; r < rows; r++) {
        if (labels[r] == -1) continue;
        TTI_IVDEP
        for (size_t c = 0; c < n; c++) {
            double target = (double)t[r * n + c], error = (double)x[r * n + c] - target;
            count[c]++;
            size[c] += __builtin_fabs(error);
            square[c] += error * error;
            mean[c] += target;
        }
    }
    for (size_t c = 0; c < n; c++) mean[c] = count[c] > 0 ? mean[c] / count[c] : 0;
    for (size_t r = 0; r < rows; r++) {
        if (labels[r] == -1) continue;
        TTI_IVDEP
        for (size_t c = 0; c < n; c++) {
            double d = (double)t[r * n + c] - mean[c];
            deviation[c] += d * d;
        }
    }
    return TUTTI_OK;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_counts)[];
const tti_kernel TTI_VARIANT(tti_kernels_counts)[] = {
    {.op = "class_counts",
     .name = TTI_ISA_TEXT,
     .can_run = counts_can_run,
     .run = class_counts_run},
    {.op = "value_sums", .name = TTI_ISA_TEXT, .can_run = sums_can_run, .run = value_sums_run},
    {0},
};
