/* rehearsal.h - what a device prepares at its first use, before a worker joins a run at work. */
#ifndef TTI_TRAIN_REHEARSAL_H
#define TTI_TRAIN_REHEARSAL_H

#include "train/setup/blueprint.h"

/* Trains a few steps of one shard on devices, with parameters of its own: contexts are created,
 * kernels loaded and algorithms chosen, so that the others need not wait for it when a worker of
 * this process joins them.  place: the one that the worker will probably have, whose device nobody
 * uses; -1: not known, so on all devices that have memory to spare.  Models that are divided have
 * their devices opened and closed.  A device in exclusive mode is left alone, because this process
 * would keep the worker out that gets it.
 * Failures are only noted, because the worker meets them again: note gets one line for people. */
void tti_rehearse(const tti_blueprint *blueprint, int place,
                  void (*note)(void *user, const char *text), void *user);

#endif /* TTI_TRAIN_REHEARSAL_H */
