/* device_hybrid_test.c - ways along the data axis beside workers on devices that divide the model:
 * the bits of the same workers on the host.  Devices are the host; some read each other's memory,
 * whose queues come as late or as early as they may. */
#include <stdlib.h>

#include "base/fault.h"
#include "exec/grid_workers.h"

enum { CHANNELS = 8 };

static tutti_graph *joined(bool training) { return net_blocks_of(CHANNELS, training, true); }

static tutti_graph *tied(bool training) { return net_same_ends(training, 0.3); }

typedef struct way {
    net_fn net;
    tti_mesh_at size;
    tti_exec_desc exec;
    int average_every;
} way;

static const char *const all_says[] = {"devices=8", "peers=1,devices=8", "peers=1,devices=8,late=1",
                                       "peers=1,devices=8,late=2", "peers=1,devices=8,late=3"};

static grid grid_of(const way *w, const tti_backend *devices) {
    return (grid){.size = w->size,
                  .devices = devices,
                  .optimizer = "sgd",
                  .exec = w->exec,
                  .average_every = w->average_every,
                  .may_differ = true};
}

static const tti_backend *devices_that(const char *says) {
    const tti_backend *devices;
    T_EQ(setenv("TUTTI_TEST_DEVICE", says, 1), 0);
    T_OK(tti_backend_find("cuda", &devices));
    return devices;
}

/* Each way with devices of another kind of queues, which every way meets in the end. */
static void expect_bits_of_host(const way *ways, size_t n, const tti_plan *whole) {
    for (size_t i = 0; i < n; i++) {
        grid host = grid_of(&ways[i], NULL);
        const char *says = all_says[i % TTI_COUNT(all_says)];
        grid g = grid_of(&ways[i], devices_that(says));
        grid_run(&host, ways[i].net, whole);
        grid_run(&g, ways[i].net, whole);
        grid_expect_bits(&g, &host, ways[i].exec.local);
        grid_fini(&g);
        grid_fini(&host);
    }
}

static grid alone(net_fn net) {
    grid g = {.size = {1, 1, 1}, .optimizer = "sgd"};
    grid_run(&g, net, NULL);
    return g;
}

T_CASE(norms_are_joined) {
    T_UNUSED;
    static const way ways[] = {
        {joined, {2, 1, 2}, {.ema = 0.9}, 0},   {joined, {1, 1, 2}, {.seed = 0}, 0},
        {joined, {3, 2, 1}, {.fast = true}, 0}, {joined, {1, 4, 1}, {.seed = 0}, 0},
        {joined, {2, 2, 2}, {.zero = 1}, 0},    {joined, {1, 2, 1}, {.seed = 0}, 0},
        {joined, {1, 1, 4}, {.seed = 0}, 0}};
    grid one = alone(joined);
    expect_bits_of_host(ways, TTI_COUNT(ways), one.whole);
    grid_fini(&one);
}

/* Of a worker's shards all are under way at once, in places that all of them have: between devices
 * too, where nobody divides the model. */
T_CASE(norms_are_joined_beside_parts) {
    T_UNUSED;
    static const way ways[] = {{joined, {2, 1, 1}, {.zero = 3, .ema = 0.9}, 0},
                               {joined, {2, 1, 1}, {.zero = 2}, 0},
                               {joined, {3, 1, 1}, {.zero = 3}, 0},
                               {joined, {4, 1, 1}, {.zero = 3}, 0},
                               {joined, {2, 1, 1}, {.zero = 2, .fast = true}, 0},
                               {joined, {2, 1, 2}, {.zero = 3}, 0},
                               {joined, {2, 2, 1}, {.zero = 3, .ema = 0.9}, 0},
                               {joined, {3, 2, 1}, {.zero = 2}, 0},
                               {joined, {2, 2, 2}, {.zero = 3}, 0},
                               {joined, {3, 2, 1}, {.zero = 3}, 0}};
    grid one = alone(joined);
    expect_bits_of_host(ways, TTI_COUNT(ways), one.whole);
    grid_fini(&one);
}

