/* stages.h - a model as pipeline stages, each on its own rank.
 *
 * The forward graph is divided into n_stages * n_chunks chunks, 0, 1, ... in the order of its
 * nodes; chunk q belongs to rank q % n_stages and is its chunk number q / n_stages.  A shard passes
 * all chunks forward and then backward, so there are two slots for each chunk: forward of chunk q
 * is slot q, backward is slot 2 * chunks - 1 - q.  A value is read in the slot that makes it or in
 * a later one.
 *
 * Two passes: "assign_stages", before autodiff, finds the bounds and marks the chunk of every node;
 * "stages", after it, keeps the nodes of one rank.  A value that another rank makes becomes an
 * input, one that another rank reads an output; both are called "pipe.N", or "back.N" in the
 * backward pass, N the number of the stage boundary, the same on every rank.  Parameters, constants
 * and values made of them alone exist on every rank that reads them.
 *
 * A parameter on several ranks (a tied embedding) has a gradient on each of them; the executor sums
 * these. */
#ifndef TTI_PASSES_STAGES_H
#define TTI_PASSES_STAGES_H

#include "passes/passes.h"

/* A value that one rank sends to another. */
typedef struct tti_stage_boundary {
    int from, to; /* slots: where it is made, where it is first read */
    size_t n_bytes;
} tti_stage_boundary;

typedef struct tti_stage_boundaries {
    tti_stage_boundary *of; /* [n] */
    int n;
} tti_stage_boundaries;

/* The begin of a chunk: the nth node, from 0, that reads a parameter, or an earlier node if fewer
 * bytes cross there. */
typedef struct tti_chunk_start {
    char *param; /* owned */
    int nth;
} tti_chunk_start;

/* A parameter that several ranks have. */
typedef struct tti_tied_param {
    char *name;  /* owned */
    int *stages; /* [n_stages], owned: the ranks that have it, ascending; two or more */
    int n_stages;
} tti_tied_param;

struct tti_stages {
    int stage, n_stages, n_chunks; /* given: whose graph this is; n_stages >= 2, n_chunks >= 1 */
    /* From the graph for training, which comes first; the one for evaluation is divided the same
     * way. */
    tti_chunk_start *start; /* [n_stages * n_chunks], owned; of chunk 0: none */
    double *cost;           /* [n_stages * n_chunks], owned: of each chunk, in arbitrary units */
    bool is_cut;
    bool is_joined; /* values of all shards are joined inside the step (TTI_SYNC) */
    int n_metrics;  /* of the model's own (ops/loss/losses.h) */
    tti_tied_param *tied;
    int n_tied;
    /* Between the passes: the graph at hand. */
    int n_forward; /* its nodes before autodiff */
    tti_stage_boundaries train, eval;
};

/* Frees the results of the passes. */
void tti_stages_fini(tti_stages *stages);

/* Allocates start and cost, unless they exist. */
tutti_status tti_stages_alloc_chunks(tti_stages *stages);

/* Whether several ranks have the parameter: its own name, or the one of a further rank's copy. */
bool tti_stages_is_tied(const tti_stages *stages, const char *name);

/* Whether a rank has the parameter, and how many of lower number have it. */
bool tti_tied_has(const tti_tied_param *tied, int stage);
int tti_tied_count_below(const tti_tied_param *tied, int stage);

int tti_stages_n_all_chunks(const tti_stages *stages);

/* The rank that computes in a slot of the schedule, and the segment of its program that it
 * computes, from 0: chunks forward, then backward. */
int tti_sched_slot_stage(const tti_stages *stages, int sched_slot);
int tti_sched_slot_segment(const tti_stages *stages, int sched_slot);

/* The schedule slot of segment i of a rank. */
int tti_sched_slot_of(const tti_stages *stages, int stage, int segment);

bool tti_sched_slot_is_backward(const tti_stages *stages, int sched_slot);

/* The number N of a source or output "pipe.N" or "back.N"; -1: the name of something else. */
int tti_stage_boundary_number(const char *name);

/* Both do nothing where target->stages is NULL.  "assign_stages" fails with TUTTI_E_INVALID where
 * the model has fewer places to cut. */
tutti_status tti_pass_assign_stages(tutti_graph **g, const tti_target *target);
tutti_status tti_pass_stages(tutti_graph **g, const tti_target *target);

/* A step of "assign_stages" (stage_cut.c): start and cost of stages, for chunks of equal time. */
tutti_status tti_stages_find_cuts(const tutti_graph *g, const tti_target *target,
                                  tti_stages *stages);

/* For every node of g: whether it is a source or made of parameters and constants alone; [n_nodes],
 * freed by the caller.  NULL: no memory. */
bool *tti_find_free_nodes(const tutti_graph *g);

/* Whether a node reads that parameter, also through free nodes. */
bool tti_reads_param(const tti_node *node, const bool *is_free, const char *param);

/* Bytes that cross in front of each node: values made before it that it or a later one reads;
 * [n_nodes + 1], freed by the caller.  NULL: no memory. */
size_t *tti_stage_boundary_bytes(const tutti_graph *g, const bool *is_free);

/* The best place for a cut in front of node: no node between it and place reads a parameter. */
int tti_cut_place(const tutti_graph *g, const bool *is_free, const size_t *cross, int node);

#endif /* TTI_PASSES_STAGES_H */
