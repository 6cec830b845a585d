/* spawn.c - starts workers with posix_spawn and an environment per rank.
 *
 * A bare fork must not be used: the child of a threaded process that continues without exec may
 * hang in any lock (libgomp's pool does). posix_spawn also reports a missing program as an
 * error. */
#include "launch/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/affinity.h"
#include "base/arena.h"
#include "base/error.h"
#include "launch/hosts.h"

enum { N_OWN_VARIABLES = 8 };

typedef struct environment {
    tti_arena arena; /* owns the new texts */
    char **list;     /* NULL-terminated, owned */
    size_t n;
} environment;

/* Sets NAME=value, in place of an existing NAME or at the end. */
static void set_number(environment *env, const char *name, int value) {
    size_t n_bytes = strlen(name), i = 0;
    while (i < env->n &&
           (strncmp(env->list[i], name, n_bytes) != 0 || env->list[i][n_bytes] != '='))
        i++;
    char *text = tti_arena_printf(&env->arena, "%s=%d", name, value);
    if (!text) return; /* the arena records the failure */
    env->list[i] = text;
    if (i == env->n) env->n++;
    env->list[env->n] = NULL;
}

static tutti_status make_environment(const tti_spawn_desc *desc, environment *env) {
    size_t n = 0;
    while (environ[n]) n++;
    env->list = calloc(n + N_OWN_VARIABLES + (size_t)desc->n_fds + 1, sizeof *env->list);
    if (!env->list) return tti_fail(TUTTI_E_NOMEM, "launch: out of memory");
    memcpy(env->list, environ, n * sizeof *env->list);
    env->n = n;
    const tti_host_layout *place = desc->place;
    int n_all = place ? place->n_all : desc->n_ranks;
    set_number(env, "RANK", desc->rank + (place ? place->first_rank : 0));
    set_number(env, "WORLD_SIZE", n_all);
    set_number(env, "LOCAL_RANK", desc->rank);
    set_number(env, "LOCAL_WORLD_SIZE", desc->n_ranks);
    set_number(env, "TUTTI_SUPERVISOR_PID", (int)getpid());
    set_number(env, "TUTTI_RESTART_COUNT", desc->restart);
    set_number(env, "TUTTI_JOINS", desc->joins);
    if (!getenv("OMP_NUM_THREADS"))
        set_number(env, "OMP_NUM_THREADS", TTI_MAX(1, tti_cores_usable() / desc->n_ranks));
    for (int i = 0; i < desc->n_fds; i++) set_number(env, desc->fds[i].name, desc->fds[i].fd);
    if (tti_arena_failed(&env->arena)) return tti_fail(TUTTI_E_NOMEM, "launch: out of memory");
    return TUTTI_OK;
}

static int add_files(const tti_spawn_desc *desc, posix_spawn_file_actions_t *files) {
    int e = posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0);
    if (!e) e = posix_spawn_file_actions_adddup2(files, desc->out_fd, 1);
    if (!e) e = posix_spawn_file_actions_adddup2(files, desc->err_fd, 2);
    /* dup2 to the same number clears close-on-exec in the child only (POSIX 2024, glibc 2.29). */
    for (int i = 0; i < desc->n_fds && !e; i++)
        e = posix_spawn_file_actions_adddup2(files, desc->fds[i].fd, desc->fds[i].fd);
    return e;
}

static int spawn_with(const tti_spawn_desc *desc, char **env, pid_t *out) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    int e = posix_spawn_file_actions_init(&files);
    if (e) return e;
    e = posix_spawnattr_init(&attr);
    if (!e) {
        e = add_files(desc, &files);
        if (!e) e = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
        if (!e) e = posix_spawnattr_setpgroup(&attr, 0);
        if (!e) e = posix_spawnattr_setsigmask(&attr, desc->signal_mask);
        if (!e) e = posix_spawnp(out, desc->argv[0], &files, &attr, desc->argv, env);
        posix_spawnattr_destroy(&attr);
    }
    posix_spawn_file_actions_destroy(&files);
    return e;
}

tutti_status tti_spawn(const tti_spawn_desc *desc, pid_t *out) {
    environment env = {0};
    pid_t pid = -1;
    tutti_status st = make_environment(desc, &env);
    if (st == TUTTI_OK) {
        int e = spawn_with(desc, env.list, &pid);
        if (e)
            st = tti_fail(TUTTI_E_IO, "launch: cannot start '%s' as rank %d: %s", desc->argv[0],
                          desc->rank, strerror(e));
    }
    tti_arena_free(&env.arena);
    free(env.list);
    if (st == TUTTI_OK) *out = pid;
    return st;
}
