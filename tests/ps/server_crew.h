/* server_crew.h - a crew with a parameter server, whose workers take batches as they come. */
#ifndef TTI_TESTS_EXEC_SERVER_CREW_H
#define TTI_TESTS_EXEC_SERVER_CREW_H

#include "exec/crew.h"
#include "ps/server.h"

enum { BATCHES = 40, MAX_UPDATES = 64 };

/* A crew with a server for it; steps are run by batches where it is asynchronous. */
typedef struct served {
    crew crew; /* first: what crew functions are given */
    tti_server *server;
    tti_arrival arrivals[MAX_UPDATES];
    int n_arrivals;
    int64_t stale_max;
} served;

static inline crew new_crew(const char *optimizer, int n_ranks) {
    crew c = {.plan = crew_plan(net_wide, optimizer, 1 << 16),
              .n_ranks = n_ranks,
              .n_compute_threads = 2,
              .n_steps = 4};
    c.exec.beta1 = 0.9;
    c.exec.beta2 = 0.99;
    return c;
}

static inline tti_server_desc server_desc(const crew *c, int n_servers, int64_t staleness) {
    tti_server_desc d = {
        .exec = c->exec, .n_workers = c->n_ranks, .staleness = staleness, .timeout_ms = 20000};
    d.exec.plan = c->plan;
    d.exec.backend = &tti_backend_cpu;
    d.exec.n_shards = CREW_SHARDS;
    d.exec.n_compute_threads = n_servers;
    d.exec.seed = 7;
    return d;
}

static inline double rate(void *user, int64_t step) {
    (void)user;
    return 0.1 / (1 + 0.01 * (double)step);
}

/* Batches as long as there are some. */
static inline tutti_status run_step(tti_exec *exec, crew_batch *batch) {
    for (;;) {
        tti_lease lease;
        tti_arrival arrival;
        TTI_TRY(tti_server_lease(exec, &lease));
        if (!lease.any) return TUTTI_OK;
        crew_fill(batch, (int)lease.batch);
        tti_step_desc desc = crew_step(batch, exec, (int)lease.batch);
        TTI_TRY(tti_server_push_gradient(exec, &(tti_pushed_gradient){.desc = &desc, .lr = rate},
                                         &arrival));
    }
}

#endif /* TTI_TESTS_EXEC_SERVER_CREW_H */
