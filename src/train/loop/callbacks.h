/* callbacks.h - calls the callbacks of the program on rank 0, and sends their requests to
 * all workers. */
#ifndef TTI_TRAIN_CALLBACKS_H
#define TTI_TRAIN_CALLBACKS_H

#include "train/loop/phases.h"

/* TUTTI_E_UNSUPPORTED: asynchronous workers end no step together. */
TUTTI_NODISCARD tutti_status tti_callbacks_check(const tutti_train_desc *train, bool is_async);

/* Whether a callback follows each step or epoch: then no step begins before the last has ended. */
bool tti_callbacks_follow_steps(const tutti_train_desc *train);

/* Whether the program wants on_request to be called; it may say so on any thread. */
bool tti_callbacks_requested(const tutti_train_desc *train);

/* Rank 0 calls fn (NULL: none is called), and all workers get its control in *out.  *stops: in,
 * whether this worker wants to stop; out, whether any worker does.  Collective. */
TUTTI_NODISCARD tutti_status tti_callbacks_consult(const tti_phases *phases, tutti_train_fn fn,
                                                   const tutti_train_progress *progress,
                                                   bool *stops, tutti_train_control *out);

#endif /* TTI_TRAIN_CALLBACKS_H */
