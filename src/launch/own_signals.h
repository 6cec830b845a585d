/* own_signals.h - the signals that a supervisor handles while it runs. */
#ifndef TTI_LAUNCH_OWN_SIGNALS_H
#define TTI_LAUNCH_OWN_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

enum { TTI_N_ASKED = 5 }; /* signals by which a user stops or scales the run */

/* The signals that the supervisor handles, and their previous handlers. */
typedef struct tti_taken_signals {
    sigset_t blocked, old_mask;
    struct sigaction old_child, old_asked[TTI_N_ASKED];
} tti_taken_signals;

/* tti_signals_take blocks the signals in the calling thread; ignored signals stay ignored. scales:
 * includes SIGUSR1 and SIGUSR2. tti_signals_restore restores the handlers; was_stopped: the user
 * has ended the run, so pending stop signals are discarded. */
void tti_signals_take(tti_taken_signals *t, bool scales);
void tti_signals_restore(const tti_taken_signals *t, bool was_stopped);

/* For worker threads: tti_signals_count starts to count SIGUSR1 and SIGUSR2; tti_signals_counted
 * returns the number of workers to add (negative: to remove) since the last call;
 * tti_signals_uncount restores the handlers. */
void tti_signals_count(tti_taken_signals *t);
int tti_signals_counted(void);
void tti_signals_uncount(const tti_taken_signals *t);

#endif /* TTI_LAUNCH_OWN_SIGNALS_H */
