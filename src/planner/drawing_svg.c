/* drawing_svg.c - draws the layout of a job's workers as SVG: a box for each worker, a row for
 * each replica, lines for communication, strips for the pipeline schedule. */
#include <string.h>

#include "planner/drawing.h"
#include "planner/stage_sim.h"
#include "train/loop/averaging.h"

enum { BOX_WIDTH = 168, BOX_HEIGHT = 84, COLUMN_GAP = 48, ROW_GAP = 24, GAP = 14, TOP = 78 };
enum { MIN_WIDTH = 840, SERVER_GAP = 120, SERVER_RAIL = SERVER_GAP / 2 };
enum { MAX_LONG_LINES = 8, LONG_LINE_STEP = 16 }; /* lines below a row; pixels between them */
enum { KEY_LETTER = 7 };                          /* pixels, at least */

static const char red[] = "#dc2626", blue[] = "#2563eb", green[] = "#16a34a", violet[] = "#9333ea";

/* Prints the amount of data next to a line. */
static void label(const tti_drawing *d, int x, int y, double bytes) {
    double mib = bytes / 1048576.0;
    tti_str_printf(d->out, "<text x=\"%d\" y=\"%d\" font-size=\"10\">%.*f</text>\n", x, y,
                   mib < 0.01 ? 4 : 2, mib);
}

static int column_x(int column) { return GAP + column * (BOX_WIDTH + COLUMN_GAP); }

/* ---- below a row: lines between workers that are not neighbours ---- */

/* A line between two stages that are not neighbours, in each replica. */
typedef struct long_line {
    int from, to;
    bool is_tied; /* true: a tied parameter; false: activations of shards */
    double bytes;
} long_line;

/* Returns at most `most` lines. */
static int find_long_lines(const tti_drawing *d, long_line *out, int most) {
    const tti_plan *plan = tti_blueprint_plan(d->b, 0);
    const tti_stages *stages = plan->stages;
    int n = 0;
    if (!stages) return 0;
    for (int i = 0; i < stages->n_stages; i++)
        for (int k = i + 2; k < stages->n_stages && n < most; k++) {
            double bytes = tti_stage_bytes(stages, i, k) + tti_stage_bytes(stages, k, i);
            if (bytes > 0) out[n++] = (long_line){i, k, false, bytes};
        }
    for (int i = 0; i < stages->n_tied && n < most; i++) {
        const tti_tied_param *tied = &stages->tied[i];
        int at = tied->stages[0];
        const tti_plan *first = tti_blueprint_plan(d->b, at * d->scheme.tensor);
        int slot = tti_plan_find_slot(first, tied->name);
        if (slot < 0) continue;
        out[n++] = (long_line){at, tied->stages[tied->n_stages - 1], true,
                               (double)first->slots[slot].n_elems * (double)sizeof(float)};
    }
    return n;
}

static int row_gap(const tti_drawing *d) {
    long_line lines[MAX_LONG_LINES];
    return ROW_GAP + find_long_lines(d, lines, MAX_LONG_LINES) * LONG_LINE_STEP;
}

static int row_y(const tti_drawing *d, int row) { return TOP + row * (BOX_HEIGHT + row_gap(d)); }

static void draw_long_lines(const tti_drawing *d, int row) {
    long_line lines[MAX_LONG_LINES];
    int n = find_long_lines(d, lines, MAX_LONG_LINES), top = row_y(d, row) + BOX_HEIGHT;
    for (int i = 0; i < n; i++) {
        int x = column_x(lines[i].from * d->scheme.tensor) + (i + 1) * LONG_LINE_STEP,
            to = column_x(lines[i].to * d->scheme.tensor) + (i + 1) * LONG_LINE_STEP,
            y = top + (i + 1) * LONG_LINE_STEP;
        tti_str_printf(d->out,
                       "<path d=\"M %d %d V %d H %d V %d\" stroke=\"%s\" stroke-width=\"3\" "
                       "fill=\"none\"/>\n",
                       x, top, y, to, top, lines[i].is_tied ? violet : blue);
        label(d, x + (n - i) * LONG_LINE_STEP, y - 4, lines[i].bytes);
    }
}

