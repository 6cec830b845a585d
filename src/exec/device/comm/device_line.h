/* device_line.h - connects the devices along one axis of the mesh. */
#ifndef TTI_EXEC_DEVICE_LINE_H
#define TTI_EXEC_DEVICE_LINE_H

#include "backend/backend.h"
#include "comm/sum_order.h"
#include "exec/worker/desc.h"

/* True if the host compresses gradients or averages parameters: devices then add nothing. */
bool tti_device_ends_on_host(const tti_setup *setup);
/* True in that case, and if workers that divide the model join values inside a step or shard
 * gradients.  The same on all workers. */
bool tti_device_host_staged_alone(const tti_setup *setup);

/* The result of a wait for peers: after a timeout the text also names the worker that blocks it, if
 * known. */
tutti_status tti_device_late(const tti_setup *setup, tutti_status st);

/* Whether every worker of the job has its own device: two kernels that wait for peers must not
 * block each other on one.  Collective over mesh->world. */
tutti_status tti_device_have_own(const tti_setup *setup, bool *own);

/* One axis of the mesh, whose devices must reach each other.  Their group borrows it. */
typedef struct tti_device_line {
    tti_exec *x;
    tutti_comm *comm; /* of this worker's line along the axis */
    int turn, n_lines;
    const char *others; /* what texts call the workers of other lines */
} tti_device_line;

/* Connects the devices through peer memory, one line after the other.  wanted has this worker's
 * memory; the line provides the rest.  TUTTI_E_UNSUPPORTED: some line failed; *group may exist
 * nevertheless, and the caller disconnects it.  Collective over mesh->world. */
tutti_status tti_device_meet_line(tti_device_line *line, const tti_device_peers *wanted,
                                  void **group);

/* Sets *yes to whether it is true on all workers. */
tutti_status tti_device_agree(const tti_setup *setup, bool *yes);

/* Converts the order of a sum for devices: terms [order->n_terms]. */
void tti_device_terms(const tti_sum_order *order, tti_device_term *terms);

#endif /* TTI_EXEC_DEVICE_LINE_H */
