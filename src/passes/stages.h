/* stages.h - a model as stages that work one behind the other, each on a rank of its own.
 *
 * The forward graph is cut into n_stages * n_chunks pieces, 0, 1, ... in the order of its nodes;
 * piece q is rank q % n_stages' and its chunk number q / n_stages.  A shard passes them all forward
 * and then backward, so there are two moments for each piece: forward of piece q is moment q,
 * backward of it moment 2 * pieces - 1 - q.  What is made in one moment is read in the same one or
 * in a later one.
 *
 * Two passes: "pieces", before autodiff, finds the cuts and says of every node which piece it is
 * in; "stages", behind it, keeps the nodes of one rank.  A value that another rank makes becomes an
 * input, one that another rank reads an output; both are called "pipe.N", and "back.N" on the way
 * back, N the number of the crossing, the same on every rank.  Parameters, constants and what is
 * made of them alone are on every rank that reads them.
 *
 * A parameter on several ranks (a tied embedding) is one on each of them with a gradient of its
 * own; the sum of these is for the executor to make. */
#ifndef TTI_PASSES_STAGES_H
#define TTI_PASSES_STAGES_H

#include "passes/passes.h"

enum { TTI_MAX_PIECES_OF_MODEL = 64 };

/* A value on its way from one rank to another. */
typedef struct tti_crossing {
    int from, to; /* moments: when it is made, when it is first read */
    size_t n_bytes;
} tti_crossing;

typedef struct tti_crossings {
    tti_crossing *of; /* [n] */
    int n;
} tti_crossings;

/* Where a piece begins: at the node that is the nth, from 0, to read a parameter, or as far before
 * it as fewer bytes cross. */
typedef struct tti_piece_start {
    char *param; /* owned */
    int nth;
} tti_piece_start;

/* A parameter that several ranks have. */
typedef struct tti_tied_param {
    char *name;      /* owned */
    uint64_t stages; /* bit s: rank s has it */
} tti_tied_param;

struct tti_stages {
    int stage, n_stages, n_chunks; /* given: whose graph this is; n_stages >= 2, n_chunks >= 1 */
    /* Found on the graph for training, which goes first; the one for evaluation is cut alike. */
    tti_piece_start start[TTI_MAX_PIECES_OF_MODEL]; /* of piece 0: none */
    double cost[TTI_MAX_PIECES_OF_MODEL];           /* of each piece, in units of its own */
    bool is_cut;
    bool is_joined; /* values of all shards are joined on the way (TTI_SYNC) */
    tti_tied_param *tied;
    int n_tied;
    /* Of the graph between the passes. */
    int n_forward; /* its nodes before autodiff */
    tti_crossings train, eval;
};

/* Frees what the passes have found. */
void tti_stages_fini(tti_stages *stages);

int tti_stages_n_pieces(const tti_stages *stages);

/* The rank that works at a moment, and the number of the moment among its own, from 0: chunks
 * forward, then backward. */
int tti_moment_stage(const tti_stages *stages, int moment);
int tti_moment_part(const tti_stages *stages, int moment);

/* The moment of part i of a rank. */
int tti_part_moment(const tti_stages *stages, int stage, int part);

bool tti_moment_is_backward(const tti_stages *stages, int moment);

/* The number N of a source or output "pipe.N" or "back.N"; -1: the name of something else. */
int tti_crossing_number(const char *name);

/* Both do nothing where target->stages is NULL.  "pieces" fails with TUTTI_E_INVALID where the
 * model has fewer places to cut. */
tutti_status tti_pass_pieces(tutti_graph **g, const tti_target *target);
tutti_status tti_pass_stages(tutti_graph **g, const tti_target *target);

/* A part of "pieces" (stage_cut.c): start and cost of stages, for pieces of equal time. */
tutti_status tti_stages_find_cuts(const tutti_graph *g, const tti_target *target,
                                  tti_stages *stages);

/* Of every node of g: whether it is a source or made of parameters and constants alone; [n_nodes],
 * freed by the caller.  NULL: no memory. */
bool *tti_find_free_nodes(const tutti_graph *g);

/* Whether a node reads that parameter, also through free nodes. */
bool tti_reads_param(const tti_node *node, const bool *is_free, const char *param);

/* Bytes that cross in front of each node: values made before it that it or a later one reads;
 * [n_nodes + 1], freed by the caller.  NULL: no memory. */
size_t *tti_crossing_bytes(const tutti_graph *g, const bool *is_free);

/* The best place for a cut in front of node: no node between it and place reads a parameter. */
int tti_cut_place(const tutti_graph *g, const bool *is_free, const size_t *cross, int node);

#endif /* TTI_PASSES_STAGES_H */
