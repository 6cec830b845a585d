/* drawing.c - tutti_draw_layout: who has what, and what is sent when, as text or as a picture. */
#include <string.h>

#include "exec/collective.h"
#include "exec/share.h"
#include "planner/predict.h"
#include "planner/stage_play.h"
#include "train/devices.h"
#include "train/worker_exec.h"
#include "tutti/planner.h"

enum { BOX_WIDTH = 168, BOX_HEIGHT = 84, COLUMN_GAP = 48, ROW_GAP = 24, GAP = 14, TOP = 60 };
enum { MIN_WIDTH = 760 };

typedef struct drawing {
    const tti_blueprint *b;
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

static bool has_server(const drawing *d) {
    return strcmp(d->b->config.parallel.sync, "parameter-server") == 0;
}

static bool has_processes(const drawing *d) {
    return strcmp(d->b->config.parallel.place, "processes") == 0;
}

/* Each gradient is of a whole batch. */
static bool takes_batches(const drawing *d) {
    return has_server(d) && d->b->config.parallel.staleness != 0;
}

/* Workers that wait for each other, and are processes, have its state in parts; of others it has
 * parameters and state beside theirs. */
static bool is_apart(const drawing *d) {
    return has_server(d) && (tti_worker_n_holders(d->b) > 0 || !has_processes(d));
}

/* Who has which range of the parameters, and what goes there and back for each batch. */
static tutti_status print_ranges(const drawing *d) {
    tti_exec_desc desc = tti_worker_exec_desc(d->b);
    int n = has_processes(d) ? tti_worker_n_holders(d->b) : 1;
    tti_str_printf(d->out, "\nparameters and state for all workers are kept by %s:\n",
                   n > 1 ? "the first of them, a range each" : "one");
    for (int r = 0; r < n; r++) {
        tti_range keys = tti_share_range(desc.plan, r, n);
        tti_exec_memory m;
        desc.range = r;
        desc.n_ranges = n;
        TTI_TRY(tti_exec_memory_plan(&desc, 0, 1, &m));
        tti_str_printf(d->out, "  %s %-3d %zu elements from %zu  parameters %.2f MiB  state %.2f\n",
                       has_processes(d) ? "worker" : "server", r, keys.last - keys.first,
                       keys.first, mib(m.params), mib(m.states));
    }
    tti_str_printf(d->out,
                   "each worker sends its gradient there and gets parameters: %.3f MiB each way\n",
                   mib(desc.plan->n_flat * sizeof(float)));
    return TUTTI_OK;
}

static tutti_status hold(const drawing *d, int rank, holding *h) {
    const tti_blueprint *b = tti_blueprint_of(d->b, rank);
    tti_exec_desc desc = tti_worker_exec_desc(b);
    if (has_server(d) && !is_apart(d)) {
        desc.zero = 1;
        desc.n_owners = (int)d->b->config.parallel.servers;
    }
    h->at = tti_mesh_at_rank(&d->b->mesh, rank);
    h->plan = desc.plan = tti_blueprint_plan(b, tti_mesh_model_rank(&d->b->mesh, &h->at));
    desc.n_lanes = 1;
    int n = takes_batches(d) ? 1 : d->scheme.data;
    if (n == 1) h->at.data = 0; /* all shards of its batches */
    tti_deal deal;
    tti_deal_equally(n, d->b->n_shards, &deal);
    if (d->b->has_deal && d->b->deal.n_ranks == n) deal = d->b->deal;
    desc.deal = &deal;
    h->first_shard = deal.first[h->at.data], h->last_shard = deal.first[h->at.data + 1];
    h->first = h->plan->n_slots ? h->plan->slots[h->plan->n_slots - 1].param->name : "";
    h->last = h->plan->n_slots ? h->plan->slots[0].param->name : "";
    TTI_TRY(tti_exec_memory_plan(&desc, h->at.data, n, &h->bytes));
    if (is_apart(d)) h->bytes.states = h->bytes.ema = 0;
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

static void print_sums(const drawing *d, const tti_plan *plan) {
    if (d->scheme.data < 2) return;
    tti_str_printf(d->out,
                   "\nsums between the %d workers of a part, in the order of the backward pass:\n",
                   d->scheme.data);
    for (int i = 0; i < plan->n_buckets; i++) {
        const tti_bucket *bucket = &plan->buckets[i];
        const tti_node *node = plan->shard.steps[bucket->ready_after];
        tti_str_printf(d->out, "  bucket %-3d %8.3f MiB  after step %d of %d (%s %s)\n", i,
                       mib(bucket->n_elems * sizeof(float)), bucket->ready_after,
                       plan->shard.n_steps, node->op->name, node->name);
    }
    tti_str_printf(d->out, "  at the end  %zu bytes of losses, counts and hashes\n",
                   (size_t)d->b->n_shards * 3 * sizeof(double) +
                       ((size_t)d->scheme.data * 2 + 1) * sizeof(double));
}

/* Activations go forward and their gradients back, for each shard on its own. */
static void print_messages(const drawing *d) {
    const tti_stages *stages = tti_blueprint_plan(d->b, 0)->stages;
    tti_str_printf(d->out, "\nbetween the %d stages, for each shard, one forward, one backward:\n",
                   d->scheme.pipeline);
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

static void print_axes(const drawing *d) {
    if (d->scheme.pipeline > 1) print_messages(d);
    if (d->scheme.tensor > 1) print_exchanges(d);
    if (d->scheme.zero)
        tti_str_printf(
            d->out, "\nzero %d: sums go to the owners of parts, parameters come back%s\n",
            d->scheme.zero, d->scheme.zero == 3 ? ", for each forward and backward part" : "");
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
    if (is_apart(d)) return print_ranges(d);
    for (int i = 0; i < tti_mesh_n_model(&d->b->mesh); i++)
        if (i == 0 || d->scheme.pipeline > 1) print_sums(d, tti_blueprint_plan(d->b, i));
    print_axes(d);
    return TUTTI_OK;
}

/* ---- picture ---- */

static int column_x(int column) { return GAP + column * (BOX_WIDTH + COLUMN_GAP); }
static int row_y(int row) { return TOP + row * (BOX_HEIGHT + ROW_GAP); }

static void box(const drawing *d, int x, int y, const holding *h, int rank) {
    static const char *const fills[] = {"#dbeafe", "#dcfce7", "#fef9c3", "#fae8ff",
                                        "#ffedd5", "#e0e7ff", "#fce7f3", "#ccfbf1"};
    int model = tti_mesh_model_rank(&d->b->mesh, &h->at);
    const char *fill = fills[(size_t)model % TTI_COUNT(fills)];
    tti_str_printf(d->out,
                   "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" fill=\"%s\" "
                   "stroke=\"#334155\"/>\n",
                   x, y, BOX_WIDTH, BOX_HEIGHT, fill);
    tti_str_printf(d->out, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">worker %d", x + 8, y + 18,
                   rank);
    print_place(d, rank);
    tti_str_printf(d->out,
                   "</text>\n<text x=\"%d\" y=\"%d\">shards %d..%d</text>\n"
                   "<text x=\"%d\" y=\"%d\">parameters %.2f MiB</text>\n"
                   "<text x=\"%d\" y=\"%d\">state %.2f MiB</text>\n",
                   x + 8, y + 36, h->first_shard, h->last_shard - 1, x + 8, y + 54,
                   mib(h->bytes.params), x + 8, y + 72, mib(h->bytes.states));
}

static void line(const drawing *d, int x, int y, int dx, int dy, const char *colour, double bytes) {
    tti_str_printf(d->out,
                   "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" "
                   "stroke-width=\"3\"/>\n<text x=\"%d\" y=\"%d\" font-size=\"10\">%.2f</text>\n",
                   x, y, x + dx, y + dy, colour, x + (dx ? 8 : 5), y + (dy ? 15 : -5),
                   bytes / 1048576.0);
}

/* Between the same part of neighbouring copies: where gradients are summed. */
static void sum_lines(const drawing *d, int n_columns, int n_rows) {
    for (int row = 0; row + 1 < n_rows; row++)
        for (int column = 0; column < n_columns; column++)
            line(d, column_x(column) + BOX_WIDTH / 2, row_y(row) + BOX_HEIGHT, 0, ROW_GAP,
                 "#dc2626", (double)tti_blueprint_plan(d->b, column)->n_flat * sizeof(float));
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
            line(d, x, y, COLUMN_GAP, 0, "#2563eb", bytes);
        } else {
            count_exchanges(d, tti_blueprint_plan(d->b, column), &bytes);
            line(d, x, y, COLUMN_GAP, 0, "#16a34a", bytes);
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
    sum_lines(d, n_columns, n_rows);
    for (int row = 0; row < n_rows; row++) model_lines(d, n_columns, row);
    return TUTTI_OK;
}

static tutti_status draw_picture(const drawing *d) {
    int width = column_x(tti_mesh_n_model(&d->b->mesh)) - COLUMN_GAP + GAP;
    int height = row_y(d->scheme.data);
    if (width < MIN_WIDTH) width = MIN_WIDTH;
    tti_str_printf(d->out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                   "font-family=\"sans-serif\" font-size=\"13\">\n"
                   "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
                   "<text x=\"%d\" y=\"24\" font-size=\"16\" font-weight=\"bold\">",
                   width, height, GAP);
    tti_scheme_text(&d->scheme, d->out);
    tti_str_printf(
        d->out,
        "</text>\n<text x=\"%d\" y=\"44\">rows: copies of the model; columns: its "
        "parts; red: sums of gradients, blue: messages of a shard between stages, green: "
        "sums inside it; MiB</text>\n",
        GAP);
    TTI_TRY(draw_boxes(d));
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
    drawing d = {
        .b = b, .scheme = tti_scheme_of(&b->config), .n_workers = b->n_workers, .out = &out};
    tutti_status st = picture ? draw_picture(&d) : draw_text(&d);
    tti_blueprint_destroy(b);
    if (st == TUTTI_OK && out.failed) st = tti_fail(TUTTI_E_NOMEM, "inspect: out of memory");
    if (st == TUTTI_OK)
        *text = out.text;
    else
        tti_str_free(&out);
    return st;
}
