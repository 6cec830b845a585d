/* present.c - excludes padding, the rows that fill up a short batch, from operators over samples.
 *
 * Padding rows are copies of a sample. In a shard without samples all rows count, so that divisions
 * by a sum stay finite; its results are discarded (train/setup/shard_graph.c). */
#include <math.h>

#include "base/error.h"
#include "import/graph/building.h"

static tutti_value *number(tutti_graph *g, double x) {
    return tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, x);
}

/* Returns f32 [batch]: 1 for present rows, else 0; 1 for all rows of a shard without samples. */
static tutti_value *find_present(tti_building *b) {
    tutti_graph *g = b->graph;
    if (b->is_present) return b->is_present;
    tutti_value *wide = tutti_cast(g, b->present, TUTTI_F32);
    wide = tutti_minimum(g, tutti_abs(g, tutti_affine(g, wide, 1, 1)), number(g, 1));
    tutti_value *none = tutti_affine(g, tutti_max(g, wide, NULL), -1, 1);
    b->is_present = tutti_maximum(g, wide, none);
    b->n_present = tutti_sum(g, b->is_present, NULL);
    return b->is_present;
}

bool tti_has_padding(const tti_building *b) { return b->present != NULL; }

tutti_batch tti_batch_of(tti_building *b, const tutti_value *x) {
    tutti_batch at = {0};
    if (tti_good(b)) tutti_find_batch(b->graph, x, &at);
    return at;
}

unsigned tti_sample_dims(tti_building *b, const tutti_value *x, unsigned dims) {
    const tutti_batch at = tti_batch_of(b, x);
    unsigned found = 0;
    for (int d = 0; d < TUTTI_MAX_DIMS; d++)
        if (at.inner[d] != 0) found |= 1u << d;
    return found & dims;
}

/* Reshapes rows f32 [batch] so that it broadcasts to `shape`, whose dimension dim is [outer, batch,
 * inner]. */
static tutti_value *along(tti_building *b, tutti_value *rows, const tutti_shape *shape, int dim,
                          int64_t inner) {
    tutti_graph *g = b->graph;
    tutti_shape to = {.n_dims = shape->n_dims};
    int64_t outer = shape->dim[dim] / (b->batch * inner);
    for (int d = 0; d < to.n_dims; d++) to.dim[d] = d == dim ? shape->dim[d] : 1;
    if (outer > 1 || inner > 1) {
        rows = tutti_reshape(g, rows, &TUTTI_SHAPE(1, b->batch, 1));
        rows = tutti_broadcast_to(g, rows, &TUTTI_SHAPE(outer, b->batch, inner));
    }
    return tutti_reshape(g, rows, &to);
}

tutti_value *tti_present_at(tti_building *b, tutti_value *x, const tutti_batch *at, unsigned dims) {
    for (int d = 0; b->present && x && d < TUTTI_MAX_DIMS && tti_good(b); d++) {
        if (!(dims >> d & 1u) || at->inner[d] == 0) continue;
        const tutti_shape shape = tutti_value_type(x).shape;
        x = tutti_keep(b->graph, x, along(b, find_present(b), &shape, d, at->inner[d]));
    }
    return x;
}

tutti_value *tti_present_in(tti_building *b, tutti_value *x, unsigned dims) {
    const tutti_batch at = tti_batch_of(b, x);
    return tti_present_at(b, x, &at, dims);
}

tutti_value *tti_fill_padding(tti_building *b, tutti_value *x, unsigned dims, double low) {
    const tutti_batch at = tti_batch_of(b, x);
    tutti_graph *g = b->graph;
    for (int d = 0; b->present && x && d < TUTTI_MAX_DIMS && tti_good(b); d++) {
        if (!(dims >> d & 1u) || at.inner[d] == 0) continue;
        const tutti_shape shape = tutti_value_type(x).shape;
        tutti_value *there = along(b, find_present(b), &shape, d, at.inner[d]);
        tutti_value *rest = isinf(low) ? tutti_log(g, there) : tutti_affine(g, there, -low, low);
        x = tutti_add(g, tutti_keep(g, x, there), rest);
    }
    return x;
}

tutti_value *tti_per_present(tti_building *b, tutti_value *sum, const tutti_value *x,
                             unsigned dims) {
    const tutti_batch at = tti_batch_of(b, x);
    if (!sum || !x) return NULL;
    const tutti_shape shape = tutti_value_type(x).shape;
    double n = 1; /* number of elements per result and sample */
    int n_counts = 0;
    for (int d = 0; d < shape.n_dims; d++) {
        if (!(dims >> d & 1u)) continue;
        bool counts = at.inner[d] != 0;
        n *= (double)shape.dim[d] / (counts ? (double)TTI_MAX(b->batch, 1) : 1);
        n_counts += counts;
    }
    sum = tutti_affine(b->graph, sum, 1 / n, 0);
    for (int i = 0; i < n_counts; i++) sum = tutti_div(b->graph, sum, tti_n_present(b));
    return sum;
}

tutti_value *tti_n_present_in(tti_building *b, const tutti_value *x, unsigned dims) {
    const tutti_batch at = tti_batch_of(b, x);
    const tutti_shape shape = tutti_value_type(x).shape;
    tutti_graph *g = b->graph;
    tutti_value *n = NULL;
    double others = 1;
    for (int d = 0; d < shape.n_dims; d++) {
        if (!(dims >> d & 1u)) continue;
        bool counts = b->present && at.inner[d] != 0;
        others *= (double)shape.dim[d] / (counts ? (double)TTI_MAX(b->batch, 1) : 1);
        if (!counts) continue;
        n = n ? tutti_mul(g, n, tti_n_present(b)) : tti_n_present(b);
    }
    return n ? tutti_affine(g, n, others, 0) : number(g, others);
}

tutti_value *tti_put_present(tti_building *b, tutti_value *x, tutti_value *places, int dim,
                             int64_t n) {
    const tutti_batch own = tti_batch_of(b, x), by = tti_batch_of(b, places);
    x = tti_present_at(b, x, own.inner[dim] != 0 ? &own : &by, 1u << dim);
    return tutti_put_along(b->graph, x, places, dim, n);
}

tutti_value *tti_n_present(tti_building *b) {
    if (!b->present) return number(b->graph, (double)b->batch);
    find_present(b);
    return b->n_present;
}
