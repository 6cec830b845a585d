/* source.c - values that no op computes: inputs, parameters, buffers, constants.
 *
 * They have no reference: the executor provides inputs, stores parameters and fills constants once.
 * The initial values of a parameter are attributes of its node, so a graph describes them
 * completely (ops/init.h draws the numbers). */
#include <math.h>

#include "ops/rules.h"
#include "ops/tensor_shard.h"

static const tti_attr_spec input_attrs[] = {
    {"dtype", TTI_ATTR_INT, TUTTI_F32, "tutti_dtype"},
    {"dims", TTI_ATTR_INTS, 0, "shape"},
    {"offset", TTI_ATTR_INT, -1,
     "offset in bytes in a shard's samples; -1: not a field of samples"},
    {0},
};

/* Which shard of the whole the node is (ops/tensor_shard.h). */
#define SHARD_ATTRS                                                                          \
    {"cut_dim", TTI_ATTR_INT, -1, "dimension of which this is a shard; -1: whole"},          \
        {"cut_n", TTI_ATTR_INT, 1, "shards"}, {"cut_index", TTI_ATTR_INT, 0, "which one"}, { \
        "cut_groups", TTI_ATTR_INT, 1, "groups in the dimension, each divided alike"         \
    }

static const tti_attr_spec param_attrs[] = {
    {"dims", TTI_ATTR_INTS, 0, "shape"},
    {"init", TTI_ATTR_INT, TUTTI_INIT_ZEROS, "tutti_init_kind"},
    {"a", TTI_ATTR_FLOAT, 0, "see tutti_init_kind"},
    {"b", TTI_ATTR_FLOAT, 0, "see tutti_init_kind"},
    {"fan_in", TTI_ATTR_INT, 0, "0: from the shape"},
    {"decay", TTI_ATTR_INT, 0, "1: weight decay applies"},
    {"reach", TTI_ATTR_INT, TTI_GRAD_REACHES, "1: no gradient reaches it; 2: its gradient is 0"},
    SHARD_ATTRS,
    {0},
};

static const tti_attr_spec buffer_attrs[] = {
    {"dims", TTI_ATTR_INTS, 0, "shape"},
    {"init", TTI_ATTR_INT, TUTTI_INIT_ZEROS, "tutti_init_kind"},
    {"a", TTI_ATTR_FLOAT, 0, "see tutti_init_kind"},
    {"b", TTI_ATTR_FLOAT, 0, "see tutti_init_kind"},
    {"fan_in", TTI_ATTR_INT, 0, "0: from the shape"},
    {"momentum", TTI_ATTR_FLOAT, 0.1, "weight of the new value, 0 < momentum <= 1"},
    SHARD_ATTRS,
    {0},
};

static const tti_attr_spec constant_attrs[] = {
    {"dtype", TTI_ATTR_INT, TUTTI_F32, "tutti_dtype"},
    {"dims", TTI_ATTR_INTS, 0, "shape"},
    {"value", TTI_ATTR_FLOAT, 0, "the value of every element"},
    {0},
};

static const tti_attr_spec array_attrs[] = {
    {"dtype", TTI_ATTR_INT, TUTTI_F32, "tutti_dtype"},
    {"dims", TTI_ATTR_INTS, 0, "shape"},
    {"data", TTI_ATTR_BYTES, 0, "the elements, row-major, as in memory"},
    {0},
};

static tutti_status source_infer(const tti_node *node, tutti_type *out) {
    int64_t dtype = tti_attr_int(node, "dtype");
    if (dtype < 0 || dtype >= TUTTI_N_DTYPES)
        return tti_node_fail(node, "dtype %lld does not exist", (long long)dtype);
    out[0] = (tutti_type){(tutti_dtype)dtype, tti_get_shape(node, "dims")};
    return TUTTI_OK;
}

static tutti_status array_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(source_infer(node, out));
    if (tti_shape_check(&out->shape) != TUTTI_OK)
        return tti_node_fail(node, "%s", tutti_last_error());
    int64_t wanted = tutti_shape_n_elems(&out->shape) * (int64_t)tutti_dtype_bytes(out->dtype);
    int64_t n_bytes = tti_attr_get(node, "data")->i;
    if (n_bytes == wanted) return TUTTI_OK;
    return tti_node_fail(node, "data has %lld bytes, the type needs %lld", (long long)n_bytes,
                         (long long)wanted);
}

/* Checks the attributes for the initial values of a parameter or a buffer. */
static tutti_status check_init(const tti_node *node) {
    int64_t init = tti_attr_int(node, "init");
    if (init < 0 || init >= TUTTI_N_INIT_KINDS)
        return tti_node_fail(node, "init %lld does not exist", (long long)init);
    if (!isfinite(tti_attr_float(node, "a")) || !isfinite(tti_attr_float(node, "b")))
        return tti_node_fail(node, "a and b of the initialisation must be finite");
    if (tti_attr_int(node, "fan_in") < 0)
        return tti_node_fail(node, "fan_in must be >= 0, is %lld",
                             (long long)tti_attr_int(node, "fan_in"));
    return TUTTI_OK;
}

