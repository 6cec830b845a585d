/* stage_sim.h - simulates the schedule of a pipeline: when each stage computes and waits. Times are
 * in seconds.
 *
 * Unlike tti_pipe_bubble, every segment has its own time and messages take time. */
#ifndef TTI_PLANNER_STAGE_SIM_H
#define TTI_PLANNER_STAGE_SIM_H

#include "exec/program/exec_program.h"
#include "planner/calibrate.h"

/* A segment of a stage's schedule, its start and its duration. */
typedef struct tti_stage_segment {
    int stage;
    tti_pipe_action action;
    double begin_s, s;
} tti_stage_segment;

typedef struct tti_stage_sim_desc {
    const tti_stages *stages; /* stages of the plan: extents and stage boundaries */
    int n_micro_groups;
    int n_compute_threads; /* shards of a micro-batch group, whose messages are sent together */
    const double *slot_s;  /* [2 * chunks]: seconds of a micro-batch group in each schedule slot */
    double latency_s, s_per_byte; /* of messages between neighbouring stages, per message and
                                            per byte; both 0: messages take no time */
    /* Called for each segment, in order within each stage; may be NULL. */
    void (*on_segment)(void *user, const tti_stage_segment *segment);
    void *user;
} tti_stage_sim_desc;

typedef struct tti_stage_sim {
    double step_s;          /* from the first forward segment to the last backward one */
    double bubble;          /* mean fraction of step_s that the stages wait */
    double *busy_s, *end_s; /* [n_stages], owned: compute time; end of the last segment */
} tti_stage_sim;

/* On success fini frees *out. */
tutti_status tti_stage_sim_run(const tti_stage_sim_desc *desc, tti_stage_sim *out);
void tti_stage_sim_fini(tti_stage_sim *sim);

/* Estimates the seconds of each schedule slot of a shard, *slot_s [2 * chunks], for the first
 * tensor rank of each stage. On success the caller frees *slot_s. */
tutti_status tti_stage_costs(const tti_blueprint *b, const tti_calibration *c, double **slot_s);

/* Bytes that stage `from` sends to stage `to` for one shard in a training step, forward and
 * backward. */
double tti_stage_bytes(const tti_stages *stages, int from, int to);

/* Bytes of the tied parameters of a stage, whose gradients are all-reduced. */
double tti_tied_bytes(const tti_plan *plan);

#endif /* TTI_PLANNER_STAGE_SIM_H */
