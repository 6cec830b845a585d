/* bucket.c - places parameters in the flat arrays and divides gradients into buckets.
 *
 * Slots are in the order in which the shard program completes their gradients, so a bucket, a run
 * of neighbouring slots, completes early and is one contiguous range. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "passes/plan.h"

static bool reads(const tti_node *node, const tutti_value *value) {
    for (int i = 0; i < node->n_in; i++) {
        const tutti_value *in = node->in[i];
        while (in != value && (in->node->op->traits & TTI_VIEW)) in = in->node->in[0];
        if (in == value) return true;
    }
    return false;
}

/* The step that makes value. */
static int made_after(const tti_program *program, const tutti_value *value) {
    const tti_node *maker = tti_skip_views(value)->node;
    for (int i = 0; i < program->n_steps; i++)
        if (program->steps[i] == maker) return i;
    return -1;
}

/* The last step that makes or reads value: afterwards its slot belongs to the reduction.  A
 * gradient has readers if two parameters share it, as a and b do in x + (a + b). */
static int last_use(const tti_program *program, const tutti_value *value) {
    int last = -1;
    for (int i = 0; i < program->n_steps; i++)
        if (program->steps[i] == value->node || reads(program->steps[i], value)) last = i;
    return last;
}

/* Buffers, such as running statistics, are handled like parameters: a shard's contribution to them
 * takes the place of the gradient. */
static tutti_status make_slot(const tti_plan *plan, const tti_node *param, tti_slot *slot) {
    char name[600];
    bool buffer = (param->op->traits & TTI_BUFFER) != 0;
    snprintf(name, sizeof name, "%s.%s", buffer ? "stat" : "grad", param->name);
    const tutti_value *grad = tti_graph_output(plan->shard.graph, name);
    if (!grad)
        return tti_fail(TUTTI_E_INTERNAL, "plan: parameter '%s' has no gradient", param->name);
    const tti_neighbours *neighbours = &plan->shard.neighbours;
    const tti_node *first = neighbours->first[param->id];
    const tutti_value *whole = neighbours->cut_from[grad->node->id];
    *slot = (tti_slot){.param = param,
                       .group = first ? first->id : param->id,
                       .place = neighbours->place[param->id],
                       .n_elems = (size_t)tti_value_n_elems(param->out[0]),
                       .buffer = buffer,
                       .decay = !buffer && tti_attr_int(param, "decay") != 0,
                       .made_after = made_after(&plan->shard, whole ? whole : grad),
                       .ready_after = last_use(&plan->shard, whole ? whole : grad)};
    TTI_ASSERT(slot->ready_after >= 0);
    return TUTTI_OK;
}

static int by_place(const tti_slot *x, const tti_slot *y) {
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

/* By readiness; gradients of one node in order of their parameters, neighbours together. */
static int by_readiness(const void *a, const void *b) {
    const tti_slot *x = a, *y = b;
    if (x->ready_after != y->ready_after) return x->ready_after < y->ready_after ? -1 : 1;
    return by_place(x, y);
}

/* Likewise, by when they are made: collectives that overlap with kernels of a device (schedule.c)
 * keep that order, but not the order of readers, and every backend must have the same layout. */
static int by_making(const void *a, const void *b) {
    const tti_slot *x = a, *y = b;
    if (x->made_after != y->made_after) return x->made_after < y->made_after ? -1 : 1;
    return by_place(x, y);
}

/* Gradients come from the back, where a model made its parameters last; passes keep the order of
 * these. */
static int by_creation(const void *a, const void *b) {
    const tti_slot *x = a, *y = b;
    return x->param->id > y->param->id ? -1 : 1;
}

typedef int (*slot_order)(const void *a, const void *b);

static slot_order order_of(const tti_plan_desc *desc) {
    bool is_divided = desc->target->n_tensor > 1 && desc->target->n_stages <= 1;
    if (desc->by_creation) return by_creation;
    return is_divided ? by_making : by_readiness;
}

static tutti_status make_slots(tti_plan *plan, slot_order order) {
    const tutti_graph *g = plan->shard.graph;
    plan->slots = calloc((size_t)g->n_nodes + 1, sizeof *plan->slots);
    if (!plan->slots) return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op->traits & (TTI_PARAM | TTI_BUFFER))
            TTI_TRY(make_slot(plan, g->nodes[i], &plan->slots[plan->n_slots++]));
    qsort(plan->slots, (size_t)plan->n_slots, sizeof *plan->slots, order);
    for (int i = 0; i < plan->n_slots; i++) {
        plan->slots[i].first = plan->n_flat;
        if (!plan->slots[i].buffer) plan->n_params += plan->slots[i].n_elems;
        plan->n_flat = tti_slot_end(plan->n_flat, plan->slots[i].n_elems);
    }
    return TUTTI_OK;
}

static size_t bytes_of_bucket(const tti_plan *plan, const tti_plan_desc *desc) {
    double flat = (double)plan->n_flat * sizeof(float);
    double bytes = fmax((double)desc->bucket_bytes, sqrt(flat * desc->bucket_growth));
    if (desc->bucket_most > 0) bytes = fmin(bytes, (double)desc->bucket_most);
    return (size_t)bytes;
}

/* Parameters of one group are read, or their gradients made, as one value: no bucket ends between
 * them, since each bucket may have its own memory. */
static bool ends_group(const tti_plan *plan, int slot) {
    return slot + 1 == plan->n_slots || plan->slots[slot].group != plan->slots[slot + 1].group;
}

tutti_status tti_plan_buckets(tti_plan *plan, const tti_plan_desc *desc) {
    int ready_after = 0;
    TTI_TRY(make_slots(plan, order_of(desc)));
    plan->bucket_bytes = bytes_of_bucket(plan, desc);
    plan->buckets = calloc((size_t)plan->n_slots + 1, sizeof *plan->buckets);
    if (!plan->buckets) return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    for (int i = 0; i < plan->n_slots; i++) {
        const tti_slot *slot = &plan->slots[i];
        tti_bucket *bucket = &plan->buckets[plan->n_buckets];
        size_t end = i + 1 < plan->n_slots ? plan->slots[i + 1].first : plan->n_flat;
        if (bucket->n_elems == 0) bucket->first = slot->first;
        bucket->n_elems = end - bucket->first;
        /* Buckets are reduced in their order: none is before the one in front of it. */
        ready_after = TTI_MAX(ready_after, slot->ready_after);
        bucket->ready_after = ready_after;
        bool is_long = bucket->n_elems * sizeof(float) >= plan->bucket_bytes;
        if (is_long && ends_group(plan, i)) plan->n_buckets++;
    }
    if (plan->buckets[plan->n_buckets].n_elems > 0) plan->n_buckets++;
    return TUTTI_OK;
}

int tti_plan_find_bucket(const tti_plan *plan, size_t first) {
    int low = 0, high = plan->n_buckets - 1; /* the last bucket that begins at or before first */
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (plan->buckets[middle].first <= first)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
