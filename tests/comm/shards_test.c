/* shards_test.c - the sum over V shards has the bits of a serial tree sum for every W <= V. */
#include "base/dtype.h"
#include "base/error.h"
#include "comm/ranks.h"

typedef struct job {
    int n_shards;
    size_t n_elems;
    tutti_dtype dtype;
    tutti_comm_alg alg;
    bool registered, in_place;
    bool is_partitioned;            /* each rank gets one, of uneven length */
    const tti_shard_map *shard_map; /* NULL: equal runs */
} job;

static float noise(uint64_t i, int shard) {
    uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u ^ (uint64_t)(shard + 1) * 0xD1B54A32D192ED03u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 32;
    return ((float)(x & 0xFFFFFF) / 8388608.0f - 1.0f) * (1.0f + (float)(x >> 57));
}

/* Every partial sum of bf16 is rounded. */
static double as_sent(float x, tutti_dtype dtype) {
    return dtype == TUTTI_BF16 ? tti_bf16_to_f32(tti_f32_to_bf16(x)) : x;
}

static double tree_sum(uint64_t i, int lo, int hi, tutti_dtype dtype) {
    if (hi - lo == 1) return as_sent(noise(i, lo), dtype);
    double a = tree_sum(i, lo, (lo + hi) / 2, dtype), b = tree_sum(i, (lo + hi) / 2, hi, dtype);
    return dtype == TUTTI_F64 ? a + b : as_sent((float)a + (float)b, dtype);
}

/* Adds the terms of a worker's shards into canonical partial sums. */
static void fill_partials(const job *j, const tti_partial *partials, int n_partials) {
    for (int k = 0; k < n_partials; k++) {
        int width = 1 << partials[k].level, first = partials[k].index * width;
        for (size_t i = 0; i < j->n_elems; i++)
            tti_store_elem(j->dtype, partials[k].data, i,
                           tree_sum(i, first, first + width, j->dtype));
    }
}

/* The first rank has nothing, the second little, the others the more the later they are. */
static void fill_bounds(const job *j, int n_ranks, size_t *bounds) {
    size_t n = (size_t)n_ranks;
    for (size_t r = 0; r <= n; r++) bounds[r] = r < 2 ? 0 : j->n_elems * r * r / (n * n);
    bounds[n] = j->n_elems;
}

static const char *reduce_and_check(tutti_comm *comm, const job *j, const tti_partial *partials,
                                    int n_partials, void *dst) {
    size_t bounds[129], first = 0, last = j->n_elems;
    int rank = tutti_comm_rank(comm);
    memset(dst, 0x5a, j->n_elems * tutti_dtype_bytes(j->dtype)); /* nothing of an earlier job */
    fill_partials(j, partials, n_partials);
    fill_bounds(j, tutti_comm_n_ranks(comm), bounds);
    tti_reduce_desc desc = {partials,
                            n_partials,
                            dst,
                            j->n_elems,
                            j->dtype,
                            j->n_shards,
                            j->alg,
                            j->is_partitioned ? bounds : NULL,
                            j->shard_map,
                            j->dtype == TUTTI_BF16,
                            0,
                            false};
    COMM_OK(tti_comm_reduce_shards(comm, &desc));
    if (j->is_partitioned) first = bounds[rank], last = bounds[rank + 1];
    for (size_t i = first; i < last; i++) {
        double want = tree_sum(i, 0, j->n_shards, j->dtype);
        double got = tti_load_elem(j->dtype, dst, i);
        if (got != want)
            return comm_text("V %d alg %d n %zu [%zu]: got %.9g, want %.9g", j->n_shards,
                             (int)j->alg, j->n_elems, i, got, want);
    }
    return NULL;
}

enum { N_BUFFERS = 12 }; /* enough partial sums for V = 64, and dst */

static const char *job_rank(tutti_comm *comm, void *arg) {
    const job *j = arg;
    tti_partial partials[TTI_MAX_PARTIALS];
    void *memory[N_BUFFERS];
    size_t n_bytes = j->n_elems * 8 + 8;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    tti_shard_map equal;
    tti_shard_map_equally(n_ranks, j->n_shards, &equal);
    const tti_shard_map *map = j->shard_map ? j->shard_map : &equal;
    int n = tti_shard_partials(tti_shard_map_first(map, rank), tti_shard_map_first(map, rank + 1),
                               partials);
    COMM_TRUE(n < N_BUFFERS);
    for (int k = 0; k < N_BUFFERS; k++) {
        if (j->registered)
            COMM_OK(tutti_comm_alloc(comm, n_bytes, &memory[k]));
        else
            memory[k] = malloc(n_bytes);
        if (k < n) partials[k].data = memory[k];
    }
    void *dst = j->in_place ? memory[0] : memory[N_BUFFERS - 1];
    const char *failure = NULL;
    for (int repeat = 0; repeat < 2 && !failure; repeat++)
        failure = reduce_and_check(comm, j, partials, n, dst);
    for (int k = 0; k < N_BUFFERS && !j->registered; k++) free(memory[k]);
    return failure;
}

