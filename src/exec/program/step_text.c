/* step_text.c - prints a step program as a table. */
#include <stdio.h>

#include "exec/program/state_arrays.h"
#include "exec/program/step_program.h"

/* ---- what an instruction does ---- */

static const char *const queue_names[] = {"main", "lanes", "comm"};

static const char *const kind_names[TTI_N_INSTR_KINDS] = {
    [TTI_RUN] = "run",
    [TTI_RECV] = "recv",
    [TTI_SEND] = "send",
    [TTI_ALL_GATHER] = "all_gather",
    [TTI_JOIN] = "join",
    [TTI_MERGE] = "merge",
    [TTI_ADD_PARTIALS] = "merge",
    [TTI_REDUCE_SCATTER] = "reduce_scatter",
    [TTI_ALL_REDUCE] = "all_reduce",
    [TTI_TIME_STAGES] = "all_reduce",
    [TTI_SUM_TIED] = "all_reduce",
    [TTI_REPORT] = "report",
    [TTI_UPDATE_BLOCKS] = "update",
    [TTI_PUSH_GRADS] = "push",
    [TTI_PULL_PARAMS] = "pull",
    [TTI_AVERAGE] = "all_reduce",
    [TTI_HASH] = "hash",
    [TTI_SUM_HASHES] = "all_reduce",
};

static const char *axis_text(tti_mesh_axis axis) {
    static const char *const texts[] = {"", ", data axis", ", pipeline axis", ", model axes",
                                        ", all axes"};
    return texts[axis];
}

static const char *method_text(tti_reduce_method method) {
    static const char *const texts[] = {", tree", "", ", 16 bits", ", compressed"};
    return texts[method];
}

static void print_shards(const tti_instr *in, tti_str *out) {
    if (in->n_shards == 0) tti_str_add(out, "no shard");
    if (in->n_shards == 1) tti_str_printf(out, "shard %d", in->shard);
    if (in->n_shards > 1)
        tti_str_printf(out, "shards %d..%d", in->shard, in->shard + in->n_shards - 1);
}

static void print_range(const tti_instr *in, tti_str *out) {
    if (in->bucket >= 0 && in->queue != TTI_ON_COMPUTE_THREADS)
        tti_str_printf(out, "bucket %d, ", in->bucket);
    tti_str_printf(out, "[%zu, %zu)", in->range.first, in->range.last);
}

static void print_report(const tti_instr *in, tti_str *out) {
    tti_str_add(out, "sums");
    if (in->report & TTI_REPORT_VOTES) tti_str_add(out, ", votes");
    if (in->report & TTI_REPORT_HASHES) tti_str_add(out, ", hashes");
}

static void print_array(const tti_instr *in, tti_str *out) {
    tti_str_add(out, "mean of ");
    if (in->array == TTI_STATE_PARAMS) tti_str_add(out, "the parameters");
    if (in->array == TTI_STATE_EMA) tti_str_add(out, "the averaged parameters");
    if (in->array >= 0) tti_str_printf(out, "state %d", in->array);
}

static void print_operands(const tti_instr *in, tti_str *out) {
    switch (in->kind) {
        case TTI_RUN:
            print_shards(in, out);
            tti_str_printf(out, ", steps %d..%d", in->first, in->last - 1);
            return;
        case TTI_RECV:
        case TTI_SEND:
            print_shards(in, out);
            tti_str_printf(out, ", part %d", in->part);
            return;
        case TTI_ALL_GATHER:
            tti_str_add(out, in->averages ? "averages, " : "parameters, ");
            print_range(in, out);
            break;
        case TTI_JOIN:
            tti_str_printf(out, "step %d of all shards", in->first);
            break;
        case TTI_MERGE:
            print_range(in, out);
            tti_str_printf(out, ", up to shard %d", in->merges->first + in->merges->n_shards - 1);
            return;
        case TTI_UPDATE_BLOCKS:
            tti_str_add(out, "own blocks of ");
            print_range(in, out);
            return;
        case TTI_ADD_PARTIALS:
        case TTI_REDUCE_SCATTER:
        case TTI_ALL_REDUCE:
            print_range(in, out);
            break;
        case TTI_TIME_STAGES:
            tti_str_add(out, "times of the stages");
            break;
        case TTI_SUM_TIED:
            tti_str_add(out, "gradients of shared parameters");
            break;
        case TTI_REPORT:
            print_report(in, out);
            break;
        case TTI_AVERAGE:
            print_array(in, out);
            break;
        case TTI_HASH:
            tti_str_add(out, in->whole ? "all parameters" : "parameters of other workers");
            break;
        case TTI_SUM_HASHES:
            tti_str_add(out, "hashes of the parameters");
            break;
        default: /* PUSH, PULL */
            print_range(in, out);
    }
    if (in->kind != TTI_ADD_PARTIALS) tti_str_add(out, axis_text(in->axis));
    if (in->kind == TTI_REDUCE_SCATTER || in->kind == TTI_ALL_REDUCE)
        tti_str_add(out, method_text(in->method));
}

