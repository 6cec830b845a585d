/* divided.c - reduces sums, hashes and norms over the workers of one replica.
 *
 * Each worker announces once which parts it has, so that all know the same table, which alone
 * determines which worker counts a part.  Everything is added in the order of ranks. */
#include "exec/worker/divided.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "comm/transport.h"
#include "exec/worker/worker.h"
#include "ops/piece.h"

/* The identity of a part of a parameter among all workers. */
typedef struct piece_id {
    uint64_t name; /* hash; 0: no more slots */
    uint64_t cut;  /* which piece of the whole; 0: all of it */
} piece_id;

struct tti_divided {
    const tti_plan *plan;
    const tti_mesh *mesh;
    int rank, n_ranks;    /* in the model group */
    size_t n_most;        /* slots of the worker that has the most */
    piece_id *ids;        /* [n_ranks][n_most] */
    float *whole, *piece; /* of the requested parameter; grown on demand */
    size_t whole_elems, piece_elems;
};

static piece_id id_of(const tti_node *param) {
    tti_piece_of p = tti_piece_get(param);
    uint64_t name = tti_hash_name(param->name);
    piece_id id = {.name = name ? name : 1};
    if (p.dim >= 0 && p.n > 1)
        id.cut = (uint64_t)(p.dim + 1) << 48 | (uint64_t)p.groups << 32 | (uint64_t)p.n << 16 |
                 (uint64_t)p.index;
    return id;
}

static bool is_same(const piece_id *a, const piece_id *b) {
    return a->name == b->name && a->cut == b->cut;
}

static const piece_id *ids_of(const tti_divided *d, int rank) {
    return d->ids + (size_t)rank * d->n_most;
}

/* The slot of a worker that has this piece, -1: none. */
static int find_piece(const tti_divided *d, int rank, const piece_id *id) {
    const piece_id *ids = ids_of(d, rank);
    for (size_t i = 0; i < d->n_most && ids[i].name; i++)
        if (is_same(&ids[i], id)) return (int)i;
    return -1;
}

static bool counts(const tti_divided *d, int rank, const piece_id *id) {
    for (int r = 0; r < rank; r++)
        if (find_piece(d, r, id) >= 0) return false;
    return true;
}

bool tti_divided_counts(const tti_divided *d, int slot) {
    return !d || counts(d, d->rank, &ids_of(d, d->rank)[slot]);
}

/* The first worker of the tensor group counts values that all of them have whole. */
bool tti_divided_counts_here(const tti_divided *d, int slot) {
    return !d || d->mesh->at.tensor == 0 || ids_of(d, d->rank)[slot].cut != 0;
}

/* ---- the table ---- */

/* Workers of a tensor group add their squares slot by slot. */
static tutti_status check_neighbours(const tti_divided *d) {
    int first = d->mesh->at.stage * d->mesh->size.tensor;
    for (int t = 1; t < d->mesh->size.tensor; t++)
        for (size_t i = 0; i < d->n_most; i++)
            if (ids_of(d, first)[i].name != ids_of(d, first + t)[i].name)
                return tti_fail(TUTTI_E_INTERNAL,
                                "exec: slot %zu of stage %d is another parameter on piece %d", i,
                                d->mesh->at.stage, t);
    return TUTTI_OK;
}

static tutti_status tell_pieces(tti_divided *d) {
    tutti_comm *comm = d->mesh->model;
    int64_t n = d->plan->n_slots, n_most = 0;
    TTI_TRY(tutti_comm_all_reduce(comm, &n, &n_most, 1, TUTTI_I64, TUTTI_MAX, TUTTI_ALG_AUTO));
    d->n_most = (size_t)n_most;
    d->ids = calloc((size_t)d->n_ranks * d->n_most + 1, sizeof *d->ids);
    piece_id *mine = calloc(d->n_most + 1, sizeof *mine);
    tutti_status st = d->ids && mine ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int i = 0; st == TUTTI_OK && i < d->plan->n_slots; i++)
        mine[i] = id_of(d->plan->slots[i].param);
    if (st == TUTTI_OK)
        st = tutti_comm_all_gather(comm, mine, d->ids, d->n_most * sizeof *mine, TUTTI_U8);
    free(mine);
    return st == TUTTI_OK ? check_neighbours(d) : st;
}

