/* device_async_test.c - steps whose result is read later on the devices of the tests: bits, waits,
 * failures of steps in flight. */
#include <math.h>

#include "session/device_cases.h"

/* Workers on devices, and what the devices do (tests/backend/modules/device_module.c). */
typedef struct layout {
    const char *says, *workers, *more;
} layout;

static const layout layouts[] = {
    {"", "parallel.workers=1", NULL},
    {"late=1", "parallel.workers=1", NULL},
    {"late=3", "parallel.workers=1", NULL},
    {"late=1", "parallel.workers=2", NULL},
    {"peers=1,late=1", "parallel.workers=2", NULL},
    {"peers=1,joint=1,late=3", "parallel.workers=2", NULL},
    {"peers=1,late=1", "parallel.workers=2", "parallel.zero=1"},
    {"peers=1,late=3", "parallel.workers=2", "parallel.zero=2"},
    {"peers=1,late=1", "parallel.workers=2", "parallel.zero=3"},
    {"late=1", "parallel.workers=1", "parallel.offload=optimizer"},
    {"peers=1,late=1", "parallel.workers=2", "parallel.pipeline=2"},
};

static const layout *use(size_t i) {
    const layout *l = &layouts[i];
    T_EQ(setenv("TUTTI_TEST_DEVICE", l->says, 1), 0);
    printf("%s %s %s\n", l->says, l->workers, l->more ? l->more : "");
    return l;
}

#define JOB(...)                                                                        \
    SMALL_JOB("optimizer.name=sgd", "train.precision=f32", "run.progress=false",        \
              "run.checkpoint_every=-1", "schedule.name=cosine", "train.clip_norm=0.5", \
              __VA_ARGS__)
#define DEVICES "parallel.devices=gpu"

/* The steps of the job over its data, none of which is waited for. */
static uint64_t hash_of_async(tutti_job *job) {
    enum { N = 10 };
    tutti_session *s;
    tutti_session_info info;
    tutti_session_result r = {0};
    uint64_t hash;
    int64_t ticket;
    T_OK(tutti_session_create(job, NULL, &s));
    for (int i = 0; i < N; i++) {
        T_OK(tutti_session_step_async(s, NULL, 0, TUTTI_LR_OF_JOB, &ticket));
        T_EQ(ticket, i + 1);
        tutti_session_get_info(s, &info);
        T_EQ(info.step, i + 1);
    }
    for (int i = N; i > 0; i--) {
        T_OK(tutti_session_wait(s, i, &r));
        T_EQ(r.step, i);
        T_EQ(r.n_rows, i % 5 == 0 ? 12 : 32);
        if (i == N) hash = r.params_hash;
    }
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    return hash;
}

T_CASE(asynchronous_steps_have_the_bits_of_train) {
    T_UNUSED;
    uint64_t one = hash_of_train(JOB(NULL));
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        const layout *l = use(i);
        T_EQ(hash_of_async(JOB(DEVICES, l->workers, l->more)), one);
    }
}

/* ---- waits ---- */

/* Sum over the devices that were closed: waits for all queues, for events, for the last kernels. */
typedef struct waits {
    long long syncs, awaits, idle;
} waits;

static waits take_waits(void) {
    waits all = {0}, one;
    FILE *f = fopen("waits", "r");
    assert_non_null(f);
    while (fscanf(f, "%lld %lld %lld", &one.syncs, &one.awaits, &one.idle) == 3) {
        all.syncs += one.syncs;
        all.awaits += one.awaits;
        all.idle += one.idle;
    }
    fclose(f);
    T_EQ(remove("waits"), 0);
    return all;
}

enum { FEW = 10, MANY = 50 };

