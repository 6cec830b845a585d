/* drawing.c - tutti_draw_layout: who has what, and what is sent when, as text or as a picture. */
#include <string.h>

#include "exec/collective.h"
#include "exec/compress.h"
#include "exec/share.h"
#include "planner/predict.h"
#include "planner/schedule_drawing.h"
#include "planner/stage_play.h"
#include "train/averaging.h"
#include "train/devices.h"
#include "train/worker_exec.h"
#include "tutti/planner.h"

enum { BOX_WIDTH = 168, BOX_HEIGHT = 84, COLUMN_GAP = 48, ROW_GAP = 24, GAP = 14, TOP = 60 };
enum { MIN_WIDTH = 760, SERVER_GAP = 120, SERVER_RAIL = SERVER_GAP / 2 };

static const char red[] = "#dc2626", blue[] = "#2563eb", green[] = "#16a34a";

typedef struct drawing {
    const tti_blueprint *b;
    tti_exec_desc exec; /* of a worker of any part */
    tti_scheme scheme;
    int n_workers;
    tti_str *out;
} drawing;

/* What one worker has. */
typedef struct holding {
    tti_mesh_at at;
    const tti_plan *plan;
    tti_exec_memory bytes;
    int first_shard, last_shard;
    const char *first, *last; /* of its parameters, in the order of their gradients */
} holding;

static double mib(size_t n_bytes) { return (double)n_bytes / 1048576.0; }

/* ---- a parameter server ---- */

static bool has_processes(const drawing *d) {
    return strcmp(d->b->config.parallel.place, "processes") == 0;
}

/* Of workers that wait for each other the first may have its state in parts; of others it has
 * parameters and state beside theirs. */
static bool is_apart(const drawing *d) {
    return tti_job_has_server(&d->b->config) && !tti_worker_serves_in_ranks(d->b);
}

/* Then: of a model in parts each is kept by the worker of the first copy that has it. */
static bool keeps_parts(const drawing *d) { return is_apart(d) && d->b->n_parts > 0; }

/* Workers that divide a batch. */
static int n_of_batch(const drawing *d) {
    return tti_job_is_async(&d->b->config) ? 1 : d->scheme.data;
}

/* What one of its processes, or one of its threads, has of the parameters. */
typedef struct kept_range {
    tti_range keys;
    size_t params, states; /* bytes */
} kept_range;

static int n_ranges(const drawing *d) {
    return has_processes(d) ? tti_worker_n_holders(d->b) : (int)d->b->config.parallel.servers;
}

/* Where block i of the update begins. */
static size_t block_begin(const tti_plan *plan, size_t i) {
    return i < (size_t)plan->n_updates ? plan->updates[i].first : plan->n_flat;
}

static tutti_status find_range(const drawing *d, int r, kept_range *out) {
    tti_exec_desc desc = d->exec;
    const tti_plan *plan = desc.plan;
    tti_exec_memory m;
    desc.range = r;
    desc.n_ranges = n_ranges(d);
    if (has_processes(d)) {
        TTI_TRY(tti_exec_memory_plan(&desc, 0, 1, &m));
        *out = (kept_range){tti_share_range(plan, r, desc.n_ranges), m.params, m.states};
        return TUTTI_OK;
    }
    tti_range blocks = tti_lane_range((size_t)plan->n_updates, 1, r, desc.n_ranges);
    out->keys = (tti_range){block_begin(plan, blocks.first), block_begin(plan, blocks.last)};
    out->params = (out->keys.last - out->keys.first) * sizeof(float);
    out->states = out->params * (size_t)plan->n_states;
    return TUTTI_OK;
}

/* Who has which range of the parameters, and what goes there and back for each batch. */
static tutti_status print_ranges(const drawing *d) {
    int n = n_ranges(d);
    tti_str_add(d->out, "\nparameters and state for all workers are kept by ");
    if (has_processes(d))
        tti_str_add(d->out, n > 1 ? "the first of them, a range each:\n" : "the first of them:\n");
    else if (n > 1)
        tti_str_printf(d->out, "a server of %d threads, a range each:\n", n);
    else
        tti_str_add(d->out, "a server of one thread:\n");
    for (int r = 0; r < n; r++) {
        kept_range range;
        TTI_TRY(find_range(d, r, &range));
        tti_str_printf(d->out, "  %s %-3d %zu elements from %zu  parameters %.2f MiB  state %.2f\n",
                       has_processes(d) ? "worker" : "thread", r,
                       range.keys.last - range.keys.first, range.keys.first, mib(range.params),
                       mib(range.states));
    }
    tti_str_printf(d->out,
                   "each worker sends its gradient there and gets parameters: %.3f MiB each way\n",
                   mib(d->exec.plan->n_flat * sizeof(float)));
    return TUTTI_OK;
}

