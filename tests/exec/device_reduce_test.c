/* device_reduce_test.c - sums between workers on devices, on devices that are the host.
 *
 * The stand-in does what a device does, by chunks and in the order it is given, at once; so what is
 * tested is the arithmetic of pieces and chunks, and that every bucket is summed once. */
#include <stdlib.h>

#include "backend/chunk.h"
#include "exec/fake_device.h"
#include "exec/reduce_crew.h"

/* ---- devices that are the host ---- */

typedef struct fake_group {
    tti_device_peers peers;
    tti_device_term terms[2 * REDUCE_MAX_SHARDS];
    float *pieces[REDUCE_MAX_RANKS][TTI_MAX_PIECES];
} fake_group;

static tutti_status fake_order(tti_queue after, tti_queue before) {
    return after == before ? tti_fail(TUTTI_E_INTERNAL, "a queue waits for itself") : TUTTI_OK;
}

static tutti_status fake_barrier(fake_group *g) {
    char mine = 1, all[REDUCE_MAX_RANKS];
    return g->peers.all_gather(g->peers.user, &mine, all, 1);
}

static tutti_status fake_meet(const tti_device_peers *peers, void **out) {
    fake_group *g = calloc(1, sizeof *g);
    if (!g) return tti_fail(TUTTI_E_NOMEM, "out of memory");
    g->peers = *peers;
    float *mine[TTI_MAX_PIECES] = {NULL};
    for (int i = 0; i < peers->n_pieces; i++) mine[i] = peers->pieces[i];
    for (int t = 0; t < peers->n_terms; t++) g->terms[t] = peers->terms[t];
    *out = g;
    return peers->all_gather(peers->user, mine, g->pieces, sizeof mine);
}

static void fake_part(void *group) { free(group); }

static void fake_describe(const void *group, tti_str *str) {
    tti_str_printf(str, "%d at once", ((const fake_group *)group)->peers.n_ranks);
}

static float fake_element(const fake_group *g, size_t i) {
    float stack[32];
    int n = 0;
    for (int t = 0; t < g->peers.n_terms; t++) {
        stack[n++] = g->pieces[g->terms[t].rank][g->terms[t].piece][i];
        for (int k = 0; k < g->terms[t].n_adds; k++, n--) stack[n - 2] += stack[n - 1];
    }
    return n == 1 ? stack[0] : NAN;
}

static tutti_status fake_sum(void *group, size_t first, size_t n_elems, bool beside) {
    fake_group *g = group;
    (void)beside;
    if (first % 4 || n_elems % 4 || n_elems > g->peers.n_most)
        return tti_fail(TUTTI_E_INTERNAL, "elements %zu and %zu more", first, n_elems);
    tti_chunk c = tti_chunk_of(n_elems, g->peers.rank, g->peers.n_ranks);
    TTI_TRY(fake_barrier(g));
    for (size_t i = first + c.first; i < first + c.first + c.n_elems; i++) {
        float sum = fake_element(g, i);
        for (int r = 0; r < g->peers.n_ranks; r++) g->pieces[r][0][i] = sum;
    }
    return fake_barrier(g);
}

static tutti_status fake_spread(void *group, void *words, size_t n_words, size_t first,
                                size_t last) {
    fake_group *g = group;
    uint32_t *mine = words, *all = calloc(n_words * (size_t)g->peers.n_ranks, sizeof *all);
    if (!all || n_words > g->peers.n_words) return tti_fail(TUTTI_E_INTERNAL, "%zu", n_words);
    for (size_t i = 0; i < n_words; i++)
        if (i < first || i >= last) mine[i] = 0;
    tutti_status st = g->peers.all_gather(g->peers.user, mine, all, n_words * sizeof *all);
    for (size_t i = 0; i < n_words; i++) mine[i] = 0;
    for (size_t i = 0; i < n_words * (size_t)g->peers.n_ranks; i++) mine[i % n_words] |= all[i];
    free(all);
    return st;
}

/* As backend.h says of the sums. */
static tutti_status fake_tell(const tti_device_told *t) {
    double *hashes = t->sums + 3 * t->n_shards, *votes = hashes + 2 * t->n_ranks;
    for (int i = 0; i < 3 * t->n_shards; i++)
        if (i < 3 * t->first_shard || i >= 3 * t->last_shard) t->sums[i] = 0;
    memset(hashes, 0, 3 * (size_t)t->n_ranks * sizeof *hashes);
    hashes[2 * t->rank] = (double)(uint32_t)(t->report->params_hash >> 32);
    hashes[2 * t->rank + 1] = (double)(uint32_t)t->report->params_hash;
    votes[t->rank] = t->args->vote;
    return TUTTI_OK;
}

static const tti_device_ops fake_ops = {.open = fake_open,
                                        .close = fake_close,
                                        .copy = fake_copy,
                                        .order = fake_order,
                                        .sync = fake_sync,
                                        .peers_meet = fake_meet,
                                        .peers_part = fake_part,
                                        .peers_describe = fake_describe,
                                        .peers_sum = fake_sum,
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
        cmocka_unit_test(fast_mode_adds_one_sum_of_each_rank),
        cmocka_unit_test(buckets_beside_the_shards_give_the_same),
        cmocka_unit_test(a_ring_is_refused_in_exact_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