/* Steps of the caller's batch, of which the last is waited for; asynchronous, or one by one. */
static waits waits_of_session(const layout *l, int n_steps, bool async, int device) {
    tutti_job *job = JOB(DEVICES, "train.steps=50", l->workers, l->more);
    tutti_session *s = open_case(job, NULL);
    int64_t ticket = 0;
    case_batch[0].device = case_batch[1].device = device;
    for (int i = 0; i < n_steps; i++) {
        if (async)
            T_OK(tutti_session_step_async(s, case_batch, 2, 0.1, &ticket));
        else
            T_OK(tutti_session_step(s, case_batch, 2, 0.1, NULL));
    }
    case_batch[0].device = case_batch[1].device = 0;
    if (async) T_OK(tutti_session_wait(s, ticket, NULL));
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    return take_waits();
}

/* Training over a loader, because the device has no room for the samples. */
static waits waits_of_train(const layout *l, const char *n_steps) {
    tutti_train_result trained;
    tutti_job *job = JOB(DEVICES, "data.n_train=1000", n_steps, l->workers, l->more);
    T_OK(tutti_train(job, NULL, &trained));
    tutti_job_destroy(job);
    return take_waits();
}

/* What MANY steps cost more than FEW. */
static waits minus(waits many, waits few) {
    return (waits){many.syncs - few.syncs, many.awaits - few.awaits, many.idle - few.idle};
}

T_CASE(a_step_waits_as_often_as_in_train) {
    static const layout rows[] = {
        {"free=2000000,late=1,counts=1", "parallel.workers=1", NULL},
        {"free=2000000,peers=1,late=1,counts=1", "parallel.workers=2", NULL},
        {"free=2000000,peers=1,late=1,counts=1", "parallel.workers=2", "parallel.zero=2"}};
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        const layout *l = &rows[i];
        T_EQ(setenv("TUTTI_TEST_DEVICE", l->says, 1), 0);
        waits train =
            minus(waits_of_train(l, "train.steps=50"), waits_of_train(l, "train.steps=10"));
        waits async = minus(waits_of_session(l, MANY, true, 0), waits_of_session(l, FEW, true, 0));
        waits one = minus(waits_of_session(l, MANY, false, 0), waits_of_session(l, FEW, false, 0));
        waits there = minus(waits_of_session(l, MANY, true, 1), waits_of_session(l, FEW, true, 1));
        printf(
            "%s: train %lld %lld %lld, async %lld %lld %lld, step %lld %lld %lld, on the device "
            "%lld %lld %lld\n",
            l->says, train.syncs, train.awaits, train.idle, async.syncs, async.awaits, async.idle,
            one.syncs, one.awaits, one.idle, there.syncs, there.awaits, there.idle);
        T_EQ(async.syncs, 0);
        T_EQ(async.idle, 0);
        assert_true(async.awaits <= train.awaits);
        T_EQ(there.syncs, 0);
        T_EQ(there.idle, 0);
        assert_true(one.idle >=
                    MANY - FEW); /* the device of a caller who waits has nothing to do */
    }
}

/* ---- failures ---- */

static uint64_t hash_now(tutti_session *s) {
    uint64_t hash;
    T_OK(tutti_session_hash(s, &hash));
    return hash;
}

/* Two good steps, a bad one, and those that are in flight after it until a call reports it. */
static int64_t queue_bad_step(tutti_session *s, bool *reported) {
    int64_t ticket = 0;
    float good = case_x[5];
    for (int i = 0; i < 2; i++) T_OK(tutti_session_step_async(s, case_batch, 2, 0.1, &ticket));
    T_OK(tutti_session_wait(s, ticket, NULL));
    case_x[5] = NAN;
    tutti_status st = tutti_session_step_async(s, case_batch, 2, 0.1, &ticket);
    case_x[5] = good;
    *reported = st != TUTTI_OK; /* in layouts that wait */
    if (*reported) T_EQ(st, TUTTI_E_NUMERICS);
    if (!*reported) T_OK(tutti_session_step_async(s, case_batch, 2, 0.1, &ticket));
    return ticket;
}

