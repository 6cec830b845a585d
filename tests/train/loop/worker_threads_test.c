/* worker_threads_test.c - all workers run, and the first failure is the one reported. */
#include "train/loop/worker_threads.h"

#include "base/error.h"
#include "t.h"

typedef struct story {
    tutti_status ends[4];
    _Atomic int n_ran;
} story;

static tutti_status live(void *user, int rank) {
    story *s = user;
    s->n_ran++;
    return s->ends[rank] == TUTTI_OK ? TUTTI_OK : tti_fail(s->ends[rank], "rank %d said so", rank);
}

static tutti_status run(story *s, int n) {
    tutti_comm_group *group = NULL;
    if (n > 1) T_OK(tutti_comm_group_create(n, &group));
    tutti_status st = tti_worker_threads_run(
        &(tti_worker_threads_desc){.who = "t", .n = n, .group = group, .run = live, .user = s});
    tutti_comm_group_destroy(group);
    return st;
}

T_CASE(all_run) {
    T_UNUSED;
    for (int n = 1; n <= 4; n++) {
        story s = {0};
        T_OK(run(&s, n));
        T_EQ(s.n_ran, n);
    }
}

T_CASE(the_cause_is_seen) {
    T_UNUSED;
    story hearsay = {.ends = {TUTTI_E_PEER, TUTTI_E_PEER, TUTTI_E_DATA, TUTTI_E_PEER}};
    T_FAILS(run(&hearsay, 4), TUTTI_E_DATA, "rank 2 said so");
    T_EQ(hearsay.n_ran, 4);
    story one = {.ends = {[3] = TUTTI_E_PEER}};
    T_FAILS(run(&one, 4), TUTTI_E_PEER, "rank 3 said so");
    story alone = {.ends = {TUTTI_E_NUMERICS}};
    T_FAILS(run(&alone, 1), TUTTI_E_NUMERICS, "rank 0 said so");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_run),
        cmocka_unit_test(the_cause_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
