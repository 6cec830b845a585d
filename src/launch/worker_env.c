/* worker_env.c - finds rank and size in the environment, with a table of launchers in order of
 * trust.
 *
 * A row is used if both its rank and its size are set; WORLD_SIZE alone, which batch scripts
 * export, is skipped and mentioned in the text.  A row with "rank 0 of 1" is accepted only if no
 * later row reports more ranks: otherwise N processes would each train the whole job. */
#include "launch/worker_env.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

const char *tti_env_look(const tti_environment *env, const char *name) {
    const char *value = NULL;
    if (name) value = env->get ? env->get(env->user, name) : getenv(name);
    return value && *value ? value : NULL;
}

typedef struct launcher_row {
    const char *launcher;
    const char *rank, *size, *local_rank, *local_size; /* names of variables, NULL: none */
    bool (*applies)(const tti_environment *env);       /* NULL: when rank and size are set */
} launcher_row;

static bool in_slurm_step(const tti_environment *env);
static bool is_trainer_pod(const tti_environment *env);

static const launcher_row launchers[] = {
    {"environment", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, in_slurm_step},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, in_slurm_step},
    {"Kubeflow Trainer", "PET_NODE_RANK", "PET_NNODES", NULL, NULL, is_trainer_pod},
};

/* Parses a decimal integer in [0, max]. */
static bool parse_int(const char *text, long max, int *out) {
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || end == text || *end || *text < '0' || *text > '9' || n > max) return false;
    *out = (int)n;
    return true;
}

static bool has_terminal(void) {
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return false;
    close(fd);
    return true;
}

/* True for a command typed into an interactive shell, which gives each command its own process
 * group.  A task of srun, and the processes of its script, are in the group of their session. */
static bool is_typed_command(void) { return getpgrp() != getsid(0) && has_terminal(); }

/* True in a step of srun.  Batch, interactive and external steps have ids near 2^32; they are
 * shells, not tasks.  The shell of "srun --pty bash" is not a task either.  The job name alone
 * does not show this, because tasks that srun starts in a shell of salloc have the same name.  A
 * terminal alone does not show it either, because the first task of "srun --pty -n 4" has one
 * too. */
static bool in_slurm_step(const tti_environment *env) {
    const char *step = tti_env_look(env, "SLURM_STEP_ID"),
               *job = tti_env_look(env, "SLURM_JOB_NAME");
    int id;
    if (!step || !parse_int(step, INT_MAX, &id)) return false;
    bool is_named_so = job && (strcmp(job, "bash") == 0 || strcmp(job, "interactive") == 0);
    return !is_named_so || !is_typed_command();
}

/* True in a pod of Kubeflow Trainer, which has one process.  Several processes per pod are started
 * by torchrun, which also reads PET_*. */
static bool is_trainer_pod(const tti_environment *env) {
    const char *n = tti_env_look(env, "PET_NPROC_PER_NODE");
    return !n || strcmp(n, "1") == 0;
}

/* Parses "4" as 4 to 4, and torchrun's "1:2" as 1 to 2. */
static bool parse_range(const char *text, int *low, int *high) {
    char first[16];
    size_t n = strcspn(text, ":");
    if (n >= sizeof first) return false;
    snprintf(first, sizeof first, "%.*s", (int)n, text);
    return parse_int(first, TTI_MAX_WORLD_SIZE, low) &&
           parse_int(text[n] ? text + n + 1 : first, TTI_MAX_WORLD_SIZE, high) && *low <= *high;
}

/* Returns the tasks on node i of a list such as "4(x2),3", which means 4, 4 and 3; 0 if there is no
 * such node. */
static int tasks_on_node(const char *list, int i) {
    while (*list) {
        int n = 0, times = 1, used = 0;
        if (sscanf(list, "%6d%n", &n, &used) != 1 || n < 1) return 0;
        list += used;
        used = 0;
        (void)sscanf(list, "(x%6d)%n", &times,
                     &used); /* used is set only if the bracket is closed */
        list += used;
        if (i < times) return n;
        i -= times;
        if (*list && *list++ != ',') return 0;
    }
    return 0;
}

/* Finds the number of tasks on this node, which Slurm sets only as a list over all nodes. */
static int slurm_local_size(const tti_environment *env) {
    const char *list = tti_env_look(env, "SLURM_STEP_TASKS_PER_NODE"),
               *node = tti_env_look(env, "SLURM_NODEID");
    if (!list) list = tti_env_look(env, "SLURM_TASKS_PER_NODE");
    int i = 0;
    if (!list || (node && !parse_int(node, TTI_MAX_WORLD_SIZE, &i))) return 0;
    return tasks_on_node(list, i);
}

static tutti_status read_number(const tti_environment *env, const char *name, long max, int *out) {
    const char *text = tti_env_look(env, name);
    if (parse_int(text, max, out)) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG, "launch: %s=%.40s: expected a number from 0 to %ld", name, text,
                    max);
}

/* Reads the number of ranks.  It may have torchrun's format: "2:2" means 2; for "1:2" only torchrun
 * knows the number. */
static tutti_status read_size(const tti_environment *env, const launcher_row *row, int *out) {
    const char *text = tti_env_look(env, row->size);
    int low, high;
    if (row->applies != is_trainer_pod || !parse_range(text, &low, &high))
        return read_number(env, row->size, TTI_MAX_WORLD_SIZE, out);
    *out = low;
    if (low == high) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "launch: %s=%s is a range of %d to %d pods, which only torchrun supports; give "
                    "one number (a job without elasticPolicy), or start each pod with 'torchrun "
                    "--no-python tutti train ...'",
                    row->size, text, low, high);
}

