/* steady_test.c - a step allocates nothing: neither memory of the host, by any thread, nor of a
 * device, which is the host's here (tests/backend/modules/device_module.c).
 *
 * The functions that give out memory are those of this program, which count; so that what others
 * give out for their own sake, a sanitizer for example, is not counted, it is skipped there. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/fault.h"
#include "train/small_job.h"
#include "tutti/train.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS 0
#else
#define COUNTS 1
#endif

/* Where what is made as it is first wanted has been: samples ahead, recordings. */
enum { FIRST = 8, LAST = 16 };

static atomic_bool counts;
static atomic_long n_taken;

#if COUNTS
void *__libc_malloc(size_t n_bytes);
void *__libc_calloc(size_t n, size_t n_bytes);
void *__libc_realloc(void *memory, size_t n_bytes);
void *__libc_memalign(size_t alignment, size_t n_bytes);

static void count(void) {
    if (atomic_load_explicit(&counts, memory_order_relaxed)) atomic_fetch_add(&n_taken, 1);
}

void *malloc(size_t n_bytes) {
    count();
    return __libc_malloc(n_bytes);
}

void *calloc(size_t n, size_t n_bytes) {
    count();
    return __libc_calloc(n, n_bytes);
}

void *realloc(void *memory, size_t n_bytes) {
    count();
    return __libc_realloc(memory, n_bytes);
}

void *aligned_alloc(size_t alignment, size_t n_bytes) {
    count();
    return __libc_memalign(alignment, n_bytes);
}

int posix_memalign(void **out, size_t alignment, size_t n_bytes) {
    count();
    *out = __libc_memalign(alignment, n_bytes);
    return *out ? 0 : ENOMEM;
}
#endif

typedef struct run {
    int64_t n_reported; /* steps from FIRST to LAST */
    bool takes;         /* something at each of them, to see that it is seen */
} run;

static void on_event(void *user, const tutti_event *e) {
    run *r = user;
    if (e->kind != TUTTI_EVENT_STEP || e->step < FIRST || e->step > LAST) return;
    r->n_reported++;
    void *volatile memory = r->takes ? calloc(1, 64) : NULL; /* or no call is left of it */
    free(memory);
    atomic_store(&counts, e->step < LAST);
}

/* Allocations between the ends of two steps. */
static long taken(tutti_job *job, bool takes, bool on_devices) {
    run r = {.takes = takes};
    tutti_train_result result;
    atomic_store(&n_taken, 0);
    T_OK(tutti_train(job, &(tutti_train_desc){.on_event = on_event, .user = &r}, &result));
    tutti_job_destroy(job);
    T_EQ(result.exit_code, 0);
    T_EQ(r.n_reported, LAST - FIRST + 1);
    assert_true((result.most_device_bytes > 0) == on_devices);
    return atomic_load(&n_taken);
}

#define STEADY "data.n_train=640", "train.steps=18", "run.dir=auto", "run.checkpoint_every=-1"

static tutti_job *steady_job(const char *workers, const char *more) {
    return SMALL_JOB(STEADY, workers, more, "train.clip_norm=1", "parallel.devices=cpu");
}

T_CASE(what_is_taken_is_seen) {
    T_UNUSED;
    if (!COUNTS) skip();
    assert_true(taken(steady_job("parallel.workers=1", "optimizer.name=sgd"), true, false) >=
                LAST - FIRST);
}

T_CASE(a_step_takes_nothing) {
    T_UNUSED;
    static const char *const workers[] = {"parallel.workers=1", "parallel.workers=2"};
    static const char *const more[] = {"optimizer.name=adamw", "parallel.zero=1",
                                       "parallel.mode=fast"};
    if (!COUNTS) skip();
    for (size_t w = 0; w < 2; w++)
        for (size_t m = 0; m < 3; m++) {
            long n = taken(steady_job(workers[w], more[m]), false, false);
            if (n) fail_msg("%s %s: %ld", workers[w], more[m], n);
        }
}

/* After each step, which takes more than half a second by the clock, the slowest worker is found.
 */
T_CASE(nor_does_one_that_is_slow) {
    T_UNUSED;
    if (!COUNTS) skip();
    T_OK(tti_fault_set("train.data:pass_ms=600@rank=1"));
    T_EQ(taken(steady_job("parallel.workers=2", "optimizer.name=adamw"), false, false), 0);
    T_OK(tti_fault_set(NULL));
}

/* Recorded from the second step on; sums through the host, and between devices. */
T_CASE(nor_does_one_on_devices) {
    T_UNUSED;
    static const char *const says[] = {"", "peers=1"}, *const more[] = {"data.resident=yes",
                                                                        "data.resident=no"};
    if (!COUNTS) skip();
    for (size_t s = 0; s < 2; s++)
        for (size_t m = 0; m < 2; m++) {
            T_EQ(setenv("TUTTI_TEST_DEVICE", says[s], 1), 0);
            tutti_job *job = SMALL_JOB(STEADY, "parallel.workers=2", "parallel.devices=gpu",
                                       "train.precision=f32", "optimizer.name=sgd",
                                       "optimizer.momentum=0", more[m]);
            long n = taken(job, false, true);
            if (n) fail_msg("devices, '%s' %s: %ld", says[s], more[m], n);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(what_is_taken_is_seen),
        IN_FOLDER(a_step_takes_nothing),
        IN_FOLDER(nor_does_one_that_is_slow),
        IN_FOLDER(nor_does_one_on_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
