/* step_call.h - one step of a session, for the files that run steps: session_step.c runs a whole
 * step or its first half and waits for it, session_async.c begins one and ends it later. */
#ifndef TTI_SESSION_STEP_CALL_H
#define TTI_SESSION_STEP_CALL_H

#include "session/session_state.h"

/* How much of a step a call runs. */
typedef enum tti_step_part { TTI_STEP_WHOLE, TTI_STEP_GRADIENTS } tti_step_part;

/* A step, for all workers. */
typedef struct tti_step_call {
    tti_feed feed;
    bool from_data; /* the next batch of the job's data, instead of feed */
    tti_step_part part;
    double lr;
    bool follows_others;       /* steps before it are in flight: it is left out if one was bad */
    bool gives_outputs;        /* of the training program, for the caller's loss */
    const tutti_tensor *seeds; /* [n_outputs]; NULL: zeros */
    double count;              /* of the caller's loss */
    bool keeps_feed;           /* the rows are there from the call before */
    int64_t n_rows;            /* of the batch: worker 0 sets it */
} tti_step_call;

/* Checks the caller's arguments and fills in lr, feed and from_data. */
tutti_status tti_step_prepare(tutti_session *session, const tutti_tensor *inputs, int n_inputs,
                              double lr, tti_step_call *call);

/* Runs the step, waits for it, and counts it. */
tutti_status tti_step_run(tutti_session *session, tti_step_call *call);

/* On a worker's thread: takes the rows of the step and describes it.  copies [TTI_MAX_OUTPUTS] is
 * used while desc is. */
tutti_status tti_step_describe(tti_session_worker *worker, tti_step_call *call,
                               tti_output_copy *copies, tti_step_desc *desc);

/* Facts of a step for its result. */
typedef struct tti_step_facts {
    int64_t step, n_rows;
    double lr, grad_scale;
} tti_step_facts;

/* Metrics of *out are valid until the next call for this session. */
void tti_step_fill_result(tutti_session *session, const tti_step_facts *facts,
                          const tti_step_result *result, tutti_session_result *out);

#endif /* TTI_SESSION_STEP_CALL_H */
