/* host_group.c - refuses jobs that an elastic run on several hosts does not support, and connects
 * the supervisors. */
#include "train/setup/host_group.h"

#include <string.h>

#include "base/error.h"
#include "launch/rendezvous.h"
#include "train/setup/kernels.h"
#include "train/setup/worker_exec.h"

static bool all_are_multiples(const tti_host_layout *place, int each) {
    for (int i = 0; i < place->n_nodes; i++)
        if (place->n_workers[i] % each != 0) return false;
    return true;
}

/* The number of workers that must be on one host.  Normally this is a whole replica, so that a lost
 * host costs only its own workers.  Otherwise it is a tensor group, and the stages of a replica may
 * be on several hosts.  Then a lost host also idles workers of other hosts, so no worker may have
 * the only copy of a partition. */
static int find_together(const tti_host_layout *place, const tti_job_config *c) {
    int each = (int)tti_job_workers_of_model(c);
    return all_are_multiples(place, each) ? each : (int)c->parallel.tensor;
}

static tutti_status refuse_stages(const char *where, const tti_job_config *c) {
    return tti_fail(TUTTI_E_CONFIG,
                    "TUTTI_NODES: %s each replica is on one host: give a multiple of %d "
                    "(parallel.tensor x parallel.pipeline) for each host",
                    where, (int)tti_job_workers_of_model(c));
}

static tutti_status check_replicas(const tti_host_layout *place, const tti_job_config *c) {
    int each = (int)tti_job_workers_of_model(c), tensor = (int)c->parallel.tensor;
    if (place->n_all % each != 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "TUTTI_NODES has %d workers, but %d have a replica of the model together "
                        "(parallel.tensor x parallel.pipeline): give a multiple of %d",
                        place->n_all, each, each);
    int together = find_together(place, c);
    if (together != each && (c->parallel.zero > 0 || tti_job_has_server(c)))
        return refuse_stages("with parallel.zero or a server", c);
    if (all_are_multiples(place, together)) return TUTTI_OK;
    return tti_fail(
        TUTTI_E_CONFIG,
        "TUTTI_NODES: the workers of a tensor group are on one host: give a multiple of "
        "%d (parallel.tensor) for each host, or of %d for whole replicas",
        tensor, each);
}

tutti_status tti_host_group_check(const tti_host_layout *place, const tti_job_config *c) {
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

tutti_status tti_host_group_open(const tti_host_layout *place, const tti_job_config *c,
                                 const tti_devices *devices, const char *yaml, const char *run_dir,
                                 tti_hosts **out) {
    char host[256], token[TTI_TOKEN_BYTES], machine[256];
    int port;
    tti_host_layout grouped = *place;
    grouped.n_together = find_together(place, c);
    if (devices->n > 0 && grouped.n_together != tti_job_workers_of_model(c))
        return refuse_stages("on GPUs", c);
    TTI_TRY(tti_rendezvous_of_hosts(host, sizeof host, &port, token));
    tti_kernels_text(devices, place->n_workers[place->node], machine, sizeof machine);
    return tti_hosts_open(&(tti_hosts_desc){.place = grouped,
                                            .host = host,
                                            .port = port,
                                            .token = token,
                                            .job = yaml,
                                            .machine = machine,
                                            .run_dir = run_dir},
                          (int)c->parallel.timeout_ms, out);
}
