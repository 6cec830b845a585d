/* stop.h - Ctrl-C, SIGTERM and a terminal that closes (SIGHUP, taken as SIGTERM) inside a training
 * process.
 *
 * The first such signal sets a flag that the trainer reads at each step boundary; the second
 * ends the process at once with 130 or 143.  Two signals within 100 ms count as one: Slurm, systemd
 * and timeout(1) signal a process and its group.  Below a supervisor (TUTTI_SUPERVISOR_PID is the
 * parent) further signals do nothing: the supervisor decides when to kill.  Only the trainer
 * installs this, for the time of the training, and removes it after: the library leaves no handler
 * behind.  Signal handlers belong to the process, so the flag does too; this is the one piece of
 * process state in this room. */
#ifndef TTI_LAUNCH_STOP_H
#define TTI_LAUNCH_STOP_H

#include <signal.h>
#include <stdbool.h>

#include "tutti/status.h"

typedef struct tti_stop {
    struct sigaction old_int, old_term, old_hup;
} tti_stop;

/* Takes over SIGINT, SIGTERM and SIGHUP and clears the flag.  A signal that was ignored (nohup, a
 * shell's background job) stays ignored.  One owner at a time: TUTTI_E_INVALID while installed. */
TUTTI_NODISCARD tutti_status tti_stop_install(tti_stop *stop);

/* Gives the signals back to their former handlers. */
void tti_stop_remove(const tti_stop *stop);

/* Which signal asked for a stop: SIGINT, SIGTERM, or 0 for none.  Any thread, at any time. */
int tti_stop_signal(void);

/* The same as a question. */
bool tti_stop_requested(void);

#endif /* TTI_LAUNCH_STOP_H */
