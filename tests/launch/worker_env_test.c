/* worker_env_test.c - a table of environments as the launchers make them, and the traps in them. */
#include "launch/worker_env.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "t.h"

/* "NAME=value" texts, NULL-terminated. */
static const char *get_from_list(void *user, const char *name) {
    const char *const *list = user;
    size_t n = strlen(name);
    for (; *list; list++)
        if (strncmp(*list, name, n) == 0 && (*list)[n] == '=') return *list + n + 1;
    return NULL;
}

typedef struct env_case {
    const char *env[12];
    int rank, n_ranks, local_rank, local_n_ranks;
    const char *text; /* a part of it */
} env_case;

static const env_case cases[] = {
    {{0}, 0, 1, 0, 1, "single process"},
    {{"PET_NODE_RANK=2", "PET_NNODES=4", "PET_NPROC_PER_NODE=1"}, 2, 4, 0, 1, "Kubeflow Trainer"},
    {{"PET_NODE_RANK=2", "PET_NNODES=4"}, 2, 4, 0, 1, "PET_NODE_RANK=2"},
    {{"PET_NODE_RANK=1", "PET_NNODES=2:2"}, 1, 2, 0, 1, "PET_NNODES=2"},
    /* torchrun has chosen one of the pods */
    {{"PET_NODE_RANK=0", "PET_NNODES=1:2", "RANK=0", "WORLD_SIZE=1"}, 0, 1, 0, 1, "environment"},
    {{"PET_NODE_RANK=0", "PET_NNODES=2", "RANK=1", "WORLD_SIZE=2"}, 1, 2, 0, 1, "by environment"},
    {{"RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2"}, 2, 4, 0, 2, "RANK=2"},
    {{"RANK=2", "WORLD_SIZE=4"}, 2, 4, 0, 1, "by environment"},
    {{"RANK=1", "WORLD_SIZE=2", "TUTTI_SUPERVISOR_PID=7"}, 1, 2, 0, 1, "by tutti"},
    {{"RANK=1", "WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=x"}, 1, 2, 0, 1, "by torchrun"},
    {{"RANK=1"}, 0, 1, 0, 1, "RANK without WORLD_SIZE"},
    {{"WORLD_SIZE=8"}, 0, 1, 0, 1, "WORLD_SIZE without RANK"},
    {{"RANK=", "WORLD_SIZE="}, 0, 1, 0, 1, "single"},
    {{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=5", "LOCAL_WORLD_SIZE=2"}, 1, 2, 0, 1, "RANK=1"},
    {{"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_RANK=3"},
     3,
     4,
     1,
     2,
     "Open MPI"},
    {{"RANK=0", "WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4"},
     0,
     2,
     0,
     1,
     "RANK=0"},
    {{"RANK=0", "WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"},
     0,
     1,
     0,
     1,
     "by environment"},
    {{"RANK=0", "WORLD_SIZE=1", "TUTTI_SUPERVISOR_PID=7", "PMI_RANK=3", "PMI_SIZE=4"},
     0,
     1,
     0,
     1,
     "by tutti"},
    /* the shell of a batch script has not been started several times */
    {{"RANK=0", "WORLD_SIZE=1", "SLURM_PROCID=0", "SLURM_NTASKS=8"}, 0, 1, 0, 1, "environment"},
    {{"WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4"}, 3, 4, 0, 1, "Open MPI"},
    {{"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"}, 1, 2, 1, 2, "PMI"},
    {{"PMI_RANK=1", "PMI_SIZE=2", "SLURM_STEP_ID=0", "SLURM_PROCID=3", "SLURM_NTASKS=4"},
     1,
     2,
     0,
     1,
     "PMI_RANK"},
    {{"SLURM_PROCID=5", "SLURM_NTASKS=11", "SLURM_STEP_NUM_TASKS=8", "SLURM_STEP_ID=2",
      "SLURM_LOCALID=1", "SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=4(x2)", "SLURM_JOB_NAME=t"},
     5,
     8,
     1,
     4,
     "Slurm"},
    {{"SLURM_PROCID=9", "SLURM_NTASKS=11", "SLURM_STEP_ID=0", "SLURM_LOCALID=1", "SLURM_NODEID=2",
      "SLURM_TASKS_PER_NODE=4(x2),3"},
     9,
     11,
     1,
     3,
     "SLURM_NTASKS=11"},
    {{"SLURM_PROCID=9", "SLURM_NTASKS=11", "SLURM_STEP_ID=0", "SLURM_LOCALID=1", "SLURM_NODEID=3",
      "SLURM_TASKS_PER_NODE=4(x2),3"},
     9,
     11,
     0,
     1,
     "Slurm"},
    {{"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_ID=0", "SLURM_LOCALID=1",
      "SLURM_TASKS_PER_NODE=2;rm"},
     1,
     2,
     1,
     2,
     "Slurm"},
    {{"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_ID=0", "SLURM_LOCALID=1",
      "SLURM_TASKS_PER_NODE=(x2)"},
     1,
     2,
     0,
     1,
     "Slurm"},
    {{"SLURM_PROCID=1", "SLURM_NTASKS=10", "SLURM_STEP_ID=0", "SLURM_LOCALID=1", "SLURM_NODEID=1",
      "SLURM_TASKS_PER_NODE=  4(x1,9"}, /* the bracket is never closed */
     1,
     10,
     0,
     1,
     "Slurm"},
    /* the shells of sbatch and salloc are one process each */
    {{"SLURM_PROCID=0", "SLURM_NTASKS=8"}, 0, 1, 0, 1, "single"},
    {{"SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_STEP_ID=4294967291"}, 0, 1, 0, 1, "single"},
};

T_CASE(launchers) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(cases); i++) {
        const env_case *c = &cases[i];
        tti_worker_env env;
        T_OK(tti_worker_env_detect(NULL, get_from_list, (void *)c->env, &env));
        if (env.rank != c->rank || env.n_ranks != c->n_ranks || env.local_rank != c->local_rank ||
            env.local_n_ranks != c->local_n_ranks || !strstr(env.text, c->text))
            fail_msg("case %zu: %d/%d local %d/%d '%s'", i, env.rank, env.n_ranks, env.local_rank,
                     env.local_n_ranks, env.text);
    }
}

