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

/* A worker of a stage, as one of several replicas; without a pipeline there is one stage. */
typedef struct tti_simulated_stage {
    double end_s;          /* of its last shard, from the begin of the step */
    tti_step_lists *lists; /* owned */
    double *ready_s;       /* [n_buckets]: when a bucket can be reduced, from the begin; owned */
    int n_buckets;
    double gathered;       /* times that all parameters are gathered in a step */
    double averaged_bytes; /* local SGD: by a step that averages */
} tti_simulated_stage;

/* The step of a single replica, without any other. */
typedef struct tti_simulated_solo {
    double compute_s, update_s, bubble, model_parallel_s, sent_bytes;
    tti_simulated_stage *stages; /* [n_stages], owned */
    int n_stages, n_workers;
    double forward_s;  /* of the first shards: what can hide parameters that come */
    double sums_bytes; /* of the small all-reduce at the end of a step */
    double flat_bytes; /* parameters of a worker, the most */
    double thread_update_s, thread_copy_s; /* of these, by one thread of a host */
} tti_simulated_solo;

/* A parameter server of the job, which the worker alone does without. */
typedef struct tti_simulated_served {
    int64_t n_servers; /* 0: there is none */
    int64_t staleness, n_backup;
    bool is_loose; /* workers do not wait for all others in each step */
} tti_simulated_served;

/* A point of the curve: n workers in all. */
typedef struct tti_simulated_point {
    int64_t n;
    double step_s, exposed_s, sums_s;
    double sent[TTI_N_LEVELS]; /* bytes per worker; of a server, where there is one */
    tti_server_sim server;     /* where its workers do not wait for all others */
} tti_simulated_point;

typedef struct tti_simulation {
    const tutti_simulate_desc *desc;
    const tti_blueprint *b;
    tti_network network;
    tti_sums sums;
    tti_speeds speeds;
    tti_simulated_served served;
    tti_simulated_solo solo;
    tti_simulated_point points[TTI_MAX_POINTS];
    int n_points;
    tti_step_share shares[TTI_MAX_STEP_SHARES]; /* [n_shares] */
    int n_shares;
} tti_simulation;

/* The curve as a table, or as JSON where desc says so. */
void tti_simulation_print(const tti_simulation *s, tti_str *out);

#endif /* TTI_PLANNER_SIMULATION_H */
