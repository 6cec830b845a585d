/* accumulate.c - plans the additions of shard gradients along the tree. */
#include "exec/program/accumulate.h"

#include <stdlib.h>

#include "base/dtype.h"
#include "base/error.h"
#include "ops/loss/losses.h"

typedef struct simulation {
    tti_accumulation *acc;
    tti_partial stack[TTI_MAX_PARTIALS];
    int buffer[TTI_MAX_PARTIALS]; /* buffers of the partial sums on the stack */
    int depth;
    bool *busy; /* [n shards]: buffers in use */
} simulation;

/* True if the two topmost partial sums are the halves of one subtree. */
static bool are_siblings(const simulation *p) {
    if (p->depth < 2) return false;
    const tti_partial *left = &p->stack[p->depth - 2], *right = &p->stack[p->depth - 1];
    return left->level == right->level && left->index % 2 == 0 && right->index == left->index + 1;
}

tutti_status tti_accumulation_init(tti_accumulation *acc, int first, int last,
                                   int n_compute_threads) {
    TTI_ASSERT(first <= last && n_compute_threads >= 1 &&
               n_compute_threads <= TTI_MAX_COMPUTE_THREADS);
    *acc = (tti_accumulation){0};
    size_t n_shards = (size_t)(last - first);
    simulation p = {.acc = acc, .busy = calloc(n_shards + 1, sizeof(bool))};
    acc->micro_groups = calloc(n_shards + 1, sizeof *acc->micro_groups);
    acc->merges = calloc(n_shards + 1, sizeof *acc->merges);
    if (!p.busy || !acc->micro_groups || !acc->merges) {
        free(p.busy);
        tti_accumulation_fini(acc);
        return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    }
    for (int s = first; s < last; s += n_compute_threads) {
        tti_micro_group *micro_group = &acc->micro_groups[acc->n_micro_groups++];
        *micro_group =
            (tti_micro_group){.first = s, .n_shards = TTI_MIN(n_compute_threads, last - s)};
        for (int i = 0, b = 0; i < micro_group->n_shards; i++) {
            while (p.busy[b]) b++;
            p.busy[b] = true;
            acc->n_buffers = TTI_MAX(acc->n_buffers, b + 1);
            micro_group->buffer[i] = b;
        }
        micro_group->first_merge = p.acc->n_merges;
        for (int i = 0; i < micro_group->n_shards; i++) {
            int shard = micro_group->first + i;
            p.stack[p.depth] = (tti_partial){.level = 0, .index = shard};
            p.buffer[p.depth++] = micro_group->buffer[i];
            while (are_siblings(&p)) {
                p.depth--;
                tti_partial *left = &p.stack[p.depth - 1];
                *left = (tti_partial){.level = left->level + 1, .index = left->index / 2};
                p.acc->merges[p.acc->n_merges++] =
                    (tti_merge){p.buffer[p.depth - 1], p.buffer[p.depth]};
                p.busy[p.buffer[p.depth]] = false;
            }
        }
        micro_group->n_merges = p.acc->n_merges - micro_group->first_merge;
    }
    acc->n_partials = p.depth;
    for (int i = 0; i < p.depth; i++) {
        acc->partials[i] = p.stack[i];
        acc->partial_buffer[i] = p.buffer[i];
    }
    free(p.busy);
    return TUTTI_OK;
}

void tti_accumulation_round_alone(tti_accumulation *acc) {
    TTI_ASSERT(acc->n_micro_groups == 1 && acc->n_partials == 1 && acc->n_merges == 0);
    acc->merges[acc->n_merges++] = (tti_merge){.dst = acc->partial_buffer[0], .src = -1};
    acc->micro_groups[0].n_merges = 1;
}

void tti_accumulation_fini(tti_accumulation *acc) {
    free(acc->micro_groups);
    free(acc->merges);
    *acc = (tti_accumulation){0};
}

/* ---- finds the last reader of each parameter ----
 *
 * Gradients are computed as early as possible (schedule.c): that of a weight may be complete before
 * the gradient of its layer's input, which reads the weight. */

void tti_bucket_due(const tti_plan *plan, int *due) {
    const tti_program *program = &plan->shard;
    int now = tti_sums_due(program);
    for (int b = 0; b < plan->n_buckets; b++) due[b] = plan->buckets[b].ready_after;
    for (int s = 0; s < program->n_steps; s++)
        for (int i = 0; i < program->steps[s]->n_in; i++) {
            const tutti_value *in = program->steps[s]->in[i];
            const tti_buf *buf = &program->bufs[in->id];
            if (buf->space != TTI_SPACE_PARAM) continue;
            /* Buckets that contain bytes first .. last-1 of the parameters are not due before
             * step. */
            size_t last = buf->offset + tti_value_n_bytes(in);
            for (int b = 0; b < plan->n_buckets; b++) {
                size_t begin = plan->buckets[b].first * sizeof(float);
                size_t end = begin + plan->buckets[b].n_elems * sizeof(float);
                if (buf->offset < end && begin < last) due[b] = TTI_MAX(due[b], s);
            }
        }
    for (int b = 0; b < plan->n_buckets; b++) now = due[b] = TTI_MAX(due[b], now);
}

/* Returns the step that writes a value, or the last one that writes a part of it; 0: the value is
 * stored. */
static int made_in(const tti_program *program, const tutti_value *value) {
    const tti_node *maker = tti_skip_views(value)->node;
    int due = 0;
    for (int s = 0; s < program->n_steps; s++)
        if (program->steps[s] == maker) return s;
    for (int i = 0; i < maker->n_in; i++) due = TTI_MAX(due, made_in(program, maker->in[i]));
    return due;
}

int tti_sums_due(const tti_program *program) {
    const tutti_graph *g = program->graph;
    int due = 0;
    for (int i = 0; i < g->n_outputs; i++)
        if (tti_is_step_sum(g->outputs[i].name))
            due = TTI_MAX(due, made_in(program, g->outputs[i].value));
    return due;
}
