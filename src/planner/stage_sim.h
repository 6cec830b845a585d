/* stage_sim.h - simulates the schedule of a pipeline: when each stage works and waits.
 *
 * Unlike tti_pipe_bubble, every segment has its own time and messages take time. */
#ifndef TTI_PLANNER_STAGE_SIM_H
#define TTI_PLANNER_STAGE_SIM_H

#include "exec/program/exec_program.h"
#include "planner/calibrate.h"

/* A segment of a stage's schedule, and its time. */
typedef struct tti_stage_segment {
    int stage;
    tti_pipe_action action;
    double begin_s, s;
} tti_stage_segment;

typedef struct tti_stage_sim_desc {
    const tti_stages *stages; /* of any stage of the plan: extents and stage boundaries */
    int n_micro_groups;
    int n_compute_threads; /* shards of a micro-batch group, whose messages travel together */
    const double *slot_s;  /* [2 * chunks]: seconds of a micro-batch group in each schedule slot */
    double latency_s, message_s_of_byte; /* between neighbours; 0, 0: messages take no time */
    /* Called for each segment, those of a stage in order; may be NULL. */
    void (*on_segment)(void *user, const tti_stage_segment *segment);
    void *user;
} tti_stage_sim_desc;

typedef struct tti_stage_sim {
    double step_s;          /* from the first forward segment to the last backward one */
    double bubble;          /* share of step_s that the stages wait, in the mean */
    double *busy_s, *end_s; /* [n_stages], owned */
} tti_stage_sim;

/* On success fini frees *out. */
tutti_status tti_stage_sim_run(const tti_stage_sim_desc *desc, tti_stage_sim *out);
void tti_stage_sim_fini(tti_stage_sim *sim);

/* Estimates the slots of a shard, [2 * chunks], from the ceilings, for the first tensor shard of
 * each stage.  On success the caller frees *slot_s. */
tutti_status tti_stage_costs(const tti_blueprint *b, const tti_calibration *c, double **slot_s);

/* Bytes that go from stage to stage for one shard, each way along a step of training. */
double tti_stage_bytes(const tti_stages *stages, int from, int to);

/* Bytes of the parameters that a stage has in common with others, whose gradients are summed. */
double tti_tied_bytes(const tti_plan *plan);

#endif /* TTI_PLANNER_STAGE_SIM_H */
