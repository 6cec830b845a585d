/* Agreements along a tree: groups of more ranks than look at each other. */
#include "base/error.h"
#include "comm/channel.h"
#include "comm/many_ranks.h"
#include "comm/shards.h"
#include "comm/subgroup.h"

T_CASE(ranks_as_threads) {
    T_UNUSED;
    many_threads(65);
    many_threads(256);
}

T_CASE(ranks_as_processes) {
    T_UNUSED;
    many_processes(66);
}

typedef struct sum_case {
    tutti_dtype dtype;
    tutti_reduce_op op;
} sum_case;

/* The same terms summed in the agreement, and by the tree algorithm through messages. */
static const char *sums_alike(tutti_comm *comm, void *arg) {
    const sum_case *c = arg;
    enum { N = 100 };
    float term[N];
    unsigned char src[N * 8], a[N * 8] = {0}, b[N * 8] = {0};
    for (int i = 0; i < N; i++) term[i] = many_term(tutti_comm_rank(comm), i);
    for (int i = 0; i < N && c->dtype == TUTTI_F64; i++) ((double *)(void *)src)[i] = term[i];
    if (c->dtype == TUTTI_F32) memcpy(src, term, sizeof term);
    if (c->dtype == TUTTI_BF16 || c->dtype == TUTTI_F16) tti_narrow(c->dtype, term, src, N);
    COMM_OK(tutti_comm_all_reduce(comm, src, a, N, c->dtype, c->op, TUTTI_ALG_AUTO));
    COMM_OK(tutti_comm_all_reduce(comm, src, b, N, c->dtype, c->op, TUTTI_ALG_TREE));
    COMM_TRUE(memcmp(a, b, sizeof a) == 0);
    return NULL;
}

T_CASE(sums_of_the_agreement_have_the_bits_of_the_tree) {
    T_UNUSED;
    static sum_case cases[] = {{TUTTI_F32, TUTTI_SUM},
                               {TUTTI_F64, TUTTI_SUM},
                               {TUTTI_BF16, TUTTI_SUM},
                               {TUTTI_F16, TUTTI_SUM},
                               {TUTTI_F32, TUTTI_MAX}};
    for (size_t i = 0; i < TTI_COUNT(cases); i++) comm_run(67 + (int)i, sums_alike, &cases[i]);
}

/* Every rank names the lowest rank that called something else than rank 0. */
static const char *two_differ(tutti_comm *comm, void *arg) {
    int rank = tutti_comm_rank(comm), odd = *(const int *)arg;
    double x[3] = {0};
    char want[128];
    size_t n = rank == odd ? 2 : rank == 69 ? 1 : 3;
    snprintf(want, sizeof want,
             "rank %d called all_reduce(n_elems=2, f64, sum, auto) where rank 0 called "
             "all_reduce(n_elems=3, f64, sum, auto)",
             odd);
    COMM_FAILS(tutti_comm_all_reduce(comm, x, x, n, TUTTI_F64, TUTTI_SUM, TUTTI_ALG_AUTO),
               TUTTI_E_MISMATCH, want);
    return NULL;
}

T_CASE(a_mismatch_names_the_lowest_rank) {
    T_UNUSED;
    static int odds[] = {1, 31, 64, 68};
    for (size_t i = 0; i < TTI_COUNT(odds); i++) comm_run(70, two_differ, &odds[i]);
}

/* One that leaves without a word is found by its neighbours in the tree, and all hear of it. */
static const char *one_leaves(tutti_comm *comm, void *arg) {
    char want[64];
    if (tutti_comm_rank(comm) == *(const int *)arg) return NULL;
    snprintf(want, sizeof want, "for rank %d, which left the group", *(const int *)arg);
    COMM_FAILS(tutti_comm_barrier(comm), TUTTI_E_PEER, want);
    return NULL;
}

T_CASE(all_hear_of_one_that_leaves) {
    T_UNUSED;
    static int leavers[] = {0, 1, 64, 69};
    for (size_t i = 0; i < TTI_COUNT(leavers); i++) comm_run(70, one_leaves, &leavers[i]);
}

