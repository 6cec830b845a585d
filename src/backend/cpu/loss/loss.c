/* loss.c - cross_entropy and mse with gradients; f32 values, i32 labels.
 *
 * A row's exponentials go to scratch, padded with zeros to whole vectors, since C is often small;
 * rows are summed in double, in order. */
#include "backend/cpu/simd.h"
#include "backend/cpu/vmath.h"

static size_t padded(size_t n) { return (n + TTI_LANES - 1) / TTI_LANES * TTI_LANES; }

static size_t row_bytes(const tti_node *node, const void *state) {
    (void)state;
    return padded((size_t)node->in[0]->type.shape.dim[1]) * sizeof(float);
}

/* f32 everywhere but i32 labels at input label_in. */
static bool is_f32_with_labels(const tti_node *node, int label_in) {
    if (!tti_all_plain(node) && !tti_one_layout(node)) return false;
    for (int i = 0; i < node->n_in; i++) {
        tutti_dtype want = i == label_in ? TUTTI_I32 : TUTTI_F32;
        if (node->in[i]->type.dtype != want) return false;
    }
    return node->out[0]->type.dtype == TUTTI_F32;
}

static bool cross_entropy_can_run(const tti_node *node) {
    return is_f32_with_labels(node, 1) && node->in[0]->type.shape.n_dims == 2 &&
           node->in[0]->type.shape.dim[1] > 0;
}

/* The position of the first maximum of n <= 2^31 elements; NaN only if it comes first.  Each lane
 * looks for the first element that is larger than x[0] and all before it in this lane. */
static size_t argmax(const float *x, size_t n) {
    tti_v16 most = {0};
    tti_v16i at = {0}, here = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    float value[TTI_LANES];
    int32_t place[TTI_LANES];
    size_t i = 0, best = 0;
    most = most + x[0];
    for (; i + TTI_LANES <= n; i += TTI_LANES, here += TTI_LANES) {
        tti_v16 v = tti_load16(x + i);
        tti_v16i larger = (tti_v16i)(v > most);
        most = tti_select16(larger, v, most);
        at = (larger & here) | (~larger & at);
    }
    tti_store16(value, most);
    memcpy(place, &at, sizeof place);
    for (int l = 0; l < TTI_LANES; l++) {
        size_t p = (size_t)place[l];
        if (value[l] > x[best] || (value[l] == x[best] && p < best)) best = p;
    }
    for (; i < n; i++) best = x[i] > x[best] ? i : best;
    return best;
}

/* e[i] = exp(x[i] - m), zeros up to whole vectors; returns their sum. */
static float exponentials(const float *x, size_t n, float m, float *e) {
    size_t n_padded = padded(n);
    for (size_t i = 0; i < n; i++) e[i] = x[i] - m;
    for (size_t i = n; i < n_padded; i++) e[i] = -200.0f;
    TTI_IVDEP
    for (size_t i = 0; i < n_padded; i++) e[i] = tti_vexp(e[i]);
    return tti_sum_n(e, n_padded);
}

/* The logarithm of a row's sum of e^x, less y.  If it is large, y comes first: f32 does not hold
 * the maximum row[0] and the digits of log(row[1]) at once. */
static float log_sum_less(const float *row, float y) {
    float log = tti_vlog(row[1]), log_sum = row[0] + log;
    return __builtin_fabsf(log_sum) < 64.0f ? log_sum - y : row[0] - y + log;
}

/* A label that is none makes the loss NaN, which stops the run with a message. */
static bool is_class(int32_t label, size_t n) { return label >= 0 && (size_t)label < n; }

static tutti_status cross_entropy_run(void *state, const tti_kargs *a) {
    const float *x = a->in[0];
    const int32_t *label = a->in[1];
    size_t n_rows = (size_t)a->node->in[0]->type.shape.dim[0];
    size_t n = (size_t)a->node->in[0]->type.shape.dim[1];
    float smoothing = (float)tti_attr_float(a->node, "smoothing");
    int64_t ignore = tti_attr_int(a->node, "ignore");
    double loss = 0.0, count = 0.0, correct = 0.0;
    float *row = a->out[3]; /* [n_rows,2] */
    (void)state;
    for (size_t i = 0; i < n_rows; i++, x += n, row += 2) {
        row[0] = 0.0f, row[1] = 1.0f;
        if (label[i] == ignore) continue;
        count += 1.0;
        if (!is_class(label[i], n)) {
            loss = (double)__builtin_nanf("");
            continue;
        }
        size_t best = argmax(x, n);
        row[0] = x[best], row[1] = exponentials(x, n, x[best], a->scratch);
        float own = log_sum_less(row, x[label[i]]);
        if (smoothing != 0.0f) {
            float mean = log_sum_less(row, tti_sum_n(x, n) / (float)n);
            own = (1.0f - smoothing) * own + smoothing * mean;
        }
        loss += (double)own;
        correct +=
            best == (size_t)label[i] && own == own ? 1.0 : 0.0; /* NaN is not counted as correct */
    }
    *(float *)a->out[0] = (float)loss;
    *(float *)a->out[1] = (float)count;
    *(float *)a->out[2] = (float)correct;
    return TUTTI_OK;
}

