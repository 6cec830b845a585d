/* profile_trace.c - writes a Chrome/Perfetto trace and the table of times. */
#include "train/profile/profile_trace.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "train/profile/profile_overlap.h"

/* ---- the trace ---- */

/* Begins an event of kind ph on a row of a rank; the caller closes its object. */
static void open_event(tti_json *j, const char *ph, const char *name, int rank, int row) {
    tti_json_object(j, NULL);
    tti_json_text(j, "name", name);
    tti_json_text(j, "ph", ph);
    tti_json_int(j, "pid", rank);
    tti_json_int(j, "tid", row);
}

static void add_name(tti_json *j, const char *what, int rank, int row, const char *name) {
    open_event(j, "M", what, rank, row);
    tti_json_object(j, "args");
    tti_json_text(j, "name", name);
    tti_json_end(j);
    tti_json_end(j);
}

/* Prints "rank 3, stage 1, tensor shard 1, device 3". */
static void print_worker(const tti_profiled *p, int rank, tti_str *out) {
    tti_mesh_at at = tti_mesh_at_rank(&p->mesh, rank);
    int device = tti_devices_place(p->devices, rank);
    tti_str_printf(out, "rank %d", rank);
    if (p->mesh.stage > 1) tti_str_printf(out, ", stage %d", at.stage);
    if (p->mesh.tensor > 1) tti_str_printf(out, ", tensor shard %d", at.tensor);
    if (device != TTI_ON_HOST)
        tti_str_printf(out, ", device %d", device);
    else if (p->devices->mixed)
        tti_str_add(out, ", on the host");
}

/* Adds the names of rows that have a span. */
static void add_names(tti_json *j, const tti_profiled *p, int rank) {
    static const char *const rows[2][TTI_N_ROWS] = {
        {"host: waits", "host: first compute thread", "host: copies", "host: sums between workers",
         "TP collectives", "values to other stages", "segments of the stage",
         "server: for this worker"},
        {"host: waits and enqueued work", "device: kernels", "device: copies of samples",
         "sums between workers", "TP collectives", "values to other stages",
         "segments of the stage", "server: for this worker"}};
    const tti_worker_spans *t = &p->ranks[rank];
    bool on_device = tti_devices_place(p->devices, rank) != TTI_ON_HOST, has[TTI_N_ROWS] = {0};
    tti_str name = {0};
    print_worker(p, rank, &name);
    add_name(j, "process_name", rank, 0, tti_str_text(&name));
    tti_str_free(&name);
    for (int64_t i = 0; i < t->head.n_labels; i++) has[t->labels[i].row] = true;
    for (int row = 0; row < TTI_N_ROWS; row++)
        if (has[row]) add_name(j, "thread_name", rank, row, rows[on_device][row]);
}

/* Microseconds of the host's clock after from_ns at which a span begins. */
static double begin_us(const tti_worker_spans *t, const tti_profile_span *span, int64_t from_ns) {
    return (double)(t->head.zero_ns - from_ns) * 1e-3 + span->start_us;
}

static void add_event(tti_json *j, const tti_worker_spans *t, const tti_profile_span *span,
                      int rank, double ts) {
    const tti_span_label *w = tti_span_label_of(t, span);
    bool has_node = w->layer != TTI_SPANS_NOTHING;
    open_event(j, "X", tti_spans_text(t, w->name), rank, w->row);
    tti_json_double(j, "ts", ts);
    tti_json_double(j, "dur", span->us);
    tti_json_object(j, "args");
    if (has_node) tti_json_text(j, "layer", tti_spans_text(t, w->layer));
    if (has_node) tti_json_text(j, "kernel", tti_spans_text(t, w->kernel));
    if (has_node) tti_json_text(j, "types", tti_spans_text(t, w->label));
    if (span->shard >= 0) tti_json_int(j, "shard", span->shard);
    if (w->row != TTI_ROW_HOST) tti_json_int(j, "step", span->step);
    if (has_node && span->us > 0) {
        tti_json_double(j, "gflop_per_s", w->flops / span->us * 1e-3);
        tti_json_double(j, "gb_per_s", w->bytes / span->us * 1e-3);
    }
    tti_json_end(j);
    tti_json_end(j);
}

