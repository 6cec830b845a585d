/* agreement_test.c - jobs that differ are shown to every rank, folders come from rank 0, cores are
 * divided by those who share them. */
#include "train/setup/agreement.h"

#include <stdio.h>

#include "base/affinity.h"
#include "base/error.h"
#include "comm/ranks.h"

static const char *const yaml = "model:\n  name: mlp\ntrain:\n  batch: 8\n  seed: 1\n";
static const char *const other_seed = "model:\n  name: mlp\ntrain:\n  batch: 8\n  seed: 2\n";
static const char *const shorter = "model:\n  name: mlp\ntrain:\n  batch: 8\n";

typedef struct jobs {
    const char *of_rank[3];
    const char *why; /* NULL: they agree */
} jobs;

static const char *agree_on_job(tutti_comm *comm, void *arg) {
    const jobs *j = arg;
    tutti_status st = tti_agree_on_job(comm, j->of_rank[tutti_comm_rank(comm)]);
    if (j->why) COMM_FAILS(st, TUTTI_E_CONFIG, j->why);
    if (!j->why) COMM_OK(st);
    return NULL;
}

T_CASE(jobs_are_compared) {
    T_UNUSED;
    jobs table[] = {
        {{yaml, yaml, yaml}, NULL},
        {{yaml, yaml, other_seed},
         "rank 2 has another job than rank 0: train: 'seed: 2' where rank 0 has 'seed: 1'"},
        {{yaml, shorter, yaml},
         "rank 1 has another job than rank 0: train: '' where rank 0 has 'seed: 1'"},
        {{shorter, shorter, yaml}, "train: 'seed: 1' where rank 0 has ''"},
        {{"a: 1\n", "b: 1\n", "a: 1\n"}, "than rank 0: 'b: 1' where rank 0 has 'a: 1'"},
    };
    for (size_t i = 0; i < TTI_COUNT(table); i++) comm_run(3, agree_on_job, &table[i]);
}

/* Rank 0 sends a job size that is not valid. */
static const char *hear_of_a_size(tutti_comm *comm, void *arg) {
    uint64_t n_bytes = *(uint64_t *)arg;
    if (tutti_comm_rank(comm) == 0)
        COMM_OK(tutti_comm_broadcast(comm, &n_bytes, sizeof n_bytes, TUTTI_U8, 0));
    else
        COMM_FAILS(tti_agree_on_job(comm, yaml), TUTTI_E_CONFIG, "a job of");
    return NULL;
}

T_CASE(sizes_are_checked_before_memory_is_taken) {
    T_UNUSED;
    uint64_t sizes[] = {0, 1 << 30, UINT64_MAX};
    for (size_t i = 0; i < TTI_COUNT(sizes); i++) comm_run(2, hear_of_a_size, &sizes[i]);
}

static const char *agree_on_dir(tutti_comm *comm, void *arg) {
    bool fails = *(bool *)arg;
    char dir[32] = "";
    tutti_status mine = TUTTI_OK;
    if (tutti_comm_rank(comm) == 0) {
        snprintf(dir, sizeof dir, "runs/x-7");
        if (fails) mine = tti_fail(TUTTI_E_IO, "runs: no space");
    }
    tutti_status st = tti_agree_on_dir(comm, mine, dir, sizeof dir);
    if (!fails) {
        COMM_OK(st);
        COMM_TRUE(strcmp(dir, "runs/x-7") == 0);
    } else if (tutti_comm_rank(comm) == 0) {
        COMM_FAILS(st, TUTTI_E_IO, "runs: no space");
    } else {
        COMM_FAILS(st, TUTTI_E_PEER, "rank 0: runs: no space");
    }
    return NULL;
}

T_CASE(folders_come_from_rank_0) {
    T_UNUSED;
    bool fails[] = {false, true};
    for (int i = 0; i < 2; i++) comm_run(3, agree_on_dir, &fails[i]);
}

/* Each rank of a launcher that binds has the cores to itself. */
static const char *agree_on_cores(tutti_comm *comm, void *arg) {
    const tti_cores *cores = arg;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm), local, n_local;
    COMM_OK(tti_agree_on_cores(comm, &local, &n_local));
    COMM_TRUE(local == rank && n_local == n_ranks);
    if (cores->n < 2) return NULL;
    tti_cores own = {.n = 1, .id = {cores->id[rank % 2]}};
    COMM_OK(tti_cores_pin(&own));
    COMM_OK(tti_agree_on_cores(comm, &local, &n_local));
    COMM_TRUE(local == rank / 2 && n_local == (rank % 2 ? n_ranks / 2 : (n_ranks + 1) / 2));
    return NULL;
}

T_CASE(cores_are_divided_by_those_who_share_them) {
    T_UNUSED;
    tti_cores cores;
    tti_cores_allowed(&cores);
    comm_run(2, agree_on_cores, &cores);
    comm_run(3, agree_on_cores, &cores);
}

/* Whatever numbers they have; 0 is none. */
static const char *agree_on_devices(tutti_comm *comm, void *arg) {
    static const struct {
        uint64_t identity[4];
        int want;
    } rows[] = {{{5, 5, 5, 5}, 1},
                {{5, 6, 7, 7}, 3},
                {{0, 5, 0, 0}, 1},
                {{0, 0, 0, 0}, 0},
                {{5, 6, UINT64_MAX, 6}, 3}};
    int n;
    (void)arg;
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        COMM_OK(tti_agree_on_devices(comm, rows[i].identity[tutti_comm_rank(comm)], &n));
        COMM_TRUE(n == rows[i].want);
    }
    return NULL;
}

T_CASE(devices_are_told_apart) {
    T_UNUSED;
    comm_run(4, agree_on_devices, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_are_compared),
        cmocka_unit_test(sizes_are_checked_before_memory_is_taken),
        cmocka_unit_test(folders_come_from_rank_0),
        cmocka_unit_test(devices_are_told_apart),
        cmocka_unit_test(cores_are_divided_by_those_who_share_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
