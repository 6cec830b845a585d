/* aten_norm.c - layer, group, instance and batch norms, and the statistics of batch norms. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"

/* Refuses eps 0, which the builders of norms interpret as the default. */
static void check_eps(tti_building *b, double eps) {
    if (tti_good(b) && !(eps > 0))
        tti_refuse(
            b, "eps=%g is not supported; export the model with a positive one, such as 1e-12", eps);
}

/* Normalizes the last dimensions; several are merged into one. */
static void layer_norm(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape shape = tti_shape_of(x), flat = shape;
    int64_t sizes[TUTTI_MAX_DIMS], n_inner = 1;
    int n = tti_ints_at(b, c, 1, sizes);
    double eps = tti_number_at(b, c, 4);
    check_eps(b, eps);
    if (!tti_good(b)) return;
    if (n < 1 || n > shape.n_dims) tti_refuse(b, "normalized_shape does not fit the input");
    for (int i = 0; i < n && tti_good(b); i++) {
        n_inner *= sizes[i];
        if (sizes[i] != shape.dim[shape.n_dims - n + i])
            tti_refuse(b, "normalized_shape does not fit the input");
    }
    tutti_value *value = tti_float_at(b, c, 0), *weight = tti_weight_at(b, c, 2),
                *bias = tti_weight_at(b, c, 3);
    if (!tti_good(b)) return;
    flat.n_dims = shape.n_dims - n + 1;
    flat.dim[flat.n_dims - 1] = n_inner;
    if (n > 1) {
        value = tutti_reshape(tti_graph_of(b), value, &flat);
        if (weight) weight = tutti_reshape(tti_graph_of(b), weight, &TUTTI_SHAPE(n_inner));
        if (bias) bias = tutti_reshape(tti_graph_of(b), bias, &TUTTI_SHAPE(n_inner));
    }
    value = tutti_layer_norm_of(tti_graph_of(b), value, weight, bias, eps);
    if (n > 1) value = tutti_reshape(tti_graph_of(b), value, &shape);
    tti_set_result_like(b, c, value);
}

static void rms_norm(tti_building *b, const tti_call *c) {
    int64_t sizes[TUTTI_MAX_DIMS];
    int n = tti_ints_at(b, c, 1, sizes);
    double eps = tti_has(c, 3) ? tti_number_at(b, c, 3) : 0x1p-23; /* PyTorch's default for f32 */
    check_eps(b, eps);
    if (tti_good(b) && n != 1) tti_refuse(b, "%d dimensions are not supported", n);
    tutti_value *x = tti_float_at(b, c, 0), *weight = tti_weight_at(b, c, 2);
    if (tti_good(b)) tti_set_result_like(b, c, tutti_rms_norm_of(tti_graph_of(b), x, weight, eps));
}

/* k: index of the weight argument; the bias follows. */
static void normalize_groups(tti_building *b, const tti_call *c, int64_t groups, int k,
                             double eps) {
    check_eps(b, eps);
    tutti_value *x = tti_float_at(b, c, 0), *weight = tti_weight_at(b, c, k),
                *bias = tti_weight_at(b, c, k + 1);
    if (tti_good(b))
        tti_set_result_like(b, c,
                            tutti_group_norm_of(tti_graph_of(b), x, groups, weight, bias, eps));
}

static void group_norm(tti_building *b, const tti_call *c) {
    normalize_groups(b, c, tti_int_at(b, c, 1), 2, tti_number_at(b, c, 4));
}

/* input weight bias N C HxW group eps */
static void native_group_norm(tti_building *b, const tti_call *c) {
    normalize_groups(b, c, tti_int_at(b, c, 6), 1, tti_number_at(b, c, 7));
}

/* input weight bias running_mean running_var use_input_stats momentum eps: a group norm with one
 * channel per group. */
static void instance_norm(tti_building *b, const tti_call *c) {
    if (tti_good(b) && (!tti_bool_at(b, c, 5) || tti_has(c, 3)))
        tti_refuse(b, "running statistics of an instance norm are not supported");
    tutti_shape s = tti_shape_of(tti_operand_at(b, c, 0));
    if (tti_good(b) && s.n_dims < 3) tti_refuse(b, "%d dimensions are too few", s.n_dims);
    normalize_groups(b, c, s.n_dims > 1 ? s.dim[1] : 1, 1, tti_number_at(b, c, 7));
}

/* ---- batch norms ---- */