tutti_status tti_divided_create(const tti_plan *plan, const tti_mesh *mesh, tti_divided **out) {
    *out = NULL;
    if (!mesh || !mesh->model) return TUTTI_OK;
    tti_divided *d = calloc(1, sizeof *d);
    if (!d) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    d->plan = plan;
    d->mesh = mesh;
    d->rank = tutti_comm_rank(mesh->model);
    d->n_ranks = tutti_comm_n_ranks(mesh->model);
    tutti_status st = tell_pieces(d);
    if (st != TUTTI_OK) {
        tti_divided_destroy(d);
        return st;
    }
    *out = d;
    return TUTTI_OK;
}

void tti_divided_destroy(tti_divided *d) {
    if (!d) return;
    free(d->whole);
    free(d->piece);
    free(d->ids);
    free(d);
}

/* ---- sums ---- */

tutti_status tti_divided_sums(const tti_divided *d, double *sums, size_t n_sums, double *votes) {
    if (!d) return TUTTI_OK;
    const tti_mesh_at *at = &d->mesh->at;
    bool has_loss = at->stage == d->mesh->size.stage - 1 && at->tensor == 0;
    if (!has_loss) memset(sums, 0, n_sums * sizeof *sums);
    /* Each sum has only one nonzero term, and votes are small integers: the order does not matter.
     */
    TTI_TRY(tutti_comm_all_reduce(d->mesh->model, sums, sums, n_sums, TUTTI_F64, TUTTI_SUM,
                                  TUTTI_ALG_AUTO));
    return tti_divided_add(d, votes);
}

tutti_status tti_divided_add(const tti_divided *d, double *term) {
    if (!d) return TUTTI_OK;
    return tutti_comm_all_reduce(d->mesh->model, term, term, 1, TUTTI_F64, TUTTI_SUM,
                                 TUTTI_ALG_AUTO);
}

tutti_status tti_divided_squares(const tti_divided *d, double *squares) {
    if (!d || !d->mesh->tensor) return TUTTI_OK;
    size_t n = 2 * (size_t)d->plan->n_slots;
    for (size_t i = 0; i < n; i++)
        if (!tti_divided_counts_here(d, (int)(i / 2))) squares[i] = 0;
    return tutti_comm_all_reduce(d->mesh->tensor, squares, squares, n, TUTTI_F64, TUTTI_SUM,
                                 TUTTI_ALG_AUTO);
}

/* ---- squares of blocks ---- */

/* A sum over a part of the model, added as devices add lists; over the whole, one after the other.
 */
typedef struct list_sum {
    double lane[TTI_LIST_LANES];
    int n_lanes, n;
} list_sum;

static list_sum new_sum(const tti_exec *x) {
    return (list_sum){.n_lanes = x->divided ? TTI_LIST_LANES : 1};
}

static void add_term(list_sum *s, double term) { s->lane[s->n++ % s->n_lanes] += term; }

static double take_sum(list_sum *s) {
    for (int d = s->n_lanes / 2; d > 0; d /= 2)
        for (int t = 0; t < d; t++) s->lane[t] += s->lane[t + d];
    return s->lane[0];
}

double tti_divided_own_blocks(const tti_exec *x) {
    const tti_plan *plan = x->desc.plan;
    list_sum sum = new_sum(x);
    for (int i = 0; i < plan->n_updates; i++)
        if (tti_divided_counts(x->divided, plan->updates[i].slot)) add_term(&sum, x->partials[i]);
    return take_sum(&sum);
}