static const int shard_counts[] = {1, 2, 4, 8, 16, 64};

typedef struct job_list {
    int n;
    job jobs[6 * 3 * 4 * 2];
} job_list;

/* One after another on one group: what a call leaves there must not reach the next. */
static const char *list_rank(tutti_comm *comm, void *arg) {
    job_list *list = arg;
    const char *failure = NULL;
    for (int i = 0; i < list->n && !failure; i++) failure = job_rank(comm, &list->jobs[i]);
    return failure;
}

T_CASE(every_division_gives_the_bits_of_the_tree) {
    T_UNUSED;
    const tutti_comm_alg algs[] = {TUTTI_ALG_AUTO, TUTTI_ALG_DIRECT, TUTTI_ALG_TREE};
    for (int w = 1; w <= 8; w++) {
        job_list list = {0};
        for (int v = 0; v < 6; v++)
            for (int i = 0; i < 3 * 8 && w <= shard_counts[v]; i++) {
                int a = i / 8, bits = i % 8;
                list.jobs[list.n++] = (job){shard_counts[v],
                                            a == 0 ? 37 : 523,
                                            bits & 4 ? TUTTI_BF16 : TUTTI_F32,
                                            algs[a],
                                            bits & 1,
                                            bits & 2,
                                            false,
                                            NULL};
            }
        comm_run_with(w, true, 0, list_rank, &list);
    }
}

/* Runs of any length, with partial sums of many sizes; each after another, so that none is
 * remembered. */
T_CASE(any_runs_give_the_bits_of_the_tree) {
    T_UNUSED;
    const tti_shard_map shard_maps[] = {
        {.n_ranks = 2, .n_shards = 4, .first = (int[]){0, 3, 4}},
        {.n_ranks = 2, .n_shards = 16, .first = (int[]){0, 1, 16}},
        {.n_ranks = 3, .n_shards = 16, .first = (int[]){0, 13, 14, 16}},
        {.n_ranks = 4, .n_shards = 8, .first = (int[]){0, 5, 6, 7, 8}},
        {.n_ranks = 4, .n_shards = 8, .first = (int[]){0, 1, 2, 3, 8}},
        {.n_ranks = 5, .n_shards = 64, .first = (int[]){0, 1, 31, 33, 34, 64}},
    };
    const tutti_comm_alg algs[] = {TUTTI_ALG_AUTO, TUTTI_ALG_DIRECT, TUTTI_ALG_TREE};
    for (size_t d = 0; d < TTI_COUNT(shard_maps); d++) {
        const tti_shard_map *shard_map = &shard_maps[d];
        job_list list = {0};
        for (int i = 0; i < 3 * 16; i++) {
            int a = i / 16, bits = i % 16;
            list.jobs[list.n++] = (job){tti_shard_map_n_shards(shard_map),
                                        a == 0 ? 37 : 523,
                                        bits & 8 ? TUTTI_BF16 : TUTTI_F32,
                                        algs[a],
                                        bits & 1,
                                        bits & 2,
                                        bits & 4,
                                        shard_map};
        }
        comm_run_with(shard_map->n_ranks, true, 0, list_rank, &list);
    }
}

/* One communicator, one number of shards, several shard maps in turn. */
static const char *rebalanced_rank(tutti_comm *comm, void *arg) {
    const tti_shard_map shard_maps[] = {{.n_ranks = 2, .n_shards = 4, .first = (int[]){0, 3, 4}},
                                        {.n_ranks = 2, .n_shards = 4, .first = (int[]){0, 2, 4}},
                                        {.n_ranks = 2, .n_shards = 4, .first = (int[]){0, 1, 4}}};
    (void)arg;
    for (int i = 0; i < 6; i++) {
        job j = {4,     37 + 1000 * (size_t)(i / 3), TUTTI_F32, TUTTI_ALG_AUTO, false, false,
                 false, &shard_maps[i % 3]};
        const char *failure = job_rank(comm, &j);
        if (failure) return failure;
    }
    return NULL;
}