/* Large buffers are read in place; subgroups of a large group are small or large. */
static const char *gathers_and_splits(tutti_comm *comm, void *arg) {
    (void)arg;
    enum { N = 1500 };
    int rank = tutti_comm_rank(comm), n = tutti_comm_n_ranks(comm);
    int32_t mine = rank * 3;
    int32_t *all = calloc((size_t)n, sizeof *all), sum = 0, *large = calloc(N, sizeof *large);
    COMM_TRUE(all && large);
    COMM_OK(tutti_comm_all_gather(comm, &mine, all, 1, TUTTI_I32));
    for (int r = 0; r < n; r++) COMM_TRUE(all[r] == r * 3);
    for (int i = 0; i < N; i++) large[i] = rank + i;
    COMM_OK(tutti_comm_all_reduce(comm, large, large, N, TUTTI_I32, TUTTI_SUM, TUTTI_ALG_DIRECT));
    for (int i = 0; i < N; i++) COMM_TRUE(large[i] == n * (n - 1) / 2 + n * i);
    tutti_comm *subgroup;
    COMM_OK(tti_comm_split(comm, rank % 10 == 0, &subgroup));
    mine = 1;
    COMM_OK(tutti_comm_all_reduce(subgroup, &mine, &sum, 1, TUTTI_I32, TUTTI_SUM, TUTTI_ALG_AUTO));
    COMM_TRUE(sum == tutti_comm_n_ranks(subgroup) && sum == (rank % 10 == 0 ? 10 : 90));
    tutti_comm_destroy(subgroup);
    free(all);
    free(large);
    return NULL;
}

T_CASE(a_large_group_gathers_and_splits) {
    T_UNUSED;
    comm_run(100, gathers_and_splits, NULL);
}

/* Rank 5 gets a message from each rank through a channel. */
static const char *channels_to_one(tutti_comm *comm, void *arg) {
    (void)arg;
    enum { ROOT = 5 };
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm), got = -1;
    size_t area = 64, n_bytes = sizeof got;
    tti_channel **channels = calloc((size_t)n_ranks, sizeof(tti_channel *));
    COMM_TRUE(channels != NULL);
    COMM_OK(tti_channels_open(comm, ROOT, &area, 1, channels));
    if (rank != ROOT) COMM_OK(tti_channel_send(channels[ROOT], &rank, sizeof rank, 0));
    for (int r = 0; rank == ROOT && r < n_ranks; r++) {
        if (r == ROOT) continue;
        COMM_OK(tti_channel_recv(channels[r], &got, &n_bytes, 0, 20000));
        COMM_TRUE(got == r);
    }
    COMM_OK(tutti_comm_barrier(comm));
    for (int r = 0; r < n_ranks; r++) tti_channel_close(channels[r]);
    free(channels);
    return NULL;
}

T_CASE(a_large_group_opens_channels) {
    T_UNUSED;
    comm_run(128, channels_to_one, NULL);
}

T_CASE(a_group_without_memory_is_limited_too) {
    T_UNUSED;
    tutti_comm *comm;
    tutti_comm_desc desc = {
        .transport = "tcp", .n_ranks = TTI_MAX_RANKS + 1, .address = "unix:tree-test"};
    T_FAILS(tutti_comm_create(&desc, &comm), TUTTI_E_INVALID,
            "1 .. 65536 without a group of one host, got 65537");
}

/* Element i of a shard's gradient; sums of these depend on the order. */
static float shard_term(int shard, int i) {
    return (float)(((unsigned)shard * 2654435761u + (unsigned)i * 40503u) % 100003u) * 1e-3f -
           50.0f;
}

static float shard_sum(int first, int n, int i) {
    if (n == 1) return shard_term(first, i);
    return shard_sum(first, n / 2, i) + shard_sum(first + n / 2, n / 2, i);
}

enum { SHARDS = 256, FEW_ELEMS = 3, LONG_ELEMS = 5000 };

