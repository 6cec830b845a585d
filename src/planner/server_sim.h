/* server_sim.h - simulates a parameter server whose workers do not wait for each other.
 *
 * A discrete-event simulation: a worker pulls parameters from each server, computes, pushes its
 * gradient to each server, and waits until the gradient is applied. Transfers share the links of
 * servers and workers. Each server has one thread for copies and updates, and workers wait for the
 * staleness bound. Compute times vary by up to 5 %, reproducibly. Synchronous servers are costed as
 * reductions to a few owners (sums.h). Times are in seconds. */
#ifndef TTI_PLANNER_SERVER_SIM_H
#define TTI_PLANNER_SERVER_SIM_H

#include <stdbool.h>

#include "planner/network.h"
#include "ps/server.h"

enum { TTI_MAX_SIMULATED = 1 << 12 }; /* the largest number of workers that can be simulated */

/* Relative speeds of workers: worker i has speed of[i % n]. */
typedef struct tti_speeds {
    int n;
    double *of; /* [n] > 0, owned */
} tti_speeds;

/* Parses "1,1,0.2"; NULL: all have speed 1.  TUTTI_E_CONFIG: not a list of numbers above 0.  On
 * success fini frees *out. */
tutti_status tti_speeds_parse(const char *text, tti_speeds *out);
void tti_speeds_fini(tti_speeds *speeds);

/* The smallest of the first n speeds, and the sum of the first n speeds. */
double tti_speeds_slowest(const tti_speeds *speeds, int64_t n);
double tti_speeds_sum(const tti_speeds *speeds, int64_t n);

typedef struct tti_server_sim_desc {
    const tti_network *network;
    int64_t n_workers;      /* replicas of the model, 1 .. TTI_MAX_SIMULATED */
    int64_t replica_stride; /* ranks from one replica to the next, which is the number of parts of a
                               model */
    int64_t n_servers;      /* the first n_servers workers each own a range of the keys */
    int64_t staleness;      /* TTI_UNBOUNDED, or at least 1; ignored with backup workers */
    int64_t n_backup;       /* workers whose gradients a step does not wait for */
    tti_speeds speeds;      /* borrowed */
    double n_bytes;         /* bytes of the parameters */
    double gradient_ratio;  /* bytes of a sent gradient relative to n_bytes; 0: 1 */
    double compute_s;       /* seconds to compute a gradient at speed 1 */
    double update_s;        /* seconds to update all parameters, by one thread */
    double copy_s;          /* seconds to copy all parameters for a worker, by one thread */
} tti_server_sim_desc;

typedef struct tti_server_sim {
    double step_s; /* time in which n_workers gradients are applied; with backup workers, time of a
                      step */
    double wait_s; /* time per gradient that a worker does not compute */
    double link_busy, thread_busy; /* fraction of the time, of the busiest server */
    double dropped;                /* fraction of the gradients that were too late */
    double stale_mean;
    int64_t stale_max;
    double stale[TTI_STALENESS_BINS]; /* fraction of the gradients with staleness 0, 1, ... */
    double sent[TTI_N_LEVELS]; /* bytes that the first server sends in a step, and receives */
} tti_server_sim;

/* TUTTI_E_CONFIG: more workers than can be simulated. */
tutti_status tti_server_sim_run(const tti_server_sim_desc *desc, tti_server_sim *out);

#endif /* TTI_PLANNER_SERVER_SIM_H */