static void cross_entropy_grad_row(const float *e, size_t n, float scale, float share, float *dx) {
    TTI_IVDEP
    for (size_t j = 0; j < n; j++) dx[j] = e[j] * scale - share;
}

static tutti_status cross_entropy_grad_run(void *state, const tti_kargs *a) {
    const float *x = a->in[0], dloss = *(const float *)a->in[2];
    const int32_t *label = a->in[1];
    const float *rows = a->node->n_in == 4 ? a->in[3] : NULL; /* [n_rows,2] */
    float *dx = a->out[0], *e = a->scratch;                   /* dx may be x */
    size_t n_rows = (size_t)a->node->in[0]->type.shape.dim[0];
    size_t n = (size_t)a->node->in[0]->type.shape.dim[1];
    float smoothing = (float)tti_attr_float(a->node, "smoothing");
    int64_t ignore = tti_attr_int(a->node, "ignore");
    (void)state;
    for (size_t i = 0; i < n_rows; i++, x += n, dx += n) {
        if (label[i] == ignore || !is_class(label[i], n)) {
            float fill = label[i] == ignore ? 0.0f : __builtin_nanf("");
            for (size_t j = 0; j < n; j++) dx[j] = fill;
            continue;
        }
        float sum = exponentials(x, n, rows ? rows[2 * i] : x[argmax(x, n)], e);
        if (rows) sum = rows[2 * i + 1];
        cross_entropy_grad_row(e, n, dloss / sum, dloss * smoothing / (float)n, dx);
        dx[label[i]] -= dloss * (1.0f - smoothing);
    }
    return TUTTI_OK;
}

/* ---- some classes of each row, the others are other workers' (ops/loss/vocabulary.c) ---- */

enum { N_ROW = 5 }; /* maximum, sum of exponentials, target, sum, best class */

static tutti_status entropy_part_run(void *state, const tti_kargs *a) {
    const float *x = a->in[0];
    const int32_t *label = a->in[1];
    size_t n_rows = (size_t)a->node->in[0]->type.shape.dim[0];
    size_t n = (size_t)a->node->in[0]->type.shape.dim[1];
    int64_t first = tti_attr_int(a->node, "first");
    float *row = a->out[0]; /* [n_rows,N_ROW] */
    (void)state;
    for (size_t i = 0; i < n_rows; i++, x += n, row += N_ROW) {
        size_t best = argmax(x, n);
        int64_t own = label[i] - first;
        float base = x[best] == -INFINITY ? 0.0f : x[best]; /* no weight, unless one is NaN */
        row[0] = x[best], row[1] = exponentials(x, n, base, a->scratch);
        row[2] = own >= 0 && own < (int64_t)n ? x[own] : 0.0f;
        row[3] = tti_sum_n(x, n), row[4] = (float)(first + (int64_t)best);
    }
    return TUTTI_OK;
}

static tutti_status entropy_join_grad_run(void *state, const tti_kargs *a) {
    const float *x = a->in[0], dloss = *(const float *)a->in[2], *row = a->in[3]; /* [n_rows,2] */
    const int32_t *label = a->in[1];
    float *dx = a->out[0], *e = a->scratch; /* dx may be x */
    size_t n_rows = (size_t)a->node->in[0]->type.shape.dim[0];
    size_t n = (size_t)a->node->in[0]->type.shape.dim[1];
    size_t n_classes = n * (size_t)tti_attr_int(a->node, "n");
    int64_t first = tti_attr_int(a->node, "first"), ignore = tti_attr_int(a->node, "ignore");
    float smoothing = (float)tti_attr_float(a->node, "smoothing");
    (void)state;
    for (size_t i = 0; i < n_rows; i++, x += n, dx += n, row += 2) {
        if (label[i] == ignore || !is_class(label[i], n_classes)) {
            float fill = label[i] == ignore ? 0.0f : __builtin_nanf("");
            for (size_t j = 0; j < n; j++) dx[j] = fill;
            continue;
        }
        int64_t own = label[i] - first;
        (void)exponentials(x, n, row[0], e);
        cross_entropy_grad_row(e, n, dloss / row[1], dloss * smoothing / (float)n_classes, dx);
        if (own >= 0 && own < (int64_t)n) dx[own] -= dloss * (1.0f - smoothing);
    }
    return TUTTI_OK;
}

