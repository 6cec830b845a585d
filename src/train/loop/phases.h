/* phases.h - declares long phases to the other workers, and bounds waits for data.
 *
 * Other workers wait for a worker in a declared phase up to parallel.phase_timeout_ms instead of
 * parallel.timeout_ms, and a timeout names the phase.  Used by the worker's own thread. */
#ifndef TTI_TRAIN_PHASES_H
#define TTI_TRAIN_PHASES_H

#include "data/loader/loader.h"
#include "train/loop/session.h"

typedef struct tti_phases {
    const tti_session_desc *desc;
    bool is_declared;      /* between tti_phases_begin and tti_phases_end */
    int64_t waited_ms;     /* for the batch that was waited for last */
    int64_t stop_asked_ns; /* when a wait for data saw that a stop was asked for, 0: never */
    bool has_warned;       /* about the wait for this batch */
    bool gave_up;          /* a stop did not wait for a batch */
} tti_phases;

void tti_phases_init(tti_phases *phases, const tti_session_desc *desc);

/* Declares a phase, such as "saving a checkpoint". */
void tti_phases_begin(tti_phases *phases, const char *activity);

/* Says what the worker is doing in a step, for the text of a timeout; no long phase. */
void tti_phases_note(tti_phases *phases, int64_t step, const char *what);

/* Called by every worker where a phase of one of them ends.  Workers on devices meet here, since
 * their kernels do not see what is declared. */
TUTTI_NODISCARD tutti_status tti_phases_end(tti_phases *phases);

/* tti_loader_desc.on_wait, user: the phases.  Declares the wait, warns once of each with rank, file
 * and time, and ends it a moment after a stop was asked for. */
bool tti_phases_wait(void *phases, const char *what, int64_t waited_ms);

/* tti_loader_next; the text of a timeout names the rank. */
TUTTI_NODISCARD tutti_status tti_phases_next_batch(tti_phases *phases, tti_loader *loader,
                                                   tti_batch *batch);

#endif /* TTI_TRAIN_PHASES_H */