/* The bits of the tree over the shards, whether the sum travels in the agreement or not, and with
 * every algorithm. */
static const char *sums_over_shards(tutti_comm *comm, void *arg) {
    static const tutti_comm_alg algs[] = {TUTTI_ALG_AUTO, TUTTI_ALG_TREE};
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    int first = tti_shard_first(rank, n_ranks, SHARDS);
    int last = tti_shard_first(rank + 1, n_ranks, SHARDS);
    tti_partial partials[TTI_MAX_PARTIALS];
    int n_partials = tti_shard_partials(first, last, partials);
    const float *want = arg; /* [LONG_ELEMS] */
    float *memory = calloc((size_t)(n_partials + 1) * LONG_ELEMS, sizeof *memory);
    float *dst = memory + (size_t)n_partials * LONG_ELEMS;
    const char *failure = NULL;
    for (size_t k = 0; !failure && k < 2 * TTI_COUNT(algs); k++) {
        size_t n_elems = k % 2 ? LONG_ELEMS : FEW_ELEMS;
        for (int p = 0; p < n_partials; p++) {
            int level = partials[p].level;
            partials[p].data = memory + (size_t)p * LONG_ELEMS;
            for (size_t i = 0; i < n_elems; i++)
                ((float *)partials[p].data)[i] =
                    shard_sum(partials[p].index << level, 1 << level, (int)i);
        }
        const tti_reduce_desc desc = {.partials = partials,
                                      .n_partials = n_partials,
                                      .n_shards = SHARDS,
                                      .dst = dst,
                                      .n_elems = n_elems,
                                      .dtype = TUTTI_F32,
                                      .alg = algs[k / 2]};
        if (tti_comm_reduce_shards(comm, &desc) != TUTTI_OK)
            failure = comm_text("%s", tutti_last_error());
        else if (memcmp(dst, want, n_elems * sizeof *want) != 0)
            failure = comm_text("rank %d has other bits", rank);
    }
    free(memory);
    return failure;
}

T_CASE(a_large_group_sums_over_shards) {
    T_UNUSED;
    static float want[LONG_ELEMS];
    for (int i = 0; i < LONG_ELEMS; i++) want[i] = shard_sum(0, SHARDS, i);
    comm_run(65, sums_over_shards, want);
    comm_run(128, sums_over_shards, want);
}

/* More peers than a rank has channels, in memory that the peers cannot see. */
static const char *sends_to_all(tutti_comm *comm, void *arg) {
    (void)arg;
    enum { N = 300 };
    int rank = tutti_comm_rank(comm), n = tutti_comm_n_ranks(comm);
    int32_t *out = calloc((size_t)n * N, sizeof *out), *in = calloc((size_t)n * N, sizeof *in);
    COMM_TRUE(out && in);
    for (int p = 0; p < n; p++)
        for (int i = 0; i < N; i++) out[p * N + i] = rank * n + p + i;
    COMM_OK(tutti_comm_all_to_all(comm, out, in, N, TUTTI_I32));
    for (int p = 0; p < n; p++)
        for (int i = 0; i < N; i++) COMM_TRUE(in[p * N + i] == p * n + rank + i);
    free(out);
    free(in);
    return NULL;
}

T_CASE(peers_share_channels) {
    T_UNUSED;
    comm_run_with(80, true, 60000, sends_to_all, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_as_processes), /* first: it forks */
        cmocka_unit_test(ranks_as_threads),
        cmocka_unit_test(sums_of_the_agreement_have_the_bits_of_the_tree),
        cmocka_unit_test(a_mismatch_names_the_lowest_rank),
        cmocka_unit_test(all_hear_of_one_that_leaves),
        cmocka_unit_test(a_large_group_gathers_and_splits),
        cmocka_unit_test(a_large_group_opens_channels),
        cmocka_unit_test(a_group_without_memory_is_limited_too),
        cmocka_unit_test(a_large_group_sums_over_shards),
        cmocka_unit_test(peers_share_channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