void tti_divided_own_slots(tti_exec *x) {
    const tti_plan *plan = x->desc.plan;
    for (int slot = 0, i = 0; slot < plan->n_slots; slot++) {
        list_sum w = new_sum(x), direction = w;
        for (; i < plan->n_updates && plan->updates[i].slot == slot; i++) {
            add_term(&w, x->partials[2 * i]);
            add_term(&direction, x->partials[2 * i + 1]);
        }
        x->norms[2 * slot] = take_sum(&w);
        x->norms[2 * slot + 1] = take_sum(&direction);
    }
}

/* The sum of all blocks, in the place of the first one. */
static tutti_status add_blocks(tti_exec *x) {
    int n_updates = x->desc.plan->n_updates;
    double sum = tti_divided_own_blocks(x);
    memset(x->partials, 0, (size_t)n_updates * sizeof *x->partials);
    TTI_TRY(tti_divided_add(x->divided, &sum));
    if (n_updates > 0) x->partials[0] = sum;
    return TUTTI_OK;
}

/* Adds the values of a slot at the position of its first block. */
static tutti_status add_slots(tti_exec *x) {
    const tti_plan *plan = x->desc.plan;
    tti_divided_own_slots(x);
    memset(x->partials, 0, 2 * (size_t)plan->n_updates * sizeof *x->partials);
    TTI_TRY(tti_divided_squares(x->divided, x->norms));
    for (int i = 0; i < plan->n_updates; i++) {
        const tti_update_step *step = &plan->updates[i];
        if (step->first == plan->slots[step->slot].first)
            memcpy(&x->partials[2 * i], &x->norms[2 * step->slot], 2 * sizeof *x->norms);
    }
    return TUTTI_OK;
}

tutti_status tti_divided_partials(tti_exec *x, size_t n_sums) {
    return n_sums <= (size_t)x->desc.plan->n_updates ? add_blocks(x) : add_slots(x);
}

/* ---- hashes ---- */

uint64_t tti_divided_join_hashes(const uint64_t *hashes, int n) {
    uint64_t joined = 0;
    for (int r = 0; r < n; r++) joined = tti_mix64(joined ^ hashes[r], (uint64_t)r);
    return joined;
}

tutti_status tti_divided_hash(const tti_divided *d, uint64_t *hash) {
    uint64_t all[TTI_MAX_RANKS];
    if (!d) return TUTTI_OK;
    TTI_TRY(tutti_comm_all_gather(d->mesh->model, hash, all, 1, TUTTI_I64));
    *hash = tti_divided_join_hashes(all, d->n_ranks);
    return TUTTI_OK;
}

static tutti_status compare(const tti_divided *d, const int64_t *all, uint64_t step) {
    const piece_id *mine = ids_of(d, d->rank);
    for (int i = 0; i < d->plan->n_slots; i++)
        for (int r = 0; r < d->n_ranks; r++) {
            int other = find_piece(d, r, &mine[i]);
            if (other < 0) continue;
            if (all[(size_t)r * d->n_most + (size_t)other] ==
                all[(size_t)d->rank * d->n_most + (size_t)i])
                continue;
            const tti_mesh_at *size = &d->mesh->size;
            tti_mesh_at there = {d->mesh->at.data, r / size->tensor, r % size->tensor};
            return tti_fail(TUTTI_E_MISMATCH,
                            "step %llu: parameter '%s' differs between rank %d and rank %d, which "
                            "both have it",
                            (unsigned long long)step, d->plan->slots[i].param->name,
                            tti_mesh_rank(size, &d->mesh->at), tti_mesh_rank(size, &there));
        }
    return TUTTI_OK;
}

tutti_status tti_divided_check(const tti_divided *d, const int64_t *hashes, uint64_t step) {
    if (!d) return TUTTI_OK;
    int64_t *mine = calloc(d->n_most + 1, sizeof *mine);
    int64_t *all = calloc((size_t)d->n_ranks * d->n_most + 1, sizeof *all);
    tutti_status st = mine && all ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    if (st == TUTTI_OK) {
        memcpy(mine, hashes, (size_t)d->plan->n_slots * sizeof *mine);
        st = tutti_comm_all_gather(d->mesh->model, mine, all, d->n_most, TUTTI_I64);
    }
    if (st == TUTTI_OK) st = compare(d, all, step);
    free(mine);
    free(all);
    return st;
}

