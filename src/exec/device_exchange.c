/* device_exchange.c - a value out of the device, the exchange on the host, the result back.
 *
 * The memory of one exchange is used again by the next: by then the copy back has been made, since
 * the compute queue is in order and the copy out that is waited for lies behind it. */
#include "exec/device_exchange.h"

#include <stdlib.h>

#include "exec/collective.h"
#include "exec/device.h"

struct tti_device_exchange {
    const tti_device_ops *ops;
    tutti_comm *comm;
    void *in, *out; /* pinned */
    void *scratch;
};

/* The most bytes that an exchange of a program takes, gives and needs. */
typedef struct room {
    size_t in, out, scratch;
    bool any;
} room;

static void make_room(const tti_program *program, room *r) {
    const tti_kernel *by_host = &tti_collective_kernel;
    for (int s = 0; s < program->n_steps; s++) {
        const tti_node *node = program->steps[s];
        if (!(node->op->traits & TTI_COLLECTIVE)) continue;
        r->any = true;
        r->in = TTI_MAX(r->in, tti_value_n_bytes(node->in[0]));
        r->out = TTI_MAX(r->out, tti_value_n_bytes(node->out[0]));
        r->scratch = TTI_MAX(r->scratch, by_host->scratch_bytes(node, NULL));
    }
}

tutti_status tti_device_exchange_create(const tti_exec_desc *desc, tti_device_exchange **out) {
    room r = {0};
    *out = NULL;
    make_room(&desc->plan->shard, &r);
    make_room(&desc->plan->eval, &r);
    if (!r.any || !desc->backend->device) return TUTTI_OK;
    tti_device_exchange *e = calloc(1, sizeof *e);
    if (!e) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    e->ops = desc->backend->device;
    e->comm = desc->mesh ? desc->mesh->tensor : NULL;
    e->in = e->ops->alloc_host(r.in);
    e->out = e->ops->alloc_host(r.out);
    e->scratch = malloc(r.scratch + 1);
    *out = e;
    if (e->in && e->out && e->scratch) return TUTTI_OK;
    tti_device_exchange_destroy(e);
    *out = NULL;
    return tti_fail(TUTTI_E_NOMEM, "exec: %zu bytes of pinned memory for exchanges", r.in + r.out);
}

void tti_device_exchange_destroy(tti_device_exchange *e) {
    if (!e) return;
    e->ops->release_host(e->in);
    e->ops->release_host(e->out);
    free(e->scratch);
    free(e);
}

static size_t no_scratch(const tti_node *node, const void *state) {
    (void)node, (void)state;
    return 0;
}

static tutti_status run(void *state, const tti_kargs *a) {
    const tti_device_exchange *e = state;
    if (!e) return tti_fail(TUTTI_E_INVALID, "exec: %s without others", a->node->op->name);
    void *in = e->in, *out = e->out;
    const tti_kargs host = {
        .node = a->node, .in = &in, .out = &out, .scratch = e->scratch, .run = a->run};
    TTI_TRY(e->ops->copy(TTI_QUEUE_COMPUTE, in, a->in[0], tti_value_n_bytes(a->node->in[0])));
    TTI_TRY(e->ops->mark(TTI_QUEUE_COMPUTE, TTI_MARK_EXCHANGE));
    TTI_TRY(e->ops->await(TTI_MARK_EXCHANGE));
    TTI_TRY(tti_collective_kernel.run(e->comm, &host));
    return e->ops->copy(TTI_QUEUE_COMPUTE, a->out[0], out, tti_value_n_bytes(a->node->out[0]));
}

const tti_kernel tti_device_exchange_kernel = {
    .op = "*", .name = "exchange by host", .scratch_bytes = no_scratch, .run = run};
