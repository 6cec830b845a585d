/* head.c - cross entropy of a head x w^T, including its gradient, without logits or softmax in
 * memory.
 *
 * e^(z - z of the label) needs nothing that is known only when the whole row is done, so the
 * product itself can write it, and one factor per row corrects its whole gradient.  The factor
 * passes through the next products: dx = s (e w), dw = e^T (s x).  Only the pass fuse_head.c makes
 * these ops, after autodiff, so they need no gradients. */
#include "ops/loss/head.h"

#include <math.h>

#include "ops/rules.h"

static const tutti_type scalar = {TUTTI_F32, {0}};

static const tti_attr_spec head_attrs[] = {
    {"ignore", TTI_ATTR_INT, -1, "label of rows that do not count"},
    {0},
};

/* ---- cross_entropy_head ---- */

/* bf16: the range of f16 is too small for values that are not normalized yet. */
static tutti_status head_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_need_dtype(node, 0, TUTTI_BF16));
    TTI_TRY(tti_need_dtype(node, 1, TUTTI_BF16));
    TTI_TRY(tti_need_dtype(node, 2, TUTTI_I32));
    TTI_TRY(tti_need_type(node, 3, &scalar));
    TTI_TRY(tti_need_n_dims(node, 0, 2));
    TTI_TRY(tti_need_n_dims(node, 1, 2));
    TTI_TRY(tti_need_n_dims(node, 2, 1));
    int64_t n_rows = tti_in_dim(node, 0, 0), n_classes = tti_in_dim(node, 1, 0);
    if (tti_in_dim(node, 0, 1) != tti_in_dim(node, 1, 1))
        return tti_node_fail(node, "x has %lld columns, w %lld", (long long)tti_in_dim(node, 0, 1),
                             (long long)tti_in_dim(node, 1, 1));
    if (n_rows != tti_in_dim(node, 2, 0))
        return tti_node_fail(node, "%lld rows, %lld labels", (long long)n_rows,
                             (long long)tti_in_dim(node, 2, 0));
    if (n_classes < 1) return tti_node_fail(node, "at least one class is needed");
    out[0] = (tutti_type){TUTTI_BF16, TUTTI_SHAPE(n_rows, n_classes)};
    out[1] = (tutti_type){TUTTI_F32, TUTTI_SHAPE(n_rows)};
    out[2] = out[3] = out[4] = scalar;
    return TUTTI_OK;
}

typedef struct row_end {
    double sum, loss;
    bool right; /* the label is the first maximum */
} row_end;

/* z becomes e^(z - base); label -1: none.  An infinite logit is broken, not large, and the loss
 * must report it.  Where the label's logit is -inf, the loss is inf (NaN if all logits are -inf),
 * and the base is the row's largest logit, so that the gradient is finite as in PyTorch. */
static row_end raise_row(double *z, int64_t n_classes, int64_t label) {
    double own = label < 0 ? 0 : z[label], base = own;
    row_end end = {.right = label >= 0};
    if (own == -INFINITY)
        for (int64_t c = 0; c < n_classes; c++) base = fmax(base, z[c]);
    for (int64_t c = 0; c < n_classes; c++) {
        if (c < label ? z[c] >= own : z[c] > own) end.right = false;
        double raw = z[c];
        z[c] = raw - base > TTI_HEAD_MOST ? exp(TTI_HEAD_MOST) : exp(raw - base);
        end.sum += raw == INFINITY ? raw : z[c];
    }
    end.loss = own > -INFINITY ? log(end.sum) : isfinite(end.sum) ? INFINITY : NAN;
    return end;
}

/* A label that is not a class makes the loss NaN, which stops the run. */
static void head_reference(const tti_args *a) {
    int64_t n = tti_in_dim(a->node, 0, 0), width = tti_in_dim(a->node, 0, 1);
    int64_t n_classes = tti_in_dim(a->node, 1, 0);
    double loss = 0, count = 0, correct = 0, ignore = (double)tti_attr_int(a->node, "ignore");
    for (int64_t r = 0; r < n; r++) {
        const double *x = a->in[0] + r * width;
        double *z = a->out[0] + r * n_classes, label = a->in[2][r];
        bool kept = label != ignore, good = label >= 0 && label < (double)n_classes;
        for (int64_t c = 0; c < n_classes; c++) {
            z[c] = 0;
            for (int64_t k = 0; k < width; k++) z[c] += x[k] * a->in[1][c * width + k];
        }
        row_end end = raise_row(z, n_classes, kept && good ? (int64_t)label : -1);
        a->out[1][r] = kept ? NAN : 0;
        count += kept;
        if (kept) loss += good ? end.loss : NAN;
        if (!kept || !good) continue;
        a->out[1][r] = a->in[3][0] / end.sum;
        z[(int64_t)label] -= end.sum;
        correct += end.right && isfinite(end.sum);
    }
    a->out[2][0] = loss, a->out[3][0] = count, a->out[4][0] = correct;
}