static void print_kept_parts(const drawing *d) {
    size_t longest = 0;
    for (int i = 0; i < d->b->n_parts; i++)
        longest = TTI_MAX(longest, tti_blueprint_plan(d->b, i)->n_flat);
    tti_str_printf(d->out,
                   "\nparameters and state of each part are kept once, beside the worker of the "
                   "first copy that has it; the other %d\nsend their gradients there and get "
                   "parameters: %.3f MiB each way for the largest part\n",
                   d->scheme.data - 1, mib(longest * sizeof(float)));
}

/* ---- sums ---- */

static bool is_compressed(const drawing *d) {
    return d->scheme.data > 1 && strcmp(d->b->config.parallel.compress, "none") != 0;
}

/* What a worker's gradient of elements is as it travels. */
static size_t message_bytes(const drawing *d, const tti_plan *plan, size_t first, size_t n_elems) {
    tti_exec_desc desc = d->exec;
    desc.plan = plan;
    if (tti_compress_wanted(&desc, d->scheme.data))
        return tti_compress_message_bytes(&desc, first, n_elems);
    return n_elems * (desc.fast ? tutti_dtype_bytes(desc.wire) : sizeof(float));
}

/* ---- a worker ---- */

/* Who of n has which shards of a batch. */
static tti_deal deal_of(const drawing *d, int n) {
    tti_deal deal;
    tti_deal_equally(n, d->b->n_shards, &deal);
    return d->b->has_deal && d->b->deal.n_ranks == n ? d->b->deal : deal;
}

static bool has_no_state(const drawing *d, const holding *h) {
    return is_apart(d) && !(keeps_parts(d) && h->at.data == 0);
}

static tutti_status hold(const drawing *d, int rank, holding *h) {
    const tti_blueprint *b = tti_blueprint_of(d->b, rank);
    tti_exec_desc desc = tti_worker_exec_desc(b);
    if (tti_worker_serves_in_ranks(d->b)) tti_worker_serve_in_ranks(d->b, &desc);
    h->at = tti_mesh_at_rank(&d->b->mesh, rank);
    h->plan = desc.plan = tti_blueprint_plan(b, tti_mesh_model_rank(&d->b->mesh, &h->at));
    desc.n_lanes = 1;
    int n = n_of_batch(d), at = n == 1 ? 0 : h->at.data; /* alone: all shards of its batches */
    tti_deal deal = deal_of(d, n);
    desc.deal = &deal;
    h->first_shard = deal.first[at], h->last_shard = deal.first[at + 1];
    h->first = h->plan->n_slots ? h->plan->slots[h->plan->n_slots - 1].param->name : "";
    h->last = h->plan->n_slots ? h->plan->slots[0].param->name : "";
    TTI_TRY(tti_exec_memory_plan(&desc, at, n, &h->bytes));
    if (has_no_state(d, h)) h->bytes.states = h->bytes.ema = 0;
    return TUTTI_OK;
}

/* Where some workers are on devices and some are not. */
static void print_place(const drawing *d, int rank) {
    int place = tti_devices_place(&d->b->places, rank);
    if (!d->b->places.mixed) return;
    tti_str_add(d->out, place == TTI_ON_HOST ? "  on the host" : "  on device ");
    if (place != TTI_ON_HOST) tti_str_printf(d->out, "%d", place);
}

/* ---- text ---- */

static void print_worker(const drawing *d, int rank, const holding *h) {
    tti_str_printf(d->out, "worker %-3d", rank);
    if (d->n_workers > d->scheme.data)
        tti_str_printf(d->out, " [data %d, stage %d, piece %d]", h->at.data, h->at.stage,
                       h->at.tensor);
    print_place(d, rank);
    tti_str_printf(d->out,
                   "  shards %d..%d  parameters %.2f MiB (%d tensors, %s .. %s)  state %.2f  "
                   "gradients %.2f  activations %.2f\n",
                   h->first_shard, h->last_shard - 1, mib(h->bytes.params), h->plan->n_slots,
                   h->first, h->last, mib(h->bytes.states), mib(h->bytes.grads),
                   mib(h->bytes.arena));
}

