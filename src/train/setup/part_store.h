/* part_store.h - stores parameters and optimizer states, which arrive in parts, in an executor. */
#ifndef TTI_TRAIN_PART_STORE_H
#define TTI_TRAIN_PART_STORE_H

#include "exec/exec.h"
#include "passes/plan.h"

typedef struct tti_part_store {
    tti_exec *exec;
    bool sets_averages;
    float *pending; /* elements begin .. end - 1 of an array, collected until the executor accepts
                       them */
    size_t n_room, begin, end;
} tti_part_store;

/* Starts storing; first copies the state to the host, unless a device has all of it. sets_averages:
 * parameters are also stored as their averages, if the job has averages.  Free *out with
 * tti_part_store_fini, also after a failure. */
tutti_status tti_part_store_begin(tti_exec *exec, bool sets_averages, tti_part_store *out);

/* Stores elements first .. first + n_elems - 1 of array k (TTI_STATE_PARAMS, TTI_STATE_EMA or a
 * state) of a slot of the whole model.  The parts of an array must be passed in order. */
tutti_status tti_part_store_add(tti_part_store *store, int k, const tti_slot *slot, size_t first,
                                size_t n_elems, const float *data);

/* Copies the state back to the device if tti_part_store_begin copied it from there. */
tutti_status tti_part_store_end(tti_part_store *store);
void tti_part_store_fini(tti_part_store *store);

#endif /* TTI_TRAIN_PART_STORE_H */
