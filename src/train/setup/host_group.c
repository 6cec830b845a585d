/* host_group.c - refuses what an elastic run on several hosts does not support, and connects the
 * supervisors. */
#include "train/setup/host_group.h"

#include <string.h>

#include "base/error.h"
#include "launch/rendezvous.h"
#include "train/setup/kernels.h"
#include "train/setup/worker_exec.h"

/* A replica that several hosts divide would be lost with each of them. */
static tutti_status check_replicas(const tti_host_place *place, const tti_job_config *c) {
    int each = (int)tti_job_workers_of_model(c);
    for (int i = 0; i < place->n_nodes; i++)
        if (place->n_workers[i] % each != 0)
            return tti_fail(TUTTI_E_CONFIG,
                            "TUTTI_NODES: host %d has %d worker%s, but %d workers have a replica "
                            "of the model together (parallel.tensor x parallel.pipeline), and in "
                            "elastic runs a replica is on one host: give a multiple of %d for each "
                            "host",
                            i, place->n_workers[i], place->n_workers[i] == 1 ? "" : "s", each,
                            each);
    return TUTTI_OK;
}

tutti_status tti_host_group_check(const tti_host_place *place, const tti_job_config *c) {
    if (c->parallel.min_workers == 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.min_workers: TUTTI_NODES starts an elastic run "
                        "on several hosts: give the fewest workers that go on");
    if (c->parallel.workers != place->n_all)
        return tti_fail(TUTTI_E_CONFIG, "parallel.workers is %lld, but TUTTI_NODES has %d workers",
                        (long long)c->parallel.workers, place->n_all);
    if (strcmp(c->parallel.place, "processes") != 0)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "TUTTI_NODES: elastic runs on several hosts do not support "
                        "parallel.place=threads");
    return check_replicas(place, c);
}

tutti_status tti_host_group_open(const tti_host_place *place, const tti_job_config *c,
                                 const tti_devices *devices, const char *yaml, const char *run_dir,
                                 tti_hosts **out) {
    char host[256], token[TTI_TOKEN_BYTES], machine[256];
    int port;
    TTI_TRY(tti_rendezvous_of_hosts(host, sizeof host, &port, token));
    tti_kernels_text(devices, place->n_workers[place->node], machine, sizeof machine);
    return tti_hosts_open(&(tti_hosts_desc){.place = *place,
                                            .host = host,
                                            .port = port,
                                            .token = token,
                                            .job = yaml,
                                            .machine = machine,
                                            .run_dir = run_dir},
                          (int)c->parallel.timeout_ms, out);
}