/* Who speaks with its like, where the model is divided: the pieces of a layer do the same. */
static void print_like(const drawing *d, int stage) {
    if (d->scheme.pipeline > 1) tti_str_printf(d->out, " of stage %d", stage);
    if (d->scheme.tensor > 1) tti_str_add(d->out, ", of each piece");
}

static void print_averaging(const drawing *d, const tti_plan *plan, int stage) {
    const tti_job_config *c = &d->b->config;
    bool all = strcmp(c->parallel.average, "all") == 0;
    if (c->parallel.average_after > 0)
        tti_str_printf(d->out, "\nafter %lld steps ", (long long)c->parallel.average_after);
    else
        tti_str_add(d->out, "\n");
    tti_str_printf(d->out,
                   "each %s makes its own updates; every %lld steps all %d take the mean of "
                   "their parameters%s",
                   d->n_workers > d->scheme.data ? "copy of the model" : "worker",
                   (long long)c->parallel.average_every, d->scheme.data, all ? " and state" : "");
    print_like(d, stage);
    tti_str_printf(d->out, ":\n  %.3f MiB, and nothing between\n",
                   mib(tti_averaging_bytes(c, plan)));
}

static void print_buckets(const drawing *d, const tti_plan *plan) {
    size_t all = 0;
    for (int i = 0; i < plan->n_buckets; i++) {
        const tti_bucket *bucket = &plan->buckets[i];
        const tti_node *node = plan->shard.steps[bucket->ready_after];
        size_t n_bytes = message_bytes(d, plan, bucket->first, bucket->n_elems);
        tti_str_printf(d->out, "  bucket %-3d %8.3f MiB  after step %d of %d (%s %s)\n", i,
                       mib(n_bytes), bucket->ready_after, plan->shard.n_steps, node->op->name,
                       node->name);
        all += n_bytes;
    }
    if (is_compressed(d))
        tti_str_printf(d->out, "  compressed by %s: %.3f MiB of %.3f\n",
                       d->b->config.parallel.compress, mib(all), mib(plan->n_flat * sizeof(float)));
    if (is_compressed(d) && d->exec.compress_after > 0)
        tti_str_printf(d->out, "  the gradients of the first %lld steps are sent whole\n",
                       (long long)d->exec.compress_after);
}

/* Workers of local SGD have sums of gradients in the steps in front alone. */
static void print_sums(const drawing *d, int stage) {
    const tti_plan *plan = tti_blueprint_plan(d->b, stage * d->scheme.tensor);
    if (d->scheme.data < 2) return;
    if (d->exec.local) print_averaging(d, plan, stage);
    if (d->exec.local && d->exec.local_after == 0) return;
    tti_str_printf(d->out, "\nsums between the %d workers", d->scheme.data);
    print_like(d, stage);
    tti_str_printf(d->out, ", in the order of the backward pass%s:\n",
                   d->exec.local ? ", in the steps before" : "");
    print_buckets(d, plan);
    if (tti_job_has_server(&d->b->config))
        tti_str_printf(d->out, "  sums go to the first %lld of the workers, parameters come back\n",
                       (long long)d->b->config.parallel.servers);
    tti_str_printf(d->out, "  at the end  %zu bytes of losses, counts and hashes\n",
                   (size_t)d->b->n_shards * 3 * sizeof(double) +
                       ((size_t)d->scheme.data * 2 + 1) * sizeof(double));
}

/* As the first worker goes through its shards on this machine. */
static tti_schedule_drawing schedule_of(const drawing *d) {
    tti_exec_desc desc = d->exec;
    tti_core_share share;
    tti_deal deal = deal_of(d, n_of_batch(d));
    int n_own = TTI_MAX(1, tti_deal_n_of(&deal, 0));
    tti_worker_cores(d->b, 0, d->n_workers, &share);
    desc.plan = tti_blueprint_plan(d->b, 0);
    desc.n_lanes = share.n_threads;
    int n_lanes = tti_exec_n_lanes(&desc, n_own);
    return (tti_schedule_drawing){desc.plan->stages, (n_own + n_lanes - 1) / n_lanes, n_lanes};
}

/* Activations go forward and their gradients back, for each shard on its own. */
static tutti_status print_messages(const drawing *d) {
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
        tti_str_printf(d->out, "  %s is on several stages: the sum of its gradients after them\n",
                       stages->tied[i].name);
    tti_schedule_drawing schedule = schedule_of(d);
    return tti_schedule_print(&schedule, d->out);
}