/* ---- what it waits for ---- */

/* The last instruction of a queue before number i; -1: none. */
static int last_before(const tti_step_program *p, int i, tti_instr_queue queue) {
    while (--i >= 0 && p->instrs[i].queue != queue) continue;
    return i;
}

/* The first instruction after the compute threads that is no reduction waits for the communication
 * thread. */
static bool ends_comm(const tti_step_program *p, int i) {
    if (i < p->n_head || tti_is_reduction(p->instrs[i].kind)) return false;
    int before = last_before(p, i, TTI_ON_MAIN);
    return before < p->n_head || tti_is_reduction(p->instrs[before].kind);
}

static void print_wait(tti_str *out, const char **separator, int instr) {
    if (instr < 0) return;
    tti_str_printf(out, "%s%d", *separator, instr);
    *separator = ", ";
}

static void print_waits(const tti_step_program *p, int i, tti_str *out) {
    const tti_instr *in = &p->instrs[i];
    const char *separator = "";
    int compute_threads = last_before(p, i, TTI_ON_COMPUTE_THREADS);
    if (in->queue == TTI_ON_COMM && in->n_arrivals > 0) {
        print_wait(out, &separator, compute_threads);
        if (in->after != TTI_AT_END) tti_str_printf(out, " after step %d", in->after - 1);
    }
    int same = last_before(p, i, in->queue);
    bool begins = in->queue == TTI_ON_MAIN && i >= p->n_head && same < p->n_head;
    print_wait(out, &separator, begins ? compute_threads : same);
    for (int k = 0; k < in->n_waits; k++) {
        const tti_wait *wait = &p->waits[in->first_wait + k];
        print_wait(out, &separator, wait->instr);
        if (wait->step > in->first) tti_str_printf(out, " before step %d", wait->step);
    }
    if (in->queue == TTI_ON_MAIN && ends_comm(p, i))
        print_wait(out, &separator, last_before(p, i, TTI_ON_COMM));
}

/* ---- the table ---- */

static void print_line(const tti_step_program *p, int i, tti_str *out) {
    const tti_instr *in = &p->instrs[i];
    tti_str operands = {0}, waits = {0};
    print_operands(in, &operands);
    print_waits(p, i, &waits);
    tti_str_printf(out, "%4d  %-5s  %-14s  %-48s", i, queue_names[in->queue], kind_names[in->kind],
                   tti_str_text(&operands));
    if (waits.n_bytes > 0) tti_str_printf(out, "  %s", tti_str_text(&waits));
    while (out->n_bytes > 0 && out->text[out->n_bytes - 1] == ' ') out->text[--out->n_bytes] = 0;
    tti_str_add(out, "\n");
    out->failed = out->failed || operands.failed || waits.failed;
    tti_str_free(&operands);
    tti_str_free(&waits);
}

void tti_step_program_print(const tti_step_program *p, tti_str *out) {
    tti_str_printf(out, "%4s  %-5s  %-14s  %-48s  %s\n", "#", "queue", "instruction", "",
                   "waits for");
    for (int i = 0; i < p->n_instrs; i++) print_line(p, i, out);
}
