/* tensor_shard.c - maps the elements of a tensor shard to those of the whole parameter.
 *
 * Around the divided dimension the whole is [outer, groups, n, part, inner] and the tensor shard
 * [outer, groups, part, inner]: runs of part * inner elements. */
#include "ops/tensor_shard.h"

#include "ops/rules.h"

tti_tensor_shard tti_tensor_shard_of(const tti_node *param) {
    if (!tti_attr_has(param, "cut_dim") || tti_attr_int(param, "cut_dim") < 0)
        return (tti_tensor_shard){.dim = -1, .n = 1, .groups = 1};
    return (tti_tensor_shard){
        .dim = (int)tti_attr_int(param, "cut_dim"),
        .n = (int)tti_attr_int(param, "cut_n"),
        .index = (int)tti_attr_int(param, "cut_index"),
        .groups = tti_attr_has(param, "cut_groups") ? (int)tti_attr_int(param, "cut_groups") : 1};
}

/* The shape of the whole parameter. */
static tutti_shape whole_of(const tutti_shape *shard, const tti_tensor_shard *of) {
    tutti_shape whole = *shard;
    if (of->dim >= 0) whole.dim[of->dim] *= of->n;
    return whole;
}

tutti_status tti_tensor_shard_check(const tti_node *node, const tutti_shape *shard) {
    int64_t dim = tti_attr_int(node, "cut_dim"), n = tti_attr_int(node, "cut_n");
    int64_t index = tti_attr_int(node, "cut_index");
    int64_t groups = tti_attr_has(node, "cut_groups") ? tti_attr_int(node, "cut_groups") : 1;
    if (dim < -1 || dim >= shard->n_dims)
        return tti_node_fail(node, "cut_dim %lld of %d dimensions does not exist", (long long)dim,
                             shard->n_dims);
    if (n < 1 || n > 1 << 16 || index < 0 || index >= n || (dim < 0 && n != 1))
        return tti_node_fail(node, "shard %lld of %lld does not exist", (long long)index,
                             (long long)n);
    if (groups < 1 || groups > 1 << 16 || (dim >= 0 && shard->dim[dim] % groups))
        return tti_node_fail(node, "%lld groups do not divide the shard", (long long)groups);
    tutti_shape whole = *shard;
    if (dim < 0) return TUTTI_OK;
    if (!__builtin_mul_overflow(shard->dim[dim], n, &whole.dim[dim]) &&
        tti_shape_check(&whole) == TUTTI_OK)
        return TUTTI_OK;
    return tti_node_fail(node, "the parameter of %lld shards is too large", (long long)n);
}

tutti_shape tti_tensor_shard_whole(const tti_node *param) {
    tti_tensor_shard of = tti_tensor_shard_of(param);
    return whole_of(&param->out[0]->type.shape, &of);
}

size_t tti_tensor_shard_n_runs(const tti_node *param) {
    tti_tensor_shard of = tti_tensor_shard_of(param);
    if (of.dim < 0) return 1;
    return tti_view_axis(&param->out[0]->type.shape, of.dim).outer * (size_t)of.groups;
}

tti_tensor_shard_run tti_tensor_shard_run_at(const tti_node *param, size_t i) {
    tti_tensor_shard of = tti_tensor_shard_of(param);
    if (of.dim < 0) return (tti_tensor_shard_run){0, 0, tti_out_n(param, 0)};
    tti_axis_view shard = tti_view_axis(&param->out[0]->type.shape, of.dim);
    size_t n = shard.n / (size_t)of.groups * shard.inner;
    return (tti_tensor_shard_run){(i * (size_t)of.n + (size_t)of.index) * n, i * n, n};
}
