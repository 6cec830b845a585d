/* run_limits.c - refuses more workers than a run can start, and reports the limit. */
#include "train/setup/run_limits.h"

#include <inttypes.h>

#include "base/error.h"
#include "comm/shard_map.h"
#include "ps/worker_set.h"

tutti_status tti_run_limits_check(const tti_job_config *c, bool on_one_host) {
    int64_t workers = TTI_MAX(c->parallel.workers, c->parallel.max_workers) + c->parallel.spares;
    if (on_one_host && workers > TTI_MAX_HOST_RANKS)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.workers: one host runs at most %d workers, and the job has "
                        "%" PRId64 "; tutti plan and tutti inspect --layout answer for more",
                        TTI_MAX_HOST_RANKS, workers);
    if (!tti_job_has_server(c)) return TUTTI_OK;
    if (workers > TTI_MAX_SERVED)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.sync: a parameter server has at most %d workers, and the job has "
                        "%" PRId64 "; give parallel.sync=all-reduce",
                        TTI_MAX_SERVED, workers);
    if (c->parallel.servers > TTI_MAX_SERVER_THREADS)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.servers: a parameter server has at most %d threads or processes, "
                        "and the job has %" PRId64,
                        TTI_MAX_SERVER_THREADS, c->parallel.servers);
    return TUTTI_OK;
}

tutti_status tti_run_limits_check_launcher(int n_ranks, const char *place) {
    if (n_ranks <= TTI_MAX_RANKS) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "train: sockets and MPI connect at most %d workers of a job, and this is %s",
                    TTI_MAX_RANKS, place);
}
