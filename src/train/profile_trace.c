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

static void add_event(tti_json *j, const tti_span *span) {
    char label[LABEL];
    tti_cost cost = cost_of(span->node);
    print_label(span, label);
    tti_json_object(j, NULL);
    tti_json_text(j, "name", span->node ? span->node->op->name : span->name);
    tti_json_text(j, "ph", "X");
    tti_json_int(j, "pid", 0);
    tti_json_int(j, "tid", span->shard + 1);
    tti_json_double(j, "ts", span->start_us);
    tti_json_double(j, "dur", span->us);
    tti_json_object(j, "args");
    if (span->node) tti_json_text(j, "layer", span->node->name);
    tti_json_text(j, "kernel", span->name);
    tti_json_text(j, "types", label);
    if (span->us > 0) {
        tti_json_double(j, "gflop_per_s", cost.flops / span->us * 1e-3);
        tti_json_double(j, "gb_per_s", cost.bytes / span->us * 1e-3);
    }
    tti_json_end(j);
    tti_json_end(j);
}

void tti_profile_trace(const tti_profiled *p, tti_str *out) {
    tti_json j = tti_json_begin(out, 0);
    tti_json_object(&j, NULL);
    tti_json_text(&j, "displayTimeUnit", "ms");
    tti_json_array(&j, "traceEvents");
    for (int i = 0; i < p->n_spans; i++) add_event(&j, &p->spans[i]);
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

static void print_row(const tti_profiled *p, const row *r, tti_str *out) {
    double saved = r->us - floor_us(p, r);
    tti_str_printf(out, "%9.1f %5.1f%% %5d %8.1f %8.1f %9.1f  %-14.14s %s\n", r->us,
                   100 * r->us / p->step_us, r->n, r->us > 0 ? r->flops / r->us * 1e-6 : 0,
                   r->us > 0 ? r->bytes / r->us * 1e-3 : 0, saved > 0 ? saved : 0, r->kernel,
                   r->label);
}

static void print_rest(const tti_profiled *p, const row *rows, int n_rows, tti_str *out) {
    double us = 0, floor = 0;
    for (int i = 0; i < n_rows; i++) us += rows[i].us, floor += floor_us(p, &rows[i]);
    for (int i = p->max_rows; i < n_rows; i++)
        if (i == p->max_rows) tti_str_printf(out, "%9s  ... %d more\n", "", n_rows - p->max_rows);
    tti_str_printf(out,
                   "%9.1f 100.0%%        all parts; at the ceilings they would take %.1f us\n"
                   "%9.1f               a step as training runs it\n"
                   "ceilings: %.1f TFLOP/s (%s matrix product), %.1f GB/s (copy)\n",
                   us, floor, p->trained_us, p->ceilings.flops * 1e-12,
                   p->ceilings.dtype == TUTTI_F32 ? "f32" : "bf16", p->ceilings.bytes * 1e-9);
}

tutti_status tti_profile_table(const tti_profiled *p, tti_str *out) {
    row *rows = calloc((size_t)p->n_spans + 1, sizeof *rows);
    int n_rows = 0;
    if (!rows) return tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
    for (int i = 0; i < p->n_spans; i++) {
        char label[LABEL];
        print_label(&p->spans[i], label);
        row *r = find_row(rows, &n_rows, label, p->spans[i].name);
        tti_cost cost = cost_of(p->spans[i].node);
        r->n++, r->us += p->spans[i].us, r->flops += cost.flops, r->bytes += cost.bytes;
    }
    qsort(rows, (size_t)n_rows, sizeof *rows, slowest_first);
    tti_str_printf(out, "%9s %6s %5s %8s %8s %9s  %-14s %s\n", "us", "share", "runs", "TFLOP/s",
                   "GB/s", "saves us", "kernel", "operation");
    for (int i = 0; i < n_rows && i < p->max_rows; i++) print_row(p, &rows[i], out);
    print_rest(p, rows, n_rows, out);
    free(rows);
    return TUTTI_OK;
}
