/* part_store.h - stores parameters and their states in an executor as parts of them arrive. */
#ifndef TTI_TRAIN_PART_STORE_H
#define TTI_TRAIN_PART_STORE_H

#include "exec/exec.h"
#include "passes/plan.h"

typedef struct tti_part_store {
    tti_exec *exec;
    bool sets_averages;
    float *pending; /* elements begin .. end - 1 of an array, which the executor wants together */
    size_t n_room, begin, end;
} tti_part_store;

/* Brings the state to the host first, unless a device has all of it.  sets_averages: parameters
 * become their averages too, if there are any.  Free *out with tti_part_store_fini, also after a
 * failure. */
tutti_status tti_part_store_begin(tti_exec *exec, bool sets_averages, tti_part_store *out);

/* Stores elements first .. first + n_elems - 1 of array k (TTI_STATE_PARAMS, TTI_STATE_EMA or a
 * state) of a slot of the whole model.  The parts of an array come one after the other. */
tutti_status tti_part_store_add(tti_part_store *store, int k, const tti_slot *slot, size_t first,
                                size_t n_elems, const float *data);

/* Sends the state to the device where tti_part_store_begin has brought it from there. */
tutti_status tti_part_store_end(tti_part_store *store);
void tti_part_store_fini(tti_part_store *store);

#endif /* TTI_TRAIN_PART_STORE_H */
