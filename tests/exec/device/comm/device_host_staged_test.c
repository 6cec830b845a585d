/* device_host_staged_test.c - sums between workers on devices that do not reach each other. */
#include "exec/device/comm/device_host_staged.h"
#include "comm/transport.h"
#include "exec/fake_device.h"
#include "exec/reduce_workers.h"

static _Thread_local int n_pinned, most_pinned;

/* Of more than two partials the device takes none. */
static tutti_status pin(void *memory, size_t n_bytes) {
    (void)memory, (void)n_bytes;
    if (n_pinned == 2) return tti_fail(TUTTI_E_NOMEM, "no more");
    most_pinned = ++n_pinned;
    return TUTTI_OK;
}

static void unpin(void *memory) {
    (void)memory;
    n_pinned--;
}

static const tti_device_ops ops = {.open = fake_open,
                                   .close = fake_close,
                                   .memory.pin = pin,
                                   .memory.unpin = unpin,
                                   .queues.copy = fake_copy,
                                   .queues.record_host_event = fake_note,
                                   .queues.await_host_event = fake_await,
                                   .queues.sync = fake_sync};

static const tti_backend apart = {.name = "apart",
                                  .device = &ops,
                                  .alloc = fake_alloc,
                                  .release = fake_release,
                                  .accumulate = fake_accumulate};

static const char *check_sums(reduce_rank *r, tti_device_host_staged *host_staged) {
    int n = r->c->n_shards * TTI_LOSS_SUMS;
    for (int i = 0; i < n; i++) {
        int shard = i / TTI_LOSS_SUMS;
        r->sums[i] =
            shard >= r->x->setup.first_shard && shard < r->x->setup.last_shard ? i + 0.5 : 777;
    }
    COMM_OK(tti_device_host_staged_sums(host_staged, r->sums, r->x->setup.rank == 1));
    int64_t computed = tti_device_host_staged_computed(host_staged);
    COMM_TRUE(computed > 0 && tti_device_host_staged_summed(host_staged) >= computed);
    for (int i = 0; i < n; i++) COMM_TRUE(r->sums[i] == i + 0.5 && r->x->tally->sums[i] == i + 0.5);
    COMM_TRUE(r->x->tally->sums[r->x->tally->n_sums - 1] == 1);
    return NULL;
}

static const char *check_parts(reduce_rank *r, tti_device_host_staged *host_staged) {
    enum { N = 5 };
    float parts[REDUCE_MAX_SHARDS * N];
    for (int i = 0; i < r->c->n_shards * N; i++) {
        int shard = i / N;
        parts[i] = shard >= r->x->setup.first_shard && shard < r->x->setup.last_shard
                       ? (float)(i + 1)
                       : 777;
    }
    COMM_OK(tti_device_host_staged_joins(host_staged, parts, N));
    for (int i = 0; i < r->c->n_shards * N; i++) COMM_TRUE(parts[i] == (float)(i + 1));
    return NULL;
}

/* Shards that are rebalanced, and again: memory only grows, and what is there stays. */
static const char *check_growth(reduce_rank *r, tti_device_host_staged *host_staged) {
    static const int agreed[] = {6, 1, 9};
    float *sum = tti_device_host_staged_sum(host_staged), first = sum[0];
    r->x->setup.desc.mixed = true;
    for (size_t i = 0; i < TTI_COUNT(agreed); i++) {
        r->x->setup.n_agreed = agreed[i];
        COMM_OK(tti_device_host_staged_grow(host_staged));
        COMM_TRUE(tti_device_host_staged_sum(host_staged) == sum && sum[0] == first);
    }
    return NULL;
}

