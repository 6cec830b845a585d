/* rendezvous_test.c - which transport, which address and which secret follow from a launcher's
 * variables; Slurm's lists of hosts; who may read a token. */
#include "launch/rendezvous.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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

static tutti_status choose(const char *const *list, tti_rendezvous *out) {
    tti_worker_env env;
    T_OK(tti_worker_env_detect(NULL, get_from_list, (void *)(uintptr_t)list, &env));
    return tti_rendezvous_choose(&env, get_from_list, (void *)(uintptr_t)list, out);
}

#define OMPI "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4"
#define PLAIN "RANK=1", "WORLD_SIZE=4"
#define TOKEN "TUTTI_TOKEN=0123456789abcdef"
#define SLURM "SLURM_PROCID=1", "SLURM_NTASKS=4", "SLURM_STEP_ID=0", "SLURM_JOB_ID=123456"

typedef struct rendezvous_case {
    const char *env[10];
    const char *transport, *address; /* NULL: any */
} rendezvous_case;

static const rendezvous_case cases[] = {
    {{OMPI}, "mpi-openmpi", ""},
    {{"PMI_RANK=0", "PMI_SIZE=2"}, "mpi-mpich", ""},
    {{SLURM, "PMIX_RANK=1"}, "mpi-openmpi", ""},
    {{SLURM, "SLURM_STEP_NODELIST=n[07-09],x1", TOKEN}, "tcp", "n07:18456"},
    {{SLURM, "SLURM_STEP_NODELIST=n[07-09],x1", "MASTER_PORT=77", TOKEN}, "tcp", "n07:77"},
    {{SLURM, "SLURM_STEP_NODELIST=n1", "MASTER_ADDR=n9", "MASTER_PORT=77", TOKEN}, "tcp", "n9:77"},
    {{OMPI, "TUTTI_TRANSPORT=tcp", "MASTER_ADDR=h", "MASTER_PORT=5", TOKEN}, "tcp", "h:5"},
    {{OMPI, "TUTTI_TRANSPORT=mpi"}, "mpi-openmpi", ""},
    {{OMPI, "TUTTI_TRANSPORT=mpi-mpich"}, "mpi-mpich", ""},
    {{PLAIN, "MASTER_ADDR=10.0.0.1", TOKEN}, "tcp", "10.0.0.1:29500"},
    {{PLAIN, "MASTER_ADDR=fe80::1", "MASTER_PORT=6", TOKEN}, "tcp", "[fe80::1]:6"},
    {{PLAIN, "MASTER_ADDR=localhost", "MASTER_PORT=6"}, "tcp", NULL},
    {{PLAIN, OMPI}, "mpi-openmpi", ""},
    {{PLAIN, OMPI, "MASTER_ADDR=h", TOKEN}, "tcp", "h:29500"},
    {{PLAIN, "MASTER_ADDR=h", "MASTER_PORT=29400", "TORCHELASTIC_RUN_ID=r",
      "TORCHELASTIC_USE_AGENT_STORE=True", TOKEN},
     "tcp",
     "h:29401-29416"},
    {{PLAIN, "MASTER_ADDR=h", "TORCHELASTIC_USE_AGENT_STORE=False", TOKEN}, "tcp", "h:29500"},
    {{"PET_NODE_RANK=1", "PET_NNODES=2", "PET_MASTER_ADDR=pod-0", "PET_MASTER_PORT=29500", TOKEN},
     "tcp",
     "pod-0:29500"},
};

T_CASE(choices) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(cases); i++) {
        tti_rendezvous m;
        T_OK(choose(cases[i].env, &m));
        assert_string_equal(m.transport, cases[i].transport);
        if (cases[i].address) assert_string_equal(m.address, cases[i].address);
        T_EQ(m.token[0] != 0, strcmp(m.transport, "tcp") == 0);
        if (cases[i].address && m.token[0]) assert_string_equal(m.token, strchr(TOKEN, '=') + 1);
    }
}

/* Ranks of one host need no port, and the user's key is their token; jobs and restarts do not meet
 * each other.  A torchrun agent that joined later counts its restarts differently. */
T_CASE(one_host) {
    T_UNUSED;
#define BY_TORCHRUN PLAIN, "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=h"
    static const char *const jobs[][11] = {
        {BY_TORCHRUN, "TORCHELASTIC_RUN_ID=r", "MASTER_PORT=5", "TORCHELASTIC_RESTART_COUNT=0"},
        {BY_TORCHRUN, "TORCHELASTIC_RUN_ID=r", "MASTER_PORT=5", "TORCHELASTIC_RESTART_COUNT=1"},
        {BY_TORCHRUN, "TORCHELASTIC_RUN_ID=r", "MASTER_PORT=6", "TORCHELASTIC_RESTART_COUNT=1"},
        {BY_TORCHRUN, "TORCHELASTIC_RUN_ID=q", "MASTER_PORT=5", "TORCHELASTIC_RESTART_COUNT=0"}};
    tti_rendezvous a, b;
    T_OK(choose(jobs[0], &a));
    assert_memory_equal(a.address, "unix:tutti-", 11);
    assert_string_equal(a.job, "r/5");
    T_EQ(strlen(a.token), 64);
    for (size_t i = 1; i < TTI_COUNT(jobs); i++) {
        T_OK(choose(jobs[i], &b));
        T_EQ(strcmp(a.address, b.address) == 0, i == 1);
        assert_string_equal(a.token, b.token);
    }
    static const char *const given[] = {BY_TORCHRUN, TOKEN, NULL};
    T_OK(choose(given, &b));
    assert_string_equal(b.token, strchr(TOKEN, '=') + 1);
}