/* ---- boxes and lines ---- */

static void frame(const tti_drawing *d, int x, int y, int colour) {
    static const char *const fills[] = {"#dbeafe", "#dcfce7", "#fef9c3", "#fae8ff",
                                        "#ffedd5", "#e0e7ff", "#fce7f3", "#ccfbf1"};
    tti_str_printf(d->out,
                   "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" fill=\"%s\" "
                   "stroke=\"#334155\"/>\n",
                   x, y, BOX_WIDTH, BOX_HEIGHT, fills[(size_t)colour % TTI_COUNT(fills)]);
}

static void box(const tti_drawing *d, int x, int y, const tti_worker_storage *h, int rank) {
    frame(d, x, y, tti_mesh_model_rank(&d->b->mesh, &h->at));
    tti_str_printf(d->out, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">worker %d", x + 8, y + 18,
                   rank);
    tti_drawing_print_place(d, rank);
    tti_str_printf(d->out,
                   "</text>\n<text x=\"%d\" y=\"%d\">shards %d..%d</text>\n"
                   "<text x=\"%d\" y=\"%d\">parameters %.2f MiB</text>\n"
                   "<text x=\"%d\" y=\"%d\">",
                   x + 8, y + 36, h->first_shard, h->last_shard - 1, x + 8, y + 54,
                   tti_mib(h->bytes.params), x + 8, y + 72);
    if (tti_drawing_has_no_state(d, h))
        tti_str_add(d->out, "state: at the server</text>\n");
    else if (h->is_offloaded)
        tti_str_printf(d->out, "at the host %.2f MiB</text>\n", tti_mib(h->bytes.offloaded));
    else
        tti_str_printf(d->out, "state %.2f MiB</text>\n", tti_mib(h->bytes.states));
}

static void line(const tti_drawing *d, int x, int y, int dx, int dy, const char *colour,
                 double bytes) {
    tti_str_printf(d->out,
                   "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" "
                   "stroke-width=\"3\"/>\n",
                   x, y, x + dx, y + dy, colour);
    label(d, x + (dx ? 8 : 5), y + (dy ? dy - 9 : -5), bytes);
}

/* Draws lines between the same parts of neighbouring replicas, which reduce gradients or average
 * parameters. */
static void sum_lines(const tti_drawing *d, int n_columns, int n_rows) {
    for (int row = 0; row + 1 < n_rows; row++)
        for (int column = 0; column < n_columns; column++) {
            const tti_plan *plan = tti_blueprint_plan(d->b, column);
            size_t n_bytes = d->exec.local ? tti_averaging_bytes(&d->b->config, plan)
                                           : tti_drawing_message_bytes(d, plan, 0, plan->n_flat);
            line(d, column_x(column) + BOX_WIDTH / 2, row_y(d, row) + BOX_HEIGHT, 0, row_gap(d),
                 red, (double)n_bytes);
        }
}

static void server_box(const tti_drawing *d, int x, int y, int r, const tti_resident_range *range) {
    frame(d, x, y, 4);
    tti_str_printf(d->out, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">server, %s %d</text>\n",
                   x + 8, y + 18, tti_drawing_has_processes(d) ? "worker" : "thread", r);
    tti_str_printf(d->out,
                   "<text x=\"%d\" y=\"%d\" font-size=\"11\">%zu elements from %zu</text>\n"
                   "<text x=\"%d\" y=\"%d\">parameters %.2f MiB</text>\n"
                   "<text x=\"%d\" y=\"%d\">state %.2f MiB</text>\n",
                   x + 8, y + 36, range->keys.last - range->keys.first, range->keys.first, x + 8,
                   y + 54, tti_mib(range->params), x + 8, y + 72, tti_mib(range->states));
}