/* Adds a buffer of the file as one that the batch norm updates. */
static tutti_value *moving_buffer(tti_building *b, const tti_call *c, int k, double momentum,
                                  tti_sharing *s) {
    const tti_operand *x = tti_operand_at(b, c, k);
    if (!tti_good(b)) return NULL;
    const int input = x->spec - 1;
    const tti_input_spec *spec = input >= 0 ? &tti_program_of(b)->inputs[input] : NULL;
    if (x->of_buffer)
        tti_refuse(b, "the model itself changes these running statistics, which is not supported");
    else if (!spec || spec->kind != TTI_SPEC_BUFFER)
        tti_refuse(b, "running statistics that are not buffers are not supported");
    if (!tti_good(b)) return NULL;
    *s = tti_sharing_of(b, input);
    tti_changes *own = tti_changes_of(b);
    tutti_value **source = &own->sources[input];
    if (*source && (s->call == 0 || s->call >= s->n_calls || own->momentum[input] != momentum))
        tti_refuse(b, "two calls share the buffer '%s' in a way that is not supported", spec->name);
    if (!tti_good(b) || *source) return *source;
    tutti_shape shape = tti_shape_of(x);
    double all = s->n_calls > 1 ? 1 - pow(1 - momentum, s->n_calls) : momentum;
    *source = tutti_buffer(tti_graph_of(b), spec->name, &shape, 0, all);
    tti_name_tensor(b, input);
    own->momentum[input] = momentum;
    return *source;
}

/* A batch norm that was frozen while others trained: its running statistics are constants. */
static tutti_value *frozen_norm(tti_building *b, const tti_call *c, tutti_value *x, double eps) {
    tutti_graph *g = tti_graph_of(b);
    tutti_shape s = tutti_value_type(x).shape, along = {.n_dims = s.n_dims};
    if (!tti_good(b) || s.n_dims < 2) return NULL;
    for (int d = 0; d < s.n_dims; d++) along.dim[d] = d == 1 ? s.dim[1] : 1;
    tutti_value *mean = tti_float_at(b, c, 3), *var = tti_float_at(b, c, 4);
    tutti_value *weight = tti_weight_at(b, c, 1), *bias = tti_weight_at(b, c, 2);
    tutti_value *one = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
    tutti_value *scale =
        tutti_div(g, weight ? weight : one, tutti_sqrt(g, tutti_affine(g, var, 1, eps)));
    x = tutti_sub(g, x, tutti_reshape(g, mean, &along));
    x = tutti_mul(g, x, tutti_reshape(g, scale, &along));
    return bias ? tutti_add(g, x, tutti_reshape(g, bias, &along)) : x;
}

/* Describes dimension 0 of a batch norm's input, if it is [outer,batch,inner] merged. */
typedef struct merged_rows {
    tutti_shape shape; /* shape of the input; n_dims 0: it was not changed */
    int64_t outer, inner;
} merged_rows;

/* Converts x[outer batch inner,C,..] to [batch,C,outer inner ..], so that dimension 0 counts
 * samples and statistics ignore padding. */
static tutti_value *samples_first(tti_building *b, tutti_value *x, merged_rows *m) {
    static const int perm[] = {1, 3, 0, 2, 4};
    const tutti_batch at = tti_batch_of(b, x);
    tutti_shape s = tutti_value_type(x).shape;
    tutti_graph *g = tti_graph_of(b);
    *m = (merged_rows){0};
    if (!tti_good(b) || s.n_dims < 2) return x;
    if (at.n > 0 && at.inner[0] == 0)
        tti_refuse(b, "the samples do not lie along dimension 0 of the input");
    if (s.dim[0] == tti_batch_rows(b) || !tti_good(b)) return x;
    m->inner = at.inner[0] > 0 ? at.inner[0] : s.dim[0] / TTI_MAX(tti_batch_rows(b), 1);
    m->outer = s.dim[0] / TTI_MAX(tti_batch_rows(b) * m->inner, 1);
    if (m->outer * tti_batch_rows(b) * m->inner != s.dim[0]) {
        tti_refuse(b, "dimension 0 of the input, %lld, does not count samples",
                   (long long)s.dim[0]);
        return NULL;
    }
    m->shape = s;
    x = tutti_reshape(g, x, &TUTTI_SHAPE(m->outer, tti_batch_rows(b), m->inner, s.dim[1], -1));
    return tutti_reshape(g, tutti_permute(g, x, perm, 5),
                         &TUTTI_SHAPE(tti_batch_rows(b), s.dim[1], -1));
}

static tutti_value *samples_merged(tti_building *b, tutti_value *y, const merged_rows *m) {
    static const int perm[] = {2, 0, 3, 1, 4};
    tutti_graph *g = tti_graph_of(b);
    if (m->shape.n_dims == 0) return y;
    y = tutti_reshape(g, y,
                      &TUTTI_SHAPE(tti_batch_rows(b), m->shape.dim[1], m->outer, m->inner, -1));
    return tutti_reshape(g, tutti_permute(g, y, perm, 5), &m->shape);
}

/* A batch norm of values that do not depend on samples, such as standardized weights. Its
 * statistics are equal in training and evaluation, so it is a group norm with one channel per
 * group. */
