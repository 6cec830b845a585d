/* rendezvous.h - connects ranks that another launcher started.
 *
 * Our own launcher gives its workers a shared-memory group. mpirun, srun, torchrun, Kubernetes and
 * people with RANK=0 WORLD_SIZE=2 do not: the environment names a transport and the address of rank
 * 0.  A socket listens only if it is needed, and every connection is authenticated:
 * docs/clusters.md. */
#ifndef TTI_LAUNCH_RENDEZVOUS_H
#define TTI_LAUNCH_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>

#include "launch/worker_env.h"
#include "tutti/comm.h"

enum { TTI_TOKEN_BYTES = 256 };

typedef struct tti_rendezvous {
    char transport[16]; /* "tcp", "mpi-openmpi", "mpi-mpich" */
    char address[300];  /* of tcp */
    char job[128];      /* tcp: distinguishes jobs and restarts at one address */
    char
        token[TTI_TOKEN_BYTES]; /* of tcp; ranks of one host: the user's key, "" if there is none */
} tti_rendezvous;

/* Decides from the environment and, for a token, the file it names.  get NULL: getenv.
 * TUTTI_E_CONFIG says which variable is missing or wrong. */
TUTTI_NODISCARD tutti_status tti_rendezvous_choose(const tti_worker_env *env, tti_getenv_fn get,
                                                   void *user, tti_rendezvous *out);

/* Where supervisors of several hosts connect, from MASTER_ADDR, MASTER_PORT and the token; errors
 * as above. host: n_bytes. */
TUTTI_NODISCARD tutti_status tti_rendezvous_of_hosts(char *host, size_t n_bytes, int *port,
                                                     char token[TTI_TOKEN_BYTES]);

/* Joins this process's rank: tti_worker_env_detect, tti_rendezvous_choose, tutti_comm_create. */
TUTTI_NODISCARD tutti_status tti_rendezvous_join(int timeout_ms, int phase_timeout_ms,
                                                 tutti_comm **out);

/* The first host of Slurm's list: "n[01-03,7],x9" gives "n01".  False if it is invalid. */
bool tti_slurm_first_host(const char *list, char *out, size_t n_bytes);

#endif /* TTI_LAUNCH_RENDEZVOUS_H */
