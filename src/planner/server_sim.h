/* server_sim.h - simulates a parameter server whose workers do not wait for each other.
 *
 * Simulated event by event: a worker pulls parameters from each server, computes, pushes its
 * gradient to each, and waits until it is applied.  It waits for the links of servers and workers,
 * which all transfers share, for the one thread of each server that copies and updates, and for the
 * bound of staleness.  The duration of a gradient varies by up to 5 %, reproducibly.  Synchronous
 * servers are sums to a few owners (sums.h). */
#ifndef TTI_PLANNER_SERVER_SIM_H
#define TTI_PLANNER_SERVER_SIM_H

#include <stdbool.h>

#include "planner/network.h"
#include "ps/server.h"

enum { TTI_MAX_PLAYED = 1 << 12 }; /* most workers whose events are simulated */

/* Relative speeds of workers: worker i has of[i % n]. */
typedef struct tti_speeds {
    int n;
    double *of; /* [n] > 0, owned */
} tti_speeds;

/* Parses "1,1,0.2"; NULL: all have speed 1.  TUTTI_E_CONFIG: not a list of numbers above 0.  On
 * success fini frees *out. */
tutti_status tti_speeds_parse(const char *text, tti_speeds *out);
void tti_speeds_fini(tti_speeds *speeds);

/* The slowest of the first n speeds, and their sum. */
double tti_speeds_slowest(const tti_speeds *speeds, int64_t n);
double tti_speeds_sum(const tti_speeds *speeds, int64_t n);

typedef struct tti_server_sim_desc {
    const tti_network *network;
    int64_t n_workers; /* copies of the model, 1 .. TTI_MAX_PLAYED */
    int64_t apart;     /* workers from one copy to the next: as many keep parts of the model */
    int64_t n_servers; /* the first so many workers, with a range of the keys each */
    int64_t staleness; /* TTI_UNBOUNDED, or 1 and more; with backup workers it is not read */
    int64_t n_backup;  /* workers whose gradients a step does without */
    tti_speeds speeds; /* borrowed */
    double n_bytes;    /* of parameters */
    double of_grads;   /* of these bytes, those that a gradient has on its way; 0: 1 */
    double compute_s;  /* of a gradient, at speed 1 */
    double update_s;   /* of all parameters, by one thread */
    double copy_s;     /* likewise, to copy them for a worker */
} tti_server_sim_desc;

typedef struct tti_server_sim {
    double step_s; /* time in which as many gradients as workers are applied, with backup workers as
                      many as a step needs */
    double wait_s; /* of a worker for each gradient, when it does not compute */
    double link_busy, thread_busy; /* share of the time, of the busiest server */
    double dropped;                /* share of the gradients, which came too late */
    double stale_mean;
    int64_t stale_most;
    double stale[TTI_STALENESS_BINS]; /* share of the gradients that lacked 0, 1, ... updates */
    double sent[TTI_N_LEVELS];        /* bytes out of the first server in a step, and as many in */
} tti_server_sim;

/* TUTTI_E_CONFIG: more workers than can be simulated. */
tutti_status tti_server_sim_run(const tti_server_sim_desc *desc, tti_server_sim *out);

#endif /* TTI_PLANNER_SERVER_SIM_H */
