/* collective.c - the collectives of a tensor axis inside a step.
 *
 * Communicators gather and scatter contiguous ranges.  For dimensions other than the first, scratch
 * memory is used to interleave or separate the parts. */
#include "exec/program/collective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/subgroup.h"
#include "ir/graph.h"

/* ---- sums that are adjacent in the program and in memory ----
 *
 * schedule.c puts the sums of short gradients last, bucket.c then gives them neighbouring slots,
 * and memplan.c makes their terms there.  So the range from the first to the last of them is one
 * vector, whose elements are added as in separate sums; the padding between slots is added too and
 * never read. */

enum { ALIGN_BYTES = 64 }; /* alignment of slots */

static bool is_in_place(const tti_program *program, const tti_node *node) {
    if (node->op->collective != TTI_COLLECTIVE_SUM) return false;
    tti_buf in = program->bufs[node->in[0]->id], out = program->bufs[node->out[0]->id];
    return out.space == TTI_SPACE_GRAD && in.space == TTI_SPACE_GRAD && in.offset == out.offset &&
           node->out[0]->type.dtype == TUTTI_F32;
}

static size_t begin_of(const tti_program *program, int s) {
    return program->bufs[program->steps[s]->out[0]->id].offset;
}

static size_t end_of(const tti_program *program, int s) {
    return begin_of(program, s) + tti_value_n_bytes(program->steps[s]->out[0]);
}

