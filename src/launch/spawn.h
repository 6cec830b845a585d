/* spawn.h - starts one worker process. */
#ifndef TTI_LAUNCH_SPAWN_H
#define TTI_LAUNCH_SPAWN_H

#include <signal.h>
#include <sys/types.h>

#include "tutti/status.h"

/* A descriptor that the worker inherits with the same number, which the environment variable `name`
 * contains. */
typedef struct tti_spawn_fd {
    const char *name;
    int fd;
} tti_spawn_fd;

typedef struct tti_spawn_desc {
    char *const *argv;                   /* NULL-terminated; argv[0] is looked up in PATH */
    int rank, n_ranks;                   /* n_ranks: workers on this host */
    const struct tti_host_layout *place; /* set for a run on several hosts; NULL: one host */
    int restart;                         /* number of earlier starts of the workers */
    int joins;               /* TUTTI_JOINS: its slot + 1 if it joins a running group; else 0 */
    int out_fd, err_fd;      /* become descriptors 1 and 2 */
    const tti_spawn_fd *fds; /* close-on-exec is lifted for this worker only */
    int n_fds;
    const sigset_t *signal_mask; /* signal mask of the worker */
} tti_spawn_desc;

/* Starts argv in its own process group, with /dev/null as input and the environment of this process
 * with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, TUTTI_SUPERVISOR_PID, TUTTI_RESTART_COUNT
 * and the descriptors' variables; OMP_NUM_THREADS is this worker's share of the cores unless the
 * user has set it.  TUTTI_E_IO: the program cannot be run; the message gives the reason. */
TUTTI_NODISCARD tutti_status tti_spawn(const tti_spawn_desc *desc, pid_t *out);

#endif /* TTI_LAUNCH_SPAWN_H */
