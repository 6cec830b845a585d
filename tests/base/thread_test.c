/* thread_test.c - which signals a thread takes that was started beside those that compute. */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>

#include "base/clock.h"
#include "t.h"

static void *ask_mask(void *out) {
    pthread_sigmask(SIG_SETMASK, NULL, out);
    return NULL;
}

T_CASE(signals_stay_with_who_starts_it) {
    T_UNUSED;
    pthread_t thread;
    sigset_t mine, before, after;
    ask_mask(&before);
    T_EQ(tti_thread_start(&thread, NULL, ask_mask, &mine), 0);
    T_EQ(pthread_join(thread, NULL), 0);
    ask_mask(&after);
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        T_EQ(sigismember(&mine, signals[i]), 1);
        T_EQ(sigismember(&after, signals[i]), sigismember(&before, signals[i]));
    }
}

static void *give_back(void *arg) { return arg; }

T_CASE(attributes_are_those_that_are_given) {
    T_UNUSED;
    pthread_attr_t attr;
    pthread_t thread;
    T_EQ(pthread_attr_init(&attr), 0);
    T_EQ(pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_JOINABLE), 0);
    T_EQ(pthread_attr_setstacksize(&attr, 256 << 10), 0);
    T_EQ(tti_thread_start(&thread, &attr, give_back, &attr), 0);
    void *result = NULL;
    T_EQ(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &attr);
    T_EQ(pthread_attr_destroy(&attr), 0);
}

T_CASE(a_wait_ends_at_its_deadline) {
    T_UNUSED;
    pthread_cond_t cond;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    tti_cond_init(&cond);
    tti_clock_advance_ms(3600000); /* the deadline is a time of this clock */
    pthread_mutex_lock(&mutex);
    int64_t end_ns = tti_now_ns() + 20 * TTI_NS_PER_MS;
    int code = 0;
    while (code == 0) code = tti_cond_wait_until(&cond, &mutex, end_ns);
    T_EQ(code, ETIMEDOUT);
    assert_true(tti_now_ns() >= end_ns);
    T_EQ(tti_cond_wait_until(&cond, &mutex, end_ns), ETIMEDOUT); /* in the past: at once */
    pthread_mutex_unlock(&mutex);
    T_EQ(pthread_cond_destroy(&cond), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(signals_stay_with_who_starts_it),
                                       cmocka_unit_test(attributes_are_those_that_are_given),
                                       cmocka_unit_test(a_wait_ends_at_its_deadline)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
