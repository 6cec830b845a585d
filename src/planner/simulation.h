/* simulation.h - a job on a described cluster: the data of the simulation (simulate.c) and its
 * output (simulation_text.c). */
#ifndef TTI_PLANNER_SIMULATION_H
#define TTI_PLANNER_SIMULATION_H

#include "planner/network.h"
#include "planner/predict.h"
#include "planner/server_sim.h"
#include "planner/step_cost.h"
#include "planner/sums.h"
#include "tutti/planner.h"

enum { TTI_MAX_POINTS = 40 };

/* The step of one pipeline stage, as a part of one of several replicas. Without a pipeline there is
 * one stage. */
typedef struct tti_simulated_stage {
    double end_s;          /* end of its last shard, from the start of the step */
    tti_step_lists *lists; /* owned */
    double *ready_s; /* [n_buckets]: time at which a bucket can be reduced, from the start of the
                        step; owned */
    int n_buckets;
    double gathered;       /* number of times that all parameters are gathered in a step */
    double averaged_bytes; /* local SGD: bytes that an averaging step averages */
} tti_simulated_stage;

/* The step of a single replica without others. */
typedef struct tti_simulated_replica {
    double compute_s, update_s, bubble, model_parallel_s, sent_bytes;
    tti_simulated_stage *stages; /* [n_stages], owned */
    int n_stages, n_workers;
    double forward_s;  /* forward time of the first shards, which can hide the gathering of
                          parameters */
    double sums_bytes; /* bytes of the small all-reduce at the end of a step */
    double flat_bytes; /* bytes of parameters, the maximum over the workers */
    double thread_update_s, thread_copy_s; /* of flat_bytes, by one host thread */
} tti_simulated_replica;

/* The parameter server of the job. It is not part of the step of a single replica. */
typedef struct tti_simulated_server {
    int64_t n_servers; /* 0: there is none */
    int64_t staleness, n_backup;
    bool is_async; /* workers do not wait for all others in each step */
} tti_simulated_server;

/* A point of the scaling curve, with n workers in total. */
typedef struct tti_simulated_point {
    int64_t n;
    double step_s, exposed_s, sums_s;
    double sent[TTI_N_LEVELS]; /* bytes that a worker sends; with a server, bytes that the first
                                  server sends */
    tti_server_sim server;     /* if is_async */
} tti_simulated_point;

typedef struct tti_simulation {
    const tutti_simulate_desc *desc;
    const tti_blueprint *b;
    tti_network network;
    tti_sums sums;
    tti_speeds speeds;
    tti_simulated_server param_server;
    tti_simulated_replica replica;
    tti_simulated_point points[TTI_MAX_POINTS];
    int n_points;
    tti_step_share shares[TTI_MAX_STEP_SHARES]; /* [n_shares] */
    int n_shares;
} tti_simulation;

/* Prints the scaling curve as a table, or as JSON if desc requests it. */
void tti_simulation_print(const tti_simulation *s, tti_str *out);

#endif /* TTI_PLANNER_SIMULATION_H */
