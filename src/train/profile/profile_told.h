/* profile_told.h - the spans of a worker without the plan they came from, so that they can be sent
 * to another process. */
#ifndef TTI_TRAIN_PROFILE_TOLD_H
#define TTI_TRAIN_PROFILE_TOLD_H

#include "exec/exec.h"

enum { TTI_TOLD_NOTHING = -1 };

/* The common fields of spans. */
typedef struct tti_told_what {
    int32_t name, layer, kernel,
        label;         /* where their text begins; layer TTI_TOLD_NOTHING: no node */
    int32_t row, kind; /* tti_row, tti_span_kind */
    double flops, bytes;
} tti_told_what;

typedef struct tti_told_span {
    int32_t what, shard, step; /* as in tti_span; of whats */
    int32_t unused;
    double start_us, us;
} tti_told_span;

/* The number of entries, and the figures of the worker as a whole. */
typedef struct tti_told_head {
    int64_t n_whats, n_spans, n_text; /* n_text: bytes */
    int64_t zero_ns;
    double trained_us, wait_us;     /* a step as training runs it; of it waiting for samples */
    double bubble, expected_bubble; /* of the stages of a pipeline; 0: there are none */
} tti_told_head;

typedef struct tti_numbers {
    tti_told_head head;
    tti_told_what *whats; /* [n_whats], owned as the two below */
    tti_told_span *spans; /* [n_spans] */
    char *text;           /* [n_text], of strings with their ends */
} tti_numbers;

/* Fills all of out but what head says of the worker as a whole, which stays. */
tutti_status tti_told_make(const tti_timeline *timeline, tti_numbers *out);
void tti_told_free(tti_numbers *told);

/* Sends the spans of all ranks of comm to rank 0: all [ranks], of which each has filled its own.
 * Collective. */
tutti_status tti_told_gather(tutti_comm *comm, tti_numbers *all);

static inline const tti_told_what *tti_told_what_of(const tti_numbers *t,
                                                    const tti_told_span *span) {
    return &t->whats[span->what];
}

/* The text that begins there. */
static inline const char *tti_told_text(const tti_numbers *t, int32_t at) { return t->text + at; }

/* Steps of the window that this worker has made. */
int tti_told_n_steps(const tti_numbers *told);

#endif /* TTI_TRAIN_PROFILE_TOLD_H */