static tutti_status param_infer(const tti_node *node, tutti_type *out) {
    int64_t decay = tti_attr_int(node, "decay");
    TTI_TRY(check_init(node));
    if (decay != 0 && decay != 1)
        return tti_node_fail(node, "decay must be 0 or 1, is %lld", (long long)decay);
    int64_t reach = tti_attr_int(node, "reach");
    if (reach < TTI_GRAD_REACHES || reach > TTI_GRAD_IS_ZERO)
        return tti_node_fail(node, "reach must be 0, 1 or 2, is %lld", (long long)reach);
    out[0] = (tutti_type){TUTTI_F32, tti_get_shape(node, "dims")};
    return tti_tensor_shard_check(node, &out[0].shape);
}

static tutti_status buffer_infer(const tti_node *node, tutti_type *out) {
    double momentum = tti_attr_float(node, "momentum");
    TTI_TRY(check_init(node));
    if (!(momentum > 0 && momentum <= 1))
        return tti_node_fail(node, "momentum must be > 0 and <= 1, is %g", momentum);
    out[0] = (tutti_type){TUTTI_F32, tti_get_shape(node, "dims")};
    return tti_tensor_shard_check(node, &out[0].shape);
}

/* The split pass decides the placement of a source; by default every worker has all of it. */
static tutti_status source_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    (void)node, (void)in;
    out[0] = (tti_placement){TTI_WHOLE, 0};
    return TUTTI_OK;
}

/* ---- builders ---- */

static tutti_value *add_source(tutti_graph *g, const char *op, const char *name,
                               const tti_attr_arg *attrs) {
    tutti_value *none = NULL;
    return tti_emit(g, op, name, &none, 0, attrs);
}

/* A named source: the name must be there and new. */
static bool name_is_good(tutti_graph *g, const char *op, const char *name) {
    if (tti_graph_has_failed(g)) return false;
    if (!name || !name[0])
        tti_build_fail(g, "%s: it needs a name", op);
    else if (tti_graph_find_source(g, name))
        tti_build_fail(g, "%s '%s': the name is taken", op, name);
    return !tti_graph_has_failed(g);
}

/* A shape from outside may lie about its number of dimensions. */
static bool dims_are_good(tutti_graph *g, const char *op, const char *name,
                          const tutti_shape *shape) {
    if (!shape || shape->n_dims < 0 || shape->n_dims > TUTTI_MAX_DIMS)
        tti_build_fail(g, "%s '%s': a shape of 0 to %d dimensions is needed", op, name,
                       TUTTI_MAX_DIMS);
    return !tti_graph_has_failed(g);
}

tutti_value *tutti_input(tutti_graph *g, const char *name, tutti_dtype dtype,
                         const tutti_shape *shape) {
    if (!g || !name_is_good(g, "input", name) || !dims_are_good(g, "input", name, shape))
        return NULL;
    return add_source(
        g, "input", name,
        (tti_attr_arg[]){
            TTI_INT("dtype", (int64_t)dtype), TTI_INTS("dims", shape->n_dims, shape->dim), {0}});
}

tutti_value *tti_input_field(tutti_graph *g, const char *name, const tutti_type *type,
                             size_t offset) {
    if (!name_is_good(g, "input", name)) return NULL;
    return add_source(g, "input", name,
                      (tti_attr_arg[]){TTI_INT("dtype", (int64_t)type->dtype),
                                       TTI_INTS("dims", type->shape.n_dims, type->shape.dim),
                                       TTI_INT("offset", (int64_t)offset),
                                       {0}});
}

tutti_value *tutti_param(tutti_graph *g, const char *name, const tutti_shape *shape,
                         const tutti_init *init, bool decay) {
    const tutti_init zeros = {0};
    if (!g || !name_is_good(g, "param", name) || !dims_are_good(g, "param", name, shape))
        return NULL;
    if (!init) init = &zeros;
    return add_source(g, "param", name,
                      (tti_attr_arg[]){TTI_INTS("dims", shape->n_dims, shape->dim),
                                       TTI_INT("init", (int64_t)init->kind),
                                       TTI_FLOAT("a", init->a),
                                       TTI_FLOAT("b", init->b),
                                       TTI_INT("fan_in", init->fan_in),
                                       TTI_INT("decay", decay),
                                       {0}});
}

tutti_value *tutti_buffer(tutti_graph *g, const char *name, const tutti_shape *shape, double value,
                          double momentum) {
    if (!g || !name_is_good(g, "buffer", name) || !dims_are_good(g, "buffer", name, shape))
        return NULL;
    return add_source(g, "buffer", name,
                      (tti_attr_arg[]){TTI_INTS("dims", shape->n_dims, shape->dim),
                                       TTI_INT("init", TUTTI_INIT_CONSTANT),
                                       TTI_FLOAT("a", value),
                                       TTI_FLOAT("momentum", momentum),
                                       {0}});
}

