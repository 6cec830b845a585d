/* bucket_due.c - finds the last reader of each parameter.
 *
 * Gradients are computed as early as possible (schedule.c): that of a weight may be complete before
 * the gradient of its layer's input, which reads the weight. */
#include "exec/program/bucket_due.h"

#include "base/dtype.h"

/* Buckets that have bytes first .. last-1 of the parameters are not due before step. */
static void hold(const tti_plan *plan, size_t first, size_t last, int step, int *due) {
    for (int b = 0; b < plan->n_buckets; b++) {
        size_t begin = plan->buckets[b].first * sizeof(float);
        size_t end = begin + plan->buckets[b].n_elems * sizeof(float);
        if (first < end && begin < last) due[b] = TTI_MAX(due[b], step);
    }
}

void tti_bucket_due(const tti_plan *plan, int *due) {
    const tti_program *program = &plan->shard;
    int now = tti_sums_due(program);
    for (int b = 0; b < plan->n_buckets; b++) due[b] = plan->buckets[b].ready_after;
    for (int s = 0; s < program->n_steps; s++)
        for (int i = 0; i < program->steps[s]->n_in; i++) {
            const tutti_value *in = program->steps[s]->in[i];
            const tti_buf *buf = &program->bufs[in->id];
            if (buf->space != TTI_SPACE_PARAM) continue;
            hold(plan, buf->offset, buf->offset + tti_value_n_bytes(in), s, due);
        }
    for (int b = 0; b < plan->n_buckets; b++) now = due[b] = TTI_MAX(due[b], now);
}

/* The node that makes a value; for a view the one that makes its base. */
static const tti_node *maker_of(const tutti_value *value) {
    const tti_node *node = value->node;
    while ((node->op->traits & TTI_VIEW) && node->n_in > 0) node = node->in[0]->node;
    return node;
}

int tti_sums_due(const tti_program *program) {
    static const char *const names[] = {"loss_sum", "count", "correct"};
    int due = 0;
    for (size_t i = 0; i < TTI_COUNT(names); i++) {
        tutti_value *sum = tti_graph_output(program->graph, names[i]);
        const tti_node *maker = sum ? maker_of(sum) : NULL;
        for (int s = 0; maker && s < program->n_steps; s++)
            if (program->steps[s] == maker) due = TTI_MAX(due, s);
    }
    return due;
}