/* What a worker sends to the other pieces in one shard; the number of exchanges. */
static int count_exchanges(const drawing *d, const tti_plan *plan, double *bytes) {
    int n = 0;
    *bytes = 0;
    for (int i = 0; i < plan->shard.n_steps; i++) {
        double sent = tti_exchange_bytes(plan->shard.steps[i], d->scheme.tensor);
        if (sent < 0) continue;
        *bytes += sent;
        n++;
    }
    return n;
}

static void print_exchanges(const drawing *d) {
    tti_str_printf(d->out, "\nbetween the %d pieces, inside each shard:\n", d->scheme.tensor);
    for (int i = 0; i < d->scheme.pipeline; i++) {
        double bytes;
        int n = count_exchanges(d, tti_blueprint_plan(d->b, i * d->scheme.tensor), &bytes);
        tti_str_printf(d->out, "  stage %d  %d sums, gathers and scatters, %.3f MiB sent by each\n",
                       i, n, bytes / 1048576.0);
    }
}

static tutti_status print_axes(const drawing *d) {
    if (d->scheme.pipeline > 1) TTI_TRY(print_messages(d));
    if (d->scheme.tensor > 1) print_exchanges(d);
    if (d->scheme.zero)
        tti_str_printf(
            d->out, "\nzero %d: sums go to the owners of parts, parameters come back%s\n",
            d->scheme.zero, d->scheme.zero == 3 ? ", for each forward and backward part" : "");
    return TUTTI_OK;
}

static tutti_status draw_text(const drawing *d) {
    holding h = {0};
    tti_scheme_text(&d->scheme, d->out);
    tti_str_printf(d->out, ": %d workers, batch %lld, %lld samples in a shard\n\n", d->n_workers,
                   (long long)d->b->config.train.batch, (long long)d->b->rows_per_shard);
    for (int r = 0; r < d->n_workers; r++) {
        TTI_TRY(hold(d, r, &h));
        print_worker(d, r, &h);
    }
    if (is_apart(d) && !keeps_parts(d)) return print_ranges(d);
    if (keeps_parts(d)) print_kept_parts(d);
    for (int stage = 0; stage < d->scheme.pipeline && !is_apart(d); stage++) print_sums(d, stage);
    return print_axes(d);
}

/* ---- picture ---- */

static int column_x(int column) { return GAP + column * (BOX_WIDTH + COLUMN_GAP); }
static int row_y(int row) { return TOP + row * (BOX_HEIGHT + ROW_GAP); }

static void frame(const drawing *d, int x, int y, int colour) {
    static const char *const fills[] = {"#dbeafe", "#dcfce7", "#fef9c3", "#fae8ff",
                                        "#ffedd5", "#e0e7ff", "#fce7f3", "#ccfbf1"};
    tti_str_printf(d->out,
                   "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" fill=\"%s\" "
                   "stroke=\"#334155\"/>\n",
                   x, y, BOX_WIDTH, BOX_HEIGHT, fills[(size_t)colour % TTI_COUNT(fills)]);
}

static void box(const drawing *d, int x, int y, const holding *h, int rank) {
    frame(d, x, y, tti_mesh_model_rank(&d->b->mesh, &h->at));
    tti_str_printf(d->out, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">worker %d", x + 8, y + 18,
                   rank);
    print_place(d, rank);
    tti_str_printf(d->out,
                   "</text>\n<text x=\"%d\" y=\"%d\">shards %d..%d</text>\n"
                   "<text x=\"%d\" y=\"%d\">parameters %.2f MiB</text>\n"
                   "<text x=\"%d\" y=\"%d\">",
                   x + 8, y + 36, h->first_shard, h->last_shard - 1, x + 8, y + 54,
                   mib(h->bytes.params), x + 8, y + 72);
    if (has_no_state(d, h))
        tti_str_add(d->out, "state: at the server</text>\n");
    else
        tti_str_printf(d->out, "state %.2f MiB</text>\n", mib(h->bytes.states));
}

static void line(const drawing *d, int x, int y, int dx, int dy, const char *colour, double bytes) {
    tti_str_printf(d->out,
                   "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" "
                   "stroke-width=\"3\"/>\n<text x=\"%d\" y=\"%d\" font-size=\"10\">%.2f</text>\n",
                   x, y, x + dx, y + dy, colour, x + (dx ? 8 : 5), y + (dy ? 15 : -5),
                   bytes / 1048576.0);
}

