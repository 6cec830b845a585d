/* shard_map_test.c - runs of shards for ranks of unequal speed. */
#include "comm/shard_map.h"

#include <stdlib.h>

#include "base/error.h"
#include "comm/sum_order.h"
#include "t.h"

/* Frees the shard map. */
static void expect_runs(tti_shard_map *shard_map, int n_ranks, const int *n_of) {
    T_EQ(shard_map->n_ranks, n_ranks);
    T_EQ(tti_shard_map_first(shard_map, 0), 0);
    for (int r = 0; r < n_ranks; r++)
        if (tti_shard_map_n_of(shard_map, r) != n_of[r])
            fail_msg("rank %d of %d has %d shards, want %d", r, n_ranks,
                     tti_shard_map_n_of(shard_map, r), n_of[r]);
    tti_shard_map_free(shard_map);
}

T_CASE(equal_runs) {
    T_UNUSED;
    tti_shard_map shard_map;
    tti_shard_map_equally(3, 8, &shard_map);
    assert_false(tti_shard_map_is_even(&shard_map));
    expect_runs(&shard_map, 3, (int[]){2, 3, 3});
    tti_shard_map_equally(4, 8, &shard_map);
    assert_true(tti_shard_map_is_even(&shard_map));
    T_EQ(tti_shard_map_n_shards(&shard_map), 8);
    expect_runs(&shard_map, 4, (int[]){2, 2, 2, 2});
}

T_CASE(runs_by_weight) {
    T_UNUSED;
    tti_shard_map shard_map;
    T_OK(tti_shard_map_by_weight((double[]){3, 1}, 2, 8, &shard_map));
    expect_runs(&shard_map, 2, (int[]){6, 2});
    T_OK(tti_shard_map_by_weight((double[]){3, 1}, 2, 4, &shard_map));
    expect_runs(&shard_map, 2, (int[]){3, 1});
    T_OK(tti_shard_map_by_weight((double[]){5, 1, 1, 1}, 4, 8, &shard_map));
    expect_runs(&shard_map, 4, (int[]){5, 1, 1, 1});
    T_OK(tti_shard_map_by_weight((double[]){1000, 1, 1, 1}, 4, 8,
                                 &shard_map)); /* every rank has one */
    expect_runs(&shard_map, 4, (int[]){5, 1, 1, 1});
    T_OK(tti_shard_map_by_weight((double[]){2, 2, 2}, 3, 8,
                                 &shard_map)); /* as if nothing had been said */
    expect_runs(&shard_map, 3, (int[]){2, 3, 3});
    T_OK(tti_shard_map_by_weight((double[]){1, 2}, 2, 2, &shard_map));
    expect_runs(&shard_map, 2, (int[]){1, 1});
}

T_CASE(runs_by_throughput) {
    T_UNUSED;
    tti_shard_map shard_map;
    const tti_throughput slow_second[] = {{0.1, 1}, {0.29, 1}};
    T_OK(tti_shard_map_by_throughput(slow_second, 2, 8, &shard_map));
    T_NEAR(tti_shard_map_seconds(&shard_map, slow_second), 0.6, 1e-12);
    expect_runs(&shard_map, 2, (int[]){6, 2});
    const tti_throughput wide_second[] = {{0.1, 1}, {0.1, 3}}; /* three cores */
    T_OK(tti_shard_map_by_throughput(wide_second, 2, 8, &shard_map));
    expect_runs(&shard_map, 2, (int[]){2, 6});
    const tti_throughput alike[] = {{0.1, 1}, {0.1, 1}, {0.1, 1}, {0.1, 1}};
    T_OK(tti_shard_map_by_throughput(alike, 4, 16, &shard_map));
    expect_runs(&shard_map, 4, (int[]){4, 4, 4, 4});
}