/* ---- mse ---- */

static bool mse_can_run(const tti_node *node) {
    return is_f32_with_labels(node, 2) && node->in[0]->type.shape.n_dims >= 1 &&
           tti_one_layout(node);
}

static bool mse_grad_can_run(const tti_node *node) {
    return is_f32_with_labels(node, node->n_in > 3 ? 2 : -1) &&
           node->in[0]->type.shape.n_dims >= 1 && tti_one_layout(node);
}

static float squares(const float *x, const float *y, size_t n) {
    tti_v16 acc = {0};
    float lane[TTI_LANES];
    size_t i = 0;
    for (; i + TTI_LANES <= n; i += TTI_LANES) {
        tti_v16 d = tti_load16(x + i) - tti_load16(y + i);
        acc += d * d;
    }
    tti_store16(lane, acc);
    for (size_t l = 0; i + l < n; l++) {
        float d = x[i + l] - y[i + l];
        lane[l] += d * d;
    }
    return tti_sum_lanes(lane);
}

static tutti_status mse_run(void *state, const tti_kargs *a) {
    const float *x = a->in[0], *y = a->in[1];
    const int32_t *label = a->node->n_in > 2 ? a->in[2] : NULL;
    size_t n_rows = (size_t)a->node->in[0]->type.shape.dim[0];
    size_t n = n_rows ? tti_n_elems(a->node->in[0]) / n_rows : 0;
    int64_t ignore = tti_attr_int(a->node, "ignore");
    double loss = 0.0, count = 0.0;
    (void)state;
    for (size_t i = 0; i < n_rows; i++, x += n, y += n) {
        if (label && label[i] == ignore) continue;
        loss += (double)squares(x, y, n);
        count += (double)n;
    }
    *(float *)a->out[0] = (float)loss;
    *(float *)a->out[1] = (float)count;
    return TUTTI_OK;
}

static tutti_status mse_grad_run(void *state, const tti_kargs *a) {
    const float *x = a->in[0], *y = a->in[1];
    bool has_labels = a->node->n_in > 3;
    const int32_t *label = has_labels ? a->in[2] : NULL;
    float scale = 2.0f * *(const float *)a->in[has_labels ? 3 : 2], *dx = a->out[0];
    size_t n_rows = (size_t)a->node->in[0]->type.shape.dim[0];
    size_t n = n_rows ? tti_n_elems(a->node->in[0]) / n_rows : 0;
    int64_t ignore = tti_attr_int(a->node, "ignore");
    (void)state;
    for (size_t i = 0; i < n_rows; i++, x += n, y += n, dx += n) {
        if (label && label[i] == ignore) {
            memset(dx, 0, n * sizeof *dx);
            continue;
        }
        TTI_IVDEP
        for (size_t j = 0; j < n; j++) dx[j] = scale * (x[j] - y[j]);
    }
    return TUTTI_OK;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_loss)[];
const tti_kernel TTI_VARIANT(tti_kernels_loss)[] = {
    {.op = "cross_entropy",
     .name = TTI_ISA_TEXT,
     .can_run = cross_entropy_can_run,
     .scratch_bytes = row_bytes,
     .run = cross_entropy_run},
    {.op = "cross_entropy_grad",
     .name = TTI_ISA_TEXT,
     .can_run = cross_entropy_can_run,
     .scratch_bytes = row_bytes,
     .run = cross_entropy_grad_run},
    {.op = "mse", .name = TTI_ISA_TEXT, .can_run = mse_can_run, .run = mse_run},
    {.op = "mse_grad", .name = TTI_ISA_TEXT, .can_run = mse_grad_can_run, .run = mse_grad_run},
    {.op = "entropy_part",
     .name = TTI_ISA_TEXT,
     .can_run = cross_entropy_can_run,
     .scratch_bytes = row_bytes,
     .run = entropy_part_run},
    {.op = "entropy_join_grad",
     .name = TTI_ISA_TEXT,
     .can_run = cross_entropy_can_run,
     .scratch_bytes = row_bytes,
     .run = entropy_join_grad_run},
    {0},
};