/* Between the same part of neighbouring copies: where gradients are summed, or parameters averaged.
 */
static void sum_lines(const drawing *d, int n_columns, int n_rows) {
    for (int row = 0; row + 1 < n_rows; row++)
        for (int column = 0; column < n_columns; column++) {
            const tti_plan *plan = tti_blueprint_plan(d->b, column);
            size_t n_bytes = d->exec.local ? tti_averaging_bytes(&d->b->config, plan)
                                           : message_bytes(d, plan, 0, plan->n_flat);
            line(d, column_x(column) + BOX_WIDTH / 2, row_y(row) + BOX_HEIGHT, 0, ROW_GAP, red,
                 (double)n_bytes);
        }
}

static void server_box(const drawing *d, int x, int y, int r, const kept_range *range) {
    frame(d, x, y, 4);
    tti_str_printf(d->out, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">server, %s %d</text>\n",
                   x + 8, y + 18, has_processes(d) ? "worker" : "thread", r);
    tti_str_printf(d->out,
                   "<text x=\"%d\" y=\"%d\" font-size=\"11\">%zu elements from %zu</text>\n"
                   "<text x=\"%d\" y=\"%d\">parameters %.2f MiB</text>\n"
                   "<text x=\"%d\" y=\"%d\">state %.2f MiB</text>\n",
                   x + 8, y + 36, range->keys.last - range->keys.first, range->keys.first, x + 8,
                   y + 54, mib(range->params), x + 8, y + 72, mib(range->states));
}

/* A second column, joined to every worker by one rail: each sends to all ranges. */
static tutti_status draw_server(const drawing *d) {
    int n = n_ranges(d), x = column_x(0) + BOX_WIDTH, middle = BOX_HEIGHT / 2;
    int last = row_y(TTI_MAX(n, d->n_workers) - 1) + middle;
    for (int w = 0; w < d->n_workers; w++)
        line(d, x, row_y(w) + middle, SERVER_RAIL, 0, red,
             (double)d->exec.plan->n_flat * sizeof(float));
    tti_str_printf(d->out,
                   "<path d=\"M %d %d V %d\" stroke=\"%s\" stroke-width=\"3\" fill=\"none\"/>\n",
                   x + SERVER_RAIL, row_y(0) + middle, last, red);
    for (int r = 0; r < n; r++) {
        kept_range range;
        TTI_TRY(find_range(d, r, &range));
        line(d, x + SERVER_RAIL, row_y(r) + middle, SERVER_RAIL, 0, red, (double)range.params);
        server_box(d, x + SERVER_GAP, row_y(r), r, &range);
    }
    return TUTTI_OK;
}

/* Between pieces of a stage, and from the last piece of a stage to the next stage: of a shard. */
static void model_lines(const drawing *d, int n_columns, int row) {
    const tti_plan *plan = tti_blueprint_plan(d->b, 0);
    int n_tensor = d->scheme.tensor, y = row_y(row) + BOX_HEIGHT / 2;
    for (int column = 0; column + 1 < n_columns; column++) {
        int x = column_x(column) + BOX_WIDTH, stage = column / n_tensor;
        double bytes;
        if ((column + 1) % n_tensor == 0) {
            bytes = tti_stage_bytes(plan->stages, stage, stage + 1) +
                    tti_stage_bytes(plan->stages, stage + 1, stage);
            line(d, x, y, COLUMN_GAP, 0, blue, bytes);
        } else {
            count_exchanges(d, tti_blueprint_plan(d->b, column), &bytes);
            line(d, x, y, COLUMN_GAP, 0, green, bytes);
        }
    }
}

/* A row for each copy of the model, a column for each part of it. */
static tutti_status draw_boxes(const drawing *d) {
    int n_columns = tti_mesh_n_model(&d->b->mesh), n_rows = d->scheme.data;
    for (int r = 0; r < d->n_workers; r++) {
        holding h;
        TTI_TRY(hold(d, r, &h));
        int column = tti_mesh_model_rank(&d->b->mesh, &h.at);
        box(d, column_x(column), row_y(r / n_columns), &h, r);
    }
    if (is_apart(d) && !keeps_parts(d)) return draw_server(d);
    sum_lines(d, n_columns, n_rows);
    for (int row = 0; row < n_rows; row++) model_lines(d, n_columns, row);
    return TUTTI_OK;
}

