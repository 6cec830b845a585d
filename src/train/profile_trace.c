/* profile_trace.c - a Chrome/Perfetto trace, and the table of where the time goes. */
#include "train/profile_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum { LABEL = 96 };

/* "linear bf16[65536,768] bf16[2304,768]" */
static void print_label(const tti_span *span, char out[LABEL]) {
    tti_str str = {0};
    if (!span->node) {
        snprintf(out, LABEL, "(%s)", span->name);
        return;
    }
    tti_str_add(&str, span->node->op->name);
    for (int i = 0; i < span->node->n_in && i < 3; i++) {
        tti_str_add(&str, " ");
        tti_type_print(&str, &span->node->in[i]->type);
    }
    snprintf(out, LABEL, "%s", tti_str_text(&str));
    tti_str_free(&str);
}

static tti_cost cost_of(const tti_node *node) {
    tti_cost cost = {0};
    if (!node) return cost;
    if (node->op->cost) node->op->cost(node, &cost);
    for (int i = 0; cost.bytes == 0 && i < node->n_in; i++)
        cost.bytes += (double)tti_value_n_bytes(node->in[i]);
    for (int k = 0; !node->op->cost && k < node->op->n_out; k++)
        cost.bytes += (double)tti_value_n_bytes(node->out[k]);
    return cost;
}

/* ---- the trace ---- */

/* An event of kind ph on a line of a rank; its object is left open. */
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

static void add_names(tti_json *j, const tti_profiled *p, int rank) {
    static const char *const rows[2][TTI_N_ROWS] = {
        {"host: waits", "host: first lane", "", "host: sums between workers", ""},
        {"host: waits, what it puts into queues", "device: kernels", "device: copies of samples",
         "sums between workers", "exchanges inside layers"}};
    int device = tti_devices_place(p->devices, rank);
    bool on_device = device != TTI_ON_HOST;
    char name[64];
    if (on_device)
        snprintf(name, sizeof name, "rank %d, device %d", rank, device);
    else if (p->devices->mixed)
        snprintf(name, sizeof name, "rank %d, on the host", rank);
    else
        snprintf(name, sizeof name, "rank %d", rank);
    add_name(j, "process_name", rank, 0, name);
    for (int row = 0; row < TTI_N_ROWS; row++)
        if (*rows[on_device][row]) add_name(j, "thread_name", rank, row, rows[on_device][row]);
}

static void add_event(tti_json *j, const tti_span *span, int rank, double zero_us) {
    char label[LABEL];
    tti_cost cost = cost_of(span->node);
    print_label(span, label);
    open_event(j, "X", span->node ? span->node->op->name : span->name, rank, (int)span->row);
    tti_json_double(j, "ts", zero_us + span->start_us);
    tti_json_double(j, "dur", span->us);
    tti_json_object(j, "args");
    if (span->node) tti_json_text(j, "layer", span->node->name);
    if (span->node) tti_json_text(j, "kernel", span->name);
    if (span->node) tti_json_text(j, "types", label);
    if (span->shard >= 0) tti_json_int(j, "shard", span->shard);
    if (span->row != TTI_ROW_HOST) tti_json_int(j, "step", span->step);
    if (span->node && span->us > 0) {
        tti_json_double(j, "gflop_per_s", cost.flops / span->us * 1e-3);
        tti_json_double(j, "gb_per_s", cost.bytes / span->us * 1e-3);
    }
    tti_json_end(j);
    tti_json_end(j);
}

/* Clocks of devices are set beside the host's, which is one for all ranks. */
void tti_profile_trace(const tti_profiled *p, tti_str *out) {
    tti_json j = tti_json_begin(out, 0);
    int64_t zero_ns = p->ranks[0].zero_ns;
    for (int r = 1; r < p->n_ranks; r++) zero_ns = TTI_MIN(zero_ns, p->ranks[r].zero_ns);
    tti_json_object(&j, NULL);
    tti_json_text(&j, "displayTimeUnit", "ms");
    tti_json_array(&j, "traceEvents");
    for (int r = 0; r < p->n_ranks; r++) {
        const tti_timeline *t = &p->ranks[r];
        add_names(&j, p, r);
        for (int i = 0; i < t->n; i++)
            add_event(&j, &t->spans[i], r, (double)(t->zero_ns - zero_ns) * 1e-3);
    }
    tti_json_end(&j);
    tti_json_end(&j);
    tti_str_add(out, "\n");
}

