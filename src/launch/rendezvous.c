/* rendezvous.c - chooses transport, address and token from a launcher's variables.
 *
 * Under Open MPI and MPICH, ranks communicate through that library, in a matching module.  All
 * other ranks connect at MASTER_ADDR:MASTER_PORT.  Ranks of one host use a Unix socket instead of a
 * port, which only this host and this user can reach.  Its name is derived from a secret, so no
 * other user can take the name first. */
#include "launch/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "launch/user_key.h"

enum {
    AGENT_PORTS = 16 /* number of ports to try above the port of torchrun's own store */,
    SLURM_PORT = 15000
};

static const char *look_twice(const tti_environment *env, const char *name, const char *other) {
    const char *value = tti_env_look(env, name);
    return value ? value : tti_env_look(env, other);
}

static bool is(const tti_worker_env *worker, const char *launcher) {
    return strcmp(worker->launcher, launcher) == 0;
}

/* ---- transport ---- */

/* Returns the MPI transport that matches the launcher; NULL: none. */
static const char *mpi_of(const tti_environment *env, const tti_worker_env *worker) {
    if (is(worker, "Open MPI")) return "mpi-openmpi";
    if (is(worker, "PMI")) return "mpi-mpich";
    if (is(worker, "Slurm") && tti_env_look(env, "PMIX_RANK"))
        return "mpi-openmpi"; /* --mpi=pmix */
    if (tti_env_look(env, "OMPI_COMM_WORLD_SIZE") && !tti_env_look(env, "MASTER_ADDR"))
        return "mpi-openmpi";
    if (tti_env_look(env, "PMI_SIZE") && !tti_env_look(env, "MASTER_ADDR")) return "mpi-mpich";
    return NULL;
}

static tutti_status choose_transport(const tti_environment *env, const tti_worker_env *worker,
                                     tti_rendezvous *out) {
    static const char *const known[] = {"tcp", "mpi", "mpi-openmpi", "mpi-mpich"};
    const char *asked = tti_env_look(env, "TUTTI_TRANSPORT"), *mpi = mpi_of(env, worker);
    bool is_known = !asked;
    for (size_t i = 0; asked && i < TTI_COUNT(known); i++)
        is_known = is_known || strcmp(asked, known[i]) == 0;
    if (!is_known)
        return tti_fail(
            TUTTI_E_CONFIG,
            "launch: TUTTI_TRANSPORT=%.40s: expected tcp, mpi, mpi-openmpi or mpi-mpich", asked);
    bool any_mpi = asked && strcmp(asked, "mpi") == 0;
    if (any_mpi && !mpi)
        return tti_fail(TUTTI_E_CONFIG,
                        "launch: TUTTI_TRANSPORT=mpi: the launcher (%s) does not show which MPI; "
                        "give mpi-openmpi or mpi-mpich",
                        worker->launcher);
    if (!asked || any_mpi) asked = mpi ? mpi : "tcp";
    snprintf(out->transport, sizeof out->transport, "%s", asked);
    return TUTTI_OK;
}

/* ---- address of rank 0 ---- */

bool tti_slurm_first_host(const char *list, char *out, size_t n_bytes) {
    size_t n = 0;
    for (const char *p = list; *p && *p != ','; p++) {
        if (n + 1 >= n_bytes) return false;
        if (*p != '[') {
            out[n++] = *p;
            continue;
        }
        size_t n_digits = strcspn(p + 1, ",-]");
        const char *end = strchr(p, ']');
        if (!end || n_digits == 0 || n + n_digits >= n_bytes) return false;
        memcpy(out + n, p + 1, n_digits);
        n += n_digits;
        p = end;
    }
    out[n] = '\0';
    return n > 0;
}

/* Reads the port in text; without text *port stays as it is. */
static tutti_status read_port(const char *text, int *port) {
    if (!text) return TUTTI_OK;
    char *end;
    long n = strtol(text, &end, 10);
    if (*end || n < 1 || n > 65535 - AGENT_PORTS)
        return tti_fail(TUTTI_E_CONFIG, "launch: MASTER_PORT=%.40s: expected a port from 1 to %d",
                        text, 65535 - AGENT_PORTS);
    *port = (int)n;
    return TUTTI_OK;
}

