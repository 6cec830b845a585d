/* rendezvous.h - connects ranks that another launcher started.
 *
 * Tutti's launcher passes its workers a shared-memory group.  Ranks that are started by mpirun,
 * srun, torchrun, Kubernetes, or by hand with RANK=0 WORLD_SIZE=2, have no such group; the
 * environment names a transport and the address of rank 0.  A socket listens only if it is needed,
 * and every connection is authenticated: docs/clusters.md. */
#ifndef TTI_LAUNCH_RENDEZVOUS_H
#define TTI_LAUNCH_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>

#include "launch/worker_env.h"
#include "tutti/comm.h"

enum { TTI_TOKEN_BYTES = 256 };

typedef struct tti_rendezvous {
    char transport[16]; /* "tcp", "mpi-openmpi", "mpi-mpich" */
    char address[300];  /* tcp: address of rank 0 */
    char job[128];      /* tcp: distinguishes jobs and restarts at one address */
    char
        token[TTI_TOKEN_BYTES]; /* tcp; for ranks of one host the user's key, "" if there is none */
} tti_rendezvous;

/* Chooses from the environment and, for a token, from the file that it names. get NULL: getenv.
 * TUTTI_E_CONFIG names the variable that is missing or invalid. */
TUTTI_NODISCARD tutti_status tti_rendezvous_choose(const tti_worker_env *env, tti_getenv_fn get,
                                                   void *user, tti_rendezvous *out);

/* Reads the address at which supervisors of several hosts connect, from MASTER_ADDR, MASTER_PORT
 * and the token. host [n_bytes].  Errors as above. */
TUTTI_NODISCARD tutti_status tti_rendezvous_of_hosts(char *host, size_t n_bytes, int *port,
                                                     char token[TTI_TOKEN_BYTES]);

/* Connects this process as a rank: calls tti_worker_env_detect, tti_rendezvous_choose and
 * tutti_comm_create. */
TUTTI_NODISCARD tutti_status tti_rendezvous_join(int timeout_ms, int phase_timeout_ms,
                                                 tutti_comm **out);

/* Writes the first host of Slurm's list: "n[01-03,7],x9" gives "n01".  False: the list is
 * invalid. */
bool tti_slurm_first_host(const char *list, char *out, size_t n_bytes);

#endif /* TTI_LAUNCH_RENDEZVOUS_H */
