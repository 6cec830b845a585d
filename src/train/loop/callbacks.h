/* callbacks.h - calls the callbacks of the program on rank 0, and sends their requests to
 * all workers. */
#ifndef TTI_TRAIN_CALLBACKS_H
#define TTI_TRAIN_CALLBACKS_H

#include "train/loop/phases.h"

/* Returns TUTTI_E_UNSUPPORTED for callbacks with asynchronous workers, which do not end steps
 * together. */
TUTTI_NODISCARD tutti_status tti_callbacks_check(const tutti_train_desc *train, bool is_async);

/* True if a callback follows each step or epoch.  Then no step begins before the previous one has
 * ended. */
bool tti_callbacks_follow_steps(const tutti_train_desc *train);

/* True if the program has requested a call of on_request, which it may do on any thread. */
bool tti_callbacks_requested(const tutti_train_desc *train);

/* Rank 0 calls fn (NULL: no callback), and all workers get its control in *out. *stops: on entry
 * true if this worker wants to stop, on return true if any worker does.  Collective. */
TUTTI_NODISCARD tutti_status tti_callbacks_consult(const tti_phases *phases, tutti_train_fn fn,
                                                   const tutti_train_progress *progress,
                                                   bool *stops, tutti_train_control *out);

#endif /* TTI_TRAIN_CALLBACKS_H */
