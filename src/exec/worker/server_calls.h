/* server_calls.h - the functions of a parameter server that a worker calls.  This table is all that
 * exec/ knows of a server; src/ps fills it in. */
#ifndef TTI_EXEC_SERVER_CALLS_H
#define TTI_EXEC_SERVER_CALLS_H

#include "exec/update/flat_update.h"
#include "exec/worker/desc.h"

typedef struct tti_server_calls {
    /* The executor that keeps parameters and state; NULL: it is in another process, or in several.
     */
    tti_exec *(*state_owner)(tti_server *server);

    /* With backup workers a batch is divided between the workers: fills the shards of one of them,
     * and returns true; else returns false and writes nothing. */
    bool (*shards)(const tti_server *server, int worker, int n_shards, int *first, int *last);

    /* Several processes own the parameters.  Then state k of keys is fetched from its owners; data
     * are valid until the next call and the next gradient.  And a process stores its part of keys
     * from data, which begins with keys.first; k may be TTI_STATE_EMA, TTI_STATE_PARAMS. */
    bool (*has_ranges)(const tti_server *server);
    tutti_status (*fetch)(tti_exec *x, int k, tti_range keys, const float **data);
    void (*store)(tti_exec *x, int k, tti_range keys, const float *data);

    /* Pushes the gradient of a step, whose partial sums lie in the buffers of x (tti_exec_partial),
     * and waits for the server's update, which every worker of the step must push for.  Then pulls
     * the new parameters into those of x, with their hash in last_hash. */
    tutti_status (*push)(tti_exec *x, const tti_step_desc *desc, double inv_count,
                         tti_step_result *result);
    tutti_status (*pull)(tti_exec *x);

    /* For a worker on a device: copies the server's averages to where it evaluates with them, while
     * no worker is in a step. */
    tutti_status (*pull_averages)(tti_exec *x);
} tti_server_calls;

/* A server begins with a pointer to its table. */
static inline const tti_server_calls *tti_calls_of(const tti_server *server) {
    return *(const tti_server_calls *const *)(const void *)server;
}

/* The number of partial sums of a worker's gradient that a server adds: one, if each worker has a
 * part of the model.  And one of them, in host memory. */
int tti_exec_n_partials(const tti_setup *setup);
float *tti_exec_partial(const tti_exec *x, int i);

#endif /* TTI_EXEC_SERVER_CALLS_H */
