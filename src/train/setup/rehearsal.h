/* rehearsal.h - warms up devices before a worker joins a running job. */
#ifndef TTI_TRAIN_REHEARSAL_H
#define TTI_TRAIN_REHEARSAL_H

#include "train/setup/blueprint.h"

/* Trains a few steps of one shard on devices, with temporary parameters.  This creates contexts,
 * loads kernels and selects algorithms, so that other workers do not wait for this when a worker of
 * this process joins them. place: the place that the worker will probably get, whose device is
 * unused; -1: not known, so all devices with enough free memory are warmed up.  If the model is
 * divided, devices are only opened and closed.  Devices in exclusive mode are skipped, because this
 * process would block the worker that gets them.  A failure is only passed to note, as one line,
 * because the worker will detect it again. */
void tti_rehearse(const tti_blueprint *blueprint, int place,
                  void (*note)(void *user, const char *text), void *user);

#endif /* TTI_TRAIN_REHEARSAL_H */
