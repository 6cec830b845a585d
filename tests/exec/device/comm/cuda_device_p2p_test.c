/* cuda_device_p2p_test.c - values that GPUs put into each other's memory, as threads; a peer that
 * does not come, or is lost.  Exit code 77 with fewer than two.
 *
 * TUTTI_TEST_TIMES=1 prints how long it takes, by size. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/gpus.h"
#include "exec/p2p_workers.h"

T_CASE(every_value_comes) {
    T_UNUSED;
    for (int n = 2; n <= n_devices && n <= P2P_MAX_RANKS; n++)
        for (int i = 0; i < 4; i++) {
            const p2p_workers c = {.backend = cuda,
                                   .n_bytes = {1, 1 << 20, 1003, 300032, 16},
                                   .ahead = i % 2,
                                   .overlapped = i == 1,
                                   .record = i >= 2};
            p2p_run(&c, n);
        }
}

T_CASE(who_waits_alone_is_reported) {
    T_UNUSED;
    p2p_workers c = {.backend = cuda, .n_bytes = {64, 64, 64, 64, 64}, .timeout_ms = 1000};
    comm_run(2, p2p_wait_alone, &c);
}

T_CASE(who_waits_for_a_lost_one_is_reported) {
    T_UNUSED;
    const p2p_workers c = {.backend = cuda, .n_bytes = {64, 64, 64, 64, 64}};
    if (n_devices > 2) p2p_lose(&c);
}

/* ---- times ---- */

static const size_t timed_bytes[] = {64, 1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 26};
enum { N_TIMES = 6, N_EACH = 20 };

typedef struct timed {
    p2p_workers workers;
    double us[N_TIMES][2];
} timed;

/* From rank 0 to rank 1, N_EACH times. */
static const char *time_one(p2p_rank *r, bool overlapped, size_t n_bytes, double *us) {
    double timestamps[2];
    COMM_OK(r->ops->queues.sync());
    COMM_OK(tutti_comm_barrier(r->comm));
    tti_queue queue = r->rank == 0 ? TTI_QUEUE_PEER : TTI_QUEUE_COMPUTE;
    COMM_OK(r->ops->queues.record_timestamp(queue, 0));
    for (int k = 0; k < N_EACH; k++) {
        const tti_device_message message = {.slot = p2p_slot(r, 0, 1, k),
                                            .to = 1,
                                            .src = r->out,
                                            .place = p2p_place(r, 0, k),
                                            .n_bytes = n_bytes};
        if (r->rank == 0) {
            COMM_OK(r->ops->p2p.send(r->group, &message, overlapped));
        } else {
            COMM_OK(r->ops->p2p.recv(r->group, message.slot));
            COMM_OK(r->ops->p2p.release(r->group, message.slot, 0));
        }
    }
    COMM_OK(r->ops->queues.record_timestamp(queue, 1));
    COMM_OK(r->ops->queues.read_timestamps(2, timestamps));
    *us = timestamps[1] / N_EACH;
    return NULL;
}

static const char *time_rank(tutti_comm *comm, void *arg) {
    timed *times = arg;
    p2p_rank r;
    const char *failure = p2p_make(&r, &times->workers, comm);
    for (int i = 0; i < N_TIMES * 4 && !failure; i++) { /* the first of two loads and warms */
        double us = 0;
        failure = time_one(&r, i / 2 % 2, timed_bytes[i / 4], &us);
        if (r.rank == 0) times->us[i / 4][i / 2 % 2] = us;
    }
    if (failure) return failure;
    COMM_OK(tutti_comm_barrier(comm));
    p2p_release(&r);
    return NULL;
}

T_CASE(values_take_time) {
    T_UNUSED;
    timed times = {.workers = {.backend = cuda, .n_bytes = {1 << 26, 64, 64, 64, 64}}};
    if (!getenv("TUTTI_TEST_TIMES")) return;
    comm_run(2, time_rank, &times);
    printf("bytes; us, GB/s of a value; on few blocks\n");
    for (int i = 0; i < N_TIMES; i++)
        printf("%12zu %10.1f %7.1f   %10.1f %7.1f\n", timed_bytes[i], times.us[i][0],
               (double)timed_bytes[i] / times.us[i][0] * 1e-3, times.us[i][1],
               (double)timed_bytes[i] / times.us[i][1] * 1e-3);
}

int main(void) {
    int code = find_gpus(2);
    if (code) return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_comes),
        cmocka_unit_test(who_waits_alone_is_reported),
        cmocka_unit_test(who_waits_for_a_lost_one_is_reported),
        cmocka_unit_test(values_take_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
