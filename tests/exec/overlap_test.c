/* overlap_test.c - buckets are reduced in plan order, each after all lanes, whoever comes first. */
#include "exec/overlap.h"

#include <pthread.h>
#include <unistd.h>

#include "t.h"

enum { N_BUCKETS = 6 };

typedef struct record {
    int order[64]; /* written by the overlap thread, read after finish: no lock needed */
    int n;
    int data[N_BUCKETS][4]; /* by lane: must be there when the bucket is reduced */
    int n_lanes, sum[N_BUCKETS], fail_at;
    tti_overlap *overlap;
} record;

static tutti_status reduce(int bucket, void *user) {
    record *r = user;
    r->order[r->n++] = bucket;
    if (bucket == r->fail_at) return tti_fail(TUTTI_E_PEER, "bucket %d: rank 3 is gone", bucket);
    r->sum[bucket] = 0;
    for (int lane = 0; lane < r->n_lanes; lane++) r->sum[bucket] += r->data[bucket][lane];
    return TUTTI_OK;
}

typedef struct lane_arg {
    pthread_t thread;
    record *r;
    int lane;
} lane_arg;

static void *run_lane(void *arg) {
    lane_arg *a = arg;
    for (int b = 0; b < N_BUCKETS; b++) {
        if ((b + a->lane) % 3 == 0) usleep(200);
        a->r->data[b][a->lane] = 10 * b + a->lane + 1;
        tti_overlap_arrive(a->r->overlap, b);
    }
    return NULL;
}

static tutti_status one_step(record *r, int n_lanes) {
    lane_arg args[4];
    r->n_lanes = n_lanes;
    r->n = 0;
    memset(r->data, 0, sizeof r->data);
    tti_overlap_begin(r->overlap, n_lanes);
    for (int lane = 0; lane < n_lanes; lane++) {
        args[lane] = (lane_arg){.r = r, .lane = lane};
        T_EQ(pthread_create(&args[lane].thread, NULL, run_lane, &args[lane]), 0);
    }
    tutti_status st = tti_overlap_finish(r->overlap);
    for (int lane = 0; lane < n_lanes; lane++) pthread_join(args[lane].thread, NULL);
    return st;
}

T_CASE(buckets_are_reduced_in_order_after_all_lanes) {
    T_UNUSED;
    record r = {.fail_at = -1};
    T_OK(tti_overlap_create(N_BUCKETS, -1, reduce, &r, &r.overlap));
    for (int step = 0; step < 30; step++) {
        int n_lanes = 1 + step % 4;
        T_OK(one_step(&r, n_lanes));
        T_EQ(r.n, N_BUCKETS);
        for (int b = 0; b < N_BUCKETS; b++) {
            T_EQ(r.order[b], b);
            T_EQ(r.sum[b], n_lanes * 10 * b + n_lanes * (n_lanes + 1) / 2);
        }
    }
    tti_overlap_destroy(r.overlap);
}

/* A bucket waits for those before it, also when its own lanes were faster. */
T_CASE(a_later_bucket_waits_for_the_earlier) {
    T_UNUSED;
    record r = {.fail_at = -1, .n_lanes = 1};
    T_OK(tti_overlap_create(3, -1, reduce, &r, &r.overlap));
    tti_overlap_begin(r.overlap, 1);
    tti_overlap_arrive(r.overlap, 2);
    tti_overlap_arrive(r.overlap, 1);
    usleep(20000);
    tti_overlap_arrive(r.overlap, 0);
    T_OK(tti_overlap_finish(r.overlap));
    T_EQ(r.n, 3);
    for (int b = 0; b < 3; b++) T_EQ(r.order[b], b);
    tti_overlap_destroy(r.overlap);
}

T_CASE(the_first_failure_ends_the_step_and_only_the_step) {
    T_UNUSED;
    record r = {.fail_at = 2};
    T_OK(tti_overlap_create(N_BUCKETS, 0, reduce, &r, &r.overlap));
    T_FAILS(one_step(&r, 2), TUTTI_E_PEER, "bucket 2: rank 3 is gone");
    T_EQ(r.n, 3); /* nothing is sent after it */
    r.fail_at = -1;
    T_OK(one_step(&r, 2));
    T_EQ(r.n, N_BUCKETS);
    tti_overlap_destroy(r.overlap);
}

T_CASE(it_may_go_before_it_was_used) {
    T_UNUSED;
    record r = {.fail_at = -1};
    T_OK(tti_overlap_create(N_BUCKETS, -1, reduce, &r, &r.overlap));
    tti_overlap_destroy(r.overlap);
    T_EQ(r.n, 0);
    tti_overlap_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_reduced_in_order_after_all_lanes),
        cmocka_unit_test(a_later_bucket_waits_for_the_earlier),
        cmocka_unit_test(the_first_failure_ends_the_step_and_only_the_step),
        cmocka_unit_test(it_may_go_before_it_was_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
