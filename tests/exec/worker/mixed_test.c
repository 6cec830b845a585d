/* mixed_test.c - who may be workers of one run on devices and on the host. */
#include "exec/worker/worker.h"

#include "comm/ranks.h"
#include "t.h"

typedef struct mixture {
    tti_plan plan[2];
    tti_exec_desc desc;
} mixture;

static tutti_status check(const mixture *m, tutti_comm *comm) {
    tti_setup setup = {.desc = m->desc, .n_ranks = 2, .rank = tutti_comm_rank(comm)};
    setup.desc.comm = comm;
    setup.desc.plan = &m->plan[setup.rank];
    setup.desc.backend = &tti_backend_cpu;
    return tti_mixed_check(&setup);
}

static const char *alike(tutti_comm *comm, void *arg) {
    COMM_OK(check(arg, comm));
    return NULL;
}

/* All of them hear of it. */
static const char *unlike(tutti_comm *comm, void *arg) {
    COMM_TRUE(check(arg, comm) == TUTTI_E_MISMATCH);
    COMM_TRUE(strstr(tutti_last_error(), "rank 1 has another plan than rank 0") != NULL);
    return NULL;
}

static const char *refused(tutti_comm *comm, void *arg) {
    COMM_TRUE(check(arg, comm) == TUTTI_E_UNSUPPORTED);
    return NULL;
}

static const mixture good = {.desc = {.mixed = true, .fast = true}};

T_CASE(plans_are_compared) {
    T_UNUSED;
    mixture m = good;
    comm_run(2, alike, &m);
    m.plan[1].n_flat = 16;
    comm_run(2, unlike, &m);
    m.desc.mixed = false;
    comm_run(2, alike, &m);
}

T_CASE(what_is_in_parts_is_refused) {
    T_UNUSED;
    tti_exec_desc bad[5] = {good.desc, good.desc, good.desc, good.desc, good.desc};
    tti_mesh mesh = {0};
    bad[0].fast = false;
    bad[1].zero = 1;
    bad[2].local = true;
    bad[3].compression = TTI_COMPRESS_TOPK;
    bad[4].mesh = &mesh;
    for (size_t i = 0; i < TTI_COUNT(bad); i++) {
        mixture m = good;
        m.desc = bad[i];
        comm_run(2, refused, &m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_are_compared),
                                       cmocka_unit_test(what_is_in_parts_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
