/* callbacks.h - asks the callbacks of the program, and tells all workers what they want. */
#ifndef TTI_TRAIN_CALLBACKS_H
#define TTI_TRAIN_CALLBACKS_H

#include "train/loop/phases.h"

/* TUTTI_E_UNSUPPORTED: asynchronous workers end no step together. */
TUTTI_NODISCARD tutti_status tti_callbacks_check(const tutti_train_desc *train, bool is_async);

/* Rank 0 calls fn (NULL: nobody is asked), and *out becomes what it wants on all workers.
 * Collective. */
TUTTI_NODISCARD tutti_status tti_callbacks_consult(const tti_phases *phases, tutti_train_fn fn,
                                                   const tutti_train_progress *progress,
                                                   tutti_train_control *out);

#endif /* TTI_TRAIN_CALLBACKS_H */