T_CASE(shards_can_be_rebalanced) {
    T_UNUSED;
    comm_run(2, rebalanced_rank, NULL);
}

static const char *other_shard_map_rank(tutti_comm *comm, void *arg) {
    const tti_shard_map shard_maps[] = {{.n_ranks = 2, .n_shards = 4, .first = (int[]){0, 1, 4}},
                                        {.n_ranks = 2, .n_shards = 4, .first = (int[]){0, 3, 4}}};
    (void)arg;
    int rank = tutti_comm_rank(comm);
    float x[1] = {1};
    tti_partial partial = {0, rank == 0 ? 0 : 3, x};
    tti_reduce_desc desc = {.partials = &partial,
                            .n_partials = 1,
                            .dst = x,
                            .n_elems = 1,
                            .dtype = TUTTI_F32,
                            .n_shards = 4,
                            .shard_map = &shard_maps[rank]};
    COMM_FAILS(tti_comm_reduce_shards(comm, &desc), TUTTI_E_MISMATCH, "shards=4, auto, shard_map=");
    return NULL;
}

T_CASE(ranks_must_mean_the_same_shard_map) {
    T_UNUSED;
    comm_run(2, other_shard_map_rank, NULL);
}

T_CASE(threads_that_see_all_memory) {
    T_UNUSED;
    for (int w = 1; w <= 8; w++)
        for (int alg = 0; alg < 2; alg++) {
            job j = {16,    2050, TUTTI_F64, alg ? TUTTI_ALG_TREE : TUTTI_ALG_DIRECT,
                     false, true, false,     NULL};
            comm_run(w, job_rank, &j);
        }
}

T_CASE(many_blocks) {
    T_UNUSED;
    for (int bits = 0; bits < 4; bits++) {
        job j = {4,        300001, TUTTI_F32, bits & 1 ? TUTTI_ALG_TREE : TUTTI_ALG_DIRECT,
                 bits & 2, true,   false,     NULL};
        comm_run_with(3, true, 0, job_rank, &j);
        j.is_partitioned = true;
        comm_run_with(3, true, 0, job_rank, &j);
        j.dtype = TUTTI_BF16;
        comm_run_with(3, true, 0, job_rank, &j);
    }
}

T_CASE(every_rank_gets_its_part) {
    T_UNUSED;
    const tutti_comm_alg algs[] = {TUTTI_ALG_AUTO, TUTTI_ALG_DIRECT, TUTTI_ALG_TREE};
    for (int w = 1; w <= 8; w++) {
        job_list list = {0};
        for (int i = 0; i < 3 * 4; i++) {
            int a = i / 4, bits = i % 4;
            job j = {16, a == 0 ? 37 : 523, TUTTI_F32, algs[a], bits & 1, bits & 2, true, NULL};
            list.jobs[list.n++] = j;
            j.dtype = TUTTI_F64;
            if (bits == 3) list.jobs[list.n++] = j;
        }
        comm_run_with(w, true, 0, list_rank, &list);
    }
}

/* So many ranks that none has lists of all: with one term each, with terms of different lengths, in
 * the agreement and in ranges of their owners. */
T_CASE(many_ranks_have_the_same_bits) {
    T_UNUSED;
    const job jobs[] = {{128, 1100, TUTTI_F32, TUTTI_ALG_AUTO, true, true, false, NULL},
                        {128, 5, TUTTI_F32, TUTTI_ALG_AUTO, true, true, false, NULL},
                        {128, 5, TUTTI_BF16, TUTTI_ALG_AUTO, true, true, false, NULL},
                        {128, 1100, TUTTI_F32, TUTTI_ALG_TREE, true, true, true, NULL},
                        {128, 1100, TUTTI_BF16, TUTTI_ALG_DIRECT, true, true, true, NULL}};
    job_list list = {0};
    for (size_t i = 0; i < TTI_COUNT(jobs); i++) list.jobs[list.n++] = jobs[i];
    comm_run_with(66, false, 60000, list_rank, &list);
    comm_run_with(128, false, 60000, list_rank, &list);
}

/* ---- the division ---- */

