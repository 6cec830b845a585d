/* pair_loss.c - binary cross entropy and Kullback-Leibler divergence, with gradients; f32 values,
 * i32 labels.  (Squared error is in loss.c.)
 *
 * A loss is two functions over a run of elements: terms, and slopes by x or by the target.  Terms
 * of a block go to the stack and are summed there; blocks are added in double, in order. */
#include "backend/cpu/simd.h"
#include "backend/cpu/vmath.h"

enum { BLOCK = 256 };

typedef void (*pair_fn)(const float *x, const float *t, float *y, size_t n);

#define PAIR(name, expr)                                                   \
    static void name(const float *x, const float *t, float *y, size_t n) { \
        TTI_IVDEP                                                          \
        for (size_t i = 0; i < n; i++) {                                   \
            float a = x[i], b = t[i];                                      \
            (void)a, (void)b;                                              \
            y[i] = (expr);                                                 \
        }                                                                  \
    }

/* max(x, 0) - x t + ln(1 + e^-|x|) */
PAIR(bce_terms, (a > 0.0f ? a : 0.0f) - a * b + tti_vlog(1.0f + tti_vexp(-tti_vabs(a))))
PAIR(bce_slopes_x, tti_vsigmoid(a) - b)
PAIR(bce_slopes_t, -a)
/* t (ln t - x), 0 where t is 0, NaN below */
PAIR(kl_terms, b > 0.0f ? b * (tti_vlog(b) - a) : b == 0.0f ? 0.0f : __builtin_nanf(""))
PAIR(kl_slopes_x, -b)
PAIR(kl_slopes_t, b > 0.0f ? tti_vlog(b) + 1.0f - a : b == 0.0f ? 0.0f : __builtin_nanf(""))

/* x and t, then labels if there are, then dloss for a gradient. */
static bool has_labels(const tti_node *node, bool is_grad) {
    return node->n_in == (is_grad ? 4 : 3);
}

static bool types_fit(const tti_node *node, bool is_grad) {
    for (int i = 0; i < node->n_in; i++) {
        bool is_label = i == 2 && has_labels(node, is_grad);
        if (node->in[i]->type.dtype != (is_label ? TUTTI_I32 : TUTTI_F32)) return false;
    }
    return node->out[0]->type.dtype == TUTTI_F32 && tti_one_layout(node);
}

static bool can_run(const tti_node *node) { return types_fit(node, false); }
static bool grad_can_run(const tti_node *node) { return types_fit(node, true); }

typedef struct pairs {
    size_t n_rows, n; /* elements of a row */
    const float *x, *t;
    const int32_t *label; /* or NULL */
    int64_t ignore;
} pairs;

static pairs pairs_of(const tti_kargs *a, bool is_grad) {
    pairs p = {.n_rows = (size_t)a->node->in[0]->type.shape.dim[0], .x = a->in[0], .t = a->in[1]};
    p.n = p.n_rows ? tti_n_elems(a->node->in[0]) / p.n_rows : 0;
    p.label = has_labels(a->node, is_grad) ? a->in[2] : NULL;
    p.ignore = tti_attr_int(a->node, "ignore");
    return p;
}

static bool counts(const pairs *p, size_t row) { return !p->label || p->label[row] != p->ignore; }

static double sum_row(const float *x, const float *t, size_t n, pair_fn terms) {
    float block[BLOCK];
    double sum = 0;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = TTI_MIN((size_t)BLOCK, n - i);
        terms(x + i, t + i, block, m);
        sum += (double)tti_sum_n(block, m);
    }
    return sum;
}

/* count: the elements of the rows that count, or these rows. */
static void add_pairs(const tti_kargs *a, pair_fn terms, bool counts_rows) {
    pairs p = pairs_of(a, false);
    double loss = 0, count = 0;
    for (size_t r = 0; r < p.n_rows; r++) {
        if (!counts(&p, r)) continue;
        loss += sum_row(p.x + r * p.n, p.t + r * p.n, p.n, terms);
        count += counts_rows ? 1 : (double)p.n;
    }
    *(float *)a->out[0] = (float)loss;
    *(float *)a->out[1] = (float)count;
}

static void pair_slopes(const tti_kargs *a, pair_fn of_x, pair_fn of_t) {
    pairs p = pairs_of(a, true);
    pair_fn slopes = tti_attr_int(a->node, "of_target") ? of_t : of_x;
    float dloss = *(const float *)a->in[a->node->n_in - 1], *dx = a->out[0];
    for (size_t r = 0; r < p.n_rows; r++, dx += p.n) {
        if (!counts(&p, r)) {
            memset(dx, 0, p.n * sizeof *dx);
            continue;
        }
        slopes(p.x + r * p.n, p.t + r * p.n, dx, p.n);
        TTI_IVDEP
        for (size_t i = 0; i < p.n; i++) dx[i] *= dloss;
    }
}

static tutti_status bce_run(void *state, const tti_kargs *a) {
    (void)state;
    add_pairs(a, bce_terms, false);
    return TUTTI_OK;
}

static tutti_status bce_grad_run(void *state, const tti_kargs *a) {
    (void)state;
    pair_slopes(a, bce_slopes_x, bce_slopes_t);
    return TUTTI_OK;
}

static tutti_status kl_run(void *state, const tti_kargs *a) {
    (void)state;
    add_pairs(a, kl_terms, true);
    return TUTTI_OK;
}

static tutti_status kl_grad_run(void *state, const tti_kargs *a) {
    (void)state;
    pair_slopes(a, kl_slopes_x, kl_slopes_t);
    return TUTTI_OK;
}

#define ROW(op_name, can_run_fn, run_fn) \
    { .op = op_name, .name = TTI_ISA_TEXT, .can_run = can_run_fn, .run = run_fn }

extern const tti_kernel TTI_VARIANT(tti_kernels_pair_loss)[];
const tti_kernel TTI_VARIANT(tti_kernels_pair_loss)[] = {
    ROW("bce_with_logits", can_run, bce_run),
    ROW("bce_with_logits_grad", grad_can_run, bce_grad_run),
    ROW("kl_div", can_run, kl_run),
    ROW("kl_div_grad", grad_can_run, kl_grad_run),
    {0},
};