/* ---- whole parameters, for checkpoints ---- */

/* The first worker's request to the others. */
typedef struct request {
    int64_t k; /* END: nothing more */
    uint64_t name;
} request;

enum { END = -3 };

static tutti_status grow(float **memory, size_t *n_elems, size_t wanted) {
    if (*n_elems >= wanted && *memory) return TUTTI_OK;
    free(*memory);
    *memory = malloc(wanted * sizeof **memory + 64);
    *n_elems = *memory ? wanted : 0;
    return *memory ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: %zu floats of a parameter", wanted);
}

static tutti_status ask(const tti_divided *d, request *want) {
    return tutti_comm_broadcast(d->mesh->model, want, sizeof *want, TUTTI_U8, 0);
}

/* This worker's array k of a slot; its data group gathers sharded values. */
static tutti_status own_array(tti_exec *x, int k, int slot, const float **data) {
    const tti_slot *s = &x->desc.plan->slots[slot];
    return tti_exec_fetch(x, k, s->first, s->n_elems, data);
}

/* Answers for every piece of the parameter that counts. */
static tutti_status answer(tti_exec *x, const request *want) {
    const tti_divided *d = x->divided;
    for (int i = 0; i < d->plan->n_slots; i++) {
        const piece_id *id = &ids_of(d, d->rank)[i];
        const float *data;
        if (id->name != want->name || !counts(d, d->rank, id)) continue;
        TTI_TRY(own_array(x, (int)want->k, i, &data));
        TTI_TRY(tutti_comm_send(d->mesh->model, data, d->plan->slots[i].n_elems, TUTTI_F32, 0));
    }
    return TUTTI_OK;
}

/* A piece put at its places in the whole parameter, or taken from there. */
static void place(const tutti_shape *shape, uint64_t cut, float *whole, float *piece, bool take) {
    size_t n_elems = (size_t)tutti_shape_n_elems(shape), inner = 1, outer = 1;
    if (cut == 0) {
        memcpy(take ? piece : whole, take ? whole : piece, n_elems * sizeof *whole);
        return;
    }
    int dim = (int)(cut >> 48) - 1;
    size_t groups = cut >> 32 & 0xffff, n = cut >> 16 & 0xffff, index = cut & 0xffff;
    for (int i = dim + 1; i < shape->n_dims; i++) inner *= (size_t)shape->dim[i];
    for (int i = 0; i < dim; i++) outer *= (size_t)shape->dim[i];
    size_t run = (size_t)shape->dim[dim] / groups / n * inner;
    for (size_t i = 0; i < outer * groups; i++) {
        float *in_whole = whole + (i * n + index) * run, *in_piece = piece + i * run;
        memcpy(take ? in_piece : in_whole, take ? in_whole : in_piece, run * sizeof *whole);
    }
}

/* Elements of such a piece; 0: it is none of this parameter, and the worker that sent its table has
 * another model. */
static size_t piece_elems(const tutti_shape *shape, uint64_t cut) {
    size_t n_elems = (size_t)tutti_shape_n_elems(shape), n = cut >> 16 & 0xffff;
    int dim = (int)(cut >> 48) - 1;
    if (cut == 0) return n_elems;
    if (dim >= shape->n_dims || n == 0 || (cut >> 32 & 0xffff) == 0) return 0;
    return shape->dim[dim] % (int64_t)(n * (cut >> 32 & 0xffff)) ? 0 : n_elems / n;
}

