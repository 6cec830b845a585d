/* corruption.c - computes a shard a second time, compares the hashes of all layers, and lets
 * workers vote if they differ. */
#include "train/loop/corruption.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launch/supervised.h"
#include "train/setup/feeding.h"

enum { LAYER_BYTES = 128 };

/* A shard of a step, the worker that owns it, and the worker that checks it.  With one worker both
 * are the same. */
typedef struct check {
    const tti_verify *v;
    const tti_step_desc *desc;
    int shard, owner, checker, n_ranks;
    uint64_t *own;   /* [n_layers]: hashes of the owner's step; set on all workers by compare */
    uint64_t *again; /* [n_layers]: hashes of the checker */
} check;

bool tti_verify_is_due(const tti_job_config *c, int64_t n_steps) {
    return c->parallel.verify_every > 0 && (n_steps + 1) % c->parallel.verify_every == 0;
}

static int rank_of(const check *c) { return c->v->phases->desc->rank; }

static bool is_alone(const check *c) { return c->n_ranks == 1; }

static tutti_status broadcast(const check *c, uint64_t *values, size_t n, int source) {
    if (is_alone(c)) return TUTTI_OK;
    return tutti_comm_broadcast(c->v->phases->desc->comm, values, n, TUTTI_I64, source);
}

/* Chooses the shard and the checker; successive checks use different ones. */
static tutti_status choose(check *c) {
    const tti_worker_loop_desc *d = c->v->phases->desc;
    int64_t every = d->blueprint->config.parallel.verify_every;
    int64_t number = (int64_t)c->desc->step / every, n_shards = d->blueprint->n_shards;
    c->n_ranks = d->comm ? tutti_comm_n_ranks(d->comm) : 1;
    c->shard = (int)(number % n_shards);
    int64_t has =
        c->shard >= tti_exec_first_shard(c->v->exec) && c->shard < tti_exec_last_shard(c->v->exec);
    if (is_alone(c)) return TUTTI_OK;
    int64_t owner = has ? tutti_comm_rank(d->comm) : c->n_ranks - 1;
    TTI_TRY(
        tutti_comm_all_reduce(d->comm, &owner, &owner, 1, TUTTI_I64, TUTTI_MIN, TUTTI_ALG_AUTO));
    c->owner = (int)owner;
    c->checker = (int)((c->owner + 1 + number / n_shards % (c->n_ranks - 1)) % c->n_ranks);
    return TUTTI_OK;
}

/* Loads the shard and computes it. */
static tutti_status recompute(const check *c, uint64_t *hashes) {
    const tti_verify *v = c->v;
    int64_t per_epoch = v->phases->desc->blueprint->steps_per_epoch;
    tti_loader_desc order = *v->order;
    tti_loader *loader;
    tti_batch batch;
    order.first_shard = c->shard;
    order.last_shard = c->shard + 1;
    order.n_threads = 0;
    order.epoch = (int64_t)c->desc->step / per_epoch;
    order.step = (int64_t)c->desc->step % per_epoch;
    TTI_TRY(tti_feeding_open(&order, v->exec, &loader));
    tutti_status st = tti_phases_next_batch(v->phases, loader, &batch);
    if (st == TUTTI_OK) {
        const tti_shard_data data = tti_shard_of(&batch, 0, c->shard);
        st = tti_exec_recompute(v->exec, c->desc, c->shard, &data, hashes);
    }
    tti_loader_destroy(loader);
    return st;
}

/* Compares the hashes. *layer: the first layer that differs, -1: none. */
static tutti_status compare(const check *c, int *layer) {
    size_t n = (size_t)tti_exec_n_layers(c->v->exec);
    uint64_t found = UINT64_MAX;
    if (rank_of(c) == c->owner)
        memcpy(c->own, tti_exec_layer_hashes(c->v->exec), n * sizeof *c->own);
    if (rank_of(c) == c->checker) TTI_TRY(recompute(c, c->again));
    TTI_TRY(broadcast(c, c->own, n, c->owner));
    for (size_t i = 0; rank_of(c) == c->checker && i < n && found == UINT64_MAX; i++)
        if (c->own[i] != c->again[i]) found = i;
    TTI_TRY(broadcast(c, &found, 1, c->checker));
    *layer = found == UINT64_MAX ? -1 : (int)found;
    return TUTTI_OK;
}