/* The start of the first span.  Device clocks are aligned with the host's to a few microseconds, so
 * the first span of a device may begin before the host's. */
static double first_us(const tti_profiled *p, int64_t from_ns) {
    double first = INFINITY;
    for (int r = 0; r < p->n_ranks; r++) {
        const tti_worker_spans *t = &p->ranks[r];
        for (int64_t i = 0; i < t->head.n_spans; i++)
            first = TTI_MIN(first, begin_us(t, &t->spans[i], from_ns));
    }
    return first;
}

/* Device clocks are aligned with that of the host, which is the same for all ranks. */
void tti_profile_trace(const tti_profiled *p, tti_str *out) {
    tti_json j = tti_json_begin(out, 0);
    int64_t from_ns = p->ranks[0].head.zero_ns;
    double first = first_us(p, from_ns);
    tti_json_object(&j, NULL);
    tti_json_text(&j, "displayTimeUnit", "ms");
    tti_json_array(&j, "traceEvents");
    for (int r = 0; r < p->n_ranks; r++) {
        const tti_worker_spans *t = &p->ranks[r];
        add_names(&j, p, r);
        for (int64_t i = 0; i < t->head.n_spans; i++)
            add_event(&j, t, &t->spans[i], r, begin_us(t, &t->spans[i], from_ns) - first);
    }
    tti_json_end(&j);
    tti_json_end(&j);
    tti_str_add(out, "\n");
}

/* ---- the table ---- */

typedef struct row {
    const char *label, *kernel;
    int n;
    double us, flops, bytes;
} row;

static int slowest_first(const void *a, const void *b) {
    double x = ((const row *)a)->us, y = ((const row *)b)->us;
    return (x < y) - (x > y);
}

static row *find_row(row *rows, int *n_rows, const char *label, const char *kernel) {
    for (int i = 0; i < *n_rows; i++)
        if (strcmp(rows[i].label, label) == 0 && strcmp(rows[i].kernel, kernel) == 0)
            return &rows[i];
    row *fresh = &rows[(*n_rows)++];
    *fresh = (row){.label = label, .kernel = kernel};
    return fresh;
}

/* Returns the shortest time that the bytes and operations of a row could take. */
static double floor_us(const tti_profiled *p, const row *r) {
    double by_flops = r->flops / p->ceilings.flops * 1e6,
           by_bytes = r->bytes / p->ceilings.bytes * 1e6;
    return TTI_MAX(by_flops, by_bytes);
}

static void print_row(const tti_profiled *p, const row *r, double step_us, tti_str *out) {
    double saved = r->us - floor_us(p, r);
    tti_str_printf(out, "%9.1f %5.1f%% %5d %8.1f %8.1f %9.1f  %-14.14s %.95s\n", r->us,
                   100 * r->us / step_us, r->n, r->us > 0 ? r->flops / r->us * 1e-6 : 0,
                   r->us > 0 ? r->bytes / r->us * 1e-3 : 0, saved > 0 ? saved : 0, r->kernel,
                   r->label);
}

static void print_rest(const tti_profiled *p, const row *rows, int n_rows, double step_us,
                       tti_str *out) {
    const tti_spans_head *h = &p->ranks[p->shown].head;
    double floor = 0;
    for (int i = 0; i < n_rows; i++) floor += floor_us(p, &rows[i]);
    if (n_rows > p->max_rows)
        tti_str_printf(out, "%9s  ... %d more (--all)\n", "", n_rows - p->max_rows);
    tti_str_printf(out,
                   "%9.1f 100.0%%        all parts; at the ceilings they would take %.1f us\n"
                   "%9.1f               a step as training runs it, %.1f us of it waiting for "
                   "samples\n"
                   "ceilings: %.1f TFLOP/s (%s matrix product), %.1f GB/s (copy)\n",
                   step_us, floor, h->trained_us, h->wait_us, p->ceilings.flops * 1e-12,
                   p->ceilings.dtype == TUTTI_F32 ? "f32" : "bf16", p->ceilings.bytes * 1e-9);
}

