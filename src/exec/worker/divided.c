/* divided.c - reduces sums, hashes and norms over the workers of one replica.
 *
 * Each worker sends a list of its parts once, so that all have the same table.  The table
 * determines which worker counts a part.  Everything is added in the order of ranks. */
#include "exec/worker/divided.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "comm/partitions.h"
#include "comm/transport.h"
#include "exec/worker/worker.h"
#include "ops/tensor_shard.h"

tti_tensor_shard_id tti_tensor_shard_id_of(const tti_node *param) {
    tti_tensor_shard p = tti_tensor_shard_of(param);
    uint64_t name = tti_hash_name(param->name);
    tti_tensor_shard_id id = {.name = name ? name : 1};
    if (p.dim >= 0 && p.n > 1)
        id.cut = (uint64_t)(p.dim + 1) << 48 | (uint64_t)p.groups << 32 | (uint64_t)p.n << 16 |
                 (uint64_t)p.index;
    return id;
}

const tti_tensor_shard_id *tti_tensor_shard_ids(const tti_divided *d, int rank) {
    return d->ids + (size_t)rank * d->n_most;
}

/* The slot of a worker with this tensor shard; -1: none. */
static int find_tensor_shard(const tti_divided *d, int rank, const tti_tensor_shard_id *id) {
    const tti_tensor_shard_id *ids = tti_tensor_shard_ids(d, rank);
    for (size_t i = 0; i < d->n_most && ids[i].name; i++)
        if (ids[i].name == id->name && ids[i].cut == id->cut) return (int)i;
    return -1;
}

bool tti_tensor_shard_counts(const tti_divided *d, int rank, const tti_tensor_shard_id *id) {
    for (int r = 0; r < rank; r++)
        if (find_tensor_shard(d, r, id) >= 0) return false;
    return true;
}

bool tti_divided_counts(const tti_divided *d, int slot) {
    return !d || tti_tensor_shard_counts(d, d->rank, &tti_tensor_shard_ids(d, d->rank)[slot]);
}

/* The first worker of the tensor group counts values that all its workers have whole. */
bool tti_divided_counts_here(const tti_divided *d, int slot) {
    return !d || d->mesh->at.tensor == 0 || tti_tensor_shard_ids(d, d->rank)[slot].cut != 0;
}

/* ---- the table ---- */

/* Checks that the workers of a tensor group have the same slots, because they add squares slot by
 * slot. */
static tutti_status check_neighbours(const tti_divided *d) {
    int first = d->mesh->at.stage * d->mesh->size.tensor;
    for (int t = 1; t < d->mesh->size.tensor; t++)
        for (size_t i = 0; i < d->n_most; i++)
            if (tti_tensor_shard_ids(d, first)[i].name !=
                tti_tensor_shard_ids(d, first + t)[i].name)
                return tti_fail(TUTTI_E_INTERNAL,
                                "exec: slot %zu of stage %d is another parameter on tensor rank %d",
                                i, d->mesh->at.stage, t);
    return TUTTI_OK;
}

tutti_status tti_divided_create(const tti_plan *plan, const tti_mesh *mesh, tti_divided **out) {
    *out = NULL;
    if (!mesh || !mesh->model) return TUTTI_OK;
    tti_divided *d = *out = calloc(1, sizeof *d);
    if (!d) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    d->plan = plan;
    d->mesh = mesh;
    d->rank = tutti_comm_rank(mesh->model);
    d->n_ranks = tutti_comm_n_ranks(mesh->model);
    tutti_comm *comm = d->mesh->model;
    int64_t n = d->plan->n_slots, n_most = 0;
    TTI_TRY(tutti_comm_all_reduce(comm, &n, &n_most, 1, TUTTI_I64, TUTTI_MAX, TUTTI_ALG_AUTO));
    d->n_most = (size_t)n_most;
    d->ids = calloc((size_t)d->n_ranks * d->n_most + 1, sizeof *d->ids);
    tti_tensor_shard_id *mine = calloc(d->n_most + 1, sizeof *mine);
    tutti_status st = d->ids && mine ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int i = 0; st == TUTTI_OK && i < d->plan->n_slots; i++)
        mine[i] = tti_tensor_shard_id_of(d->plan->slots[i].param);
    if (st == TUTTI_OK)
        st = tutti_comm_all_gather(comm, mine, d->ids, d->n_most * sizeof *mine, TUTTI_U8);
    free(mine);
    return st == TUTTI_OK ? check_neighbours(d) : st;
}

void tti_divided_destroy(tti_divided *d) {
    if (!d) return;
    free(d->whole);
    free(d->tensor_shard);
    free(d->ids);
    free(d);
}

