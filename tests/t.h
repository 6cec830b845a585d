/* t.h - a thin layer over cmocka: include this instead of cmocka.h. */
#ifndef TTI_TESTS_T_H
#define TTI_TESTS_T_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tutti/status.h"

#define T_CASE(name) static void name(void **state)
#define T_UNUSED (void)state

/* Integers, both printed. */
#define T_EQ(a, b) assert_int_equal((a), (b))

/* Succeeds, or prints the last error. */
#define T_OK(call)                                                                      \
    do {                                                                                \
        tutti_status t_st = (call);                                                     \
        if (t_st != TUTTI_OK)                                                           \
            fail_msg("%s: %s: %s", #call, tutti_status_text(t_st), tutti_last_error()); \
    } while (0)

/* Fails with that status, and the last error contains text. */
#define T_FAILS(call, status, text)                                                            \
    do {                                                                                       \
        tutti_status t_st = (call);                                                            \
        if (t_st != (status))                                                                  \
            fail_msg("%s: got '%s' (%s)", #call, tutti_status_text(t_st), tutti_last_error()); \
        if (!strstr(tutti_last_error(), (text)))                                               \
            fail_msg("%s: message '%s' lacks '%s'", #call, tutti_last_error(), (text));        \
    } while (0)

/* |a - b| <= tol * max(1, |b|); prints both. */
#define T_NEAR(a, b, tol)                                                                   \
    do {                                                                                    \
        double t_a = (double)(a), t_b = (double)(b);                                        \
        if (!(fabs(t_a - t_b) <= (tol)*fmax(1.0, fabs(t_b))))                               \
            fail_msg("%s = %.9g, %s = %.9g, difference %.3g", #a, t_a, #b, t_b, t_a - t_b); \
    } while (0)

/* Runs fn(rank, n_ranks, arg) as n_ranks threads; a rank fails by returning a text (static), and
 * the first one is asserted after the join (cmocka's asserts do not work in other threads). */
typedef const char *(*t_rank_fn)(int rank, int n_ranks, void *arg);
void t_ranks(int n_ranks, t_rank_fn fn, void *arg);

/* For ranks that have to connect before one of them waits in vain: tries limits of 300 ms, 1.2 s
 * and 4.8 s, because a busy machine starts ranks further apart than the short ones.  fn gets the
 * limit, an int, as arg; only the last try has to succeed. */
void t_ranks_in_vain(int n_ranks, t_rank_fn fn);

/* Waits until all other threads of this process sleep, which they do when they wait for the caller;
 * false: not within 20 s. */
bool t_wait_asleep(void);

#endif /* TTI_TESTS_T_H */