T_CASE(partial_sums_cover_the_shards) {
    T_UNUSED;
    for (int v = 1; v <= 1024; v *= 2)
        for (int w = 1; w <= v && w <= 64; w++) {
            int next = 0;
            for (int r = 0; r < w; r++) {
                tti_partial partials[TTI_MAX_PARTIALS];
                int first = tti_shard_first(r, w, v), last = tti_shard_first(r + 1, w, v);
                assert_true(last - first == v / w || last - first == v / w + 1);
                int n = tti_shard_partials(first, last, partials);
                assert_true(n <= TTI_MAX_PARTIALS);
                for (int k = 0; k < n; k++) {
                    T_EQ(partials[k].index << partials[k].level, next);
                    assert_null(partials[k].data);
                    next += 1 << partials[k].level;
                }
            }
            T_EQ(next, v);
        }
}

/* ---- refusals ---- */

static const char *refused_rank(tutti_comm *comm, void *arg) {
    (void)arg;
    float x[4] = {1, 2, 3, 4};
    tti_partial partial = {1, tutti_comm_rank(comm), x};
    tti_reduce_desc desc = {&partial,       1,    x,    4,     TUTTI_F32, 4,
                            TUTTI_ALG_RING, NULL, NULL, false, 0,         false};
    COMM_FAILS(tti_comm_reduce_shards(comm, &desc), TUTTI_E_INVALID,
               "order that depends on the number of workers");
    desc.alg = TUTTI_ALG_AUTO;
    desc.rounds = true;
    COMM_FAILS(tti_comm_reduce_shards(comm, &desc), TUTTI_E_INVALID, "only partial sums of bf16");
    desc.rounds = false;
    desc.n_shards = 3;
    COMM_FAILS(tti_comm_reduce_shards(comm, &desc), TUTTI_E_INVALID, "power of two in 2");
    desc.n_shards = 1;
    COMM_FAILS(tti_comm_reduce_shards(comm, &desc), TUTTI_E_INVALID, "power of two in 2");
    desc.n_shards = 8;
    COMM_FAILS(tti_comm_reduce_shards(comm, &desc), TUTTI_E_INVALID, "partial sum 0 is level 1");
    desc.n_shards = 4;
    desc.n_partials = 2;
    COMM_FAILS(tti_comm_reduce_shards(comm, &desc), TUTTI_E_INVALID, "got 2");
    desc.n_partials = 1;
    size_t bounds[3] = {0, 5, 4};
    desc.bounds = bounds;
    COMM_FAILS(tti_comm_reduce_shards(comm, &desc), TUTTI_E_INVALID, "bound 1 of group 0 is 5");
    bounds[1] = bounds[2] = 3;
    COMM_FAILS(tti_comm_reduce_shards(comm, &desc), TUTTI_E_INVALID, "from 0 to 3, want 0 to 4");
    desc.bounds = NULL;
    const tti_shard_map shard_map = {.n_ranks = 3, .n_shards = 4, .first = (int[]){0, 1, 2, 4}};
    desc.shard_map = &shard_map;
    COMM_FAILS(tti_comm_reduce_shards(comm, &desc), TUTTI_E_INVALID, "shard map has 3 ranks");
    desc.shard_map = NULL;
    partial.data = NULL;
    COMM_FAILS(tti_comm_reduce_shards(comm, &desc), TUTTI_E_INVALID, "has no data");
    partial.data = x;
    COMM_OK(tti_comm_reduce_shards(comm, &desc));
    COMM_TRUE(x[0] == 2 && x[3] == 8);
    partial.level = 1 + tutti_comm_rank(comm);
    desc.n_shards = tutti_comm_rank(comm) == 1 ? 8 : 4;
    COMM_FAILS(tti_comm_reduce_shards(comm, &desc), TUTTI_E_MISMATCH,
               "rank 1 called reduce_shards(n_elems=4, f32, shards=8, auto) where rank 0 called "
               "reduce_shards(n_elems=4, f32, shards=4, auto)");
    return NULL;
}

T_CASE(refusals_and_mismatch) {
    T_UNUSED;
    comm_run(2, refused_rank, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_division_gives_the_bits_of_the_tree),
        cmocka_unit_test(any_runs_give_the_bits_of_the_tree),
        cmocka_unit_test(shards_can_be_rebalanced),
        cmocka_unit_test(ranks_must_mean_the_same_shard_map),
        cmocka_unit_test(threads_that_see_all_memory),
        cmocka_unit_test(many_blocks),
        cmocka_unit_test(every_rank_gets_its_part),
        cmocka_unit_test(many_ranks_have_the_same_bits),
        cmocka_unit_test(partial_sums_cover_the_shards),
        cmocka_unit_test(refusals_and_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