/* Chooses the address for Slurm, which sets none: the first host of the step and, unless
 * MASTER_PORT is set, a port that depends on the job id. */
static tutti_status slurm_place(const tti_environment *env, char *host, size_t n_bytes, int *port) {
    const char *list = look_twice(env, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
    const char *job = tti_env_look(env, "SLURM_JOB_ID");
    if (!list || !job || !tti_slurm_first_host(list, host, n_bytes))
        return tti_fail(TUTTI_E_CONFIG,
                        "launch: Slurm's SLURM_STEP_NODELIST (%.60s) and SLURM_JOB_ID do not give "
                        "the address of rank 0; set MASTER_ADDR and MASTER_PORT",
                        list ? list : "not set");
    size_t n = strlen(job);
    *port = SLURM_PORT + atoi(n > 4 ? job + n - 4 : job);
    return read_port(tti_env_look(env, "MASTER_PORT"), port);
}

static tutti_status find_place(const tti_environment *env, const tti_worker_env *worker, char *host,
                               size_t n_bytes, int *port) {
    const char *addr = look_twice(env, "MASTER_ADDR", "PET_MASTER_ADDR");
    const char *text = look_twice(env, "MASTER_PORT", "PET_MASTER_PORT");
    if (!addr && is(worker, "Slurm")) return slurm_place(env, host, n_bytes, port);
    if (!addr)
        return tti_fail(TUTTI_E_CONFIG,
                        "launch: %s, but MASTER_ADDR is not set: set MASTER_ADDR to the host of "
                        "rank 0 and MASTER_PORT to a free port of that host",
                        worker->text);
    *port = 29500;
    TTI_TRY(read_port(text, port));
    if (strlen(addr) >= n_bytes)
        return tti_fail(TUTTI_E_CONFIG, "launch: MASTER_ADDR=%.40s... is too long", addr);
    snprintf(host, n_bytes, "%s", addr);
    return TUTTI_OK;
}

/* ---- authentication ---- */

static tutti_status fail_token(const char *path, const char *why) {
    return tti_fail(TUTTI_E_CONFIG, "launch: TUTTI_TOKEN_FILE=%.200s: %s", path, why);
}

/* Reads one line of a file that only the owner can read.  Does not block on a pipe without a
 * writer. */
static tutti_status read_token(const char *path, char token[TTI_TOKEN_BYTES]) {
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return fail_token(path, strerror(errno));
    bool is_file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    bool is_private = is_file && !(info.st_mode & 077);
    ssize_t n = is_private ? read(fd, token, TTI_TOKEN_BYTES - 1) : 0;
    close(fd);
    if (!is_file) return fail_token(path, "it is not a regular file");
    if (!is_private) return fail_token(path, "other users can read it: chmod 600 it");
    token[n > 0 ? n : 0] = '\0';
    token[strcspn(token, "\r\n")] = '\0';
    if (strlen(token) >= 16) return TUTTI_OK;
    return fail_token(path, "the first line must have 16 characters or more");
}

/* Finds the token that the user has set; "" if none. */
static tutti_status find_token(const tti_environment *env, tti_rendezvous *out) {
    const char *path = tti_env_look(env, "TUTTI_TOKEN_FILE"),
               *token = tti_env_look(env, "TUTTI_TOKEN");
    if (path) return read_token(path, out->token);
    if (!token) return TUTTI_OK;
    if (strlen(token) < 16 || strlen(token) >= sizeof out->token)
        return tti_fail(TUTTI_E_CONFIG, "launch: TUTTI_TOKEN must have 16 to %zu characters",
                        sizeof out->token - 1);
    snprintf(out->token, sizeof out->token, "%s", token);
    return TUTTI_OK;
}

static tutti_status fail_no_token(const char *host, int port) {
    return tti_fail(
        TUTTI_E_CONFIG,
        "launch: ranks of several hosts connect at %s:%d: they must share a secret, so that no "
        "other process joins. Make one, readable on every host, with (umask 077; head -c 24 "
        "/dev/urandom | base64 > token) and set TUTTI_TOKEN_FILE=token, or set TUTTI_TOKEN",
        host, port);
}

/* ---- choice ---- */

static bool is_loopback(const char *host) {
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

/* Writes a text that identifies the job and its start, so that a process of an earlier start cannot
 * join this one.  Starts of torchrun differ in MASTER_PORT, which is chosen for each start.  Its
 * restart count cannot be used, because an agent that replaces a lost host begins at 0. */
static void name_job(const tti_environment *env, tti_rendezvous *out) {
    const char *run = tti_env_look(env, "TORCHELASTIC_RUN_ID");
    const char *restart = run ? tti_env_look(env, "MASTER_PORT")
                              : look_twice(env, "SLURM_STEP_ID", "SLURM_RESTART_COUNT");
    if (!run) run = tti_env_look(env, "SLURM_JOB_ID");
    snprintf(out->job, sizeof out->job, "%.80s/%.20s", run ? run : "", restart ? restart : "");
}

static tutti_status connect_at_address(const tti_environment *env, const tti_worker_env *worker,
                                       tti_rendezvous *out) {
    char host[256];
    int port = 0;
    TTI_TRY(find_place(env, worker, host, sizeof host, &port));
    name_job(env, out);
    TTI_TRY(find_token(env, out));
    if (is_loopback(host) || worker->local_n_ranks == worker->n_ranks) {
        snprintf(out->address, sizeof out->address, "unix:tutti-%u-%d-%.50s", (unsigned)geteuid(),
                 port, out->job);
        return out->token[0] ? TUTTI_OK : tti_user_key(out->token, sizeof out->token);
    }
    if (!out->token[0]) return fail_no_token(host, port);
    bool agent = tti_env_look(env, "TORCHELASTIC_USE_AGENT_STORE") != NULL &&
                 strcmp(tti_env_look(env, "TORCHELASTIC_USE_AGENT_STORE"), "True") == 0;
    bool colons = strchr(host, ':') && host[0] != '[';
    int n = snprintf(out->address, sizeof out->address, colons ? "[%s]:%d" : "%s:%d", host,
                     agent ? port + 1 : port);
    if (agent)
        snprintf(out->address + n, sizeof out->address - (size_t)n, "-%d", port + AGENT_PORTS);
    return TUTTI_OK;
}

tutti_status tti_rendezvous_choose(const tti_worker_env *env, tti_getenv_fn get, void *user,
                                   tti_rendezvous *out) {
    const tti_environment variables = {get, user};
    *out = (tti_rendezvous){.transport = ""};
    TTI_TRY(choose_transport(&variables, env, out));
    if (strcmp(out->transport, "tcp") != 0) return TUTTI_OK;
    return connect_at_address(&variables, env, out);
}

tutti_status tti_rendezvous_of_hosts(char *host, size_t n_bytes, int *port,
                                     char token[TTI_TOKEN_BYTES]) {
    const tti_environment env = {0};
    const tti_worker_env worker = {.launcher = "environment", .text = "TUTTI_NODES is set"};
    tti_rendezvous found = {.transport = "tcp"};
    TTI_TRY(find_place(&env, &worker, host, n_bytes, port));
    TTI_TRY(find_token(&env, &found));
    if (!found.token[0]) return fail_no_token(host, *port);
    memcpy(token, found.token, TTI_TOKEN_BYTES);
    return TUTTI_OK;
}

tutti_status tti_rendezvous_join(int timeout_ms, int phase_timeout_ms, tutti_comm **out) {
    tti_worker_env env;
    tti_rendezvous rendezvous;
    TTI_TRY(tti_worker_env_detect(NULL, NULL, NULL, &env));
    TTI_TRY(tti_rendezvous_choose(&env, NULL, NULL, &rendezvous));
    return tutti_comm_create(
        &(tutti_comm_desc){.transport = rendezvous.transport,
                           .rank = env.rank,
                           .n_ranks = env.n_ranks,
                           .timeout_ms = timeout_ms,
                           .phase_timeout_ms = phase_timeout_ms,
                           .address = rendezvous.address[0] ? rendezvous.address : NULL,
                           .token = rendezvous.token[0] ? rendezvous.token : NULL,
                           .job = rendezvous.job},
        out);
}
