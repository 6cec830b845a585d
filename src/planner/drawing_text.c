/* drawing_text.c - prints the layout of a job's workers as text: what each stores, then what is
 * sent. */
#include <string.h>

#include "planner/drawing.h"
#include "planner/stage_sim.h"
#include "train/loop/averaging.h"

/* ---- a parameter server ---- */

/* Prints which server has which range of the parameters, and the traffic per batch. */
static tutti_status print_ranges(const tti_drawing *d) {
    int n = tti_drawing_n_ranges(d);
    tti_str_add(d->out, "\nparameters and state for all workers are stored by ");
    if (tti_drawing_has_processes(d))
        tti_str_add(d->out, n > 1 ? "the first of them, a range each:\n" : "the first of them:\n");
    else if (n > 1)
        tti_str_printf(d->out, "a server of %d threads, a range each:\n", n);
    else
        tti_str_add(d->out, "a server of one thread:\n");
    for (int r = 0; r < n; r++) {
        tti_resident_range range;
        TTI_TRY(tti_drawing_range(d, r, &range));
        tti_str_printf(d->out, "  %s %-3d %zu elements from %zu  parameters %.2f MiB  state %.2f\n",
                       tti_drawing_has_processes(d) ? "worker" : "thread", r,
                       range.keys.last - range.keys.first, range.keys.first, tti_mib(range.params),
                       tti_mib(range.states));
    }
    tti_str_printf(d->out,
                   "each worker pushes its gradient and pulls parameters: %.3f MiB each way\n",
                   tti_mib(d->exec.plan->n_flat * sizeof(float)));
    return TUTTI_OK;
}

static void print_state_owners(const tti_drawing *d) {
    size_t longest = 0;
    for (int i = 0; i < d->b->n_model_ranks; i++)
        longest = TTI_MAX(longest, tti_blueprint_plan(d->b, i)->n_flat);
    tti_str_printf(
        d->out,
        "\nparameters and state of each part of the model are stored once, by the worker of "
        "the first replica that has the part;\nthe other %d replicas push gradients to it and pull "
        "parameters: %.3f MiB each way for the largest part\n",
        d->scheme.data - 1, tti_mib(longest * sizeof(float)));
}

static void print_worker(const tti_drawing *d, int rank, const tti_worker_storage *h) {
    tti_str_printf(d->out, "worker %-3d", rank);
    if (d->n_workers > d->scheme.data)
        tti_str_printf(d->out, " [data %d, stage %d, tensor shard %d]", h->at.data, h->at.stage,
                       h->at.tensor);
    tti_drawing_print_place(d, rank);
    tti_str_printf(d->out,
                   "  shards %d..%d  parameters %.2f MiB (%d tensors, %s .. %s)  state %.2f  "
                   "gradients %.2f  activations %.2f",
                   h->first_shard, h->last_shard - 1, tti_mib(h->bytes.params), h->plan->n_slots,
                   h->first, h->last, tti_mib(h->bytes.states), tti_mib(h->bytes.grads),
                   tti_mib(h->bytes.arena));
    if (h->bytes.ema) tti_str_printf(d->out, "  averages %.2f", tti_mib(h->bytes.ema));
    if (h->is_offloaded)
        tti_str_printf(d->out, "  and at the host %.2f", tti_mib(h->bytes.offloaded));
    tti_str_add(d->out, "\n");
}

/* Names the parts that a line applies to in a divided model; all tensor ranks of a stage do the
 * same. */
static void print_scope(const tti_drawing *d, int stage) {
    if (d->scheme.pipeline > 1) tti_str_printf(d->out, " of stage %d", stage);
    if (d->scheme.tensor > 1) tti_str_add(d->out, ", of each tensor shard");
}

