/* collective.c - the collectives of a tensor axis inside a step.
 *
 * Communicators join and divide contiguous ranges; along another dimension than the first the parts
 * are interleaved, or separated, in scratch memory. */
#include "exec/program/collective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/subgroup.h"
#include "ir/graph.h"

/* A value as rows that each worker has a part of: [n_rows][part_bytes]. */
typedef struct parts {
    size_t n, n_rows, row_elems, row_bytes;
    tutti_dtype dtype;
} parts;

/* The dimension that is number i in memory. */
static int dim_at(const tutti_value *value, int i) {
    static const int last[] = {0, 2, 3, 1};
    return value->layout == TTI_CHANNELS_LAST_BYTES ? last[i] : i;
}

/* The smaller of in and out is the part. */
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

/* Between [n][n_rows][row], as workers send, and [n_rows][n][row], as the value lies. */
static void turn(const parts *p, const char *src, char *dst, bool to_value) {
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

static tutti_status gather(tutti_comm *comm, const tti_kargs *a) {
    parts p = parts_of(a->node);
    void *to = p.n_rows == 1 ? a->out[0] : a->scratch;
    TTI_TRY(tutti_comm_all_gather(comm, a->in[0], to, p.n_rows * p.row_elems, p.dtype));
    if (p.n_rows > 1) turn(&p, a->scratch, a->out[0], true);
    return TUTTI_OK;
}

static tutti_status scatter(tutti_comm *comm, const tti_kargs *a) {
    parts p = parts_of(a->node);
    const void *from = p.n_rows == 1 ? a->in[0] : a->scratch;
    if (p.n_rows > 1) turn(&p, a->in[0], a->scratch, false);
    return tutti_comm_reduce_scatter(comm, from, a->out[0], p.n_rows * p.row_elems, p.dtype,
                                     TUTTI_SUM);
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
        case TTI_COLLECTIVE_GATHER:
            return gather(state, a);
        case TTI_COLLECTIVE_SCATTER:
            return scatter(state, a);
        case TTI_COLLECTIVE_NONE:
            break;
    }
    return tti_fail(TUTTI_E_INTERNAL, "exec: %s exchanges nothing", a->node->op->name);
}

/* ---- a communicator for each compute thread ---- */

static tutti_status divide(tutti_comm *axis, int n_compute_threads, tutti_comm **comms) {
    comms[0] = axis;
    for (int i = 1; i < n_compute_threads; i++) TTI_TRY(tti_comm_split(axis, 0, &comms[i]));
    return TUTTI_OK;
}

tutti_status tti_compute_thread_comms_create(tutti_comm *axis, int *n_compute_threads,
                                             tutti_comm ***out) {
    int32_t mine = *n_compute_threads, least = mine;
    *out = NULL;
    if (!axis) return TUTTI_OK;
    TTI_TRY(tutti_comm_all_reduce(axis, &mine, &least, 1, TUTTI_I32, TUTTI_MIN, TUTTI_ALG_AUTO));
    tutti_comm **comms = calloc((size_t)least + 1, sizeof *comms);
    if (!comms) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    tutti_status st = divide(axis, least, comms);
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

double tti_exchange_bytes(const tti_node *node, int n) {
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
                            "exec: %s '%s' wants to be worker %lld of %lld of an axis",
                            node->op->name, node->name, (long long)index, (long long)n);
    }
    return TUTTI_OK;
}

const tti_kernel tti_collective_kernel = {
    .op = "*", .name = "exchange", .scratch_bytes = scratch_bytes, .run = run_collective};
