/* timeline.h - the records of a profile: spans of steps, each of one kind, and when they ran. */
#ifndef TTI_EXEC_TIMELINE_H
#define TTI_EXEC_TIMELINE_H

#include "ir/graph.h"

/* The row of a span: spans of a row follow each other. */
typedef enum tti_row {
    TTI_ROW_HOST,    /* the thread of the worker: its waits, and its launches */
    TTI_ROW_COMPUTE, /* the queue of the kernels; on the host the first compute thread: waits too */
    TTI_ROW_COPY,    /* to the device, of samples and of values of other stages */
    TTI_ROW_COMM,    /* gradients, sums and parameters between workers */
    TTI_ROW_TP,      /* TP collectives, inside layers */
    TTI_ROW_STAGES,  /* values to other stages of a pipeline */
    TTI_ROW_SEGMENTS, /* pipeline: the segment and shard that TTI_ROW_COMPUTE runs */
    TTI_ROW_SERVER,   /* the parameter server's work for this worker */
    TTI_N_ROWS
} tti_row;

/* The kind of work in a span. */
typedef enum tti_span_kind {
    TTI_SPAN_WORK,   /* kernels, and what else the row of the kernels does itself */
    TTI_SPAN_WAIT,   /* for something that another row has */
    TTI_SPAN_LAYERS, /* traffic between workers from here on: of values inside layers, */
    TTI_SPAN_STAGES, /* between stages of a pipeline, */
    TTI_SPAN_GRADS,  /* of gradients, */
    TTI_SPAN_PARAMS, /* of parameters, */
    TTI_SPAN_SUMS,   /* small reductions: sums of a step, joined statistics */
    TTI_SPAN_OTHER,  /* none of it: samples, or a frame around spans of another row */
    TTI_N_SPAN_KINDS
} tti_span_kind;

/* The work of a span: a node, or work outside of all nodes. */
typedef struct tti_span_id {
    const char *name; /* of the kernel, or of the work outside of nodes; static */
    tti_span_kind kind;
    const tti_node *node; /* of the shard program; NULL: none, name says what */
} tti_span_id;

/* Work outside of all nodes; its name is static. */
static inline tti_span_id tti_span_of(tti_span_kind kind, const char *name) {
    return (tti_span_id){.name = name, .kind = kind};
}

/* A node, by this kernel. */
static inline tti_span_id tti_span_node(tti_span_kind kind, const tti_node *node,
                                        const char *kernel) {
    return (tti_span_id){.name = kernel, .kind = kind, .node = node};
}

/* When the work ran, and in which row. */
typedef struct tti_span {
    tti_span_id id;
    int shard; /* global number; -1: of all */
    tti_row row;
    int step; /* of the window, from 0; of TTI_ROW_HOST not to be relied on */
    double start_us, us;
} tti_span;

typedef struct tti_timeline {
    tti_span *spans; /* [n], owned by the caller (free); us from zero_ns */
    int n;
    int64_t zero_ns; /* tti_now_ns of the begin */
} tti_timeline;

/* ---- numbers of the flat arrays that a checkpoint stores ---- */

/* State array k of the optimizer is number k. */
enum {
    TTI_STATE_EMA = -1,    /* the averaged parameters */
    TTI_STATE_PARAMS = -2, /* the parameters */
    TTI_STATE_GRADS = -4,  /* the summed gradients, after tti_exec_compute_gradients */
};

#endif /* TTI_EXEC_TIMELINE_H */
