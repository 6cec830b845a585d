/* step_sums.c - the small vector of a step: sums of shards, hashes and votes of all workers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "comm/conclude.h"
#include "comm/partitions.h"
#include "comm/transport.h"
#include "exec/worker/worker.h"

/* ---- many workers of one host: rank 0 adds ---- */

enum {
    HASH_AT,
    VOTE_AT,
    SHARDS_AT
}; /* layout of a worker's values; the sums of its shards follow */

static size_t n_given(const tti_setup *setup) {
    int most = tti_shard_map_most(&setup->shard_map);
    return SHARDS_AT + (size_t)most * (size_t)tti_n_sums(setup);
}

/* Equal on all workers. */
static bool has_totals(const tti_setup *setup) {
    return setup->n_ranks > 1 && !setup->divided && !setup->desc.backend->device &&
           !setup->desc.mixed && tti_comm_concludes_alone(setup->desc.comm) &&
           n_given(setup) * sizeof(double) <= TTI_CONCLUDE_BYTES;
}

tutti_status tti_exec_alloc_sums(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    bool totals = has_totals(setup);
    free(tally->sums);
    free(tally->totals);
    tally->totals = totals ? calloc(1, sizeof *tally->totals) : NULL;
    tally->first_shard = totals ? setup->first_shard : 0;
    tally->n_shards = totals ? setup->last_shard - setup->first_shard : setup->desc.n_shards;
    tally->n_sums = totals ? n_given(setup) : tti_n_shard_sums(setup) + 2 * (size_t)setup->n_ranks;
    tally->sums = calloc(++tally->n_sums, sizeof *tally->sums);
    bool ok = tally->sums && (tally->totals || !totals);
    return ok ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
}

typedef struct adding {
    const tti_setup *setup;
    tti_step_totals totals;
} adding;

static void add_worker(void *user, int rank, const void *theirs) {
    adding *a = user;
    tti_step_totals *t = &a->totals;
    const double *given = theirs, *sums = given + SHARDS_AT;
    int n = tti_n_sums(a->setup), first = tti_shard_map_first(&a->setup->shard_map, rank);
    uint64_t hash = tti_f64_to_bits(given[HASH_AT]);
    if (rank == 0) t->hash = hash;
    if (hash != t->hash && t->odd_rank < 0) t->odd_rank = rank;
    t->n_votes += given[VOTE_AT];
    for (int s = 0; s < tti_shard_map_n_of(&a->setup->shard_map, rank); s++, sums += n) {
        for (int i = 0; i < n; i++) t->sums[i] += sums[i];
        if (t->bad_shard < 0 && !isfinite(sums[0])) t->bad_shard = first + s;
    }
}

static void finish_totals(void *user, void *result) {
    adding *a = user;
    a->totals.is_set = true;
    memcpy(result, &a->totals, sizeof a->totals);
}

static tutti_status find_totals(tti_exec *x, bool vote, const tti_step_result *before) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    double given[TTI_CONCLUDE_BYTES / sizeof(double)] = {0};
    adding a = {.setup = setup, .totals = {.bad_shard = -1, .odd_rank = -1}};
    given[HASH_AT] = tti_f64_of_bits(tally->last_hash);
    given[VOTE_AT] = vote ? 1 : 0;
    memcpy(given + SHARDS_AT, tally->sums,
           (size_t)tally->n_shards * (size_t)tti_n_sums(setup) * sizeof *given);
    if (before) {
        a.totals.sums[0] = before->loss_sum;
        a.totals.sums[1] = before->count;
        a.totals.sums[2] = before->correct;
    }
    _Static_assert(sizeof(tti_step_totals) <= TTI_CONCLUDE_BYTES, "what all workers get");
    return tti_comm_conclude(setup->desc.comm,
                             &(tti_conclusion){.mine = given,
                                               .n_bytes = n_given(setup) * sizeof *given,
                                               .result = tally->totals,
                                               .n_result = sizeof *tally->totals,
                                               .add = add_worker,
                                               .finish = finish_totals,
                                               .user = &a});
}

/* ---- the vector of all shards ---- */

/* Sums and hashes of all workers in one small vector.  Every entry is set by one rank and zero on
 * the others (votes are small integers), so the order of the additions does not matter. */