static void print_averaging(const tti_drawing *d, const tti_plan *plan, int stage) {
    const tti_job_config *c = &d->b->config;
    bool all = strcmp(c->parallel.average, "all") == 0;
    if (c->parallel.average_after > 0)
        tti_str_printf(d->out, "\nafter %lld steps ", (long long)c->parallel.average_after);
    else
        tti_str_add(d->out, "\n");
    tti_str_printf(
        d->out,
        "each %s updates its own parameters; every %lld steps all %d average their parameters%s",
        d->n_workers > d->scheme.data ? "copy of the model" : "worker",
        (long long)c->parallel.average_every, d->scheme.data, all ? " and state" : "");
    print_scope(d, stage);
    tti_str_printf(d->out, ":\n  %.3f MiB, and nothing between\n",
                   tti_mib(tti_averaging_bytes(c, plan)));
}

static void print_buckets(const tti_drawing *d, const tti_plan *plan) {
    size_t all = 0;
    for (int i = 0; i < plan->n_buckets; i++) {
        const tti_bucket *bucket = &plan->buckets[i];
        const tti_node *node = plan->shard.steps[bucket->ready_after];
        size_t n_bytes = tti_drawing_message_bytes(d, plan, bucket->first, bucket->n_elems);
        tti_str_printf(d->out, "  bucket %-3d %8.3f MiB  after step %d of %d (%s%s%s)\n", i,
                       tti_mib(n_bytes), bucket->ready_after, plan->shard.n_steps, node->op->name,
                       *node->name ? " " : "", node->name);
        all += n_bytes;
    }
    if (tti_drawing_is_compressed(d))
        tti_str_printf(d->out, "  compressed by %s: %.3f MiB of %.3f\n", tti_drawing_compression(d),
                       tti_mib(all), tti_mib(plan->n_flat * sizeof(float)));
    if (tti_drawing_is_compressed(d) && d->exec.compress_after > 0)
        tti_str_printf(d->out, "  the gradients of the first %lld steps are not compressed\n",
                       (long long)d->exec.compress_after);
}

/* Prints reductions of gradients. With local SGD only the warm-up steps have them. */
static void print_sums(const tti_drawing *d, int stage) {
    const tti_plan *plan = tti_blueprint_plan(d->b, stage * d->scheme.tensor);
    if (d->scheme.data < 2) return;
    if (d->exec.local) print_averaging(d, plan, stage);
    if (d->exec.local && d->exec.local_after == 0) return;
    tti_str_printf(d->out, "\nsums between the %d workers", d->scheme.data);
    print_scope(d, stage);
    tti_str_printf(d->out, ", in the order of the backward pass%s:\n",
                   d->exec.local ? ", in the steps before" : "");
    print_buckets(d, plan);
    if (tti_job_has_server(&d->b->config))
        tti_str_printf(d->out,
                       "  the first %lld workers are the servers: they sum gradients and send "
                       "parameters\n",
                       (long long)d->b->config.parallel.servers);
    tti_str_printf(d->out, "  at the end  %zu bytes of losses, counts and hashes\n",
                   (size_t)d->b->n_shards * 3 * sizeof(double) +
                       ((size_t)d->scheme.data * 2 + 1) * sizeof(double));
}

/* Prints messages between stages: activations forward and their gradients backward, separately for
 * each shard. */
static tutti_status print_messages(const tti_drawing *d) {
    const tti_stages *stages = tti_blueprint_plan(d->b, 0)->stages;
    tti_str_printf(d->out, "\nbetween the %d stages", d->scheme.pipeline);
    if (stages->n_chunks > 1)
        tti_str_printf(d->out, " of %d chunks each (pipeline_chunks)", stages->n_chunks);
    tti_str_add(d->out, ", for each shard:\n");
    for (int i = 0; i < d->scheme.pipeline; i++)
        for (int k = 0; k < d->scheme.pipeline; k++) {
            double bytes = tti_stage_bytes(stages, i, k);
            if (bytes > 0)
                tti_str_printf(d->out, "  stage %d to stage %d  %8.3f MiB\n", i, k,
                               bytes / 1048576.0);
        }
    for (int i = 0; i < stages->n_tied; i++)
        tti_str_printf(d->out, "  %s is on several stages: its gradients are summed after them\n",
                       stages->tied[i].name);
    tti_schedule_drawing schedule = tti_drawing_schedule(d);
    return tti_schedule_print(&schedule, d->out);
}