/* What red lines are, and the others where there are any. */
static void print_key(const drawing *d) {
    const tti_job_config *c = &d->b->config;
    tti_str_add(d->out, "rows: copies of the model; columns: its parts; MiB; red: ");
    if (is_apart(d))
        tti_str_printf(d->out, "gradients to the %s, and parameters back",
                       keeps_parts(d) ? "first row" : "server");
    else if (tti_job_has_server(&d->b->config))
        tti_str_printf(d->out, "sums to the first %lld of the workers, and parameters back",
                       (long long)c->parallel.servers);
    else if (d->exec.local)
        tti_str_printf(d->out, "the mean of parameters, every %lld steps",
                       (long long)c->parallel.average_every);
    else
        tti_str_printf(d->out, "sums of gradients%s%s", is_compressed(d) ? " by " : "",
                       is_compressed(d) ? c->parallel.compress : "");
    if (d->scheme.pipeline > 1) tti_str_add(d->out, ", blue: a shard between stages");
    if (d->scheme.tensor > 1) tti_str_add(d->out, ", green: sums inside it");
}

/* Below the boxes, from y on. */
static tutti_status draw_schedule(const drawing *d, int y, int width) {
    tti_schedule_drawing schedule = schedule_of(d);
    tti_str_printf(d->out,
                   "<text x=\"%d\" y=\"%d\">%s: forward blue, backward green, waves of %d shard%s, "
                   "%d chunk%s a stage</text>\n",
                   GAP, y + 12, tti_schedule_rule(&schedule), schedule.n_lanes,
                   schedule.n_lanes == 1 ? "" : "s", schedule.stages->n_chunks,
                   schedule.stages->n_chunks == 1 ? "" : "s");
    return tti_schedule_picture(&schedule, GAP, y + ROW_GAP, width - 2 * GAP, d->out);
}

static tutti_status draw_picture(const drawing *d) {
    bool staged = d->scheme.pipeline > 1;
    int width = column_x(tti_mesh_n_model(&d->b->mesh)) - COLUMN_GAP + GAP;
    bool beside = is_apart(d) && !keeps_parts(d);
    int n_rows = beside ? TTI_MAX(d->n_workers, n_ranges(d)) : d->scheme.data;
    int height = row_y(n_rows) + (staged ? 2 * ROW_GAP + d->scheme.pipeline * TTI_STRIP_HEIGHT : 0);
    if (width < MIN_WIDTH) width = MIN_WIDTH;
    tti_str_printf(d->out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                   "font-family=\"sans-serif\" font-size=\"13\">\n"
                   "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
                   "<text x=\"%d\" y=\"24\" font-size=\"16\" font-weight=\"bold\">",
                   width, height, GAP);
    tti_scheme_text(&d->scheme, d->out);
    tti_str_printf(d->out, "</text>\n<text x=\"%d\" y=\"44\">", GAP);
    print_key(d);
    tti_str_add(d->out, "</text>\n");
    TTI_TRY(draw_boxes(d));
    if (staged) TTI_TRY(draw_schedule(d, row_y(n_rows), width));
    tti_str_add(d->out, "</svg>\n");
    return TUTTI_OK;
}

/* ---- both ---- */

static tutti_status resolve(tutti_job *job) {
    tti_devices devices;
    TTI_TRY(tutti_job_check(job));
    TTI_TRY(tti_devices_resolve(job, &devices));
    return tti_job_resolve(job, devices.n ? devices.n : 1);
}

tutti_status tutti_draw_layout(tutti_job *job, bool picture, char **text) {
    tti_blueprint *b;
    tti_str out = {0};
    *text = NULL;
    TTI_TRY(resolve(job));
    TTI_TRY(tti_blueprint_create(job, &b));
    drawing d = {.b = b,
                 .exec = tti_worker_exec_desc(b),
                 .scheme = tti_scheme_of(&b->config),
                 .n_workers = b->n_workers,
                 .out = &out};
    tutti_status st = picture ? draw_picture(&d) : draw_text(&d);
    tti_blueprint_destroy(b);
    if (st == TUTTI_OK && out.failed) st = tti_fail(TUTTI_E_NOMEM, "inspect: out of memory");
    if (st == TUTTI_OK)
        *text = out.text;
    else
        tti_str_free(&out);
    return st;
}
