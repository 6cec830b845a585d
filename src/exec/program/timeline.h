/* timeline.h - the records of a profile: spans of work, their kind and their time. */
#ifndef TTI_EXEC_TIMELINE_H
#define TTI_EXEC_TIMELINE_H

#include "ir/graph.h"

/* The row of a span.  Spans of one row do not overlap. */
typedef enum tti_row {
    TTI_ROW_HOST,     /* the worker's thread: waits and launches */
    TTI_ROW_COMPUTE,  /* the queue of kernels, on the host the first compute thread; includes waits
                       */
    TTI_ROW_COPY,     /* copies to the device: samples, and values of other stages */
    TTI_ROW_COMM,     /* gradients, sums and parameters between workers */
    TTI_ROW_TP,       /* TP collectives, inside layers */
    TTI_ROW_STAGES,   /* values sent to other pipeline stages */
    TTI_ROW_SEGMENTS, /* pipeline: the segment and shard that TTI_ROW_COMPUTE runs */
    TTI_ROW_SERVER,   /* the parameter server's work for this worker */
    TTI_N_ROWS
} tti_row;

/* The kind of work in a span. */
typedef enum tti_span_kind {
    TTI_SPAN_WORK,   /* kernels, and other work in the row of the kernels */
    TTI_SPAN_WAIT,   /* waiting for something in another row */
    TTI_SPAN_LAYERS, /* communication between workers: values inside layers */
    TTI_SPAN_STAGES, /* communication: values between pipeline stages */
    TTI_SPAN_GRADS,  /* communication: gradients */
    TTI_SPAN_PARAMS, /* communication: parameters */
    TTI_SPAN_SUMS,  /* communication: small reductions, such as sums of a step and joined statistics
                     */
    TTI_SPAN_OTHER, /* no communication: samples, or a frame around spans of another row */
    TTI_N_SPAN_KINDS
} tti_span_kind;

/* The work of a span: a node, or work outside of nodes. */
typedef struct tti_span_id {
    const char *name; /* of the kernel, or of the work outside of nodes; static */
    tti_span_kind kind;
    const tti_node *node; /* of the shard program; NULL: name describes the work */
} tti_span_id;

/* Work outside of nodes; name is static. */
static inline tti_span_id tti_span_of(tti_span_kind kind, const char *name) {
    return (tti_span_id){.name = name, .kind = kind};
}

/* A node that this kernel computes. */
static inline tti_span_id tti_span_node(tti_span_kind kind, const tti_node *node,
                                        const char *kernel) {
    return (tti_span_id){.name = kernel, .kind = kind, .node = node};
}

/* Time and row of some work. */
typedef struct tti_span {
    tti_span_id id;
    int shard; /* global number; -1: all shards */
    tti_row row;
    int step; /* of the window, from 0; not reliable for TTI_ROW_HOST */
    double start_us, us;
} tti_span;

typedef struct tti_timeline {
    tti_span *spans; /* [n], freed by the caller; in us from zero_ns */
    int n;
    int64_t zero_ns; /* tti_now_ns at the begin */
} tti_timeline;

/* ---- numbers of the flat arrays that a checkpoint stores ---- */

/* Array k of the optimizer's state is number k. */
enum {
    TTI_STATE_EMA = -1,    /* the averaged parameters */
    TTI_STATE_PARAMS = -2, /* the parameters */
    TTI_STATE_GRADS = -4,  /* the summed gradients, after tti_exec_compute_gradients */
};

#endif /* TTI_EXEC_TIMELINE_H */