static void expect_refusal(const char *const *list, const char *why) {
    tti_rendezvous m;
    T_FAILS(choose(list, &m), TUTTI_E_CONFIG, why);
}

T_CASE(refusals) {
    T_UNUSED;
    expect_refusal((const char *const[]){PLAIN, NULL}, "MASTER_ADDR is not set");
    expect_refusal((const char *const[]){PLAIN, "MASTER_ADDR=h", NULL}, "must share a secret");
    expect_refusal((const char *const[]){PLAIN, "MASTER_ADDR=h", "TUTTI_TOKEN=short", NULL},
                   "16 to 255");
    expect_refusal((const char *const[]){PLAIN, "MASTER_ADDR=h", "MASTER_PORT=0", TOKEN, NULL},
                   "MASTER_PORT=0: expected a port");
    expect_refusal((const char *const[]){PLAIN, "MASTER_ADDR=h", "MASTER_PORT=5x", TOKEN, NULL},
                   "MASTER_PORT=5x");
    expect_refusal((const char *const[]){PLAIN, "TUTTI_TRANSPORT=pigeon", NULL}, "expected tcp");
    expect_refusal((const char *const[]){PLAIN, "TUTTI_TRANSPORT=mpi", NULL},
                   "does not show which MPI");
    expect_refusal((const char *const[]){SLURM, TOKEN, NULL}, "SLURM_STEP_NODELIST (not set)");
    expect_refusal((const char *const[]){SLURM, "SLURM_STEP_NODELIST=n1", "MASTER_PORT=x", NULL},
                   "MASTER_PORT=x: expected a port");
    expect_refusal(
        (const char *const[]){PLAIN, "MASTER_ADDR=h", "TUTTI_TOKEN_FILE=/nowhere/t", NULL},
        "/nowhere/t: No such file");
}

T_CASE(token_files) {
    T_UNUSED;
    char path[] = "/tmp/tutti-token-XXXXXX", variable[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    snprintf(variable, sizeof variable, "TUTTI_TOKEN_FILE=%s", path);
    const char *const list[] = {PLAIN, "MASTER_ADDR=h", variable, NULL};
    tti_rendezvous m;
    expect_refusal(list, "16 characters or more");
    T_EQ(write(fd, "0123456789abcdef-\nrest", 22), 22);
    T_OK(choose(list, &m));
    assert_string_equal(m.token, "0123456789abcdef-");
    T_EQ(fchmod(fd, 0640), 0);
    expect_refusal(list, "other users can read it");
    close(fd);
    unlink(path);
    T_EQ(mkfifo(path, 0600), 0); /* without a writer: a read would block */
    expect_refusal(list, "it is not a regular file");
    unlink(path);
}

T_CASE(slurm_lists) {
    T_UNUSED;
    static const char *const lists[][2] = {
        {"n1", "n1"},       {"n1,n2", "n1"},          {"n[01-03,7],x9", "n01"},
        {"a[3,5]", "a3"},   {"r[1-2]n[4-9]", "r1n4"}, {"gpu-a-[12]", "gpu-a-12"},
        {"x[7]y,z", "x7y"},
    };
    char host[16];
    for (size_t i = 0; i < TTI_COUNT(lists); i++) {
        assert_true(tti_slurm_first_host(lists[i][0], host, sizeof host));
        assert_string_equal(host, lists[i][1]);
    }
    static const char *const bad[] = {"", ",", "n[1", "n[]", "n[-]", "abcdefghijklmnop", "n[,]"};
    for (size_t i = 0; i < TTI_COUNT(bad); i++)
        assert_false(tti_slurm_first_host(bad[i], host, sizeof host));
}

T_CASE(joining_without_a_launcher) {
    T_UNUSED;
    tutti_comm *comm = NULL;
    T_EQ(setenv("RANK", "0", 1), 0);
    T_EQ(setenv("WORLD_SIZE", "2", 1), 0);
    T_EQ(setenv("MASTER_ADDR", "localhost", 1), 0);
    T_EQ(setenv("MASTER_PORT", "1", 1), 0);
    T_FAILS(tti_rendezvous_join(200, 0, &comm), TUTTI_E_TIMEOUT,
            "for rank 1; only ranks of this host");
    assert_null(comm);
}

int main(void) {
    char cache[] = "/tmp/tutti-connect-XXXXXX", key[128];
    if (!mkdtemp(cache) || setenv("TUTTI_CACHE", cache, 1) != 0) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices),     cmocka_unit_test(one_host),
        cmocka_unit_test(refusals),    cmocka_unit_test(token_files),
        cmocka_unit_test(slurm_lists), cmocka_unit_test(joining_without_a_launcher),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(key, sizeof key, "%s/rendezvous-key-%u", cache, (unsigned)geteuid());
    unlink(key);
    return rmdir(cache) == 0 ? n_failed : 1;
}