/* Every division of V shards into runs is tried; none ends sooner. */
static double soonest(const tti_throughput *throughputs, int n_ranks, int n_shards) {
    if (n_ranks == 1) {
        tti_shard_map all = {.n_ranks = 1, .n_shards = n_shards, .first = (int[]){0, n_shards}};
        return tti_shard_map_seconds(&all, throughputs);
    }
    double best = INFINITY;
    for (int n = 1; n <= n_shards - (n_ranks - 1); n++) {
        tti_shard_map one = {.n_ranks = 1, .n_shards = n, .first = (int[]){0, n}};
        double s = tti_shard_map_seconds(&one, throughputs);
        best = fmin(best, fmax(s, soonest(throughputs + 1, n_ranks - 1, n_shards - n)));
    }
    return best;
}

T_CASE(no_other_runs_end_sooner) {
    T_UNUSED;
    for (uint64_t i = 0; i < 60; i++) {
        int n_ranks = 2 + (int)(i % 3), n_shards = i % 2 ? 8 : 16;
        tti_throughput throughputs[4];
        for (int r = 0; r < n_ranks; r++)
            throughputs[r] = (tti_throughput){0.01 * (double)(1 + (i * 7 + (uint64_t)r * 13) % 11),
                                              1 + (int)((i + (uint64_t)r * 5) % 3)};
        tti_shard_map shard_map;
        T_OK(tti_shard_map_by_throughput(throughputs, n_ranks, n_shards, &shard_map));
        T_OK(tti_shard_map_check(&shard_map, n_ranks, n_shards));
        T_NEAR(tti_shard_map_seconds(&shard_map, throughputs),
               soonest(throughputs, n_ranks, n_shards), 1e-12);
        tti_shard_map_free(&shard_map);
    }
}

/* Terms of ranks are added in one order, whether they are ranks' or subtrees'. */
T_CASE(a_subtree_for_each_rank) {
    T_UNUSED;
    for (int n = 1; n <= 300; n++) {
        tti_shard_map shard_map;
        tti_sum_order by_rank, by_shard;
        tti_shard_map_subtrees(n, &shard_map);
        int n_shards = tti_shard_map_n_shards(&shard_map);
        assert_true(n_shards >= n && n_shards < 2 * n && (n_shards & (n_shards - 1)) == 0);
        T_OK(tti_shard_map_check(&shard_map, n, n_shards));
        T_OK(tti_sum_order_ranks(n, &by_rank));
        T_OK(tti_sum_order_shards(&shard_map, &by_shard));
        T_EQ(by_shard.n_terms, n);
        assert_memory_equal(by_shard.terms, by_rank.terms, (size_t)n * sizeof *by_rank.terms);
        tti_sum_order_free(&by_rank);
        tti_sum_order_free(&by_shard);
    }
}

T_CASE(bad_shard_maps_are_refused) {
    T_UNUSED;
    tti_shard_map shard_map = {.n_ranks = 2, .n_shards = 4, .first = (int[]){0, 3, 4}};
    T_OK(tti_shard_map_check(&shard_map, 2, 4));
    T_FAILS(tti_shard_map_check(&shard_map, 3, 4), TUTTI_E_INVALID,
            "shard map has 2 ranks, and there are 3");
    T_FAILS(tti_shard_map_check(&shard_map, 2, 8), TUTTI_E_INVALID,
            "shards 0 to 3, and there are 8");
    shard_map.first[1] = 4;
    T_FAILS(tti_shard_map_check(&shard_map, 2, 4), TUTTI_E_INVALID,
            "shard map gives rank 1 0 shards");
    shard_map.first[1] = -1;
    T_FAILS(tti_shard_map_check(&shard_map, 2, 4), TUTTI_E_INVALID,
            "shard map gives rank 0 -1 shards");
    shard_map.first[0] = 1;
    T_FAILS(tti_shard_map_check(&shard_map, 2, 4), TUTTI_E_INVALID, "1 to 3");
}