static tutti_status reduce_vector(tti_exec *x, bool vote) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    double *hashes = tally->sums + tti_n_shard_sums(setup);
    hashes[2 * setup->rank] = (double)(uint32_t)(tally->last_hash >> 32);
    hashes[2 * setup->rank + 1] = (double)(uint32_t)tally->last_hash;
    tally->sums[tally->n_sums - 1] = vote ? 1 : 0;
    if (setup->n_ranks > 1)
        TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, tally->sums, tally->sums, tally->n_sums,
                                      TUTTI_F64, TUTTI_SUM, TUTTI_ALG_AUTO));
    return tti_divided_sums(setup->divided, tally->sums, tti_n_shard_sums(setup),
                            &tally->sums[tally->n_sums - 1]);
}

tutti_status tti_exec_reduce_sums(tti_exec *x, bool vote, const tti_step_result *before) {
    const tti_setup *setup = tti_setup_of(x);
    int64_t start = tti_now_ns();
    TTI_TRY(tti_tally_of(x)->totals ? find_totals(x, vote, before) : reduce_vector(x, vote));
    if (setup->n_ranks == 1 && !setup->divided) return TUTTI_OK;
    int64_t end = tti_now_ns();
    tti_exec_waited(x, end - start);
    tti_profile_add(x, TTI_ROW_COMM, tti_instr_span(TTI_REPORT), -1, start, end);
    return TUTTI_OK;
}

/* Without totals, as in a step of local SGD, the sums are only those of own shards. */
static bool are_found(const tti_tally *tally) { return tally->totals && tally->totals->is_set; }

void tti_exec_add_sums(const tti_exec *x, tti_step_result *result) {
    const tti_tally *tally = tti_tally_of(x);
    int n = tti_n_sums(tti_setup_of(x));
    if (are_found(tally)) { /* includes the votes of earlier batches */
        result->n_votes = (int)tally->totals->n_votes;
        result->loss_sum = tally->totals->sums[0];
        result->count = tally->totals->sums[1];
        result->correct = tally->totals->sums[2];
        return;
    }
    result->n_votes = (int)tally->sums[tally->n_sums - 1];
    for (int s = 0; s < tally->n_shards; s++) {
        result->loss_sum += tally->sums[s * n];
        result->count += tally->sums[s * n + 1];
        result->correct += tally->sums[s * n + 2];
    }
}

void tti_exec_set_sums(const tti_exec *x, tti_step_result *result) {
    const tti_tally *tally = tti_tally_of(x);
    int n = tti_n_sums(tti_setup_of(x));
    result->loss_sum = result->count = result->correct = 0;
    tti_exec_add_sums(x, result);
    for (int i = TTI_LOSS_SUMS; i < n; i++) {
        double *sum = &result->metrics.of[i - TTI_LOSS_SUMS];
        *sum = are_found(tally) ? tally->totals->sums[i] : 0;
        for (int s = 0; s < tally->n_shards && !are_found(tally); s++)
            *sum += tally->sums[s * n + i];
    }
}

/* ---- hashes ---- */

/* Adds the two halves of the hashes, whose sums are exact in f64. */
tutti_status tti_exec_sum_hashes(const tti_setup *setup, uint64_t own, uint64_t *sum) {
    double halves[2] = {(double)(uint32_t)(own >> 32), (double)(uint32_t)own};
    TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, halves, halves, 2, TUTTI_F64, TUTTI_SUM,
                                  TUTTI_ALG_AUTO));
    *sum = ((uint64_t)halves[0] << 32) + (uint64_t)halves[1];
    return TUTTI_OK;
}

/* The first rank whose hash differs from rank 0's; -1: none. */
static int first_odd_rank(const tti_setup *setup, const tti_tally *tally) {
    if (are_found(tally)) return tally->totals->odd_rank;
    const double *hashes = tally->sums + tti_n_shard_sums(setup);
    for (int r = 1; r < setup->n_ranks; r++)
        if (hashes[2 * r] != hashes[0] || hashes[2 * r + 1] != hashes[1]) return r;
    return -1;
}

tutti_status tti_exec_compare_hashes(tti_exec *x, uint64_t step) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    if (!tally->has_hash) return TUTTI_OK;
    int r = first_odd_rank(setup, tally);
    if (r >= 0) {
        tally->has_differed = true;
        tally->differed_in = step;
        return tti_fail(TUTTI_E_MISMATCH,
                        "step %llu: rank %d computed different parameters than rank 0, but they "
                        "agree in memory: its processor is probably faulty",
                        (unsigned long long)step, r);
    }
    return TUTTI_OK;
}

