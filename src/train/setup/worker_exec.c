/* worker_exec.c - translates a job's settings to a tti_exec_desc. */
#include "train/setup/worker_exec.h"

#include <string.h>

#include "base/error.h"
#include "train/job/optimizer.h"

static tti_compression compression_of(const char *compress) {
    if (strcmp(compress, "topk") == 0) return TTI_COMPRESS_TOPK;
    return strcmp(compress, "powersgd") == 0 ? TTI_COMPRESS_POWERSGD : TTI_COMPRESS_NONE;
}

bool tti_workers_share(const tti_blueprint *b) {
    const tti_job_config *c = &b->config;
    bool by_threads = strcmp(c->parallel.place, "threads") == 0 && !b->devices.backend->device &&
                      !b->devices.mixed;
    bool rounds_sums = !tti_job_is_exact(c) && tti_job_wire(c) != TUTTI_F32;
    bool compresses = compression_of(c->parallel.compress) != TTI_COMPRESS_NONE;
    bool whole = c->parallel.zero == 0 && b->n_model_ranks == 0 && !rounds_sums && !compresses;
    return b->n_workers > 1 && by_threads && whole && c->parallel.min_workers == 0 &&
           strcmp(c->parallel.copies, "one") == 0 && strcmp(c->parallel.sync, "all-reduce") == 0;
}

tti_exec_desc tti_worker_exec_desc(const tti_blueprint *b) {
    const tti_job_config *c = &b->config;
    double auto_beta2 = tti_optimizer_find(c->optimizer.name)->beta2;
    double beta2 = c->optimizer.beta2 < 0 ? auto_beta2 : c->optimizer.beta2;
    static const char *const algs[] = {"auto", "ring", "tree", "direct"};
    tutti_comm_alg alg = TUTTI_ALG_AUTO;
    for (int i = 0; i < TUTTI_N_ALGS; i++)
        if (strcmp(algs[i], c->parallel.algorithm) == 0) alg = (tutti_comm_alg)i;
    return (tti_exec_desc){
        .plan = b->plan,
        .backend = b->devices.backend,
        .n_shards = b->n_shards,
        .alg = alg,
        .zero = (int)c->parallel.zero,
        .offload =
            b->devices.n > 0 && (b->devices.mixed || strcmp(c->parallel.offload, "optimizer") == 0),
        .mixed = b->devices.mixed,
        .shares = tti_workers_share(b),
        .elastic = c->parallel.min_workers > 0,
        .fast = strcmp(c->parallel.mode, "fast") == 0,
        .wire = tti_job_wire(c),
        .compression = compression_of(c->parallel.compress),
        .topk = c->parallel.topk,
        .low_rank = (int)c->parallel.rank,
        .compress_after = c->parallel.compress_after,
        .local = strcmp(c->parallel.sync, "local") == 0,
        .local_after = c->parallel.average_after,
        .reference = strcmp(c->parallel.backend, "reference") == 0,
        .watch_gradients =
            tti_blueprint_target(b).loss_scale || strcmp(c->train.on_nan, "skip") == 0,
        .seed = (uint64_t)c->train.seed,
        .clip_norm = c->train.clip_norm,
        .beta1 = c->optimizer.beta1,
        .beta2 = beta2,
        .clip_value = c->train.clip_value,
        .l1 = c->optimizer.l1,
        .ema = c->train.ema};
}

tti_device_desc tti_worker_device_desc(const tti_blueprint *b, int index) {
    const tti_job_config *c = &b->config;
    return (tti_device_desc){.index = index,
                             .tf32 = strcmp(c->train.precision, "tf32") == 0,
                             .exact = tti_job_is_exact(c)};
}

/* Relative numbers of cores for a worker on a device and a worker on the host. */
enum { WEIGHT_OF_DEVICE = 1, WEIGHT_OF_HOST = 4 };

static int weight_of(const void *user, int local_rank) {
    const tti_blueprint *b = user;
    bool on_host = tti_devices_place(&b->places, local_rank) == TTI_ON_HOST;
    return on_host ? WEIGHT_OF_HOST : WEIGHT_OF_DEVICE;
}

void tti_worker_cores(const tti_blueprint *b, int local_rank, int local_n_ranks,
                      tti_core_share *out) {
    if (b->places.mixed)
        tti_cores_share_by(weight_of, b, local_rank, local_n_ranks, out);
    else
        tti_cores_share(local_rank, local_n_ranks, out);
}