/* For each part of each micro-batch group of shards, some of which others of the stage have alone.
 */
T_CASE(stages_fetch_parameters) {
    T_UNUSED;
    static const way ways[] = {{tied, {2, 2, 1}, {.zero = 3}, 0},
                               {tied, {3, 2, 1}, {.zero = 3, .ema = 0.9}, 0},
                               {tied, {2, 2, 2}, {.zero = 3, .fast = true}, 0},
                               {tied, {2, 4, 1}, {.zero = 3}, 0},
                               {tied, {4, 2, 1}, {.zero = 3, .ema = 0.9}, 0}};
    grid one = alone(tied);
    expect_bits_of_host(ways, TTI_COUNT(ways), one.whole);
    grid_fini(&one);
}

/* The host makes the moves, also where nobody divides the model. */
T_CASE(gradients_and_parameters_in_parts) {
    T_UNUSED;
    static const way ways[] = {{tied, {2, 1, 1}, {.zero = 3}, 0},
                               {tied, {3, 1, 2}, {.zero = 3, .ema = 0.9}, 0},
                               {tied, {2, 1, 4}, {.zero = 2, .ema = 0.9}, 0},
                               {tied, {2, 2, 1}, {.zero = 2}, 0},
                               {tied, {2, 2, 2}, {.zero = 2, .fast = true}, 0},
                               {tied, {3, 1, 1}, {.zero = 2, .ema = 0.9}, 0},
                               {tied, {2, 1, 2}, {.zero = 3, .fast = true}, 0},
                               {tied, {2, 1, 2}, {.zero = 3, .fast = true, .wire = TUTTI_F16}, 0}};
    grid one = alone(tied);
    expect_bits_of_host(ways, TTI_COUNT(ways), one.whole);
    grid_fini(&one);
}

T_CASE(what_ends_on_the_host) {
    T_UNUSED;
    static const tti_exec_desc topk = {
        .fast = true, .compression = TTI_COMPRESS_TOPK, .topk = 0.3, .zero = 1};
    static const tti_exec_desc low_rank = {
        .fast = true, .compression = TTI_COMPRESS_POWERSGD, .low_rank = 2};
    static const tti_exec_desc local = {.fast = true, .local = true, .local_after = 1, .ema = 0.9};
    const way ways[] = {{tied, {2, 2, 1}, topk, 0},  {tied, {2, 1, 2}, low_rank, 0},
                        {tied, {2, 2, 2}, topk, 0},  {tied, {3, 2, 1}, low_rank, 0},
                        {tied, {2, 2, 1}, local, 2}, {tied, {3, 1, 2}, local, 2},
                        {tied, {2, 2, 2}, local, 2}, {tied, {2, 1, 2}, topk, 0}};
    grid one = alone(tied);
    expect_bits_of_host(ways, TTI_COUNT(ways), one.whole);
    grid_fini(&one);
}

/* Who waits at a join, or for a value, for a stage that cannot compute hears why. */
T_CASE(a_stage_that_fails_keeps_nobody) {
    T_UNUSED;
    const way w = {joined, {1, 2, 1}, {.seed = 0}, 0};
    grid g = grid_of(&w, devices_that("devices=8"));
    g.may_fail = true;
    T_OK(tti_fault_set("pipe.backward:fail@rank=1,step=2"));
    grid_run(&g, joined, NULL);
    T_OK(tti_fault_set(NULL));
    for (int r = 0; r < 2; r++)
        if (!g.failure[r] || !strstr(g.failure[r], "stage 1 cannot compute"))
            fail_msg("rank %d: %s", r, g.failure[r] ? g.failure[r] : "nothing");
    grid_fini(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_are_joined),
        cmocka_unit_test(norms_are_joined_beside_parts),
        cmocka_unit_test(stages_fetch_parameters),
        cmocka_unit_test(gradients_and_parameters_in_parts),
        cmocka_unit_test(what_ends_on_the_host),
        cmocka_unit_test(a_stage_that_fails_keeps_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