/* Reads the local numbers; 0 of 1 unless both are set and consistent. */
static void read_local(const tti_environment *env, const launcher_row *row, tti_worker_env *out) {
    const char *rank = tti_env_look(env, row->local_rank),
               *size = tti_env_look(env, row->local_size);
    int r, n = 0;
    out->local_rank = 0;
    out->local_n_ranks = 1;
    if (!rank || !parse_int(rank, TTI_MAX_WORLD_SIZE, &r)) return;
    if (row->applies == in_slurm_step)
        n = slurm_local_size(env);
    else if (!size || !parse_int(size, TTI_MAX_WORLD_SIZE, &n))
        return;
    if (r >= n) return;
    out->local_rank = r;
    out->local_n_ranks = n;
}

/* RANK and WORLD_SIZE are set by several launchers; another variable of each launcher identifies
 * it. */
static const char *launcher_name(const tti_environment *env, const launcher_row *row) {
    if (row != &launchers[0]) return row->launcher;
    if (tti_env_look(env, "TUTTI_SUPERVISOR_PID")) return "tutti";
    return tti_env_look(env, "TORCHELASTIC_RUN_ID") ? "torchrun" : row->launcher;
}

static bool counts(const tti_environment *env, const launcher_row *row) {
    return tti_env_look(env, row->rank) && tti_env_look(env, row->size) &&
           (!row->applies || row->applies(env));
}

/* Checks that no launcher below row has started this process as one of several.  A process that
 * tutti itself started is alone because the user asked for it. */
static tutti_status check_alone(const tti_environment *env, const launcher_row *row) {
    if (tti_env_look(env, "TUTTI_SUPERVISOR_PID")) return TUTTI_OK;
    const char *previous = row->launcher; /* skips further rows of the same launcher */
    for (const launcher_row *other = row + 1; other < launchers + TTI_COUNT(launchers); other++) {
        int n, most;
        if (strcmp(other->launcher, previous) == 0 || !counts(env, other)) continue;
        previous = other->launcher;
        if (!parse_range(tti_env_look(env, other->size), &n, &most) || n < 2) continue;
        return tti_fail(TUTTI_E_CONFIG,
                        "launch: %s=0 and %s=1 say that this process is a job of its own, but %s "
                        "has started %d of them (%s=%.20s): for one job of %d ranks unset %s and "
                        "%s; for %d jobs of one rank each unset %s",
                        row->rank, row->size, other->launcher, n, other->rank,
                        tti_env_look(env, other->rank), n, row->rank, row->size, n, other->rank);
    }
    return TUTTI_OK;
}

static tutti_status read_row(const tti_environment *env, const launcher_row *row,
                             tti_worker_env *out) {
    tti_worker_env found = {.launcher = launcher_name(env, row)};
    TTI_TRY(read_size(env, row, &found.n_ranks));
    TTI_TRY(read_number(env, row->rank, TTI_MAX_WORLD_SIZE, &found.rank));
    if (found.rank >= found.n_ranks)
        return tti_fail(TUTTI_E_CONFIG, "launch: %s=%d must be below %s=%d", row->rank, found.rank,
                        row->size, found.n_ranks);
    if (found.n_ranks == 1) TTI_TRY(check_alone(env, row));
    read_local(env, row, &found);
    snprintf(found.text, sizeof found.text, "rank %d of %d, by %s (%s=%d, %s=%d)", found.rank,
             found.n_ranks, found.launcher, row->rank, found.rank, row->size, found.n_ranks);
    *out = found;
    return TUTTI_OK;
}

static tutti_status read_flags(const tti_rank_flags *flags, tti_worker_env *out) {
    if (flags->n_ranks < 1 || flags->n_ranks > TTI_MAX_WORLD_SIZE || flags->rank < 0 ||
        flags->rank >= flags->n_ranks)
        return tti_fail(TUTTI_E_CONFIG, "launch: rank %d of %d: expected 0 <= rank < size <= %d",
                        flags->rank, flags->n_ranks, TTI_MAX_WORLD_SIZE);
    *out = (tti_worker_env){
        .rank = flags->rank, .n_ranks = flags->n_ranks, .local_n_ranks = 1, .launcher = "flags"};
    snprintf(out->text, sizeof out->text, "rank %d of %d, by flags", out->rank, out->n_ranks);
    return TUTTI_OK;
}

static void single(const tti_environment *env, tti_worker_env *out) {
    const char *rank = tti_env_look(env, "RANK"), *size = tti_env_look(env, "WORLD_SIZE");
    *out = (tti_worker_env){.n_ranks = 1, .local_n_ranks = 1, .launcher = "none"};
    const char *note = rank   ? " (RANK without WORLD_SIZE is ignored)"
                       : size ? " (WORLD_SIZE without RANK is ignored)"
                              : "";
    snprintf(out->text, sizeof out->text, "a single process, no launcher%s", note);
}

tutti_status tti_worker_env_detect(const tti_rank_flags *flags, tti_getenv_fn get, void *user,
                                   tti_worker_env *out) {
    const tti_environment env = {get, user};
    if (flags && flags->n_ranks != 0) return read_flags(flags, out);
    for (size_t i = 0; i < TTI_COUNT(launchers); i++) {
        if (counts(&env, &launchers[i])) return read_row(&env, &launchers[i], out);
    }
    const char *per_node = tti_env_look(&env, "PET_NPROC_PER_NODE");
    if (tti_env_look(&env, "PET_NODE_RANK") && per_node)
        return tti_fail(TUTTI_E_CONFIG,
                        "launch: PET_NPROC_PER_NODE=%.20s asks for several processes in each pod: "
                        "start them with 'torchrun --no-python tutti train ...', or ask for 1",
                        per_node);
    single(&env, out);
    return TUTTI_OK;
}