static int by_value(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Finds the value with the most votes.  False: two values have equally many.  Sorts the votes. */
static bool find_majority(uint64_t *votes, int n, uint64_t *out) {
    int most = 0, second = 0;
    qsort(votes, (size_t)n, sizeof *votes, by_value);
    for (int i = 0, count; i < n; i += count) {
        for (count = 1; i + count < n && votes[i + count] == votes[i]; count++) continue;
        if (count > most) {
            second = most;
            most = count;
            *out = votes[i];
        } else {
            second = TTI_MAX(second, count);
        }
    }
    return most > second;
}

/* Votes are the hashes that all workers compute now, and the previous ones of owner and checker.
 * *culprit -1: there is no majority. */
static tutti_status vote(const check *c, int layer, int *culprit) {
    uint64_t mine, checked = c->again[layer], right = 0;
    uint64_t *votes = calloc((size_t)c->n_ranks + 2, sizeof *votes);
    tutti_status st = TUTTI_OK;
    if (!votes) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    TTI_TRY_GOTO(broadcast(c, &checked, 1, c->checker), cleanup);
    TTI_TRY_GOTO(recompute(c, c->again), cleanup);
    mine = votes[0] = c->again[layer];
    if (!is_alone(c))
        TTI_TRY_GOTO(tutti_comm_all_gather(c->v->phases->desc->comm, &mine, votes, 1, TUTTI_I64),
                     cleanup);
    votes[c->n_ranks] = c->own[layer];
    votes[c->n_ranks + 1] = checked;
    bool known = find_majority(votes, c->n_ranks + 2, &right);
    bool owner_is_wrong = known && c->own[layer] != right;
    bool checker_is_wrong = known && checked != right;
    *culprit = owner_is_wrong == checker_is_wrong ? -1 : owner_is_wrong ? c->owner : c->checker;
    if (c->owner == c->checker) *culprit = c->owner;
cleanup:
    free(votes);
    return st;
}

static bool may_exclude(const check *c) {
    const tti_job_config *config = &c->v->phases->desc->blueprint->config;
    return strcmp(config->parallel.on_corruption, "exclude") == 0 &&
           c->n_ranks > config->parallel.min_workers;
}

/* The faulty worker ends itself, and the others wait for the supervisor's next epoch. */
static tutti_status exclude(const check *c, int culprit, const char *text) {
    if (rank_of(c) != culprit) return tutti_comm_barrier(c->v->phases->desc->comm);
    tti_worker_report_excluded(c->desc->step, text);
    raise(SIGKILL);
    return TUTTI_E_PEER;
}

static tutti_status report(const check *c, int layer, int culprit) {
    char name[LAYER_BYTES], text[400], who[64];
    tti_exec_layer_name(c->v->exec, layer, name, sizeof name);
    if (culprit >= 0)
        snprintf(who, sizeof who, "rank %d", culprit);
    else
        snprintf(who, sizeof who, "rank %d or rank %d", c->owner, c->checker);
    snprintf(text, sizeof text,
             "silent data corruption in step %" PRIu64
             ": %s computed %s of shard %d wrongly (found by rank %d); its processor or memory may "
             "be damaged",
             c->desc->step + 1, who, name, c->shard, culprit == c->checker ? c->owner : c->checker);
    if (culprit >= 0 && may_exclude(c)) return exclude(c, culprit, text);
    return tti_fail(TUTTI_E_MISMATCH, "%s", text);
}

static tutti_status verify(check *c, tti_step_result *result) {
    int layer, culprit;
    TTI_TRY(tti_exec_watch_shard(c->v->exec, rank_of(c) == c->owner ? c->shard : -1));
    TTI_TRY(tti_exec_compute_gradients(c->v->exec, c->desc, result));
    TTI_TRY(tti_exec_watch_shard(c->v->exec, -1));
    TTI_TRY(compare(c, &layer));
    if (layer < 0) return TUTTI_OK;
    TTI_TRY(vote(c, layer, &culprit));
    return report(c, layer, culprit);
}

tutti_status tti_verify_init(tti_verify *v, tti_phases *phases, tti_exec *exec,
                             const tti_loader_desc *order) {
    *v = (tti_verify){.phases = phases, .exec = exec, .order = order};
    if (phases->desc->blueprint->config.parallel.verify_every == 0) return TUTTI_OK;
    return tti_exec_watch_shard(exec, -1);
}

tutti_status tti_verify_begin(tti_verify *v, const tti_step_desc *desc, tti_step_result *result) {
    size_t n = (size_t)tti_exec_n_layers(v->exec) + 1;
    check c = {
        .v = v, .desc = desc, .own = calloc(n, sizeof *c.own), .again = calloc(n, sizeof *c.again)};
    if (c.own && c.again)
        v->begun = choose(&c);
    else
        v->begun = tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    if (v->begun == TUTTI_OK) v->begun = verify(&c, result);
    free(c.own);
    free(c.again);
    return v->begun == TUTTI_E_NUMERICS ? TUTTI_OK : v->begun; /* tti_exec_end reports it */
}

tutti_status tti_verify_end(const tti_verify *v, double lr, tti_step_result *result) {
    return v->begun == TUTTI_OK ? tti_exec_apply_gradients(v->exec, lr, false, result) : v->begun;
}

tutti_status tti_verify_reread(const tti_verify *v, int64_t n_steps, const tti_step_result *last) {
    if (n_steps % TTI_REREAD_EVERY != 0 || last->skipped) return TUTTI_OK;
    uint64_t hash;
    TTI_TRY(tti_exec_params_hash(v->exec, &hash));
    if (hash == last->own_hash) return TUTTI_OK;
    return tti_fail(TUTTI_E_MISMATCH,
                    "step %" PRId64
                    ": the parameters of rank %d changed in memory after the update",
                    n_steps, v->phases->desc->rank);
}
