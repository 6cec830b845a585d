/* partitions_test.c - partitions of different lengths reach every rank, and nothing else changes.
 */
#include "comm/partitions.h"

#include "comm/ranks.h"

enum { N = 3000, N_GROUPS = 3, MAX_RANKS = 8 };

typedef struct job {
    bool registered, in_place;
    size_t scale; /* of the lengths: 1 short, more for long partitions */
} job;

/* Three groups with a gap between them; in each another rank has nothing. */
static void fill_bounds(const job *j, int n_ranks, size_t *bounds) {
    for (int g = 0; g < N_GROUPS; g++)
        for (int r = 0, at = g * N / N_GROUPS + 7; r <= n_ranks; r++) {
            bounds[g * (n_ranks + 1) + r] = (size_t)at * j->scale;
            at += r == g % n_ranks ? 0 : 17 + 13 * r + g;
        }
}

static int owner_of(const size_t *bounds, int n_ranks, size_t i) {
    for (int g = 0; g < N_GROUPS; g++)
        for (int r = 0; r < n_ranks; r++) {
            const size_t *bound = &bounds[g * (n_ranks + 1) + r];
            if (i >= bound[0] && i < bound[1]) return r;
        }
    return -1;
}

static const char *check(const job *j, int rank, int n_ranks, const size_t *bounds,
                         const float *dst) {
    for (size_t i = 0; i < N * j->scale; i++) {
        int owner = owner_of(bounds, n_ranks, i);
        float want = owner == -1 || (owner == rank && !j->in_place) ? -1 : (float)(i + 1);
        if (dst[i] != want)
            return comm_text("W %d rank %d [%zu]: got %g, want %g", n_ranks, rank, i,
                             (double)dst[i], (double)want);
    }
    return NULL;
}

static const char *gather_rank(tutti_comm *comm, void *arg) {
    const job *j = arg;
    size_t n = N * j->scale, bounds[N_GROUPS * (MAX_RANKS + 1)];
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    void *memory = NULL;
    if (j->registered)
        COMM_OK(tutti_comm_alloc(comm, n * sizeof(float), &memory));
    else
        memory = malloc(n * sizeof(float));
    float *src = memory, *dst = j->in_place ? src : malloc(n * sizeof *dst);
    fill_bounds(j, n_ranks, bounds);
    for (size_t i = 0; i < n; i++) {
        dst[i] = -1;
        src[i] = owner_of(bounds, n_ranks, i) == rank ? (float)(i + 1) : -1;
    }
    COMM_OK(tti_comm_gather_partitions(
        comm,
        &(tti_partitions_desc){
            .src = src, .dst = dst, .bounds = bounds, .n_groups = N_GROUPS, .dtype = TUTTI_F32}));
    const char *failure = check(j, rank, n_ranks, bounds, dst);
    if (dst != src) free(dst);
    if (!j->registered) free(memory);
    return failure;
}

/* Own partitions follow each other with small gaps. */
static const char *compact_rank(tutti_comm *comm, void *arg) {
    const job *j = arg;
    enum { GAP = 3 };
    size_t n = N * j->scale, bounds[N_GROUPS * (MAX_RANKS + 1)], from[N_GROUPS * MAX_RANKS];
    size_t n_src[MAX_RANKS] = {0}, most = 0;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    fill_bounds(j, n_ranks, bounds);
    for (int g = 0; g < N_GROUPS; g++)
        for (int r = 0; r < n_ranks; r++) {
            const size_t *bound = &bounds[g * (n_ranks + 1) + r];
            from[g * n_ranks + r] = n_src[r] + GAP;
            n_src[r] += bound[1] - bound[0] + GAP;
            if (n_src[r] > most) most = n_src[r];
        }
    void *memory = NULL;
    if (j->registered)
        COMM_OK(tutti_comm_alloc(comm, most * sizeof(float), &memory));
    else
        memory = malloc(n_src[rank] * sizeof(float));
    float *src = memory, *dst = malloc(n * sizeof *dst);
    for (size_t i = 0; i < n; i++) dst[i] = -1;
    for (int g = 0; g < N_GROUPS; g++) {
        const size_t *bound = &bounds[g * (n_ranks + 1) + rank];
        for (size_t i = bound[0]; i < bound[1]; i++)
            src[from[g * n_ranks + rank] + (i - bound[0])] = (float)(i + 1);
    }
    COMM_OK(tti_comm_gather_partitions(comm, &(tti_partitions_desc){.src = src,
                                                                    .dst = dst,
                                                                    .bounds = bounds,
                                                                    .n_groups = N_GROUPS,
                                                                    .from = from,
                                                                    .dtype = TUTTI_F32}));
    const char *failure = check(j, rank, n_ranks, bounds, dst);
    free(dst);
    if (!j->registered) free(memory);
    return failure;
}

T_CASE(sources_have_room_for_their_own_alone) {
    T_UNUSED;
    for (int w = 1; w <= MAX_RANKS; w++)
        for (int registered = 0; registered < 2; registered++) {
            job j = {.registered = registered, .scale = w == 3 ? 100 : 1};
            comm_run_with(w, true, 0, compact_rank, &j);
        }
}

T_CASE(parts_come_to_every_rank) {
    T_UNUSED;
    for (int w = 1; w <= MAX_RANKS; w++)
        for (int bits = 0; bits < 8; bits++) {
            job j = {.registered = bits & 1, .in_place = bits & 2, .scale = bits & 4 ? 100 : 1};
            if (j.scale == 1 || w == 3) comm_run_with(w, true, 0, gather_rank, &j);
        }
}

static const char *refused_rank(tutti_comm *comm, void *arg) {
    (void)arg;
    float x[8] = {0};
    size_t bounds[3] = {0, 4, 8};
    tti_partitions_desc desc = {.src = x, .dst = x, .n_groups = 1, .dtype = TUTTI_F32};
    COMM_FAILS(tti_comm_gather_partitions(comm, &desc), TUTTI_E_INVALID, "bounds is NULL");
    desc.bounds = bounds;
    desc.dst = x + 1;
    COMM_FAILS(tti_comm_gather_partitions(comm, &desc), TUTTI_E_INVALID, "overlap");
    desc.dst = x;
    bounds[1] = 9;
    COMM_FAILS(tti_comm_gather_partitions(comm, &desc), TUTTI_E_INVALID, "bound 1 of group 0 is 9");
    bounds[1] = 4;
    size_t from[2] = {0, SIZE_MAX / 8};
    desc.from = from;
    COMM_FAILS(tti_comm_gather_partitions(comm, &desc), TUTTI_E_INVALID,
               "a partition begins at element");
    desc.from = NULL;
    bounds[1] = (size_t)(3 + tutti_comm_rank(comm));
    COMM_FAILS(tti_comm_gather_partitions(comm, &desc), TUTTI_E_MISMATCH,
               "rank 1 called gather_partitions(n_elems=8, f32, partitions=");
    return NULL;
}

T_CASE(refusals_and_mismatch) {
    T_UNUSED;
    comm_run(2, refused_rank, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_come_to_every_rank),
        cmocka_unit_test(sources_have_room_for_their_own_alone),
        cmocka_unit_test(refusals_and_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
