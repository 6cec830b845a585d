/* phases.h - declares long phases to the other workers, and bounds waits for data.
 *
 * Other workers wait for a worker in a declared phase up to parallel.phase_timeout_ms instead of
 * parallel.timeout_ms, and a timeout names the phase.  Used by the worker's own thread. */
#ifndef TTI_TRAIN_PHASES_H
#define TTI_TRAIN_PHASES_H

#include "data/loader/loader.h"
#include "train/loop/worker_loop.h"

typedef struct tti_phases {
    const tti_worker_loop_desc *desc;
    bool is_declared;      /* between tti_phases_begin and tti_phases_end */
    int64_t step;          /* current step, for the flight recorder */
    int64_t waited_ms;     /* wait for the current batch */
    int64_t stop_asked_ns; /* time at which a wait for data noticed a requested stop; 0: never */
    bool has_warned;       /* a warning about the wait for this batch was printed */
    bool gave_up;          /* a requested stop ended the wait for a batch */
} tti_phases;

void tti_phases_init(tti_phases *phases, const tti_worker_loop_desc *desc);

/* Record the begin and the end of a wait for other workers between two steps. tti_phases_end_wait
 * returns st, the status of the wait. */
void tti_phases_wait_for_peers(const tti_phases *phases, const char *what);
TUTTI_NODISCARD tutti_status tti_phases_end_wait(const tti_phases *phases, tutti_status st);

/* Declares a phase, such as "saving a checkpoint". */
void tti_phases_begin(tti_phases *phases, const char *activity);

/* Records the worker's activity in a step, for the text of a timeout.  This does not declare a long
 * phase. */
void tti_phases_note(tti_phases *phases, int64_t step, const char *what);

/* Ends a phase.  Called by every worker at the end of a phase of any worker.  Workers on devices
 * synchronize here, because their kernels cannot see declared phases. */
TUTTI_NODISCARD tutti_status tti_phases_end(tti_phases *phases);

/* A tti_loader_desc.on_wait, with the phases as user.  Declares the wait, warns once per batch with
 * rank, file and time, and ends the wait shortly after a stop was requested. */
bool tti_phases_wait(void *phases, const char *what, int64_t waited_ms);

/* Calls tti_loader_next and records the wait in the flight recorder.  The text of a timeout names
 * the rank. loader NULL: the samples are on the device, and *batch is not changed. */
TUTTI_NODISCARD tutti_status tti_phases_next_batch(tti_phases *phases, tti_loader *loader,
                                                   tti_batch *batch);

#endif /* TTI_TRAIN_PHASES_H */