/* ---- non-finite values ---- */

bool tti_exec_hashes_differed(tti_exec *x, uint64_t *step) {
    tti_tally *tally = tti_tally_of(x);
    bool differed = tally->has_differed;
    tally->has_differed = false;
    *step = tally->differed_in;
    return differed;
}

int tti_exec_first_bad_shard(const tti_exec *x) {
    const tti_tally *tally = tti_tally_of(x);
    if (are_found(tally)) return tally->totals->bad_shard;
    for (int s = 0; s < tally->n_shards; s++)
        if (!isfinite(tally->sums[s * tti_n_sums(tti_setup_of(x))])) return tally->first_shard + s;
    return -1;
}

tutti_status tti_exec_bad_loss(const tti_exec *x, uint64_t step, int shard, const char *first_in) {
    return tti_fail(TUTTI_E_NUMERICS,
                    "step %" PRIu64
                    ": the loss is not finite (shard %d of %d%s%s); the parameters "
                    "are as before this step.  A lower learning rate or train.clip_norm may help%s",
                    step + 1, shard, tti_setup_of(x)->desc.n_shards, *first_in ? ", first in " : "",
                    first_in,
                    /* if all workers skip together, or one updates alone, skipping is possible */
                    !tti_local_is_on(x) ? "; train.on_nan=skip skips such steps" : "");
}

tutti_status tti_exec_bad_gradient(uint64_t step, const char *param) {
    return tti_fail(TUTTI_E_NUMERICS,
                    "step %" PRIu64
                    ": the gradient is not finite%s%s%s; the parameters are as "
                    "before this step",
                    step + 1, *param ? " (first in '" : "", param, *param ? "')" : "");
}

/* ---- finds the shard and layer where a loss or gradient is not finite ----
 *
 * The worker that has the shard computes it again and checks the outputs of every step.  With a
 * divided model all workers of that replica do, since they need each other's values: the shard
 * passes the parts of the model in order, and the first worker that found something reports it to
 * the others. */

/* ---- the layer with a non-finite loss ---- */

/* A node without a name gets the name of the parameter that it reads. */
void tti_exec_print_layer(const tti_node *node, char layer[TTI_LAYER_TEXT]) {
    const char *name = node->name;
    for (int i = 0; !*name && i < node->n_in; i++)
        if (node->in[i]->node->op->traits & TTI_PARAM) name = node->in[i]->node->name;
    snprintf(layer, TTI_LAYER_TEXT, "%s '%s'", node->op->name, name);
}

/* The first step of this worker's shard program with a bad output (-1: none), and its slot in the
 * pipeline schedule. */
static tutti_status find_bad_step(tti_exec *x, const tti_step_desc *desc, int shard,
                                  int *sched_slot, int *step) {
    const tti_setup *setup = tti_setup_of(x);
    *sched_slot = 0, *step = -1;
    if (tti_pipe_of(x)) return tti_pipe_find_nonfinite(x, desc, shard, sched_slot, step);
    tti_run run = tti_exec_shard_run(setup, desc, shard);
    tti_instance *instance = tti_exec_instance(x, 0, false);
    tti_exec_feed(x, instance, &setup->shard_inputs, &desc->shards[shard - setup->first_shard]);
    tti_exec_point_at_buffer(x, instance, 0);
    return tti_instance_find_nonfinite(instance, &run, 0, setup->desc.plan->shard.n_steps, step);
}

/* Broadcasts the report of the worker with the lowest key in the replica; with equal keys, that of
 * the first one. */
static tutti_status broadcast_first(const tti_setup *setup, int64_t key,
                                    char layer[TTI_LAYER_TEXT]) {
    tutti_comm *comm = setup->desc.mesh->model;
    uint64_t *keys; /* >= 0 */
    int first = 0;
    TTI_TRY(tti_comm_gather_words(comm, (uint64_t)key, &keys));
    for (int r = 1; r < tutti_comm_n_ranks(comm); r++)
        if (keys[r] < keys[first]) first = r;
    free(keys);
    return tutti_comm_broadcast(comm, layer, TTI_LAYER_TEXT, TUTTI_U8, first);
}

