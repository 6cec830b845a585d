/* own_signals.h - the signals that the process of a supervisor takes while it supervises. */
#ifndef TTI_LAUNCH_OWN_SIGNALS_H
#define TTI_LAUNCH_OWN_SIGNALS_H

#include <signal.h>

enum { TTI_N_ASKED = 3 }; /* signals by which a user asks for the end */

/* The signals that the supervisor takes, and how they were handled before. */
typedef struct tti_taken_signals {
    sigset_t blocked, old_mask;
    struct sigaction old_child, old_asked[TTI_N_ASKED];
} tti_taken_signals;

/* Blocks them in the calling thread; signals that were ignored stay so.  Restores them. */
void tti_signals_take(tti_taken_signals *t);
void tti_signals_restore(const tti_taken_signals *t);

#endif /* TTI_LAUNCH_OWN_SIGNALS_H */