tutti_status tti_worker_exec_create(const tti_blueprint *b, const tti_worker_desc *worker,
                                    tti_exec **out) {
    const tti_devices *devices = &b->devices;
    int place = tti_devices_place(devices, worker->device_place);
    tti_core_share share;
    tti_worker_cores(b, worker->local_rank, worker->local_n_ranks, &share);
    tti_exec_desc desc = tti_worker_exec_desc(b);
    desc.device = tti_worker_device_desc(b, TTI_MAX(place, 0));
    desc.comm = worker->comm;
    desc.shared_params = worker->shared_params;
    desc.shares = worker->shared_params != NULL;
    if (worker->mesh) {
        const tti_mesh *mesh = worker->mesh;
        desc.mesh = mesh;
        desc.comm = worker->server
                        ? NULL
                        : mesh->data; /* with a server, the server adds the gradients of replicas */
        desc.plan = tti_blueprint_plan(b, tti_mesh_model_rank(&mesh->size, &mesh->at));
    }
    if (desc.comm)
        desc.shard_map = worker->shard_map  ? worker->shard_map
                         : b->has_shard_map ? &b->shard_map
                                            : NULL;
    desc.n_compute_threads = share.n_threads;
    desc.cores = share.pinned ? share.cores.id : NULL;
    desc.server = worker->server;
    desc.flight = worker->flight;
    if (worker->serves_in_ranks) tti_worker_serve_in_ranks(b, &desc);
    desc.server_worker = worker->mesh ? worker->mesh->at.data : worker->rank;
    return tti_exec_create(&desc, out);
}

tutti_status tti_worker_shared_params_create(const tti_blueprint *b, tti_shared_params **out) {
    *out = NULL;
    if (!tti_workers_share(b)) return TUTTI_OK;
    tti_exec_desc desc = tti_worker_exec_desc(b);
    return tti_shared_params_create(&desc, out);
}

/* True if workers wait for all others in every step. */
static bool workers_wait(const tti_blueprint *b) {
    return b->config.parallel.staleness == 0 && b->config.parallel.backup_workers == 0;
}

bool tti_worker_serves_in_ranks(const tti_blueprint *b) {
    bool processes = strcmp(b->config.parallel.place, "processes") == 0;
    return tti_job_has_server(&b->config) && workers_wait(b) && (processes || b->n_model_ranks > 0);
}

bool tti_worker_has_partitions(const tti_blueprint *b) {
    return b->config.parallel.zero > 0 || b->n_model_ranks > 0 || tti_worker_serves_in_ranks(b);
}

void tti_worker_serve_in_ranks(const tti_blueprint *b, tti_exec_desc *desc) {
    desc->zero = 1;
    desc->n_owners = (int)b->config.parallel.servers; /* may be reduced to the number of workers */
}

int tti_worker_n_range_servers(const tti_blueprint *b) {
    const tti_job_config *c = &b->config;
    if (!tti_job_has_server(c) || workers_wait(b)) return 0;
    return (int)TTI_MIN(c->parallel.servers, b->n_workers);
}

tti_server_desc tti_worker_server_desc(const tti_blueprint *b, bool spans,
                                       const tti_arrival *replay, int64_t n_replay) {
    const tti_job_config *c = &b->config;
    int n_servers = (int)c->parallel.servers;
    tti_server_desc desc = {
        .exec = tti_worker_exec_desc(b),
        .n_workers = b->mesh.data,
        .staleness = c->parallel.staleness,
        .n_ranges = spans && b->n_model_ranks == 0 ? tti_worker_n_range_servers(b) : 0,
        .n_backup = (int)c->parallel.backup_workers,
        .timeout_ms = (int)c->parallel.timeout_ms,
        .replay = replay,
        .n_replay = n_replay};
    desc.exec.backend = &tti_backend_cpu; /* servers run on the host, wherever workers compute */
    if (desc.exec.wire == TUTTI_F16) desc.exec.watch_gradients = true; /* f16 may overflow */
    desc.exec.n_compute_threads = spans ? 1 : n_servers;
    return desc;
}

tutti_status tti_worker_server_create(const tti_blueprint *b, bool spans, const tti_arrival *replay,
                                      int64_t n_replay, tti_server **out) {
    tti_server_desc desc = tti_worker_server_desc(b, spans, replay, n_replay);
    return tti_server_create(&desc, out);
}
