/* own_signals_test.c - what happens to signals that are pending when a supervisor ends. */
#include "launch/own_signals.h"

#include <signal.h>

#include "t.h"

static int n_seen;

static void see(int sig) {
    (void)sig;
    n_seen++;
}

/* What the caller's handler sees of a signal that comes while a supervisor has taken it. */
static int seen_after(int sig, bool was_stopped) {
    tti_taken_signals taken;
    n_seen = 0;
    tti_signals_take(&taken, false);
    raise(sig);
    T_EQ(n_seen, 0);
    tti_signals_restore(&taken, was_stopped);
    return n_seen;
}

T_CASE(who_has_stopped_a_run_is_answered) {
    T_UNUSED;
    static const int asked[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < 3; i++) {
        signal(asked[i], see);
        T_EQ(seen_after(asked[i], true), 0);
        T_EQ(seen_after(asked[i], false), 1);
        signal(asked[i], SIG_DFL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_has_stopped_a_run_is_answered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
