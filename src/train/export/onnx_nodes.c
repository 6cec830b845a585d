/* onnx_nodes.c - adds names, constants and nodes to an ONNX graph, for the rules. */
#include <string.h>

#include "train/export/onnx_emit.h"

const tti_node *tti_onnx_twin(const tti_onnx_emit *e, const tti_node *node) {
    return e->twin ? e->twin->nodes[node->id] : node;
}

static const char *new_name(tti_onnx_emit *e) {
    const char *name = tti_arena_printf(&e->arena, "v.%d", e->n_made++);
    return name ? name : "";
}

tti_onnx_attr tti_onnx_ints(const char *key, int n, const int64_t *v) {
    tti_onnx_attr attr = {.name = key, .kind = TTI_ONNX_INTS, .n = n};
    for (int i = 0; i < n; i++) attr.v[i] = v[i];
    return attr;
}

const char *tti_onnx_in(const tti_onnx_emit *e, const tti_node *node, int i) {
    const char *name = e->names[node->in[i]->id];
    return name ? name : "";
}

const char *tti_onnx_op(tti_onnx_emit *e, const char *op, const char *const *in,
                        const tti_onnx_attr *attrs) {
    const char *out = new_name(e);
    tti_onnx_node node = {.op = op, .in = in, .out = &out, .n_out = 1, .attrs = attrs};
    while (in[node.n_in]) node.n_in++;
    tti_onnx_add_node(&e->file, &node);
    return out;
}

void tti_onnx_split(tti_onnx_emit *e, const char *x, int64_t axis, int n, const int64_t *sizes,
                    const char **out) {
    const char *in[] = {x, tti_onnx_list(e, n, sizes)};
    for (int i = 0; i < n; i++) out[i] = new_name(e);
    tti_onnx_add_node(&e->file,
                      &(tti_onnx_node){.op = "Split",
                                       .in = in,
                                       .n_in = 2,
                                       .out = out,
                                       .n_out = n,
                                       .attrs = (tti_onnx_attr[]){TTI_ONNX_I("axis", axis), {0}}});
}

const char *tti_onnx_floats(tti_onnx_emit *e, const tutti_shape *shape, const float *data) {
    const char *name = new_name(e);
    tti_onnx_add_tensor(&e->file, name, &(tutti_type){TUTTI_F32, *shape}, data);
    return name;
}

const char *tti_onnx_number(tti_onnx_emit *e, double x) {
    float f = (float)x;
    return tti_onnx_floats(e, &(tutti_shape){0}, &f);
}

const char *tti_onnx_list(tti_onnx_emit *e, int n, const int64_t *v) {
    const char *name = new_name(e);
    tti_onnx_add_tensor(&e->file, name, &(tutti_type){TUTTI_I64, TUTTI_SHAPE(n)}, v);
    return name;
}

const char *tti_onnx_reshape(tti_onnx_emit *e, const char *x, int n, const int64_t *dim) {
    return TTI_ONNX_OP(e, "Reshape", NULL, x, tti_onnx_list(e, n, dim));
}

const char *tti_onnx_transpose(tti_onnx_emit *e, const char *x, int n, const int64_t *perm) {
    tti_onnx_attr attrs[] = {tti_onnx_ints("perm", n, perm), {0}};
    return TTI_ONNX_OP(e, "Transpose", attrs, x);
}

const char *tti_onnx_place(tti_onnx_emit *e, int64_t here, int64_t there) {
    if (here == there) return tti_onnx_list(e, 1, &here);
    int64_t past = here - e->n_t;
    e->fixed_length |= there - e->twin_t != past;
    if (past == 0) return e->length;
    return TTI_ONNX_OP(e, "Add", NULL, e->length, tti_onnx_list(e, 1, &past));
}

/* Adds i64 [1]: a dimension as a multiple of the length, derived from its values in this graph and
 * in the twin. */
static const char *dimension(tti_onnx_emit *e, int64_t here, int64_t there) {
    if (here == there) return tti_onnx_list(e, 1, &here);
    int64_t times = here / e->n_t;
    e->fixed_length |= here % e->n_t != 0 || there != times * e->twin_t;
    if (times == 1) return e->length;
    return TTI_ONNX_OP(e, "Mul", NULL, e->length, tti_onnx_list(e, 1, &times));
}

const char *tti_onnx_shape(tti_onnx_emit *e, const tti_node *node, int64_t first) {
    tutti_shape here = node->out[0]->type.shape;
    tutti_shape there = tti_onnx_twin(e, node)->out[0]->type.shape;
    const char *dims[TUTTI_MAX_DIMS + 1] = {NULL};
    if (first != 0) here.dim[0] = there.dim[0] = first;
    if (tti_shape_equal(&here, &there)) return tti_onnx_list(e, here.n_dims, here.dim);
    for (int i = 0; i < here.n_dims; i++) dims[i] = dimension(e, here.dim[i], there.dim[i]);
    return tti_onnx_op(e, "Concat", dims, (tti_onnx_attr[]){TTI_ONNX_I("axis", 0), {0}});
}