static bool is_of_step(const tti_worker_spans *t, const tti_profile_span *span, int step) {
    return tti_span_label_of(t, span)->row == TTI_ROW_COMPUTE && span->step == step;
}

static double time_of_step(const tti_worker_spans *t, int step) {
    double us = 0;
    for (int64_t i = 0; i < t->head.n_spans; i++)
        if (is_of_step(t, &t->spans[i], step)) us += t->spans[i].us;
    return us;
}

/* Returns the fastest step, which was disturbed least. */
static int fastest_step(const tti_worker_spans *t) {
    int best = 0, n = tti_spans_n_steps(t);
    double least = n > 0 ? time_of_step(t, 0) : 0;
    for (int s = 1; s < n; s++) {
        double us = time_of_step(t, s);
        if (us < least) least = us, best = s;
    }
    return best;
}

static void add_to_rows(const tti_worker_spans *t, const tti_profile_span *span, row *rows,
                        int *n_rows) {
    const tti_span_label *w = tti_span_label_of(t, span);
    row *r = find_row(rows, n_rows, tti_spans_text(t, w->label), tti_spans_text(t, w->kernel));
    r->n++, r->us += span->us, r->flops += w->flops, r->bytes += w->bytes;
}

static tutti_status print_rows(const tti_profiled *p, tti_str *out) {
    const tti_worker_spans *t = &p->ranks[p->shown];
    row *rows = calloc((size_t)t->head.n_labels + 1, sizeof *rows);
    int n_rows = 0, step = fastest_step(t);
    double step_us = time_of_step(t, step);
    if (!rows) return tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
    for (int64_t i = 0; i < t->head.n_spans; i++)
        if (is_of_step(t, &t->spans[i], step)) add_to_rows(t, &t->spans[i], rows, &n_rows);
    qsort(rows, (size_t)n_rows, sizeof *rows, slowest_first);
    tti_str_printf(out, "%9s %6s %5s %8s %8s %9s  %-14s %s\n", "us", "share", "runs", "TFLOP/s",
                   "GB/s", "saves us", "kernel", "operation");
    for (int i = 0; i < n_rows && i < p->max_rows; i++) print_row(p, &rows[i], step_us, out);
    print_rest(p, rows, n_rows, step_us, out);
    free(rows);
    return TUTTI_OK;
}

/* ---- between workers ---- */

static void print_traffic(const char *name, const tti_traffic_time *t, int n_steps, tti_str *out) {
    double us = t->us / n_steps, hidden = t->hidden_us / n_steps;
    tti_str_printf(
        out, "  %-24s %9.3f ms a step in %.4g, overlapped with compute %.3f ms (%.1f %%)\n", name,
        us * 1e-3, (double)t->n_spans / n_steps, hidden * 1e-3, us > 0 ? 100 * hidden / us : 0);
}

enum { MOST_COLLECTIVES = 6, MOST_RANKS = 8 };

/* Prints the kinds of collectives of the selected rank, the slowest first.  GB/s counts the bytes
 * that this rank reads and writes. */
static tutti_status print_collectives(const tti_profiled *p, tti_str *out) {
    const tti_worker_spans *t = &p->ranks[p->shown];
    int n_rows = 0, n_steps = TTI_MAX(tti_spans_n_steps(t), 1);
    int most = p->max_rows == INT_MAX ? INT_MAX : MOST_COLLECTIVES; /* --all */
    row *rows = calloc((size_t)t->head.n_labels + 1, sizeof *rows);
    if (!rows) return tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
    for (int64_t i = 0; i < t->head.n_spans; i++) {
        const tti_span_label *w = tti_span_label_of(t, &t->spans[i]);
        if (w->kind == TTI_SPAN_LAYERS && w->row == TTI_ROW_TP)
            add_to_rows(t, &t->spans[i], rows, &n_rows);
    }
    qsort(rows, (size_t)n_rows, sizeof *rows, slowest_first);
    for (int i = 0; i < n_rows && i < most; i++)
        tti_str_printf(out, "    %-44s %7.3f ms in %.4g, %.1f us each, %.1f GB/s\n", rows[i].label,
                       rows[i].us / n_steps * 1e-3, (double)rows[i].n / n_steps,
                       rows[i].us / rows[i].n,
                       rows[i].us > 0 ? rows[i].bytes / rows[i].us * 1e-3 : 0);
    free(rows);
    return TUTTI_OK;
}

