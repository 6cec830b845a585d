/* server_workers.h - workers with a parameter server that take batches as they come. */
#ifndef TTI_TESTS_EXEC_SERVER_WORKERS_H
#define TTI_TESTS_EXEC_SERVER_WORKERS_H

#include "exec/workers.h"
#include "ps/server.h"

enum { BATCHES = 40, MAX_UPDATES = 64 };

/* Workers with a server. An asynchronous server runs steps by batches. */
typedef struct served {
    workers workers; /* first: what workers functions are given */
    tti_server *server;
    tti_arrival arrivals[MAX_UPDATES];
    int n_arrivals;
    int64_t stale_max;
} served;

static inline workers new_workers(const char *optimizer, int n_ranks) {
    workers c = {.plan = workers_plan(net_wide, optimizer, 1 << 16),
                 .n_ranks = n_ranks,
                 .n_compute_threads = 2,
                 .n_steps = 4};
    c.exec.beta1 = 0.9;
    c.exec.beta2 = 0.99;
    return c;
}

static inline tti_server_desc server_desc(const workers *c, int n_servers, int64_t staleness) {
    tti_server_desc d = {
        .exec = c->exec, .n_workers = c->n_ranks, .staleness = staleness, .timeout_ms = 20000};
    d.exec.plan = c->plan;
    d.exec.backend = &tti_backend_cpu;
    d.exec.n_shards = WORKERS_SHARDS;
    d.exec.n_compute_threads = n_servers;
    d.exec.seed = 7;
    return d;
}

static inline double rate(void *user, int64_t step) {
    (void)user;
    return 0.1 / (1 + 0.01 * (double)step);
}

/* Batches as long as there are some. */
static inline tutti_status run_step(tti_exec *exec, workers_batch *batch) {
    for (;;) {
        tti_lease lease;
        tti_arrival arrival;
        TTI_TRY(tti_server_lease(exec, &lease));
        if (!lease.any) return TUTTI_OK;
        workers_fill(batch, (int)lease.batch);
        tti_step_desc desc = workers_step(batch, exec, (int)lease.batch);
        TTI_TRY(tti_server_push_gradient(exec, &(tti_pushed_gradient){.desc = &desc, .lr = rate},
                                         &arrival));
    }
}

#endif /* TTI_TESTS_EXEC_SERVER_WORKERS_H */