/* Draws the ranges of the server as a second column. One line joins it to every worker, because
 * each worker sends to all ranges. */
static tutti_status draw_server(const tti_drawing *d) {
    int n = tti_drawing_n_ranges(d), x = column_x(0) + BOX_WIDTH, middle = BOX_HEIGHT / 2;
    int last = row_y(d, TTI_MAX(n, d->n_workers) - 1) + middle;
    for (int w = 0; w < d->n_workers; w++)
        line(d, x, row_y(d, w) + middle, SERVER_RAIL, 0, red,
             (double)d->exec.plan->n_flat * sizeof(float));
    tti_str_printf(d->out,
                   "<path d=\"M %d %d V %d\" stroke=\"%s\" stroke-width=\"3\" fill=\"none\"/>\n",
                   x + SERVER_RAIL, row_y(d, 0) + middle, last, red);
    for (int r = 0; r < n; r++) {
        tti_resident_range range;
        TTI_TRY(tti_drawing_range(d, r, &range));
        line(d, x + SERVER_RAIL, row_y(d, r) + middle, SERVER_RAIL, 0, red, (double)range.params);
        server_box(d, x + SERVER_GAP, row_y(d, r), r, &range);
    }
    return TUTTI_OK;
}

/* Draws the traffic per shard, between the tensor ranks of a stage and between neighbouring
 * stages. */
static void model_lines(const tti_drawing *d, int n_columns, int row) {
    const tti_plan *plan = tti_blueprint_plan(d->b, 0);
    int n_tensor = d->scheme.tensor, y = row_y(d, row) + BOX_HEIGHT / 2;
    for (int column = 0; column + 1 < n_columns; column++) {
        int x = column_x(column) + BOX_WIDTH, stage = column / n_tensor;
        double bytes;
        if ((column + 1) % n_tensor == 0) {
            bytes = tti_stage_bytes(plan->stages, stage, stage + 1) +
                    tti_stage_bytes(plan->stages, stage + 1, stage);
            if (bytes > 0) line(d, x, y, COLUMN_GAP, 0, blue, bytes);
        } else {
            tti_drawing_collectives(d, tti_blueprint_plan(d->b, column), &bytes);
            line(d, x, y, COLUMN_GAP, 0, green, bytes);
        }
    }
}

/* Draws a row for each replica and a column for each part of the model. */
static tutti_status draw_boxes(const tti_drawing *d) {
    int n_columns = tti_mesh_n_model(&d->b->mesh), n_rows = d->scheme.data;
    for (int r = 0; r < d->n_workers; r++) {
        tti_worker_storage h;
        TTI_TRY(tti_drawing_find_storage(d, r, &h));
        int column = tti_mesh_model_rank(&d->b->mesh, &h.at);
        box(d, column_x(column), row_y(d, r / n_columns), &h, r);
    }
    if (tti_drawing_has_server(d) && !tti_drawing_has_state_owners(d)) return draw_server(d);
    sum_lines(d, n_columns, n_rows);
    for (int row = 0; row < n_rows; row++) {
        model_lines(d, n_columns, row);
        draw_long_lines(d, row);
    }
    return TUTTI_OK;
}

