/* clock.h - time for logic: monotonic, never the wall clock, which may jump. */
#ifndef TTI_BASE_CLOCK_H
#define TTI_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some fixed moment of this boot, the same in every process of the host. */
int64_t tti_now_ns(void);

/* The time of CLOCK_MONOTONIC at which tti_now_ns will be t_ns: for calls of the system that take a
 * time.  It differs from t_ns only where a test has moved the clock. */
int64_t tti_clock_system_ns(int64_t t_ns);

/* Milliseconds from now until deadline_ns, rounded up, for poll: 0 when it has passed, at most
 * 1 hour. */
int tti_ms_until(int64_t deadline_ns);

/* Sleeps for t_ms, whatever signals arrive. */
void tti_sleep_ms(int t_ms);

#define TTI_NS_PER_MS INT64_C(1000000)

/* Test builds only (fault.h): moves this process's clock forward.  Any thread. */
void tti_clock_advance_ms(int64_t t_ms);

#endif /* TTI_BASE_CLOCK_H */