/* All workers of the replica compute the shard again. */
static tutti_status find_in_parts(tti_exec *x, const tti_step_desc *desc, int shard,
                                  char layer[TTI_LAYER_TEXT]) {
    const tti_setup *setup = tti_setup_of(x);
    int sched_slot, step;
    TTI_TRY(find_bad_step(x, desc, shard, &sched_slot, &step));
    if (step >= 0) tti_exec_print_layer(setup->desc.plan->shard.steps[step], layer);
    return broadcast_first(setup, step < 0 ? INT64_MAX : (int64_t)sched_slot << 32 | step, layer);
}

void tti_exec_find_bad_layer(tti_exec *x, const tti_step_desc *desc, int shard,
                             char layer[TTI_LAYER_TEXT]) {
    const tti_setup *setup = tti_setup_of(x);
    int sched_slot, step;
    snprintf(layer, TTI_LAYER_TEXT, "%s", "");
    if (setup->divided) {
        if (find_in_parts(x, desc, shard, layer) != TUTTI_OK) tti_clear_error();
        layer[TTI_LAYER_TEXT - 1] = '\0';
        return;
    }
    if (find_bad_step(x, desc, shard, &sched_slot, &step) != TUTTI_OK) tti_clear_error();
    if (step >= 0) tti_exec_print_layer(setup->desc.plan->shard.steps[step], layer);
    if (tti_exec_has_bad_samples(setup, &desc->shards[shard - setup->first_shard]))
        snprintf(layer, TTI_LAYER_TEXT, "the samples: one has a value that is not finite");
}

tutti_status tti_exec_report_bad_loss(tti_exec *x, const tti_step_desc *desc, int shard) {
    const tti_setup *setup = tti_setup_of(x);
    char layer[TTI_LAYER_TEXT] = "";
    int owner = tti_shard_map_owner(&setup->shard_map, shard);
    /* Sharded parameters: no worker has all of them. */
    if (tti_exec_has_sharded_params(x)) return tti_exec_bad_loss(x, desc->step, shard, "");
    if (owner == setup->rank && setup->divided)
        TTI_TRY(find_in_parts(x, desc, shard, layer));
    else if (owner == setup->rank && tti_device_of(x))
        snprintf(layer, sizeof layer, "a shard on a device");
    else if (owner == setup->rank)
        tti_exec_find_bad_layer(x, desc, shard, layer);
    if (setup->n_ranks > 1)
        TTI_TRY(tutti_comm_broadcast(setup->desc.comm, layer, sizeof layer, TUTTI_U8, owner));
    layer[sizeof layer - 1] = '\0';
    return tti_exec_bad_loss(x, desc->step, shard, layer[0] ? layer : "the sums");
}

/* ---- the parameter with a non-finite gradient ---- */

/* The first slot whose own gradient is not finite; n_slots: none. */
static int first_bad_slot(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_plan *plan = setup->desc.plan;
    int first = plan->n_slots;
    for (int i = 0; i < setup->share.n_blocks; i++) {
        const tti_own_block *own = &setup->share.blocks[i];
        const tti_update_step *step = &plan->updates[own->update];
        const float *g = tti_own_grads(x, own);
        bool good = step->slot >= first || plan->slots[step->slot].buffer;
        for (size_t k = 0; !good && k < step->n_elems; k++)
            if (!isfinite(g[k])) first = step->slot, good = true;
    }
    return first;
}

tutti_status tti_exec_report_bad_gradient(tti_exec *x, uint64_t step) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_plan *plan = setup->desc.plan;
    int32_t slot = first_bad_slot(x), first = slot;
    char name[TTI_LAYER_TEXT] = "";
    if (tti_exec_has_range(setup)) {
        /* The first one over all ranges of a server. */
        double *partials = tti_update_partials(tti_update_of(x));
        for (int i = 0; i < plan->n_updates; i++) partials[i] = plan->updates[i].slot == first;
        TTI_TRY(tti_zero_join(setup, partials, 1));
        first = plan->n_slots;
        for (int i = plan->n_updates - 1; i >= 0; i--)
            if (partials[i] != 0) *(&first) = plan->updates[i].slot;
    }
    if (setup->n_ranks > 1 && !tti_local_is_on(x)) /* local SGD: gradients are not shared */
        TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, &slot, &first, 1, TUTTI_I32, TUTTI_MIN,
                                      TUTTI_ALG_AUTO));
    if (first < plan->n_slots) snprintf(name, sizeof name, "%s", plan->slots[first].param->name);
    if (setup->divided) TTI_TRY(broadcast_first(setup, first < plan->n_slots ? 0 : 1, name));
    name[sizeof name - 1] = '\0';
    return tti_exec_bad_gradient(step, name);
}