static const char *rank_main(tutti_comm *comm, void *arg) {
    reduce_rank r = {.c = arg};
    tti_device_host_staged *host_staged = NULL;
    const char *failure = reduce_prepare(&r, comm);
    if (failure) return failure;
    r.x->joins->parts = calloc((size_t)r.c->n_shards * 5, sizeof *r.x->joins->parts);
    COMM_OK(tti_device_reduce_create(r.x, &r.reduce, &r.way));
    COMM_TRUE(!r.reduce); /* nothing connects them */
    COMM_OK(tti_device_host_staged_create(r.x, &host_staged));
    for (int w = 0; w < r.x->setup.acc.n_micro_groups; w++) {
        const tti_micro_group *micro_group = &r.x->setup.acc.micro_groups[w];
        for (int i = 0; i < micro_group->n_shards; i++)
            memcpy(r.x->arrays->buffers[micro_group->buffer[i]],
                   r.shards[micro_group->first + i - r.x->setup.first_shard],
                   r.c->plan.n_flat * sizeof(float));
        tti_exec_merge(r.x, micro_group, 0, r.c->plan.n_flat);
    }
    for (int i = 1; r.c->fast && i < r.x->setup.acc.n_partials; i++)
        fake_accumulate(tti_exec_grads(r.x), r.x->arrays->buffers[r.x->setup.acc.partial_buffer[i]],
                        r.c->plan.n_flat);
    COMM_OK(tti_device_host_staged_grads(host_staged));
    failure = reduce_check(&r);
    if (!failure) failure = check_sums(&r, host_staged);
    if (!failure) failure = check_parts(&r, host_staged);
    if (!failure) failure = check_growth(&r, host_staged);
    tti_device_host_staged_destroy(host_staged);
    int n_used = r.c->fast ? 1 : TTI_MIN(r.x->setup.acc.n_partials, 2);
    if (!failure && (n_pinned != 0 || most_pinned != n_used))
        failure = "partials stay pinned, or never were";
    free(r.x->joins->parts);
    reduce_free(&r);
    return failure;
}

/* In fast mode also in 16 bits. */
T_CASE(the_host_adds_along_the_tree) {
    T_UNUSED;
    for (int fast = 0; fast < 3; fast++)
        for (int n_ranks = 2; n_ranks <= 5; n_ranks++) {
            reduce_workers c = {.backend = &apart,
                                .n_shards = 8,
                                .n_compute_threads = 1,
                                .fast = fast > 0,
                                .wire = fast > 1 ? TUTTI_BF16 : TUTTI_F32,
                                .n_elems = {16, 160, 48}};
            reduce_plan(&c);
            comm_run(n_ranks, rank_main, &c);
            const tti_shard_map shard_map = {
                .n_ranks = n_ranks, .n_shards = 8, .first = (int[]){0, 1, 4, 5, 6, 8}};
            tti_shard_map uneven = shard_map;
            uneven.first[n_ranks] = 8;
            c.shard_map = &uneven;
            comm_run(n_ranks, rank_main, &c);
        }
}

/* ---- several hosts ---- */

static uint64_t n_crossed;

/* One sum of the gradients; rank 0 reports what all ranks have sent to other hosts for it. */
static const char *cross(tutti_comm *comm, void *arg) {
    enum { N_REMOTE = 8 }; /* pairs of ranks that agree on the call over the network */
    reduce_rank r = {.c = arg};
    tti_device_host_staged *host_staged = NULL;
    const char *failure = reduce_prepare(&r, comm);
    if (failure) return failure;
    COMM_OK(tti_device_host_staged_create(r.x, &host_staged));
    for (int i = 0; i < r.x->setup.acc.n_partials; i++)
        memcpy(r.x->arrays->buffers[r.x->setup.acc.partial_buffer[i]], r.shards[i],
               r.c->plan.n_flat * sizeof(float));
    uint64_t before = tti_comm_get_bytes(comm).between;
    COMM_OK(tti_device_host_staged_grads(host_staged));
    double sent = (double)(tti_comm_get_bytes(comm).between - before);
    failure = reduce_check(&r);
    COMM_OK(tutti_comm_all_reduce(comm, &sent, &sent, 1, TUTTI_F64, TUTTI_SUM, TUTTI_ALG_AUTO));
    if (r.x->setup.rank == 0) n_crossed = (uint64_t)sent - N_REMOTE * TTI_CALL_BYTES;
    tti_device_host_staged_destroy(host_staged);
    reduce_free(&r);
    return failure;
}

/* There and back, not once for each device. */
T_CASE(a_sum_crosses_once_for_each_host) {
    T_UNUSED;
    reduce_workers c = {
        .backend = &apart, .n_shards = 4, .n_compute_threads = 1, .n_elems = {4096, 16 * 4096, 48}};
    T_EQ(setenv("TUTTI_TEST_TRANSPORT", "tcp", 1), 0);
    T_EQ(setenv("TUTTI_TEST_HOSTS", "a,a,b,b", 1), 0);
    reduce_plan(&c);
    comm_run_with(4, true, 0, cross, &c);
    T_EQ(n_crossed, 2 * c.plan.n_flat * sizeof(float));
    T_EQ(unsetenv("TUTTI_TEST_TRANSPORT"), 0);
    T_EQ(unsetenv("TUTTI_TEST_HOSTS"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_host_adds_along_the_tree),
                                       cmocka_unit_test(a_sum_crosses_once_for_each_host)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
