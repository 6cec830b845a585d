/* stop.h - Ctrl-C, SIGTERM and a terminal that closes (SIGHUP, handled as SIGTERM) inside a
 * training process.
 *
 * The first such signal sets a flag that the trainer reads at each step boundary; the second ends
 * the process at once with 130 or 143.  Two signals within 100 ms count as one: Slurm, systemd and
 * timeout(1) signal a process and its group.  Below a supervisor (TUTTI_SUPERVISOR_PID is the
 * parent) further signals do nothing: the supervisor decides when to kill.  Only the trainer
 * installs this, during the training, and removes it afterwards: the library leaves no handler
 * behind.  Signal handlers belong to the process, so the flag does too; this is the only process
 * state in this module. */
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
    int end_fd; /* an eventfd that ends the taker */
} tti_stop;

/* Blocks SIGINT, SIGTERM and SIGHUP on this thread, and so on every thread that it starts from now
 * on, and starts one thread that receives them.  Handlers and ignored signals stay as they were.
 * On failure nothing has changed. */
TUTTI_NODISCARD tutti_status tti_stop_shield(tti_stop *stop);

/* After tti_stop_shield: takes over the three signals and clears the flag.  A signal that was
 * ignored (nohup, a shell's background job) stays ignored.  One owner at a time: TUTTI_E_INVALID
 * while installed. */
TUTTI_NODISCARD tutti_status tti_stop_install(tti_stop *stop);

/* Gives the signals back to their former handlers, and ends what tti_stop_shield began.  Call it on
 * the thread that called tti_stop_shield, whether tti_stop_install succeeded or not. */
void tti_stop_remove(const tti_stop *stop);

/* Which signal asked for a stop: SIGINT, SIGTERM, or 0 for none.  Any thread, at any time. */
int tti_stop_signal(void);

/* The same where workers have agreed on a stop: SIGTERM if only another worker has a signal. */
int tti_stop_signal_of_any(void);

/* The same as a question. */
bool tti_stop_requested(void);

#endif /* TTI_LAUNCH_STOP_H */
