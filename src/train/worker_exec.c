/* worker_exec.c - what a job says of computing, in the words of the executor. */
#include "train/worker_exec.h"

#include <string.h>

#include "base/affinity.h"
#include "train/optimizer.h"

static tutti_dtype wire_dtype(const char *compress) {
    if (strcmp(compress, "bf16") == 0) return TUTTI_BF16;
    return strcmp(compress, "f16") == 0 ? TUTTI_F16 : TUTTI_F32;
}

tutti_status tti_worker_exec_create(const tti_blueprint *b, tutti_comm *comm, int local_rank,
                                    int local_n_ranks, tti_exec **out) {
    const tti_job_config *c = &b->config;
    const tti_devices *devices = &b->devices;
    int place = devices->n ? local_rank % devices->n : 0;
    tti_core_share share;
    double auto_beta2 = tti_optimizer_find(c->optimizer.name)->beta2;
    double beta2 = c->optimizer.beta2 < 0 ? auto_beta2 : c->optimizer.beta2;
    tti_cores_share(local_rank, local_n_ranks, &share);
    static const char *const algs[] = {"auto", "ring", "tree", "direct"};
    tutti_comm_alg alg = TUTTI_ALG_AUTO;
    for (int i = 0; i < TUTTI_N_ALGS; i++)
        if (strcmp(algs[i], c->parallel.algorithm) == 0) alg = (tutti_comm_alg)i;
    return tti_exec_create(
        &(tti_exec_desc){.plan = b->plan,
                         .backend = devices->backend,
                         .device = {.index = devices->n ? devices->index[place] : 0,
                                    .tf32 = strcmp(c->train.precision, "tf32") == 0,
                                    .exact = strcmp(c->parallel.mode, "exact") == 0},
                         .comm = comm,
                         .n_shards = b->n_shards,
                         .n_lanes = share.n_threads,
                         .cores = share.pinned ? share.cores.id : NULL,
                         .alg = alg,
                         .zero = c->parallel.zero > 0,
                         .fast = strcmp(c->parallel.mode, "fast") == 0,
                         .wire = wire_dtype(c->parallel.compress),
                         .reference = strcmp(c->parallel.backend, "reference") == 0,
                         .watch_gradients = tti_blueprint_target(b).loss_scale ||
                                            strcmp(c->train.on_nan, "skip") == 0,
                         .seed = (uint64_t)c->train.seed,
                         .clip_norm = c->train.clip_norm,
                         .beta1 = c->optimizer.beta1,
                         .beta2 = beta2,
                         .clip_value = c->train.clip_value,
                         .l1 = c->optimizer.l1,
                         .ema = c->train.ema},
        out);
}
