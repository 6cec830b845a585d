/* stop.h - handles Ctrl-C, SIGTERM and a closing terminal (SIGHUP, handled like SIGTERM) in a
 * training process.
 *
 * The first such signal sets a flag that the trainer reads at each step boundary; the second ends
 * the process at once with 130 or 143.  Two signals within 100 ms count as one, because Slurm,
 * systemd and timeout(1) signal a process and its group.  Under a supervisor (TUTTI_SUPERVISOR_PID
 * is the parent) further signals are ignored: the supervisor decides when to kill.  Only the
 * trainer installs the handlers, during the training, and removes them afterwards, so the library
 * leaves no handler behind.  Signal handlers belong to the process, so the flag does too; it is the
 * only global state in this module. */
#ifndef TTI_LAUNCH_STOP_H
#define TTI_LAUNCH_STOP_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "tutti/status.h"

typedef struct tti_stop {
    struct sigaction old_int, old_term, old_hup;
    bool installed;
    sigset_t old_mask;
    pthread_t taker;
    int end_fd; /* an eventfd that ends the taker thread */
} tti_stop;

/* Blocks SIGINT, SIGTERM and SIGHUP on this thread and on the threads that it starts later, and
 * starts a thread that receives them.  Handlers and ignored signals stay as they were.  A failure
 * changes nothing. */
TUTTI_NODISCARD tutti_status tti_stop_shield(tti_stop *stop);

/* Installs handlers for the three signals and clears the flag; call it after tti_stop_shield.  A
 * signal that was ignored (nohup, a shell's background job) stays ignored.  TUTTI_E_INVALID:
 * another owner has installed handlers. */
TUTTI_NODISCARD tutti_status tti_stop_install(tti_stop *stop);

/* Restores the previous handlers and undoes tti_stop_shield.  Call it on the thread that called
 * tti_stop_shield, even if tti_stop_install failed. */
void tti_stop_remove(const tti_stop *stop);

/* Returns the signal that requested a stop: SIGINT, SIGTERM, or 0 for none.  Any thread, at any
 * time. */
int tti_stop_signal(void);

/* The same after workers have agreed on a stop: returns SIGTERM if only another worker got a
 * signal. */
int tti_stop_signal_of_any(void);

/* True if a stop was requested.  Any thread. */
bool tti_stop_requested(void);

#endif /* TTI_LAUNCH_STOP_H */
