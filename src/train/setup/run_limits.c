/* run_limits.c - refuses what a run cannot start, with the number that it can. */
#include "train/setup/run_limits.h"

#include <inttypes.h>

#include "base/error.h"
#include "comm/shard_map.h"
#include "ps/server.h"

tutti_status tti_run_limits_check(const tti_job_config *c) {
    int64_t workers = TTI_MAX(c->parallel.workers, c->parallel.max_workers) + c->parallel.spares;
    int64_t served = c->parallel.workers / (c->parallel.tensor * c->parallel.pipeline);
    if (workers > TTI_MAX_HOST_RANKS)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.workers: one host runs at most %d workers, and the job has "
                        "%" PRId64 "; tutti plan and tutti inspect --layout answer for more",
                        TTI_MAX_HOST_RANKS, workers);
    if (!tti_job_has_server(c)) return TUTTI_OK;
    if (served > TTI_MAX_SERVED)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.sync: a parameter server serves at most %d copies of the model, "
                        "and the job has %" PRId64 "; give parallel.sync=all-reduce",
                        TTI_MAX_SERVED, served);
    if (c->parallel.workers > TTI_MAX_SERVED || c->parallel.servers > TTI_MAX_SERVED)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.sync: a parameter server has at most %d workers and %d server "
                        "threads, and the job has %" PRId64 " and %" PRId64
                        "; give parallel.sync=all-reduce",
                        TTI_MAX_SERVED, TTI_MAX_SERVED, c->parallel.workers, c->parallel.servers);
    return TUTTI_OK;
}

tutti_status tti_run_limits_check_launcher(int n_ranks, const char *place) {
    if (n_ranks <= TTI_MAX_RANKS) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "train: sockets and MPI connect at most %d workers of a job, and this is %s",
                    TTI_MAX_RANKS, place);
}
