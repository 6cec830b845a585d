/* cuda_device_tp_test.c - TP collectives of several GPUs inside a step, as threads, against the
 * collective of the host, bit for bit.  Exit code 77 with fewer than two.
 *
 * TUTTI_TEST_TIMES=1 prints how long collectives take, by size. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/gpus.h"
#include "exec/tp_workers.h"

static const tp_case large_cases[] = {
    {TTI_COLLECTIVE_SUM, TUTTI_BF16, 1, 1 << 20, true, false},
    {TTI_COLLECTIVE_SUM, TUTTI_F32, 1, (1 << 19) + 12, false, true},
    {TTI_COLLECTIVE_SUM, TUTTI_F64, 1, 48, true, false},
    {TTI_COLLECTIVE_SCATTER, TUTTI_BF16, 16, 1 << 15, false, false},
    {TTI_COLLECTIVE_GATHER, TUTTI_F32, 16, 1 << 14, false, true},
    {TTI_COLLECTIVE_SUM, TUTTI_F16, 1, (1 << 20) + 8, false, false},
};

T_CASE(small_values_have_the_bits_of_the_host) {
    T_UNUSED;
    tp_workers c = {.backend = cuda,
                    .cases = tp_small_cases,
                    .n_cases = TTI_COUNT(tp_small_cases),
                    .record = true};
    for (int w = 2; w <= n_devices && w <= TP_MAX_RANKS; w++) tp_run(&c, w);
}

T_CASE(large_values_have_the_bits_of_the_host) {
    T_UNUSED;
    tp_workers c = {
        .backend = cuda, .cases = large_cases, .n_cases = TTI_COUNT(large_cases), .record = true};
    for (int w = 2; w <= n_devices && w <= TP_MAX_RANKS; w++) tp_run(&c, w);
}

T_CASE(lists_are_added_in_their_order) {
    T_UNUSED;
    tp_fold(cuda);
}

/* ---- a peer that does not come ---- */

static const char *wait_alone(tutti_comm *comm, void *arg) {
    static const tp_case one = {TTI_COLLECTIVE_SUM, TUTTI_F32, 1, 64, false, false};
    tp_workers c = {.backend = cuda, .cases = &one, .n_cases = 1};
    tp_rank r = {.c = &c,
                 .ops = cuda->device,
                 .comm = comm,
                 .rank = tutti_comm_rank(comm),
                 .n_ranks = tutti_comm_n_ranks(comm),
                 .timeout_ms = 1000};
    (void)arg;
    COMM_OK(r.ops->open(&(tti_device_desc){.index = r.rank, .exact = true}));
    const char *failure = tp_make(&r);
    if (failure) return failure;
    if (r.rank == 0) {
        failure = tp_put(&r);
        if (failure) return failure;
        COMM_OK(r.ops->queues.record_host_event(TTI_QUEUE_COMPUTE, 0));
        COMM_FAILS(r.ops->collectives.await(r.group, 0), TUTTI_E_TIMEOUT,
                   " ms (parallel.timeout_ms=1000) for the values of another rank");
    }
    COMM_OK(tutti_comm_barrier(comm));
    tp_release(&r, NULL);
    return NULL;
}

T_CASE(who_waits_alone_is_reported) {
    T_UNUSED;
    comm_run(2, wait_alone, NULL);
}

/* ---- times ---- */

static const size_t timed_elems[] = {1 << 7, 1 << 12, 1 << 17, 1 << 20, 1 << 22, 1 << 24};
enum { N_TIMES = 6, N_KINDS = 3, N_EACH = 20 };

typedef struct timed {
    double us[N_TIMES][N_KINDS][2];
} timed;

static const char *time_one(tp_rank *r, int at, bool overlapped, double *us) {
    const tp_case *t = &r->c->cases[at];
    const tti_tp_collective tp = {.kind = t->kind,
                                  .dtype = t->dtype,
                                  .in = r->in[at],
                                  .out = r->out[at],
                                  .n_rows = t->n_rows,
                                  .part_bytes = t->part_elems * tutti_dtype_bytes(t->dtype)};
    double timestamps[2];
    for (int round = 0; round < 2; round++) {
        COMM_OK(r->ops->queues.sync());
        COMM_OK(tutti_comm_barrier(r->comm));
        COMM_OK(r->ops->queues.record_timestamp(TTI_QUEUE_PEER, 0));
        for (int i = 0; i < N_EACH; i++)
            COMM_OK(r->ops->collectives.tp_collective(r->group, &tp, overlapped));
        COMM_OK(r->ops->queues.record_timestamp(TTI_QUEUE_PEER, 1));
        COMM_OK(r->ops->queues.read_timestamps(2, timestamps));
    }
    *us = timestamps[1] / N_EACH;
    return NULL;
}

/* Of bf16, by the elements of the whole. */
static const char *time_rank(tutti_comm *comm, void *arg) {
    timed *times = arg;
    int w = tutti_comm_n_ranks(comm);
    for (int i = 0; i < N_TIMES; i++) {
        size_t whole = timed_elems[i], part = whole / (size_t)w / 8 * 8;
        const tp_case cases[N_KINDS] = {
            {TTI_COLLECTIVE_SUM, TUTTI_BF16, 1, whole, false, false},
            {TTI_COLLECTIVE_GATHER, TUTTI_BF16, 1, part, false, false},
            {TTI_COLLECTIVE_SCATTER, TUTTI_BF16, 1, part, false, false}};
        tp_workers c = {.backend = cuda, .cases = cases, .n_cases = N_KINDS};
        tp_rank r = {.c = &c,
                     .ops = cuda->device,
                     .comm = comm,
                     .rank = tutti_comm_rank(comm),
                     .n_ranks = w};
        COMM_OK(r.ops->open(&(tti_device_desc){.index = r.rank}));
        const char *failure = tp_make(&r);
        for (int k = 0; k < N_KINDS * 2 && !failure; k++) {
            double us = 0;
            failure = time_one(&r, k / 2, k % 2, &us);
            if (r.rank == 0) times->us[i][k / 2][k % 2] = us;
        }
        if (failure) return failure;
        COMM_OK(tutti_comm_barrier(comm));
        tp_release(&r, NULL);
    }
    return NULL;
}

T_CASE(exchanges_take_time) {
    T_UNUSED;
    timed times = {0};
    if (!getenv("TUTTI_TEST_TIMES")) return;
    comm_run(n_devices, time_rank, &times);
    printf("%d devices, us: bytes of the whole; sum, gather, scatter; each on few blocks\n",
           n_devices);
    for (int i = 0; i < N_TIMES; i++)
        printf("%12zu %10.1f %10.1f %10.1f   %10.1f %10.1f %10.1f\n", 2 * timed_elems[i],
               times.us[i][0][0], times.us[i][1][0], times.us[i][2][0], times.us[i][0][1],
               times.us[i][1][1], times.us[i][2][1]);
}

int main(void) {
    int code = find_gpus(2);
    if (code) return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_values_have_the_bits_of_the_host),
        cmocka_unit_test(large_values_have_the_bits_of_the_host),
        cmocka_unit_test(lists_are_added_in_their_order),
        cmocka_unit_test(who_waits_alone_is_reported),
        cmocka_unit_test(exchanges_take_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
