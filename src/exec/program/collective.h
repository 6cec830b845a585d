/* collective.h - ops that communicate with the other workers of a tensor axis, as kernels. */
#ifndef TTI_EXEC_COLLECTIVE_H
#define TTI_EXEC_COLLECTIVE_H

#include "backend/backend.h"
#include "passes/plan.h"
#include "passes/tensor/collective_norm.h"
#include "tutti/comm.h"

typedef struct tti_device_tp tti_device_tp;

typedef struct tti_tp_calls {
    /* The kernel of TTI_COLLECTIVE ops on a device; gives the same bits as the host's kernel below.
     * Its state is borrowed. */
    const tti_kernel *kernel;

    /* Makes the next collective not overlap with kernels. */
    void (*alone)(tti_device_tp *tp);

    /* Makes later kernels wait for all collectives so far. */
    tutti_status (*wait)(tti_device_tp *tp);

    /* can: true if the steps of a norm between collectives can run as one. run: runs them; later
     * kernels wait for the result or, if overlapped, for everything except the rows of other
     * workers, which arrive before wait. */
    bool (*joins)(const tti_device_tp *tp, const tti_program *program,
                  const tti_collective_norm *joint);
    tutti_status (*norm)(tti_device_tp *tp, tti_device_norm *norm, bool overlapped);

    /* If norms are joined: the step of the program whose product sends the terms of the norm at
     * step s, by push; -1: none. */
    int (*product)(const tti_device_tp *tp, const tti_program *program, int s,
                   const tti_collective_norm *joint);

    /* The offset in the arena of terms from other workers. */
    size_t (*inbox)(const tti_device_tp *tp);
    tutti_status (*push)(tti_device_tp *tp, const tti_device_push *push);

    /* True if the step after a norm, which reads its result, may begin before all of it has
     * arrived. The second function marks this, after a norm that ran overlapped and was pulled.
     * Steps that overwrite the norm's result must wait, because this worker's rows may still be in
     * transit. */
    bool (*may_pull)(const tti_device_tp *tp, const tti_node *product,
                     const tti_collective_norm *joint);
    tutti_status (*pull)(tti_device_tp *tp, const tti_device_push *pull);

    /* True if a single gather overlaps with the next steps now, like a norm that ran overlapped.
     * The second function runs it. */
    bool (*opens)(const tti_device_tp *tp);
    tutti_status (*open_rows)(tti_device_tp *tp, tti_device_norm *rows);

    /* The group of devices that run collectives themselves; NULL: the host runs them. */
    void *(*group)(const tti_device_tp *tp);
} tti_tp_calls;

/* The state of a device's collectives begins with a pointer to its table. */
static inline const tti_tp_calls *tti_tp_calls_of(const tti_device_tp *tp) {
    return *(const tti_tp_calls *const *)(const void *)tp;
}

/* ---- which steps of a program must wait for overlapped collectives ---- */

/* The role of a program's step in a norm between collectives. */
typedef struct tti_joint_step {
    tti_collective_norm norm; /* the norm that begins here; n_steps 0: none */
    int to;     /* for a product that pushes its terms to a norm: the norm's step; else 0 */
    int from;   /* for that norm: the product's step */
    bool pulls; /* for a norm: rows may arrive after the next step has begun */
} tti_joint_step;

/* waits [n_steps]: before step s the collectives of earlier steps must be complete, because it
 * reads the output of one of them, or overwrites its input or output. Collectives run one after the
 * other, so they need not wait for each other. Gradients of collectives are read after the program:
 * no step waits for them here. joints [n_steps], NULL: there are none. While a product pulls the
 * rows of other workers, this worker's rows may still be in transit, so steps that overwrite these
 * rows wait. Only the first of several fused steps waits. */
void tti_tp_waits(const tti_program *program, const tti_joint_step *joints, bool *waits);

/* ---- which sums over a tensor axis are computed together ---- */

/* Bytes that the collective of step s sums, beginning with its value.  If the next steps sum
 * adjacent ranges it includes those, and they return 0 and do not run.  Also 0 for a step that sums
 * nothing.  Requires that gradients are laid out as in the flat arrays. */
size_t tti_joint_bytes(const tti_program *program, int s);

/* ---- ops that communicate with the other workers of a tensor axis, as kernels ---- */

/* The kernel of TTI_COLLECTIVE ops on the host.  Its state is the tutti_comm of the axis, borrowed,
 * which one thread uses at a time.  All workers run the same ops in the same order.  Sums are added
 * in the order of TUTTI_ALG_DIRECT: the same bits on every worker, in every run.  Communicator
 * NULL: the program is only inspected. */
extern const tti_kernel tti_collective_kernel;

/* The memory layout of a collective's whole value: [n_rows][workers][part_bytes].  For a sum the
 * part is the whole value. */
void tti_collective_rows(const tti_node *node, size_t *n_rows, size_t *part_bytes);

/* Fails with TUTTI_E_INVALID if comm is not the axis that the program was made for. */
tutti_status tti_collective_check(const tti_program *program, const tutti_comm *comm);

/* Creates a communicator of the axis for each compute thread, so that they communicate
 * concurrently: thread k of every worker has the same shard.  *n_compute_threads becomes the
 * smallest number over all workers of the axis, and 1 if the transport cannot be divided.
 * Collective over axis, which is the first of *out [*n_compute_threads] and borrowed; destroy the
 * others before it. axis NULL: *out is NULL. */
TUTTI_NODISCARD tutti_status tti_compute_thread_comms_create(tutti_comm *axis,
                                                             int *n_compute_threads,
                                                             tutti_comm ***out);
void tti_compute_thread_comms_destroy(tutti_comm **comms, int n_compute_threads);

/* Bytes that one of n workers sends in a collective; -1: node is not a collective. */
double tti_collective_bytes(const tti_node *node, int n);

#endif /* TTI_EXEC_COLLECTIVE_H */
