/* accumulate_test.c - the carry stack, played through with trees of shards in place of numbers. */
#include "exec/program/accumulate.h"

#include <stdio.h>
#include <stdlib.h>

#include "t.h"

enum { MAX_V = 16 };

/* What a buffer holds: the shards first .. last-1, added as one subtree; last 0: nothing. */
typedef struct held {
    int first, last;
} held;

static void load(held *buffers, const tti_accumulation *acc, const tti_micro_group *micro_group) {
    for (int i = 0; i < micro_group->n_shards; i++) {
        int b = micro_group->buffer[i];
        assert_true(b >= 0 && b < acc->n_buffers);
        T_EQ(buffers[b].last, 0); /* nobody needs what is there */
        buffers[b] = (held){micro_group->first + i, micro_group->first + i + 1};
    }
}

/* Only the two halves of one subtree are ever added, the left one first. */
static void merge(held *buffers, const tti_merge *m) {
    held *left = &buffers[m->dst], *right = &buffers[m->src];
    int n = left->last - left->first;
    assert_true(n > 0 && right->last - right->first == n);
    T_EQ(left->last, right->first);
    T_EQ(left->first % (2 * n), 0);
    left->last = right->last;
    *right = (held){0};
}

static int log2_of(int n) {
    int log = 0;
    while (1 << (log + 1) <= n) log++;
    return log;
}

static void check(int first, int last, int n_compute_threads) {
    tti_accumulation acc;
    T_OK(tti_accumulation_init(&acc, first, last, n_compute_threads));
    held *buffers = calloc((size_t)acc.n_buffers + 1, sizeof *buffers);
    int next = first, n_merges = 0;
    for (int w = 0; w < acc.n_micro_groups; w++) {
        const tti_micro_group *micro_group = &acc.micro_groups[w];
        T_EQ(micro_group->first, next);
        T_EQ(micro_group->n_shards,
             last - next < n_compute_threads ? last - next : n_compute_threads);
        T_EQ(micro_group->first_merge, n_merges);
        load(buffers, &acc, micro_group);
        for (int i = 0; i < micro_group->n_merges; i++)
            merge(buffers, &acc.merges[micro_group->first_merge + i]);
        next += micro_group->n_shards;
        n_merges += micro_group->n_merges;
    }
    T_EQ(next, last);
    T_EQ(acc.n_merges, n_merges);
    tti_partial want[TTI_MAX_PARTIALS];
    T_EQ(acc.n_partials, tti_shard_partials(first, last, want));
    for (int i = 0; i < acc.n_partials; i++) {
        T_EQ(acc.partials[i].level, want[i].level);
        T_EQ(acc.partials[i].index, want[i].index);
        T_EQ(buffers[acc.partial_buffer[i]].first, want[i].index << want[i].level);
        T_EQ(buffers[acc.partial_buffer[i]].last, (want[i].index + 1) << want[i].level);
    }
    /* The run may start and end inside of subtrees: at most that many wait on either side. */
    if (last > first)
        assert_true(acc.n_buffers <= n_compute_threads + 2 * log2_of(last - first) + 1);
    if (first == 0 && n_compute_threads == 1 && last > 0)
        assert_true(acc.n_buffers <= log2_of(last) + 1 + (last & (last - 1) ? 1 : 0));
    free(buffers);
    tti_accumulation_fini(&acc);
}

T_CASE(every_run_with_any_number_of_compute_threads) {
    T_UNUSED;
    for (int first = 0; first <= MAX_V; first++)
        for (int last = first; last <= MAX_V; last++)
            for (int n_compute_threads = 1; n_compute_threads <= MAX_V; n_compute_threads++)
                check(first, last, n_compute_threads);
}

T_CASE(long_runs) {
    T_UNUSED;
    check(0, 4096, 1);
    check(0, 4096, 3);
    check(1, 4095, 7);
    check(0, 1000, TTI_MAX_COMPUTE_THREADS);
}

T_CASE(a_whole_tree_ends_in_one_piece) {
    T_UNUSED;
    tti_accumulation acc;
    T_OK(tti_accumulation_init(&acc, 0, 16, 2));
    T_EQ(acc.n_partials, 1);
    T_EQ(acc.partials[0].level, 4);
    T_EQ(acc.n_merges, 15);
    T_EQ(acc.n_micro_groups, 8);
    tti_accumulation_fini(&acc);
    T_EQ(acc.n_micro_groups, 0);
    tti_accumulation_fini(&acc); /* twice is fine */
}

/* The gradient of a job's only shard is rounded, although nothing is added to it. */
T_CASE(a_single_shard_can_be_rounded) {
    T_UNUSED;
    tti_accumulation acc;
    T_OK(tti_accumulation_init(&acc, 0, 1, 1));
    T_EQ(acc.micro_groups[0].n_merges, 0);
    tti_accumulation_round_alone(&acc);
    T_EQ(acc.micro_groups[0].n_merges, 1);
    T_EQ(acc.merges[acc.micro_groups[0].first_merge].dst, acc.partial_buffer[0]);
    T_EQ(acc.merges[acc.micro_groups[0].first_merge].src, -1);
    tti_accumulation_fini(&acc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_run_with_any_number_of_compute_threads),
        cmocka_unit_test(long_runs),
        cmocka_unit_test(a_whole_tree_ends_in_one_piece),
        cmocka_unit_test(a_single_shard_can_be_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