/* Number of ranks that a process finds which begins a session of its own and, at_terminal, has a
 * terminal; is_typed: in a process group of its own, as a shell gives to each command. */
static int ranks_in_step(const char *name, bool at_terminal, bool is_typed) {
    const char *const env[] = {"SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=8", name,
                               NULL};
    int master = posix_openpt(O_RDWR | O_NOCTTY), status = 0;
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    const char *terminal = ptsname(master);
    assert_non_null(terminal);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        tti_worker_env found = {0};
        bool is_ready = setsid() > 0 && (!at_terminal || open(terminal, O_RDWR) >= 0);
        pid_t command = is_typed ? fork() : 0;
        if (command == 0) {
            is_ready = is_ready && (!is_typed || setpgid(0, 0) == 0);
            tutti_status st = tti_worker_env_detect(NULL, get_from_list, (void *)env, &found);
            _exit(is_ready && st == TUTTI_OK ? found.n_ranks : 0);
        }
        _exit(waitpid(command, &status, 0) == command ? WEXITSTATUS(status) : 0);
    }
    T_EQ(waitpid(pid, &status, 0), pid);
    close(master);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* salloc names its job after the shell that it starts, and srun in there hands the name on: its
 * tasks would be N jobs of one rank.  With --pty the first of them has a terminal too. */
T_CASE(what_is_typed_into_a_shell_of_a_step_is_none_of_its_tasks) {
    T_UNUSED;
    static const char *const names[] = {"SLURM_JOB_NAME=bash", "SLURM_JOB_NAME=interactive"};
    for (size_t i = 0; i < TTI_COUNT(names); i++) {
        T_EQ(ranks_in_step(names[i], true, true), 1);
        T_EQ(ranks_in_step(names[i], true, false), 8);
        T_EQ(ranks_in_step(names[i], false, false), 8);
    }
    T_EQ(ranks_in_step("SLURM_JOB_NAME=train", true, true), 8);
}

/* Settings that would be N jobs of one rank: a pod's own WORLD_SIZE=1 under mpirun, an MPI that
 * does not fit srun. */
T_CASE(a_lone_rank_among_several_is_refused) {
    T_UNUSED;
    static const struct {
        const char *env[6], *say;
    } lone[] = {
        {{"RANK=0", "WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4"},
         "Open MPI has started 4 of them (OMPI_COMM_WORLD_RANK=3): for one job of 4 ranks unset "
         "RANK and WORLD_SIZE; for 4 jobs of one rank each unset OMPI_COMM_WORLD_RANK"},
        {{"RANK=0", "WORLD_SIZE=1", "PMI_RANK=0", "PMI_SIZE=2"}, "PMI has started 2 of them"},
        {{"PMI_RANK=0", "PMI_SIZE=1", "SLURM_STEP_ID=0", "SLURM_PROCID=2",
          "SLURM_STEP_NUM_TASKS=3"},
         "PMI_RANK=0 and PMI_SIZE=1 say"},
        {{"RANK=0", "WORLD_SIZE=1", "PET_NODE_RANK=1", "PET_NNODES=2"}, "unset PET_NODE_RANK"},
        {{"RANK=0", "WORLD_SIZE=1", "PET_NODE_RANK=1", "PET_NNODES=2:4"}, "has started 2 of them"},
    };
    tti_worker_env env = {.rank = 77};
    for (size_t i = 0; i < TTI_COUNT(lone); i++)
        T_FAILS(tti_worker_env_detect(NULL, get_from_list, (void *)lone[i].env, &env),
                TUTTI_E_CONFIG, lone[i].say);
    assert_int_equal(env.rank, 77);
    /* A step of one task in a job that has room for four. */
    const char *const step[] = {"RANK=0",
                                "WORLD_SIZE=1",
                                "SLURM_STEP_ID=0",
                                "SLURM_PROCID=0",
                                "SLURM_STEP_NUM_TASKS=1",
                                "SLURM_NTASKS=4",
                                NULL};
    T_OK(tti_worker_env_detect(NULL, get_from_list, (void *)step, &env));
    T_EQ(env.n_ranks, 1);
}