T_CASE(shard_maps_are_compared) {
    T_UNUSED;
    const tti_shard_map a = {.n_ranks = 2, .n_shards = 4, .first = (int[]){0, 3, 4}},
                        b = {.n_ranks = 2, .n_shards = 4, .first = (int[]){0, 1, 4}};
    const tti_shard_map longer = {.n_ranks = 3, .n_shards = 8, .first = (int[]){0, 3, 4, 8}};
    assert_true(tti_shard_map_same(&a, &a));
    assert_false(tti_shard_map_same(&a, &b));
    assert_false(tti_shard_map_same(&a, &longer));
    assert_int_equal(tti_shard_map_digest(&a), tti_shard_map_digest(&a));
    assert_int_not_equal(tti_shard_map_digest(&a), tti_shard_map_digest(&b));
    tti_shard_map equal;
    const tti_shard_map listed = {.n_ranks = 3, .n_shards = 8, .first = (int[]){0, 2, 5, 8}};
    tti_shard_map_equally(3, 8, &equal);
    assert_true(tti_shard_map_same(&equal, &listed));
    assert_int_equal(tti_shard_map_digest(&equal), tti_shard_map_digest(&listed));
    assert_int_not_equal(tti_shard_map_digest(&equal), tti_shard_map_digest(&longer));
}

T_CASE(a_copy_has_its_own_array) {
    T_UNUSED;
    tti_shard_map listed = {.n_ranks = 3, .n_shards = 8, .first = (int[]){0, 1, 2, 8}}, copy = {0};
    T_OK(tti_shard_map_copy(&listed, &copy));
    listed.first[1] = 2;
    T_EQ(tti_shard_map_first(&copy, 1), 1);
    T_EQ(tti_shard_map_most(&copy), 6);
    T_OK(tti_shard_map_copy(&listed, &copy));
    T_EQ(tti_shard_map_first(&copy, 1), 2);
    tti_shard_map_free(&copy);
    assert_null(copy.first);
}

/* Runs for as many ranks as a job can name. */
T_CASE(many_ranks) {
    T_UNUSED;
    enum { N = 65536, V = 2 * N };
    tti_shard_map equal, subtrees, fast;
    tti_throughput *throughputs = calloc(N, sizeof *throughputs);
    assert_non_null(throughputs);
    tti_shard_map_equally(N, V, &equal);
    assert_null(equal.first);
    T_OK(tti_shard_map_check(&equal, N, V));
    tti_shard_map_subtrees(N - 1, &subtrees);
    assert_null(subtrees.first);
    T_OK(tti_shard_map_check(&subtrees, N - 1, N));
    for (int r = 0; r < N; r++) throughputs[r] = (tti_throughput){r == 7 ? 0.1 : 0.2, 1};
    T_OK(tti_shard_map_by_throughput(throughputs, N, V, &fast));
    T_OK(tti_shard_map_check(&fast, N, V));
    T_EQ(tti_shard_map_n_of(&fast, 7), 3);
    T_EQ(tti_shard_map_most(&fast), 3);
    const tti_shard_map *maps[] = {&equal, &subtrees, &fast};
    for (size_t i = 0; i < TTI_COUNT(maps); i++)
        for (int shard = 0; shard < N; shard += 997) {
            int owner = tti_shard_map_owner(maps[i], shard);
            assert_true(tti_shard_map_first(maps[i], owner) <= shard &&
                        tti_shard_map_first(maps[i], owner + 1) > shard);
        }
    tti_shard_map_free(&fast);
    free(throughputs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_runs),
        cmocka_unit_test(runs_by_weight),
        cmocka_unit_test(runs_by_throughput),
        cmocka_unit_test(no_other_runs_end_sooner),
        cmocka_unit_test(a_subtree_for_each_rank),
        cmocka_unit_test(bad_shard_maps_are_refused),
        cmocka_unit_test(shard_maps_are_compared),
        cmocka_unit_test(a_copy_has_its_own_array),
        cmocka_unit_test(many_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