static tutti_status head_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0W0W", "00PPP"}};
    return tti_shard_match(node, rules, 1, in, out, "only rows can be split, of x and labels");
}

static void head_cost(const tti_node *node, tti_cost *cost) {
    double n_logits = (double)tti_out_n(node, 0);
    tti_cost_flops(node, n_logits * (2.0 * (double)tti_in_dim(node, 0, 1) + 8), cost);
}

/* ---- scale_rows ---- */

static tutti_status scale_rows_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_need_floats(node, 0, 1));
    TTI_TRY(tti_need_n_dims(node, 0, 2));
    tutti_type factors = {TUTTI_F32, TUTTI_SHAPE(tti_in_dim(node, 0, 0))};
    TTI_TRY(tti_need_type(node, 1, &factors));
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

static void scale_rows_reference(const tti_args *a) {
    size_t n = tti_out_n(a->node, 0), width = (size_t)tti_in_dim(a->node, 0, 1);
    for (size_t i = 0; i < n; i++) a->out[0][i] = a->in[1][i / width] * a->in[0][i];
}

static tutti_status scale_rows_shard(const tti_node *node, const tti_placement *in,
                                     tti_placement *out) {
    static const tti_shard_rule rules[] = {{"00", "0"}, {"1W", "1"}, {"PW", "P"}};
    return tti_shard_match(node, rules, 3, in, out, "rows and their factors must be split alike");
}

/* ---- records ---- */

static const tti_sample head_samples[] = {
    {.in = "bf16[4,16] bf16[24,16] i32[4] f32[]", .int_hi = 23},
    {.in = "bf16[6,8] bf16[5,8] i32[6] f32[]", .attrs = "ignore=0", .int_hi = 4},
    {.in = "bf16[5,24] bf16[40,24] i32[5] f32[]", .lo = -3, .hi = 3, .int_lo = -1, .int_hi = 39},
    {.in = "bf16[3,7] bf16[9,7] i32[3] f32[]", .lo = 0.1, .hi = 1, .int_hi = 8},
    {.in = "bf16[3,8] bf16[9,8] i32[3] f32[]", .int_lo = -1, .int_hi = -1}, /* e^z, not counted */
    {.in = "bf16[2,0] bf16[3,0] i32[2] f32[]", .int_hi = 2},
    {.in = "bf16[0,8] bf16[5,8] i32[0] f32[]"},
    {.in = "f32[4,8] f32[5,8] i32[4] f32[]", .expect = TUTTI_E_INVALID},
    {.in = "bf16[4,8] bf16[5,7] i32[4] f32[]", .expect = TUTTI_E_INVALID},
    {.in = "bf16[4,8] bf16[5,8] i32[3] f32[]", .expect = TUTTI_E_INVALID},
    {.in = "bf16[4,8] bf16[0,8] i32[4] f32[]", .expect = TUTTI_E_INVALID},
    {.in = "bf16[4,8] bf16[5,8] i32[4] f32[1]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample scale_rows_samples[] = {
    {.in = "f32[4,10] f32[4]"},
    {.in = "bf16[5,24] f32[5]"},
    {.in = "f16[3,7] f32[3]"},
    {.in = "f64[2,3] f32[2]"},
    {.in = "f32[0,10] f32[0]"},
    {.in = "f32[3,0] f32[3]"},
    {.in = "f32[4,10] f32[10]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,10] f32[2]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_head[] = {
    {.name = "cross_entropy_head",
     .doc = "e, s, loss_sum, count, correct of cross_entropy(z), z = x w^T, and its gradient "
            "s_r e_rc: e = e^(z - z_label), at most e^60, at the label less the row's sum (e^(z - "
            "max) "
            "if z_label is -inf); "
            "s = dloss / sum; inputs x, w, labels, dloss; made by a pass",
     .n_in_min = 4,
     .n_in_max = 4,
     .n_out = 5,
     .attrs = head_attrs,
     .infer = head_infer,
     .shard = head_shard,
     .cost = head_cost,
     .reference = head_reference,
     .samples = head_samples},
    {.name = "scale_rows",
     .doc = "y_rc = s_r x_rc; inputs x[R,C], s f32[R]",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 1,
     .traits = TTI_IN_PLACE,
     .infer = scale_rows_infer,
     .shard = scale_rows_shard,
     .cost = tti_cost_elementwise,
     .reference = scale_rows_reference,
     .samples = scale_rows_samples},
    {0},
};