/* ---- the table ---- */

typedef struct row {
    char label[LABEL];
    const char *kernel;
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
    memcpy(fresh->label, label, LABEL);
    fresh->kernel = kernel;
    return fresh;
}

/* The least time that the bytes and operations of a row could take. */
static double floor_us(const tti_profiled *p, const row *r) {
    double by_flops = r->flops / p->ceilings.flops * 1e6,
           by_bytes = r->bytes / p->ceilings.bytes * 1e6;
    return TTI_MAX(by_flops, by_bytes);
}

static void print_row(const tti_profiled *p, const row *r, double step_us, tti_str *out) {
    double saved = r->us - floor_us(p, r);
    tti_str_printf(out, "%9.1f %5.1f%% %5d %8.1f %8.1f %9.1f  %-14.14s %s\n", r->us,
                   100 * r->us / step_us, r->n, r->us > 0 ? r->flops / r->us * 1e-6 : 0,
                   r->us > 0 ? r->bytes / r->us * 1e-3 : 0, saved > 0 ? saved : 0, r->kernel,
                   r->label);
}

static void print_rest(const tti_profiled *p, const row *rows, int n_rows, double step_us,
                       tti_str *out) {
    double floor = 0;
    for (int i = 0; i < n_rows; i++) floor += floor_us(p, &rows[i]);
    if (n_rows > p->max_rows)
        tti_str_printf(out, "%9s  ... %d more (--all)\n", "", n_rows - p->max_rows);
    tti_str_printf(out,
                   "%9.1f 100.0%%        all parts; at the ceilings they would take %.1f us\n"
                   "%9.1f               a step as training runs it, %.1f us of it waiting for "
                   "samples\n"
                   "ceilings: %.1f TFLOP/s (%s matrix product), %.1f GB/s (copy)\n",
                   step_us, floor, p->trained_us, p->wait_us, p->ceilings.flops * 1e-12,
                   p->ceilings.dtype == TUTTI_F32 ? "f32" : "bf16", p->ceilings.bytes * 1e-9);
}

static bool is_of_step(const tti_span *span, int step) {
    return span->row == TTI_ROW_COMPUTE && span->step == step;
}

static double time_of_step(const tti_timeline *t, int step) {
    double us = 0;
    for (int i = 0; i < t->n; i++)
        if (is_of_step(&t->spans[i], step)) us += t->spans[i].us;
    return us;
}

/* The others were disturbed. */
static int fastest_step(const tti_profiled *p) {
    int best = 0;
    for (int s = 1; s < p->n_steps; s++)
        if (time_of_step(&p->ranks[0], s) < time_of_step(&p->ranks[0], best)) best = s;
    return best;
}

static void add_to_rows(const tti_span *span, row *rows, int *n_rows) {
    char label[LABEL];
    print_label(span, label);
    row *r = find_row(rows, n_rows, label, span->name);
    tti_cost cost = cost_of(span->node);
    r->n++, r->us += span->us, r->flops += cost.flops, r->bytes += cost.bytes;
}

tutti_status tti_profile_table(const tti_profiled *p, tti_str *out) {
    const tti_timeline *t = &p->ranks[0];
    row *rows = calloc((size_t)t->n + 1, sizeof *rows);
    int n_rows = 0, step = fastest_step(p);
    double step_us = time_of_step(t, step);
    if (!rows) return tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
    for (int i = 0; i < t->n; i++)
        if (is_of_step(&t->spans[i], step)) add_to_rows(&t->spans[i], rows, &n_rows);
    qsort(rows, (size_t)n_rows, sizeof *rows, slowest_first);
    tti_str_printf(out, "%9s %6s %5s %8s %8s %9s  %-14s %s\n", "us", "share", "runs", "TFLOP/s",
                   "GB/s", "saves us", "kernel", "operation");
    for (int i = 0; i < n_rows && i < p->max_rows; i++) print_row(p, &rows[i], step_us, out);
    print_rest(p, rows, n_rows, step_us, out);
    free(rows);
    return TUTTI_OK;
}
