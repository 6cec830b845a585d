/* device_update.h - the update program of a worker on a device, and the values it receives from
 * workers with other partitions of the optimizer state. */
#ifndef TTI_EXEC_DEVICE_UPDATE_H
#define TTI_EXEC_DEVICE_UPDATE_H

#include "exec/device/comm/device_comm.h"

typedef struct tti_device_update tti_device_update;

/* The device addresses of a step's numbers, and the connections to other workers. */
typedef struct tti_device_update_desc {
    const tti_step_args *args;
    const double *sums;
    double *reported; /* the same, and the following reported values */
    tti_step_report *report;
    tti_device_reduce *reduce;           /* NULL: host_staged, or alone */
    tti_device_host_staged *host_staged; /* NULL: reduce, or alone */
    tti_device_axis
        *axis; /* of a divided model, in addition to reduce; NULL: through the host, or undivided */
} tti_device_update_desc;

/* On success *out is owned by the caller and borrows x and the members of desc. */
tutti_status tti_device_update_create(tti_exec *x, const tti_device_update_desc *desc,
                                      tti_device_update **out);
void tti_device_update_destroy(tti_device_update *update); /* takes NULL */

/* Enqueues the update, then gathers the parameters of other workers (through the host) or the
 * hashes of the updated blocks. */
tutti_status tti_device_update_run(tti_device_update *update);

/* True if the update of the current step also sums the gradients of all workers. */
bool tti_device_update_sums(const tti_device_update *update);

/* Call when the parameters of n blocks (plan->updates) from first on have arrived: adds them to
 * the hash in the report and writes their 16-bit copies. */
tutti_status tti_device_update_complete(tti_device_update *update, int first, int n);
/* Enqueues: writes the 16-bit copies of the parameters. */
tutti_status tti_device_update_narrow(tti_device_update *update);

/* Hashes the parameters on the device; waits. */
tutti_status tti_device_update_hash(tti_device_update *update, uint64_t *hash);

#endif /* TTI_EXEC_DEVICE_UPDATE_H */