/* Prints the waits in a worker's kernel row, summed by name. */
static tutti_status print_waits(const tti_worker_spans *t, int n_steps, tti_str *out) {
    row *rows = calloc((size_t)t->head.n_labels + 1, sizeof *rows);
    int n_rows = 0;
    double us = 0;
    if (!rows) return tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
    for (int64_t i = 0; i < t->head.n_spans; i++) {
        const tti_span_label *w = tti_span_label_of(t, &t->spans[i]);
        if (w->row != TTI_ROW_COMPUTE || w->kind != TTI_SPAN_WAIT) continue;
        find_row(rows, &n_rows, tti_spans_text(t, w->name), "")->us += t->spans[i].us;
        us += t->spans[i].us;
    }
    qsort(rows, (size_t)n_rows, sizeof *rows, slowest_first);
    tti_str_printf(out, "waits %.3f ms", us / n_steps * 1e-3);
    for (int i = 0; i < n_rows && i < 3; i++)
        tti_str_printf(out, "%s%s %.3f", i ? ", " : " (", rows[i].label + strlen("waiting "),
                       rows[i].us / n_steps * 1e-3);
    tti_str_add(out, n_rows ? ")\n" : "\n");
    free(rows);
    return TUTTI_OK;
}

static tutti_status print_rank(const tti_profiled *p, int rank, tti_str *out) {
    const tti_worker_spans *t = &p->ranks[rank];
    int n_steps = tti_spans_n_steps(t);
    double us = 0;
    if (n_steps == 0) return TUTTI_OK;
    for (int64_t i = 0; i < t->head.n_spans; i++)
        if (tti_span_label_of(t, &t->spans[i])->kind == TTI_SPAN_WORK) us += t->spans[i].us;
    tti_str_add(out, "  ");
    print_worker(p, rank, out);
    tti_str_printf(out, ": works %.3f ms a step, ", us / n_steps * 1e-3);
    return print_waits(t, n_steps, out);
}

/* Prints averages over all ranks and steps, because the figures of one rank depend on the arrival
 * of the others. */
static tutti_status print_between(const tti_profiled *p, tti_str *out) {
    tti_traffic_time times[TTI_N_SPAN_KINDS] = {0};
    int n_steps = 0;
    for (int r = 0; r < p->n_ranks; r++) {
        TTI_TRY(tti_traffic_times(&p->ranks[r], times));
        n_steps += tti_spans_n_steps(&p->ranks[r]);
    }
    if (n_steps == 0) return TUTTI_OK;
    tti_str_printf(out, "between %d workers, averaged over all of them:\n", p->n_ranks);
    for (int k = 0; k < TTI_N_SPAN_KINDS; k++) {
        if (times[k].n_spans > 0)
            print_traffic(tti_traffic_name((tti_span_kind)k), &times[k], n_steps, out);
        if (k == TTI_SPAN_LAYERS) TTI_TRY(print_collectives(p, out));
    }
    for (int r = 0; r < p->n_ranks && (r < MOST_RANKS || p->max_rows == INT_MAX); r++)
        TTI_TRY(print_rank(p, r, out));
    const tti_spans_head *h = &p->ranks[p->shown].head;
    if (h->expected_bubble > 0)
        tti_str_printf(out,
                       "  stages waited for each other %.1f %% of the time, %.1f %% expected\n",
                       100 * h->bubble, 100 * h->expected_bubble);
    return TUTTI_OK;
}

tutti_status tti_profile_table(const tti_profiled *p, tti_str *out) {
    if (p->n_ranks > 1) {
        tti_str_add(out, "the fastest step of ");
        print_worker(p, p->shown, out);
        tti_str_add(out, "\n");
    }
    if (tti_spans_n_steps(&p->ranks[p->shown]) == 0)
        tti_str_add(out, "no steps: the other workers took all batches\n");
    else
        TTI_TRY(print_rows(p, out));
    return p->n_ranks > 1 ? print_between(p, out) : TUTTI_OK;
}
