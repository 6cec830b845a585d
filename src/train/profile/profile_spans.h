/* profile_spans.h - the timed spans of a worker, without pointers into its plan, so that they can
 * be sent to another process. */
#ifndef TTI_TRAIN_PROFILE_SPANS_H
#define TTI_TRAIN_PROFILE_SPANS_H

#include "exec/exec.h"

enum { TTI_SPANS_NOTHING = -1 };

/* Fields that many spans share. */
typedef struct tti_span_label {
    int32_t name, layer, kernel,
        label;         /* offsets in the text; layer TTI_SPANS_NOTHING: not a node */
    int32_t row, kind; /* tti_row, tti_span_kind */
    double flops, bytes;
} tti_span_label;

typedef struct tti_profile_span {
    int32_t what, shard, step; /* index of the label; shard and step are as in tti_span */
    int32_t unused;
    double start_us, us;
} tti_profile_span;

/* The numbers of entries, and figures of the whole worker. */
typedef struct tti_spans_head {
    int64_t n_labels, n_spans, n_text; /* n_text in bytes */
    int64_t zero_ns;
    double trained_us, wait_us;     /* an untimed step, and its part of waiting for samples */
    double bubble, expected_bubble; /* bubble of a pipeline; 0: no pipeline */
} tti_spans_head;

typedef struct tti_worker_spans {
    tti_spans_head head;
    tti_span_label *labels;  /* [n_labels], owned like the next two */
    tti_profile_span *spans; /* [n_spans] */
    char *text;              /* [n_text], NUL-terminated strings */
} tti_worker_spans;

/* Fills the spans, labels and text of out.  The figures of the whole worker in head are kept. */
tutti_status tti_spans_make(const tti_timeline *timeline, tti_worker_spans *out);
void tti_spans_free(tti_worker_spans *spans);

/* Collective: sends the spans of all ranks to rank 0. all [ranks]: each rank has filled its own
 * entry. */
tutti_status tti_spans_gather(tutti_comm *comm, tti_worker_spans *all);

static inline const tti_span_label *tti_span_label_of(const tti_worker_spans *t,
                                                      const tti_profile_span *span) {
    return &t->labels[span->what];
}

/* Returns the text at an offset. */
static inline const char *tti_spans_text(const tti_worker_spans *t, int32_t at) {
    return t->text + at;
}

/* Returns the number of timed steps of this worker. */
int tti_spans_n_steps(const tti_worker_spans *spans);

#endif /* TTI_TRAIN_PROFILE_SPANS_H */