T_CASE(nonsense_is_refused) {
    T_UNUSED;
    static const char *const bad[][3] = {
        {"RANK=x", "WORLD_SIZE=2"},       {"RANK=-1", "WORLD_SIZE=2"},
        {"RANK=1 ", "WORLD_SIZE=2"},      {"RANK= 1", "WORLD_SIZE=2"},
        {"RANK=0x1", "WORLD_SIZE=2"},     {"RANK=99999999999999999999", "WORLD_SIZE=2"},
        {"RANK=0", "WORLD_SIZE=2e3"},     {"RANK=0", "WORLD_SIZE=4294967297"},
        {"RANK=0", "WORLD_SIZE=9999999"},
    };
    tti_worker_env env = {.rank = 77};
    for (size_t i = 0; i < TTI_COUNT(bad); i++)
        T_FAILS(tti_worker_env_detect(NULL, get_from_list, (void *)bad[i], &env), TUTTI_E_CONFIG,
                "expected a number");
    const char *const above[] = {"PMI_RANK=2", "PMI_SIZE=2", NULL};
    T_FAILS(tti_worker_env_detect(NULL, get_from_list, (void *)above, &env), TUTTI_E_CONFIG,
            "PMI_RANK=2 must be below PMI_SIZE=2");
    const char *const zero[] = {"RANK=0", "WORLD_SIZE=0", NULL};
    T_FAILS(tti_worker_env_detect(NULL, get_from_list, (void *)zero, &env), TUTTI_E_CONFIG,
            "must be below");
    const char *const pod[] = {"PET_NODE_RANK=0", "PET_NNODES=2", "PET_NPROC_PER_NODE=gpu", NULL};
    T_FAILS(tti_worker_env_detect(NULL, get_from_list, (void *)pod, &env), TUTTI_E_CONFIG,
            "PET_NPROC_PER_NODE=gpu asks for several processes in each pod");
    static const char *const ranges[][2] = {
        {"PET_NNODES=1:2", "launch: PET_NNODES=1:2 is a range of 1 to 2 pods"},
        {"PET_NNODES=1:2", "give one number"},
        {"PET_NNODES=1:x", "PET_NNODES=1:x: expected a number"},
        {"PET_NNODES=0000000000000001:2", "PET_NNODES=0000000000000001:2: expected a number"},
        {"PET_NNODES=:2", "PET_NNODES=:2: expected a number"},
        {"PET_NNODES=2:", "PET_NNODES=2:: expected a number"}};
    for (size_t i = 0; i < TTI_COUNT(ranges); i++) {
        const char *const list[] = {"PET_NODE_RANK=0", ranges[i][0], NULL};
        T_FAILS(tti_worker_env_detect(NULL, get_from_list, (void *)list, &env), TUTTI_E_CONFIG,
                ranges[i][1]);
    }
    T_EQ(env.rank, 77);
}

T_CASE(flags_come_first) {
    T_UNUSED;
    const char *const list[] = {"RANK=1", "WORLD_SIZE=2", NULL};
    tti_worker_env env;
    T_OK(tti_worker_env_detect(&(tti_rank_flags){5, 6}, get_from_list, (void *)list, &env));
    T_EQ(env.rank, 5);
    T_EQ(env.n_ranks, 6);
    assert_string_equal(env.launcher, "flags");
    T_OK(tti_worker_env_detect(&(tti_rank_flags){0, 0}, get_from_list, (void *)list, &env));
    T_EQ(env.rank, 1);
    T_FAILS(tti_worker_env_detect(&(tti_rank_flags){6, 6}, NULL, NULL, &env), TUTTI_E_CONFIG,
            "rank 6 of 6");
    T_FAILS(tti_worker_env_detect(&(tti_rank_flags){0, -3}, NULL, NULL, &env), TUTTI_E_CONFIG,
            "of -3");
}

T_CASE(reads_the_real_environment) {
    T_UNUSED;
    setenv("RANK", "3", 1);
    setenv("WORLD_SIZE", "5", 1);
    tti_worker_env env;
    T_OK(tti_worker_env_detect(NULL, NULL, NULL, &env));
    T_EQ(env.rank, 3);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launchers),
        cmocka_unit_test(what_is_typed_into_a_shell_of_a_step_is_none_of_its_tasks),
        cmocka_unit_test(a_lone_rank_among_several_is_refused),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(flags_come_first),
        cmocka_unit_test(reads_the_real_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