/* True if the next step also sums, and its range is adjacent. */
static bool continues_sum(const tti_program *program, int s) {
    if (s + 1 >= program->n_steps || !is_in_place(program, program->steps[s])) return false;
    if (!is_in_place(program, program->steps[s + 1])) return false;
    size_t end = (end_of(program, s) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return begin_of(program, s + 1) == end;
}

size_t tti_joint_bytes(const tti_program *program, int s) {
    if (program->steps[s]->op->collective != TTI_COLLECTIVE_SUM) return 0;
    if (s > 0 && continues_sum(program, s - 1)) return 0;
    size_t begin = begin_of(program, s);
    while (continues_sum(program, s)) s++;
    return end_of(program, s) - begin;
}

/* ---- finds the steps that must wait for a collective, by the bytes that they access ---- */

static bool overlap(const tti_program *program, const tutti_value *a, const tutti_value *b) {
    tti_buf x = program->bufs[a->id], y = program->bufs[b->id];
    if (x.space != y.space) return false;
    if (x.space == TTI_SPACE_INPUT) return x.offset == y.offset;
    return x.offset < y.offset + tti_value_n_bytes(b) && y.offset < x.offset + tti_value_n_bytes(a);
}

static bool writes_over(const tti_program *program, const tti_node *step,
                        const tutti_value *value) {
    for (int k = 0; k < step->op->n_out; k++)
        if (overlap(program, step->out[k], value)) return true;
    return false;
}

/* True if the step cannot begin before the collective has ended. */
static bool collide(const tti_program *program, const tti_node *collective, const tti_node *step) {
    for (int i = 0; i < step->n_in; i++)
        if (overlap(program, step->in[i], collective->out[0])) return true;
    return writes_over(program, step, collective->in[0]) ||
           writes_over(program, step, collective->out[0]);
}

/* The first step, from first on, that overwrites value; n_steps: none. */
static int overwriter(const tti_program *program, const tutti_value *value, int first) {
    for (int s = first; s < program->n_steps; s++)
        if (writes_over(program, program->steps[s], value)) return s;
    return program->n_steps;
}

/* Returns the step at which step t waits. Norms are fused with the steps around them, and with the
 * product that pulls their rows. */
static int wait_step(const tti_joint_step *joints, int t) {
    for (int s = t; s >= 0; s--) {
        int n = joints[s].norm.n_steps;
        if (n > 0) return t < s + n + joints[s].pulls ? s : t;
    }
    return t;
}

void tti_tp_waits(const tti_program *program, const tti_joint_step *joints, bool *waits) {
    for (int s = 0; s < program->n_steps; s++) waits[s] = false;
    for (int s = 0; s < program->n_steps; s++) {
        const tti_node *node = program->steps[s];
        if (!(node->op->traits & TTI_COLLECTIVE)) continue;
        for (int t = s + 1; t < program->n_steps; t++) {
            if (program->steps[t]->op->traits & TTI_COLLECTIVE) continue;
            if (!waits[t] && !collide(program, node, program->steps[t])) continue;
            waits[t] = true; /* waiting for one waits for all earlier ones */
            break;
        }
    }
    if (joints) {
        for (int s = 0; s < program->n_steps; s++) {
            const tti_collective_norm *norm = &joints[s].norm;
            if (!joints[s].pulls) continue;
            int t = overwriter(program, norm->gather->out[0], s + norm->n_steps + 1);
            if (t < program->n_steps) waits[wait_step(joints, t)] = true;
        }
    }
}

/* ---- values of a step ---- */

/* A value as rows; each worker has a part of every row: [n_rows][part_bytes]. */
typedef struct parts {
    size_t n, n_rows, row_elems, row_bytes;
    tutti_dtype dtype;
} parts;

/* The dimension at position i of the memory order. */
static int dim_at(const tutti_value *value, int i) {
    static const int last[] = {0, 2, 3, 1};
    return value->layout == TTI_CHANNELS_LAST_BYTES ? last[i] : i;
}

/* Finds the rows of a collective: the smaller one of input and output is the part. */
static parts parts_of(const tti_node *node) {
    bool gathers = node->op->collective == TTI_COLLECTIVE_GATHER;
    const tutti_value *part = gathers ? node->in[0] : node->out[0];
    parts p = {.n = (size_t)tti_attr_int(node, "n"), .n_rows = 1, .row_elems = 1};
    int dim = (int)tti_attr_int(node, "dim");
    bool inside = false;
    for (int i = 0; i < part->type.shape.n_dims; i++) {
        int d = dim_at(part, i);
        inside = inside || d == dim;
        *(inside ? &p.row_elems : &p.n_rows) *= (size_t)part->type.shape.dim[d];
    }
    p.dtype = part->type.dtype;
    p.row_bytes = p.row_elems * tutti_dtype_bytes(p.dtype);
    return p;
}

/* Converts between [n][n_rows][row], the order of messages, and [n_rows][n][row], the order of the
 * value. */
static void reorder_parts(const parts *p, const char *src, char *dst, bool to_value) {
    for (size_t w = 0; w < p->n; w++)
        for (size_t r = 0; r < p->n_rows; r++) {
            size_t sent = (w * p->n_rows + r) * p->row_bytes, at = (r * p->n + w) * p->row_bytes;
            memcpy(dst + (to_value ? at : sent), src + (to_value ? sent : at), p->row_bytes);
        }
}

void tti_collective_rows(const tti_node *node, size_t *n_rows, size_t *part_bytes) {
    *n_rows = 1;
    *part_bytes = tti_value_n_bytes(node->in[0]);
    if (node->op->collective == TTI_COLLECTIVE_SUM) return;
    parts p = parts_of(node);
    *n_rows = p.n_rows;
    *part_bytes = p.row_bytes;
}

static size_t scratch_bytes(const tti_node *node, const void *state) {
    (void)state;
    if (node->op->collective == TTI_COLLECTIVE_SUM) return 0;
    parts p = parts_of(node);
    return p.n_rows > 1 ? p.n * p.n_rows * p.row_bytes : 0;
}

static tutti_status run_collective(void *state, const tti_kargs *a) {
    const tutti_value *x = a->node->in[0];
    if (!state) return tti_fail(TUTTI_E_INVALID, "exec: %s without others", a->node->op->name);
    switch (a->node->op->collective) {
        case TTI_COLLECTIVE_SUM:
            return tutti_comm_all_reduce(state, a->in[0], a->out[0], (size_t)tti_value_n_elems(x),
                                         x->type.dtype, TUTTI_SUM, TUTTI_ALG_DIRECT);
        case TTI_COLLECTIVE_GATHER: {
            parts p = parts_of(a->node);
            void *to = p.n_rows == 1 ? a->out[0] : a->scratch;
            TTI_TRY(tutti_comm_all_gather(state, a->in[0], to, p.n_rows * p.row_elems, p.dtype));
            if (p.n_rows > 1) reorder_parts(&p, a->scratch, a->out[0], true);
            return TUTTI_OK;
        }
        case TTI_COLLECTIVE_SCATTER: {
            parts p = parts_of(a->node);
            const void *from = p.n_rows == 1 ? a->in[0] : a->scratch;
            if (p.n_rows > 1) reorder_parts(&p, a->in[0], a->scratch, false);
            return tutti_comm_reduce_scatter(state, from, a->out[0], p.n_rows * p.row_elems,
                                             p.dtype, TUTTI_SUM);
        }
        case TTI_COLLECTIVE_NONE:
            break;
    }
    return tti_fail(TUTTI_E_INTERNAL, "exec: %s is not a collective", a->node->op->name);
}

/* ---- a communicator for each compute thread ---- */

tutti_status tti_compute_thread_comms_create(tutti_comm *axis, int *n_compute_threads,
                                             tutti_comm ***out) {
    int32_t mine = *n_compute_threads, least = mine;
    *out = NULL;
    if (!axis) return TUTTI_OK;
    TTI_TRY(tutti_comm_all_reduce(axis, &mine, &least, 1, TUTTI_I32, TUTTI_MIN, TUTTI_ALG_AUTO));
    tutti_comm **comms = calloc((size_t)least + 1, sizeof *comms);
    if (!comms) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    comms[0] = axis;
    tutti_status st = TUTTI_OK;
    for (int i = 1; st == TUTTI_OK && i < least; i++) st = tti_comm_split(axis, 0, &comms[i]);
    if (st != TUTTI_OK && st != TUTTI_E_UNSUPPORTED) {
        tti_compute_thread_comms_destroy(comms, least);
        return st;
    }
    if (st != TUTTI_OK) {
        tti_clear_error();
        for (int i = 1; i < least; i++) tutti_comm_destroy(comms[i]);
        least = 1;
    }
    *n_compute_threads = least;
    *out = comms;
    return TUTTI_OK;
}

void tti_compute_thread_comms_destroy(tutti_comm **comms, int n_compute_threads) {
    for (int i = 1; comms && i < n_compute_threads; i++) tutti_comm_destroy(comms[i]);
    free(comms);
}

double tti_collective_bytes(const tti_node *node, int n) {
    if (!(node->op->traits & TTI_COLLECTIVE)) return -1;
    double share = (double)(n - 1) / n, in = (double)tti_value_n_bytes(node->in[0]);
    if (node->op->collective == TTI_COLLECTIVE_SUM) return 2 * share * in;
    return share * fmax(in, (double)tti_value_n_bytes(node->out[0]));
}

tutti_status tti_collective_check(const tti_program *program, const tutti_comm *comm) {
    for (int s = 0; s < program->n_steps; s++) {
        const tti_node *node = program->steps[s];
        if (!(node->op->traits & TTI_COLLECTIVE)) continue;
        int64_t n = tti_attr_int(node, "n"), index = tti_attr_int(node, "index");
        if (!comm || tutti_comm_n_ranks(comm) != n || tutti_comm_rank(comm) != index)
            return tti_fail(TUTTI_E_INVALID,
                            "exec: %s '%s' belongs to worker %lld of %lld of another axis",
                            node->op->name, node->name, (long long)index, (long long)n);
    }
    return TUTTI_OK;
}

const tti_kernel tti_collective_kernel = {
    .op = "*", .name = "collective", .scratch_bytes = scratch_bytes, .run = run_collective};