/* The piece of another worker, or of this one, into d->whole. */
static tutti_status take_piece(tti_exec *x, const request *want, const tti_node *param, int rank,
                               int slot) {
    tti_divided *d = x->divided;
    const tutti_shape *shape = &param->out[0]->type.shape;
    uint64_t cut = ids_of(d, rank)[slot].cut;
    size_t n_elems = piece_elems(shape, cut);
    const float *data;
    if (n_elems == 0)
        return tti_fail(TUTTI_E_INTERNAL, "exec: rank %d has another '%s'", rank, param->name);
    TTI_TRY(grow(&d->piece, &d->piece_elems, n_elems));
    if (rank == d->rank) {
        TTI_TRY(own_array(x, (int)want->k, slot, &data));
        memcpy(d->piece, data, n_elems * sizeof *d->piece);
    } else {
        TTI_TRY(tutti_comm_recv(d->mesh->model, d->piece, n_elems, TUTTI_F32, rank));
    }
    place(shape, cut, d->whole, d->piece, false);
    return TUTTI_OK;
}

static tutti_status take_all(tti_exec *x, int k, const tti_node *param) {
    tti_divided *d = x->divided;
    request want = {.k = k, .name = id_of(param).name};
    size_t n_found = 0, n_elems = (size_t)tti_value_n_elems(param->out[0]);
    TTI_TRY(grow(&d->whole, &d->whole_elems, n_elems));
    TTI_TRY(ask(d, &want));
    for (int r = 0; r < d->n_ranks; r++) {
        const piece_id *ids = ids_of(d, r);
        for (size_t i = 0; i < d->n_most && ids[i].name; i++) {
            if (ids[i].name != want.name || !counts(d, r, &ids[i])) continue;
            TTI_TRY(take_piece(x, &want, param, r, (int)i));
            n_found += piece_elems(&param->out[0]->type.shape, ids[i].cut);
        }
    }
    if (n_found == n_elems) return TUTTI_OK;
    return tti_fail(TUTTI_E_INTERNAL, "exec: the workers have %zu of the %zu elements of '%s'",
                    n_found, n_elems, param->name);
}

tutti_status tti_exec_fetch_whole(tti_exec *x, int k, const tti_node *param, const float **data) {
    if (!x->divided) return own_array(x, k, tti_plan_find_slot(x->desc.plan, param->name), data);
    TTI_TRY(take_all(x, k, param));
    *data = x->divided->whole;
    return TUTTI_OK;
}

tutti_status tti_exec_store_whole(tti_exec *x, int k, const tti_node *param, const float *data) {
    int i = tti_plan_find_slot(x->desc.plan, param->name);
    tti_divided *d = x->divided;
    if (i < 0) return TUTTI_OK; /* another stage's */
    const tti_slot *slot = &x->desc.plan->slots[i];
    uint64_t cut = id_of(slot->param).cut;
    if (cut == 0) {
        tti_exec_store(x, k, slot->first, slot->n_elems, data);
        return TUTTI_OK;
    }
    if (piece_elems(&param->out[0]->type.shape, cut) != slot->n_elems)
        return tti_fail(TUTTI_E_INTERNAL, "exec: the piece of '%s' is no part of it", param->name);
    TTI_TRY(grow(&d->piece, &d->piece_elems, slot->n_elems));
    place(&param->out[0]->type.shape, cut, (float *)(uintptr_t)data, d->piece, true);
    tti_exec_store(x, k, slot->first, slot->n_elems, d->piece);
    return TUTTI_OK;
}

tutti_status tti_exec_serve(tti_exec *x) {
    const tti_divided *d = x->divided;
    if (!d || d->mesh->at.data > 0) return tti_zero_serve(x);
    TTI_TRY(tti_exec_pull(x));
    for (;;) {
        request want = {0};
        TTI_TRY(ask(d, &want));
        if (want.k == END) return tti_zero_serve_end(x);
        TTI_TRY(answer(x, &want));
    }
}

tutti_status tti_exec_serve_end(tti_exec *x) {
    TTI_TRY(tti_zero_serve_end(x));
    return x->divided ? ask(x->divided, &(request){.k = END}) : TUTTI_OK;
}