static void survive_bad_step(const layout *l, int how) {
    tutti_job *job = JOB(DEVICES, l->workers, l->more);
    tutti_session *s = open_case(job, NULL), *other = open_case(job, NULL);
    tutti_session_result r;
    bool reported;
    for (int i = 0; i < 2; i++) T_OK(tutti_session_step(other, case_batch, 2, 0.1, NULL));
    int64_t ticket = queue_bad_step(s, &reported);
    if (!reported && how == 0) /* the next step reports it, and is not made */
        T_FAILS(tutti_session_step_async(s, case_batch, 2, 0.1, &ticket), TUTTI_E_NUMERICS,
                "an earlier step failed");
    if (!reported && how == 1) { /* or any other call */
        uint64_t hash;
        T_FAILS(tutti_session_hash(s, &hash), TUTTI_E_NUMERICS, "tutti_session_hash: an earlier");
    }
    if (!reported) T_FAILS(tutti_session_wait(s, 3, &r), TUTTI_E_NUMERICS, "step 3");
    if (!reported) T_FAILS(tutti_session_wait(s, 4, &r), TUTTI_E_NUMERICS, "step 4 is left out");
    T_OK(tutti_session_wait(s, 2, &r));
    T_EQ(hash_now(s), hash_now(other));
    T_OK(tutti_session_step_async(s, case_batch, 2, 0.1, &ticket));
    T_OK(tutti_session_step_async(s, case_batch, 2, 0.1, &ticket));
    T_OK(tutti_session_wait(s, ticket, &r));
    T_EQ(r.step, 4);
    for (int i = 0; i < 2; i++) T_OK(tutti_session_step(other, case_batch, 2, 0.1, NULL));
    T_EQ(hash_now(s), hash_now(other));
    tutti_session_destroy(s);
    tutti_session_destroy(other);
    tutti_job_destroy(job);
}

T_CASE(a_bad_step_takes_those_after_it_along) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(layouts); i++)
        for (int how = 0; how < 3; how++) survive_bad_step(use(i), how);
}

T_CASE(sessions_close_with_steps_in_flight) {
    int64_t ticket;
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        const layout *l = use(i);
        tutti_job *job = JOB(DEVICES, l->workers, l->more);
        tutti_session *s = open_case(job, NULL);
        for (int k = 0; k < 3; k++) T_OK(tutti_session_step_async(s, case_batch, 2, 0.1, &ticket));
        tutti_session_close(s);
        T_FAILS(tutti_session_wait(s, ticket, NULL), TUTTI_E_INVALID, "closed");
        tutti_session_destroy(s);
        tutti_job_destroy(job);
    }
}

T_CASE(a_lost_device_ends_the_session) {
    tutti_session_result r;
    int64_t ticket = 0;
    tutti_status st = TUTTI_OK;
    T_UNUSED;
    T_EQ(setenv("TUTTI_TEST_DEVICE", "late=1,lost=3", 1), 0);
    tutti_job *job = JOB(DEVICES, "parallel.workers=1");
    tutti_session *s = open_case(job, NULL);
    for (int i = 0; i < 6 && st == TUTTI_OK; i++)
        st = tutti_session_step_async(s, case_batch, 2, 0.1, &ticket);
    T_EQ(st, TUTTI_E_DEVICE);
    T_FAILS(tutti_session_wait(s, ticket, &r), TUTTI_E_DEVICE, "failed before");
    T_FAILS(tutti_session_step(s, case_batch, 2, 0.1, NULL), TUTTI_E_DEVICE, "failed before");
    tutti_session_destroy(s);
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(asynchronous_steps_have_the_bits_of_train),
                                       IN_FOLDER(a_step_waits_as_often_as_in_train),
                                       cmocka_unit_test(a_bad_step_takes_those_after_it_along),
                                       cmocka_unit_test(sessions_close_with_steps_in_flight),
                                       cmocka_unit_test(a_lost_device_ends_the_session)};
    make_case_batch();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