/* ---- sums ---- */

tutti_status tti_divided_sums(const tti_divided *d, double *sums, size_t n_sums, double *votes) {
    if (!d) return TUTTI_OK;
    const tti_mesh_at *at = &d->mesh->at;
    bool has_loss = at->stage == d->mesh->size.stage - 1 && at->tensor == 0;
    if (!has_loss) memset(sums, 0, n_sums * sizeof *sums);
    /* Each sum has only one nonzero term, and votes are small integers, so the order does not
     * matter. */
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

/* A sum over a part of the model adds as devices add lists; a sum over the whole model adds one
 * value after the other. */
typedef struct list_sum {
    double compute_thread[TTI_LIST_LANES];
    int n_compute_threads, n;
} list_sum;

static list_sum new_sum(const tti_divided *d) {
    return (list_sum){.n_compute_threads = d ? TTI_LIST_LANES : 1};
}

static void add_term(list_sum *s, double term) {
    s->compute_thread[s->n++ % s->n_compute_threads] += term;
}

static double total_of(list_sum *s) {
    for (int d = s->n_compute_threads / 2; d > 0; d /= 2)
        for (int t = 0; t < d; t++) s->compute_thread[t] += s->compute_thread[t + d];
    return s->compute_thread[0];
}

double tti_divided_own_blocks(const tti_divided *d, const tti_plan *plan, const double *partials) {
    list_sum sum = new_sum(d);
    for (int i = 0; i < plan->n_updates; i++)
        if (tti_divided_counts(d, plan->updates[i].slot)) add_term(&sum, partials[i]);
    return total_of(&sum);
}

void tti_divided_own_slots(const tti_divided *d, const tti_plan *plan, const double *partials,
                           double *norms) {
    for (int slot = 0, i = 0; slot < plan->n_slots; slot++) {
        list_sum w = new_sum(d), direction = w;
        for (; i < plan->n_updates && plan->updates[i].slot == slot; i++) {
            add_term(&w, partials[2 * i]);
            add_term(&direction, partials[2 * i + 1]);
        }
        norms[2 * slot] = total_of(&w);
        norms[2 * slot + 1] = total_of(&direction);
    }
}

tutti_status tti_divided_partials(const tti_divided *d, const tti_plan *plan, tti_update *update,
                                  size_t n_sums) {
    double *partials = tti_update_partials(update), *norms = tti_update_norms(update);
    if (n_sums <= (size_t)plan->n_updates) {
        /* The sum of all blocks is stored at the first block. */
        double sum = tti_divided_own_blocks(d, plan, partials);
        memset(partials, 0, (size_t)plan->n_updates * sizeof *partials);
        TTI_TRY(tti_divided_add(d, &sum));
        if (plan->n_updates > 0) partials[0] = sum;
        return TUTTI_OK;
    }
    /* The values of a slot are stored at its first block. */
    tti_divided_own_slots(d, plan, partials, norms);
    memset(partials, 0, 2 * (size_t)plan->n_updates * sizeof *partials);
    TTI_TRY(tti_divided_squares(d, norms));
    for (int i = 0; i < plan->n_updates; i++) {
        const tti_update_step *step = &plan->updates[i];
        if (step->first == plan->slots[step->slot].first)
            memcpy(&partials[2 * i], &norms[2 * step->slot], 2 * sizeof *norms);
    }
    return TUTTI_OK;
}

/* ---- hashes ---- */

uint64_t tti_divided_join_hashes(const tti_mesh_at *size, const uint64_t *hashes, int n) {
    uint64_t joined = 0;
    for (int r = 0; r < n; r++)
        joined = size->tensor > 1 ? tti_mix64(joined ^ hashes[r], (uint64_t)r) : joined + hashes[r];
    return joined;
}

tutti_status tti_divided_hash(const tti_divided *d, uint64_t *hash) {
    uint64_t *all;
    if (!d) return TUTTI_OK;
    TTI_TRY(tti_comm_gather_words(d->mesh->model, *hash, &all));
    *hash = tti_divided_join_hashes(&d->mesh->size, all, d->n_ranks);
    free(all);
    return TUTTI_OK;
}

static tutti_status compare(const tti_divided *d, const int64_t *all, uint64_t step) {
    const tti_tensor_shard_id *mine = tti_tensor_shard_ids(d, d->rank);
    for (int i = 0; i < d->plan->n_slots; i++)
        for (int r = 0; r < d->n_ranks; r++) {
            int other = find_tensor_shard(d, r, &mine[i]);
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