static tutti_value *norm_of_weights(tti_building *b, const tti_call *c, double eps) {
    tutti_graph *g = tti_graph_of(b);
    tutti_value *x = tti_float_at(b, c, 0), *weight = tti_weight_at(b, c, 1),
                *bias = tti_weight_at(b, c, 2);
    tutti_shape s = tutti_value_type(x).shape, transpose_of = s;
    int perm[TUTTI_MAX_DIMS];
    if (tti_good(b) && s.n_dims < 2) tti_refuse(b, "%d dimensions are too few", s.n_dims);
    check_eps(b, eps);
    if (!tti_good(b)) return NULL;
    for (int d = 0; d < s.n_dims; d++) perm[d] = d < 2 ? 1 - d : d;
    transpose_of.dim[0] = s.dim[1];
    transpose_of.dim[1] = s.dim[0];
    if (s.dim[0] > 1) x = tutti_permute(g, x, perm, s.n_dims);
    x = tutti_reshape(g, x, &TUTTI_SHAPE(1, s.dim[1], -1));
    x = tutti_group_norm_of(g, x, s.dim[1], weight, bias, eps);
    x = tutti_reshape(g, x, s.dim[0] > 1 ? &transpose_of : &s);
    return s.dim[0] > 1 ? tutti_permute(g, x, perm, s.n_dims) : x;
}

/* A training graph uses the batch's statistics even if the model was exported for evaluation. Only
 * a layer that was frozen while others trained keeps its running statistics. */
static void normalize_batch(tti_building *b, const tti_call *c, bool trains, double momentum,
                            double eps) {
    tutti_batch_norm_tensors t = {.eps = eps};
    const bool tracks = tti_has(c, 3) && tti_has(c, 4);
    if (!tti_of_batch(tti_operand_at(b, c, 0)) && (trains || !tracks)) {
        tti_set_result_like(b, c, norm_of_weights(b, c, eps));
        return;
    }
    if (!tracks) {
        tti_refuse(b,
                   "a batch norm without running statistics (track_running_stats=False) is not "
                   "supported: in evaluation a row's result would depend on the other rows");
        return;
    }
    bool computed = tti_operand_at(b, c, 3)->kind == TTI_OPERAND_GRAPH ||
                    tti_operand_at(b, c, 4)->kind == TTI_OPERAND_GRAPH;
    if (!trains && computed) { /* the model computes the statistics, so they are not updated here */
        tti_set_result_like(b, c, frozen_norm(b, c, tti_float_at(b, c, 0), eps));
        return;
    }
    if (!(momentum > 0 && momentum <= 1)) tti_refuse(b, "momentum %g is out of range", momentum);
    tutti_value *x = tti_float_at(b, c, 0);
    if (tti_any_trains(b) && !trains) {
        tti_set_result_like(b, c, frozen_norm(b, c, x, eps));
        return;
    }
    check_eps(b, eps);
    t.weight = tti_weight_at(b, c, 1);
    t.bias = tti_weight_at(b, c, 2);
    tti_sharing own = {0};
    t.running_mean = moving_buffer(b, c, 3, momentum, &own);
    t.running_var = moving_buffer(b, c, 4, momentum, &own);
    t.n_calls = own.n_calls;
    t.call = own.call;
    t.momentum = momentum;
    merged_rows merged;
    x = samples_first(b, x, &merged);
    if (!tti_good(b)) return;
    tutti_value *y = tutti_batch_norm_of(tti_graph_of(b), x, &t, tti_layer_name_of(b));
    tti_set_result_like(b, c, samples_merged(b, y, &merged));
}

/* input weight bias running_mean running_var training momentum eps */
static void batch_norm(tti_building *b, const tti_call *c) {
    normalize_batch(b, c, tti_bool_at(b, c, 5), tti_number_at(b, c, 6), tti_number_at(b, c, 7));
}

/* input weight bias running_mean running_var momentum eps */
static void batch_norm_of_evaluation(tti_building *b, const tti_call *c) {
    normalize_batch(b, c, false, tti_number_at(b, c, 5), tti_number_at(b, c, 6));
}

#define BATCH_NORM "input weight bias running_mean running_var training momentum eps"
#define LAYER(op, args, fn) \
    { .target = "aten." op, .signature = args, .build = fn }

const tti_operator tti_operators_norm[] = {
    LAYER("native_layer_norm.default", "input normalized_shape weight bias eps", layer_norm),
    LAYER("native_group_norm.default", "input weight bias N C HxW group eps", native_group_norm),
    LAYER("_native_batch_norm_legit_functional.default", BATCH_NORM, batch_norm),
    LAYER("_native_batch_norm_legit.default", BATCH_NORM, batch_norm),
    LAYER("native_batch_norm.default", BATCH_NORM, batch_norm),
    LAYER("_native_batch_norm_legit_no_training.default",
          "input weight bias running_mean running_var momentum eps", batch_norm_of_evaluation),
    LAYER("layer_norm.default",
          "input normalized_shape weight=None bias=None eps=0.00001 cudnn_enable!=True",
          layer_norm),
    LAYER("rms_norm.default", "input normalized_shape weight=None eps=None", rms_norm),
    LAYER("group_norm.default",
          "input num_groups weight=None bias=None eps=0.00001 cudnn_enabled!=True", group_norm),
    LAYER("instance_norm.default",
          "input weight bias running_mean running_var use_input_stats momentum eps "
          "cudnn_enabled!=True",
          instance_norm),
    LAYER("batch_norm.default", BATCH_NORM " cudnn_enabled!=True", batch_norm),
    {0},
};