/* Explains red lines, and the other lines if there are any. */
static void print_key(const tti_drawing *d, tti_str *out) {
    const tti_job_config *c = &d->b->config;
    const tti_stages *stages = tti_blueprint_plan(d->b, 0)->stages;
    double joined;
    tti_str_add(out, "red: ");
    if (tti_drawing_has_server(d))
        tti_str_printf(out, "gradients to the %s, and parameters back",
                       tti_drawing_has_state_owners(d) ? "first row" : "server");
    else if (tti_job_has_server(&d->b->config))
        tti_str_printf(out, "sums to the first %lld of the workers, and parameters back",
                       (long long)c->parallel.servers);
    else if (d->exec.local)
        tti_str_printf(out, "the mean of parameters, every %lld steps",
                       (long long)c->parallel.average_every);
    else
        tti_str_printf(out, "sums of gradients%s%s", tti_drawing_is_compressed(d) ? " by " : "",
                       tti_drawing_is_compressed(d) ? tti_drawing_compression(d) : "");
    if (d->scheme.zero > 0) tti_str_add(out, " to the owners of partitions, and parameters back");
    if (d->exec.shares) tti_str_add(out, ", for the copy that all threads share");
    if (d->scheme.data > 1 && tti_drawing_joins(d, tti_blueprint_plan(d->b, 0), &joined) > 0)
        tti_str_add(out, ", and values joined inside a step");
    if (d->scheme.pipeline > 1) tti_str_add(out, ", blue: a shard between stages");
    if (stages && stages->n_tied > 0) tti_str_add(out, ", violet: a parameter of several stages");
    if (d->scheme.tensor > 1) tti_str_add(out, ", green: sums inside it");
}

/* Draws the pipeline schedule below the boxes, from y on. */
static tutti_status draw_schedule(const tti_drawing *d, int y, int width) {
    tti_schedule_drawing schedule = tti_drawing_schedule(d);
    tti_str_printf(d->out,
                   "<text x=\"%d\" y=\"%d\">%s: forward blue, backward green, micro-batch groups "
                   "of %d shard%s, "
                   "%d chunk%s a stage</text>\n",
                   GAP, y + 12, tti_schedule_rule(&schedule), schedule.n_compute_threads,
                   schedule.n_compute_threads == 1 ? "" : "s", schedule.stages->n_chunks,
                   schedule.stages->n_chunks == 1 ? "" : "s");
    return tti_schedule_svg(&schedule, GAP, y + ROW_GAP, width - 2 * GAP, d->out);
}

enum { MOST_BOXES = 4096 };

tutti_status tti_draw_svg(const tti_drawing *d) {
    if (d->n_workers > MOST_BOXES)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "inspect: an SVG has at most %d workers, and the job has %d; the text of "
                        "--layout describes more",
                        MOST_BOXES, d->n_workers);
    bool staged = d->scheme.pipeline > 1;
    int width = column_x(tti_mesh_n_model(&d->b->mesh)) - COLUMN_GAP + GAP;
    bool beside = tti_drawing_has_server(d) && !tti_drawing_has_state_owners(d);
    int n_rows = beside ? TTI_MAX(d->n_workers, tti_drawing_n_ranges(d)) : d->scheme.data;
    int height =
        row_y(d, n_rows) + (staged ? 2 * ROW_GAP + d->scheme.pipeline * TTI_STRIP_HEIGHT : 0);
    tti_str key = {0};
    print_key(d, &key);
    width = TTI_MAX(width, MIN_WIDTH);
    width = TTI_MAX(width, 2 * GAP + KEY_LETTER * (int)strlen(tti_str_text(&key)));
    tti_str_printf(d->out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                   "font-family=\"sans-serif\" font-size=\"13\">\n"
                   "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
                   "<text x=\"%d\" y=\"24\" font-size=\"16\" font-weight=\"bold\">",
                   width, height, GAP);
    tti_scheme_text(&d->scheme, d->out);
    tti_str_printf(
        d->out,
        "</text>\n<text x=\"%d\" y=\"44\">rows: copies of the model; columns: its parts; "
        "MiB</text>\n<text x=\"%d\" y=\"62\">%s</text>\n",
        GAP, GAP, tti_str_text(&key));
    tti_str_free(&key);
    TTI_TRY(draw_boxes(d));
    if (staged) TTI_TRY(draw_schedule(d, row_y(d, n_rows), width));
    tti_str_add(d->out, "</svg>\n");
    return TUTTI_OK;
}
