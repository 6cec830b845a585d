/* tp_calls.h - the calls that a program makes to exchange values along a tensor axis of devices.
 *
 * exec/device/device_tp.c implements them; NULL: the program exchanges nothing. */
#ifndef TTI_EXEC_TP_CALLS_H
#define TTI_EXEC_TP_CALLS_H

#include "backend/backend.h"
#include "passes/tensor/norm_exchange.h"

typedef struct tti_device_tp tti_device_tp;

typedef struct tti_tp_calls {
    /* The kernel of TTI_COLLECTIVE ops on a device.  Its state is the exchange, borrowed.  The same
     * bits as exec/program/collective.h, which runs on the host. */
    const tti_kernel *kernel;

    /* The next collective does not overlap with kernels. */
    void (*alone)(tti_device_tp *tp);

    /* What computes from here on comes after all exchanges so far. */
    tutti_status (*wait)(tti_device_tp *tp);

    /* Whether the steps of a norm between collectives can run as one; and runs them: later kernels
     * wait for it, or, with beside, for everything but the rows of the other worker, which arrive
     * before wait. */
    bool (*joins)(const tti_device_tp *tp, const tti_program *program,
                  const tti_norm_exchange *joint);
    tutti_status (*norm)(tti_device_tp *tp, tti_device_norm *norm, bool beside);

    /* The step of the program whose product sends the terms of the norm at step s, by push; -1:
     * there is none.  If norms are joined. */
    int (*product)(const tti_device_tp *tp, const tti_program *program, int s,
                   const tti_norm_exchange *joint);

    /* The offset in the arena of terms sent by others. */
    size_t (*inbox)(const tti_device_tp *tp);
    tutti_status (*push)(tti_device_tp *tp, const tti_device_push *push);

    /* Whether the step after a norm, which reads its result, may begin before all of it has
     * arrived; and marks it: after a norm that ran with beside, and was pulled.  Steps that
     * overwrite the norm's result must wait: the own rows may still be being sent. */
    bool (*may_pull)(const tti_device_tp *tp, const tti_node *product,
                     const tti_norm_exchange *joint);
    tutti_status (*pull)(tti_device_tp *tp, const tti_device_push *pull);

    /* The group of devices that exchange by themselves; NULL: they do through the host. */
    void *(*group)(const tti_device_tp *tp);
} tti_tp_calls;

/* An exchange begins with a pointer to its table. */
static inline const tti_tp_calls *tti_tp_calls_of(const tti_device_tp *tp) {
    return *(const tti_tp_calls *const *)(const void *)tp;
}

#endif /* TTI_EXEC_TP_CALLS_H */
