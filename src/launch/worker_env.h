/* worker_env.h - finds rank and number of ranks in the environment of any launcher.
 *
 * Order: explicit flags; RANK + WORLD_SIZE (tutti launch, torchrun, Kubeflow); OMPI_COMM_WORLD_*;
 * PMI_*; SLURM_*, used only inside a real step; PET_* (Kubeflow Trainer); else a single process.
 * SLURM_* alone is not enough, because the shell of a batch script also has SLURM_NTASKS=8 and
 * SLURM_PROCID=0, although it is a single process. */
#ifndef TTI_LAUNCH_WORKER_ENV_H
#define TTI_LAUNCH_WORKER_ENV_H

#include "tutti/status.h"

enum { TTI_MAX_WORLD_SIZE = 1 << 20 };

typedef struct tti_worker_env {
    int rank, n_ranks;
    int local_rank, local_n_ranks; /* on this host; 0 of 1 if the launcher does not set them */
    const char *launcher;          /* "none", "flags", "tutti", "torchrun", "environment",
                                      "Open MPI", "PMI", "Slurm", "Kubeflow Trainer" */
    char text[256]; /* one line for messages: "rank 1 of 4, by tutti (RANK=1, ...)" */
} tti_worker_env;

/* Rank and size from the command line; n_ranks 0: not given. */
typedef struct tti_rank_flags {
    int rank, n_ranks;
} tti_rank_flags;

/* Like getenv: returns NULL if the variable is not set. */
typedef const char *(*tti_getenv_fn)(void *user, const char *name);

/* Access to the environment. */
typedef struct tti_environment {
    tti_getenv_fn get; /* NULL: reads the environment of this process */
    void *user;
} tti_environment;

/* Returns the value, or NULL if it is not set or empty, or if name is NULL. */
const char *tti_env_look(const tti_environment *env, const char *name);

/* Finds rank and number of ranks.  Depends only on its arguments and, in a step of Slurm, on
 * whether this process was started from a shell with a terminal, such as that of "srun --pty bash".
 * TUTTI_E_CONFIG, naming the variable: a launcher's variable is invalid (not a number, rank >=
 * size, a range as torchrun uses), or it says "0 of 1" although another launcher reports several
 * ranks. get NULL: getenv. */
TUTTI_NODISCARD tutti_status tti_worker_env_detect(const tti_rank_flags *flags, tti_getenv_fn get,
                                                   void *user, tti_worker_env *out);

#endif /* TTI_LAUNCH_WORKER_ENV_H */
