/* model_copy.h - copies the file of a model into the run folder while training starts.
 *
 * A thread copies the file and syncs it to disk, which takes a second for a large model.  Only a
 * run that is resumed from a checkpoint reads the copy, so the first checkpoint waits for it. */
#ifndef TTI_TRAIN_MODEL_COPY_H
#define TTI_TRAIN_MODEL_COPY_H

#include "tutti/status.h"

typedef struct tti_model_copy tti_model_copy;

/* Starts to copy the file at `from` to `to`, which is created atomically. *out is owned by the
 * caller; NULL on failure. */
TUTTI_NODISCARD tutti_status tti_model_copy_start(const char *from, const char *to,
                                                  tti_model_copy **out);

/* Waits until the copy is on disk.  If the copy failed, every call returns that failure.  Any
 * thread, one at a time.  NULL: returns TUTTI_OK. */
TUTTI_NODISCARD tutti_status tti_model_copy_wait(tti_model_copy *copy);

/* Waits for the thread.  NULL is a no-op. */
void tti_model_copy_destroy(tti_model_copy *copy);

#endif /* TTI_TRAIN_MODEL_COPY_H */
