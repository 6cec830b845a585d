/* device_line.h - devices along one axis of the mesh: whether they may meet each other, and that.
 */
#ifndef TTI_EXEC_DEVICE_LINE_H
#define TTI_EXEC_DEVICE_LINE_H

#include "backend/backend.h"
#include "comm/sum_order.h"
#include "exec/worker/desc.h"

/* Gradients are compressed by the host, or parameters averaged: nothing is added between devices.
 */
bool tti_device_ends_on_host(const tti_setup *setup);
/* Or workers that divide the model join values inside a step, or have shards of its gradients: then
 * these are communicated through the host.  The same on all workers. */
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

/* Meets them over each other's memory, one line after the other; wanted: what this worker brings,
 * the rest comes from the line.  TUTTI_E_UNSUPPORTED: not all lines could; *group may be there all
 * the same, for the caller to part.  Collective over mesh->world. */
tutti_status tti_device_meet_line(tti_device_line *line, const tti_device_peers *wanted,
                                  void **group);

/* Yes if all workers say so: they go ahead by the same number of steps. */
tutti_status tti_device_agree(const tti_setup *setup, bool *yes);

/* The order of a sum as devices take it: terms [order->n_terms]. */
void tti_device_terms(const tti_sum_order *order, tti_device_term *terms);

#endif /* TTI_EXEC_DEVICE_LINE_H */
