/* memory_check_test.c - the least room that a run is let into has space for all that is counted,
 * scratch memory of kernels included; a run that is far from the limit prepares no kernels. */
#include "train/setup/memory_check.h"

#include "exec/exec.h"
#include "train/setup/worker_exec.h"
#include "train/small_job.h"

enum { PROGRAM = 32 << 20 };

static tutti_status check(const tti_blueprint *b, uint64_t n_bytes) {
    tti_memory_room room = {.n_bytes = n_bytes, .own = UINT64_MAX, .limit = "this test"};
    tutti_status st = tti_memory_check(b, -1, b->n_workers, &room);
    if (st != TUTTI_OK) T_EQ(st, TUTTI_E_NOMEM);
    return st;
}

/* By bisection: no room that is smaller by a byte is enough. */
static uint64_t least_room(const tti_blueprint *b) {
    uint64_t low = 0, high = (uint64_t)1 << 40;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (check(b, middle) == TUTTI_OK)
            high = middle;
        else
            low = middle + 1;
    }
    tti_clear_error();
    return low;
}

T_CASE(scratch_memory_is_counted) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("model.name=lenet", "parallel.workers=2", "train.batch=256");
    const tti_blueprint *b;
    uint64_t want = PROGRAM;
    size_t scratch, all_scratch = 0;
    T_OK(tti_job_resolve(job, 2));
    T_OK(tti_blueprint_create(job, &b));
    for (int w = 0; w < 2; w++) {
        tti_exec_desc desc = tti_worker_exec_desc(b);
        tti_core_share share;
        tti_exec_memory m;
        tti_worker_cores(b, w, 2, &share);
        desc.n_compute_threads = share.n_threads;
        T_OK(tti_exec_memory_plan(&desc, w, 2, &m));
        T_OK(tti_exec_scratch_plan(&desc, w, 2, &scratch));
        want += m.params + m.states + m.grads + m.arena + m.program_values + scratch;
        all_scratch += scratch;
    }
    uint64_t least = least_room(b), batches = 2 * 256 * (784 * sizeof(float) + sizeof(int32_t));
    assert_true(all_scratch > 0);
    T_EQ(least, want + batches); /* one of 140 samples, one of 50 */
    T_EQ(check(b, least - 1), TUTTI_E_NOMEM);
    assert_non_null(strstr(tutti_last_error(), "2 workers would take at least "));
    assert_non_null(strstr(tutti_last_error(), "this test leaves "));
    tti_clear_error();
    tti_blueprint_destroy(b);
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(scratch_memory_is_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
