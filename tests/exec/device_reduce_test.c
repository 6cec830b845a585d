/* device_reduce_test.c - sums between workers on devices, on devices that are the host.
 *
 * The stand-in does what a device does, by chunks and in the order it is given, at once; so what is
 * tested is the arithmetic of pieces and chunks, and that every bucket is summed once. */
#include <stdlib.h>

#include "exec/fake_peers.h"
#include "exec/reduce_crew.h"

/* ---- devices that are the host ---- */

static const tti_device_ops fake_ops = {.open = fake_open,
                                        .close = fake_close,
                                        .copy = fake_copy,
                                        .order = fake_order,
                                        .note = fake_note,
                                        .follow = fake_note,
                                        .sync = fake_sync,
                                        .peers_meet = fake_meet,
                                        .peers_part = fake_part,
                                        .peers_describe = fake_describe,
                                        .peers_sum = fake_sum,
                                        .peers_sum_parts = fake_sum_parts,
                                        .peers_fetch = fake_fetch,
                                        .peers_spread = fake_spread,
                                        .peers_tell = fake_tell};

static const tti_backend fake = {.name = "fake",
                                 .device = &fake_ops,
                                 .alloc = fake_alloc,
                                 .release = fake_release,
                                 .accumulate = fake_accumulate};

/* ---- cases ---- */

T_CASE(chunks_cover_a_vector_once) {
    T_UNUSED;
    for (size_t n = 0; n < 200; n += 4)
        for (int n_ranks = 1; n_ranks <= 9; n_ranks++) {
            size_t at = 0;
            for (int r = 0; r < n_ranks; r++) {
                tti_chunk c = tti_chunk_of(n, r, n_ranks);
                T_EQ(c.first, at);
                T_EQ(c.first % 4, 0);
                assert_true(c.n_elems <= tti_chunk_of(n, 0, n_ranks).n_elems);
                at += c.n_elems;
            }
            T_EQ(at, n);
        }
}

T_CASE(any_number_of_ranks_has_the_bits_of_the_tree) {
    T_UNUSED;
    static const int shards[] = {2, 8, 64};
    for (int v = 0; v < 3; v++)
        for (int n_ranks = 2; n_ranks <= REDUCE_MAX_RANKS && n_ranks <= shards[v]; n_ranks++)
            for (int n_lanes = 1; n_lanes <= 4; n_lanes += 3) {
                reduce_crew c = {.backend = &fake,
                                 .alg = TUTTI_ALG_DIRECT,
                                 .n_shards = shards[v],
                                 .n_lanes = n_lanes,
                                 .n_elems = {16, 160, 48}};
                reduce_run(&c, n_ranks);
            }
}

T_CASE(any_runs_have_the_bits_of_the_tree) {
    T_UNUSED;
    static const tti_deal deals[] = {{.n_ranks = 2, .first = {0, 3, 4}},
                                     {.n_ranks = 4, .first = {0, 5, 6, 7, 8}},
                                     {.n_ranks = 3, .first = {0, 1, 14, 16}}};
    for (size_t d = 0; d < TTI_COUNT(deals); d++)
        for (int bits = 0; bits < 4; bits++) {
            reduce_crew c = {.backend = &fake,
                             .alg = TUTTI_ALG_DIRECT,
                             .n_shards = tti_deal_n_shards(&deals[d]),
                             .deal = &deals[d],
                             .n_lanes = 1,
                             .fast = bits & 1,
                             .parts = bits & 2,
                             .n_elems = {16, 160, 48}};
            reduce_run(&c, deals[d].n_ranks);
        }
}

T_CASE(fast_mode_adds_one_sum_of_each_rank) {
    T_UNUSED;
    for (int n_ranks = 2; n_ranks <= 5; n_ranks++) {
        reduce_crew c = {.alg = TUTTI_ALG_DIRECT,
                         .backend = &fake,
                         .n_shards = 8,
                         .n_lanes = 1,
                         .fast = true,
                         .n_elems = {16, 160, 48}};
        reduce_run(&c, n_ranks);
    }
}

T_CASE(parts_of_sums_and_their_gather) {
    T_UNUSED;
    for (int bits = 0; bits < 4; bits++)
        for (int n_ranks = 2; n_ranks <= REDUCE_MAX_RANKS; n_ranks++) {
            reduce_crew c = {.backend = &fake,
                             .alg = TUTTI_ALG_DIRECT,
                             .n_shards = 16,
                             .n_lanes = 1,
                             .fast = bits & 1,
                             .parts = true,
                             .lean = bits & 2,
                             .n_elems = {16, 160, 48}};
            reduce_run(&c, n_ranks);
        }
}

/* What the recorded step does, as it happens. */
static const char *beside(tutti_comm *comm, void *arg) {
    reduce_rank r = {.c = arg};
    const char *failure = reduce_make(&r, comm);
    if (!failure) failure = reduce_say(&r, 0x123456789ABCDEF0u);
    if (!failure) failure = reduce_shards(&r, true);
    if (!failure) failure = reduce_check(&r);
    if (!failure) failure = reduce_check_told(&r);
    reduce_free(&r);
    return failure;
}

T_CASE(buckets_beside_the_shards_give_the_same) {
    T_UNUSED;
    for (int fast = 0; fast < 2; fast++)
        for (int n_ranks = 2; n_ranks <= 5; n_ranks++) {
            reduce_crew c = {.backend = &fake,
                             .alg = TUTTI_ALG_DIRECT,
                             .n_shards = 16,
                             .n_lanes = 3,
                             .fast = fast,
                             .n_elems = {16, 160, 48}};
            reduce_plan(&c);
            comm_run(n_ranks, beside, &c);
        }
}

static const char *ring(tutti_comm *comm, void *arg) {
    reduce_rank r = {.c = arg};
    const char *failure = reduce_make(&r, comm);
    COMM_TRUE(failure && strstr(failure, "ring"));
    reduce_free(&r);
    return NULL;
}

T_CASE(a_ring_is_refused_in_exact_mode) {
    T_UNUSED;
    reduce_crew c = {.backend = &fake,
                     .alg = TUTTI_ALG_DIRECT,
                     .n_shards = 4,
                     .n_lanes = 1,
                     .n_elems = {16, 16, 16}};
    reduce_plan(&c);
    c.alg = TUTTI_ALG_RING;
    comm_run(2, ring, &c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_cover_a_vector_once),
        cmocka_unit_test(any_number_of_ranks_has_the_bits_of_the_tree),
        cmocka_unit_test(any_runs_have_the_bits_of_the_tree),
        cmocka_unit_test(fast_mode_adds_one_sum_of_each_rank),
        cmocka_unit_test(parts_of_sums_and_their_gather),
        cmocka_unit_test(buckets_beside_the_shards_give_the_same),
        cmocka_unit_test(a_ring_is_refused_in_exact_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
