/* own_signals.h - the signals that the process of a supervisor takes while it supervises. */
#ifndef TTI_LAUNCH_OWN_SIGNALS_H
#define TTI_LAUNCH_OWN_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

enum { TTI_N_ASKED = 5 }; /* signals by which a user asks for something */

/* The signals that the supervisor takes, and how they were handled before. */
typedef struct tti_taken_signals {
    sigset_t blocked, old_mask;
    struct sigaction old_child, old_asked[TTI_N_ASKED];
} tti_taken_signals;

/* Blocks them in the calling thread; signals that were ignored stay so.  scales: SIGUSR1 and
 * SIGUSR2 too.  Restores them; was_stopped: a user has ended the run, and signals that are pending
 * ask for the same. */
void tti_signals_take(tti_taken_signals *t, bool scales);
void tti_signals_restore(const tti_taken_signals *t, bool was_stopped);

/* For workers that are threads: counts SIGUSR1 and SIGUSR2 from now on; returns by how many workers
 * more, or less, they have asked since the last call; sets back how they were handled. */
void tti_signals_count(tti_taken_signals *t);
int tti_signals_counted(void);
void tti_signals_uncount(const tti_taken_signals *t);

#endif /* TTI_LAUNCH_OWN_SIGNALS_H */