tutti_value *tutti_constant(tutti_graph *g, tutti_dtype dtype, const tutti_shape *shape,
                            double value) {
    if (tti_graph_has_failed(g) || !dims_are_good(g, "constant", "", shape)) return NULL;
    return add_source(g, "constant", NULL,
                      (tti_attr_arg[]){TTI_INT("dtype", (int64_t)dtype),
                                       TTI_INTS("dims", shape->n_dims, shape->dim),
                                       TTI_FLOAT("value", value),
                                       {0}});
}

tutti_value *tutti_constant_array(tutti_graph *g, tutti_dtype dtype, const tutti_shape *shape,
                                  const void *data) {
    if (tti_graph_has_failed(g) || !dims_are_good(g, "array", "", shape)) return NULL;
    if (tti_shape_check(shape) != TUTTI_OK)
        return tti_build_fail(g, "array: %s", tutti_last_error());
    size_t n_bytes = (size_t)tutti_shape_n_elems(shape) * tutti_dtype_bytes(dtype);
    return add_source(g, "array", NULL,
                      (tti_attr_arg[]){TTI_INT("dtype", (int64_t)dtype),
                                       TTI_INTS("dims", shape->n_dims, shape->dim),
                                       TTI_BYTES("data", n_bytes, data),
                                       {0}});
}

/* ---- records ---- */

static const tti_sample input_samples[] = {
    {.in = "", .attrs = "dims=[2,3]"},
    {.in = "", .attrs = "dtype=4 dims=[0]"},
    {.in = ""},
    {.in = "", .attrs = "dtype=99", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[-1]", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[1099511627776,1099511627776]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample param_samples[] = {
    {.in = "", .attrs = "dims=[2,3] init=8 decay=1"},
    {.in = "", .attrs = "dims=[5] init=1 a=1"},
    {.in = "", .attrs = "dims=[6,2] cut_dim=0 cut_n=4 cut_index=3 cut_groups=3"},
    {.in = "", .attrs = "dims=[5] cut_dim=1", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[5] cut_dim=0 cut_n=2 cut_index=2", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[5] cut_n=2", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[5] cut_dim=0 cut_n=2 cut_groups=2", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[1048576,1048576] cut_dim=0 cut_n=2", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[9223372036854775807] cut_dim=0 cut_n=2", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[5] init=9", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[5] init=-1", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[5] fan_in=-2", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[5] decay=2", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample buffer_samples[] = {
    {.in = "", .attrs = "dims=[5] init=1 a=1"},
    {.in = "", .attrs = "dims=[2,3] momentum=1"},
    {.in = "", .attrs = "dims=[2,3] cut_dim=0 cut_n=2 cut_index=1"},
    {.in = "", .attrs = "dims=[2,3] cut_dim=2", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[5] init=9", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[5] momentum=0", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[5] momentum=1.5", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample array_samples[] = {
    {.in = "", .attrs = "dims=[2,1] data=0000803f000000c0"},
    {.in = "", .attrs = "dtype=6 dims=[3] data=0001ff"},
    {.in = "", .attrs = "dims=[0,2]"},
    {.in = "", .attrs = "dims=[2] data=0000803f", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dtype=99 dims=[1] data=0000803f", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[-1] data=0000803f", .expect = TUTTI_E_INVALID},
    {.in = "", .attrs = "dims=[1099511627776,1099511627776]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_source[] = {
    {.name = "input",
     .doc = "set at every step",
     .n_out = 1,
     .attrs = input_attrs,
     .traits = TTI_SOURCE | TTI_INPUT,
     .infer = source_infer,
     .shard = source_shard,
     .cost = tti_cost_free,
     .samples = input_samples},
    {.name = "param",
     .doc = "an f32 tensor that is trained",
     .n_out = 1,
     .attrs = param_attrs,
     .traits = TTI_SOURCE | TTI_PARAM,
     .infer = param_infer,
     .shard = source_shard,
     .cost = tti_cost_free,
     .samples = param_samples},
    {.name = "buffer",
     .doc = "an f32 tensor that is stored but not trained",
     .n_out = 1,
     .attrs = buffer_attrs,
     .traits = TTI_SOURCE | TTI_BUFFER,
     .infer = buffer_infer,
     .shard = source_shard,
     .cost = tti_cost_free,
     .samples = buffer_samples},
    {.name = "constant",
     .doc = "filled once with value",
     .n_out = 1,
     .attrs = constant_attrs,
     .traits = TTI_SOURCE | TTI_CONSTANT,
     .infer = source_infer,
     .shard = source_shard,
     .cost = tti_cost_free,
     .samples = input_samples},
    {.name = "array",
     .doc = "filled once with the elements of data",
     .n_out = 1,
     .attrs = array_attrs,
     .traits = TTI_SOURCE | TTI_CONSTANT,
     .infer = array_infer,
     .shard = source_shard,
     .cost = tti_cost_free,
     .samples = array_samples},
    {0},
};