static void print_collectives(const tti_drawing *d) {
    tti_str_printf(d->out, "\nbetween the %d tensor shards, inside each shard:\n",
                   d->scheme.tensor);
    for (int i = 0; i < d->scheme.pipeline; i++) {
        double bytes;
        int n = tti_drawing_collectives(d, tti_blueprint_plan(d->b, i * d->scheme.tensor), &bytes);
        tti_str_printf(d->out, "  stage %d  %d sums, gathers and scatters, %.3f MiB sent by each\n",
                       i, n, bytes / 1048576.0);
    }
}

/* Prints joined values: batch norm over the whole batch. */
static void print_joins(const tti_drawing *d) {
    for (int i = 0; i < d->scheme.pipeline && d->scheme.data > 1; i++) {
        double bytes;
        int n = tti_drawing_joins(d, tti_blueprint_plan(d->b, i * d->scheme.tensor), &bytes);
        if (n == 0) continue;
        tti_str_printf(d->out, "\njoined inside a step between the %d workers", d->scheme.data);
        print_scope(d, i);
        tti_str_printf(d->out, ": %d values of all shards, %.3f MiB\n", n, bytes / 1048576.0);
    }
}

static tutti_status print_axes(const tti_drawing *d) {
    if (d->scheme.pipeline > 1) TTI_TRY(print_messages(d));
    if (d->scheme.tensor > 1) print_collectives(d);
    if (d->scheme.zero)
        tti_str_printf(d->out,
                       "\nzero %d: gradients are reduced to the owners of partitions, parameters "
                       "are gathered%s\n",
                       d->scheme.zero,
                       d->scheme.zero == 3 ? ", for each forward and backward pass" : "");
    return TUTTI_OK;
}

/* With more workers than MAX_LINES only the first and the last END_LINES workers are printed. */
enum { MAX_LINES = 4096, END_LINES = 16 };

static tutti_status print_workers(const tti_drawing *d, int first, int last) {
    for (int r = first; r < last; r++) {
        tti_worker_storage h = {0};
        TTI_TRY(tti_drawing_find_storage(d, r, &h));
        print_worker(d, r, &h);
    }
    return TUTTI_OK;
}

static tutti_status print_all_workers(const tti_drawing *d) {
    int n = d->n_workers;
    if (n <= MAX_LINES) return print_workers(d, 0, n);
    TTI_TRY(print_workers(d, 0, END_LINES));
    tti_str_printf(d->out, "workers %d to %d: left out\n", END_LINES, n - END_LINES - 1);
    return print_workers(d, n - END_LINES, n);
}

tutti_status tti_draw_text(const tti_drawing *d) {
    tti_scheme_text(&d->scheme, d->out);
    tti_str_printf(d->out, ": %d workers, batch %lld, %lld samples in a shard\n\n", d->n_workers,
                   (long long)d->b->config.train.batch, (long long)d->b->rows_per_shard);
    TTI_TRY(print_all_workers(d));
    if (d->exec.shares)
        tti_str_printf(
            d->out,
            "the %d threads share one copy of parameters and state; each updates this much of it\n",
            d->n_workers);
    print_joins(d);
    if (tti_drawing_has_server(d) && !tti_drawing_has_state_owners(d)) return print_ranges(d);
    if (tti_drawing_has_state_owners(d)) print_state_owners(d);
    for (int stage = 0; stage < d->scheme.pipeline && !tti_drawing_has_server(d); stage++)
        print_sums(d, stage);
    return print_axes(d);
}
