/* lists_test.c - the printed lists of a worker that is only planned are those that a created worker
 * executes, for each strategy. */
#include "exec/exec.h"

#include "exec/host/host.h"
#include "exec/worker/worker.h"
#include "workers.h"

static const char *compare_lists(workers *c, tti_exec *x, int rank) {
    (void)c;
    tti_str planned = {0}, program = {0};
    const tti_list_desc desc = {
        .exec = &tti_setup_of(x)->desc, .rank = rank, .n_ranks = tti_setup_of(x)->n_ranks};
    tti_step_lists *lists;
    COMM_OK(tti_step_lists_create(&desc, &lists));
    tti_step_lists_print(lists, &planned);
    tti_step_lists_destroy(lists);
    for (int form = 0; form < TTI_N_FORMS; form++) {
        if (!tti_host_program(tti_host_of(x), form)) continue;
        tti_str_clear(&program);
        tti_step_program_print(tti_host_program(tti_host_of(x), form), &program);
        COMM_TRUE(strstr(tti_str_text(&planned), tti_str_text(&program)) != NULL);
    }
    tti_str_free(&planned);
    tti_str_free(&program);
    return NULL;
}

T_CASE(planned_lists_are_those_that_run) {
    T_UNUSED;
    const tti_exec_desc strategies[] = {
        {.zero = 0},
        {.zero = 1},
        {.zero = 2},
        {.zero = 3},
        {.zero = 1, .ema = 0.9},
        {.fast = true, .wire = TUTTI_BF16},
        {.fast = true, .local = true, .local_after = 2},
        {.fast = true, .compression = TTI_COMPRESS_TOPK, .topk = 0.1, .compress_after = 1},
    };
    for (size_t i = 0; i < TTI_COUNT(strategies); i++)
        for (int n_ranks = 1; n_ranks <= 3; n_ranks++) {
            workers c = {.plan = workers_plan(net_wide, "sgd", 1 << 17),
                         .n_ranks = n_ranks,
                         .n_compute_threads = 2,
                         .exec = strategies[i],
                         .fn = compare_lists};
            workers_run(&c);
            workers_fini(&c);
        }
}

static const char *expect_list(const tti_exec *x, tti_step_form form, const char *expected) {
    tti_str text = {0};
    tti_step_program_print(tti_host_program(tti_host_of(x), form), &text);
    bool equal = strcmp(tti_str_text(&text), expected) == 0;
    if (!equal) fputs(tti_str_text(&text), stderr);
    tti_str_free(&text);
    return equal ? NULL : "another list";
}

static const char zero_1[] =
    "   #  queue    instruction                                                       waits for\n"
    "   0  compute  run             shards 2..3, steps 0..9\n"
    "   1  compute  merge           [0, 128), up to shard 3                           0\n"
    "   2  main     reduce_scatter  bucket 0, [0, 128), data axis, tree               1\n"
    "   3  main     report          sums, votes, hashes, all axes                     2\n"
    "   4  main     update          own blocks of [0, 128)                            3\n"
    "   5  main     all_gather      parameters, [0, 128), data axis                   4\n"
    "   6  main     hash            parameters of other workers                       5\n";

static const char *print_zero(workers *c, tti_exec *x, int rank) {
    (void)c;
    return rank == 0 ? NULL : expect_list(x, TTI_FORM_STEP, zero_1);
}

T_CASE(a_list_in_words) {
    T_UNUSED;
    workers c = {.plan = workers_plan(net_mlp, "sgd", 1 << 20),
                 .n_ranks = 2,
                 .n_compute_threads = 2,
                 .n_shards = 4,
                 .exec = {.zero = 1},
                 .fn = print_zero};
    workers_run(&c);
    workers_fini(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planned_lists_are_those_that_run),
        cmocka_unit_test(a_list_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
