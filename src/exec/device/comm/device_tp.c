/* device_tp.c - the collectives of a tensor axis on devices.
 *
 * Devices that can read each other's memory run the collectives in a queue that overlaps with the
 * kernels, as part of the captured graph.  Otherwise a value is copied to the host, the host
 * communicates, and the result is copied back.  The memory of a collective is reused by the next
 * one; by then the copy back is complete, since the compute queue is in order and the awaited copy
 * out comes after it. */
#include "exec/device/comm/device_tp.h"

#include <stdlib.h>

#include "base/clock.h"
#include "comm/partitions.h"
#include "exec/device/comm/device_axis.h"
#include "exec/device/comm/device_p2p.h"
#include "exec/device/state/device_state.h"
#include "exec/program/exec_program.h"
#include "exec/worker/worker.h"
#include "passes/tensor/collective_norm.h"

enum { TP_ALIGN = 256 };

struct tti_device_tp {
    const tti_tp_calls *calls; /* must be the first member: programs see only this table */
    tti_exec *x;
    const tti_device_ops *ops;
    tutti_comm *comm;
    tti_device_line line;
    tti_str transport;
    void *in, *out; /* pinned buffers for collectives through the host */
    void *scratch;
    void *group; /* of connected devices; NULL: through the host */
    void *staging;
    size_t tp_half_bytes;
    size_t *joint; /* [n_nodes] of the shard program: bytes of the sum that starts here; 0: an
                      earlier sum includes it */
    void *arena;   /* the compute thread's arena, which other devices read and write; NULL: the
                      compute thread allocates its own */
    size_t inbox, arena_bytes; /* offset in the arena of terms from other workers, after the
                                  activations; total size */
    bool joins;                /* norms between collectives run fused with them */
    bool pushes;               /* products also push their terms to the other workers */
    bool overlapped, alone, pending;
    bool pulled; /* this worker's rows are still in transit, because a product waited only for the
                    rows of others */
};

/* The largest input, output and scratch of a program's collectives, in bytes. */
typedef struct buffer_sizes {
    size_t in, out, scratch;
    bool any, adds_floats;
} buffer_sizes;

static void make_room(const tti_program *program, buffer_sizes *r) {
    const tti_kernel *host_staged = &tti_collective_kernel;
    for (int s = 0; s < program->n_steps; s++) {
        const tti_node *node = program->steps[s];
        if (!(node->op->traits & TTI_COLLECTIVE)) continue;
        tutti_dtype dtype = node->in[0]->type.dtype;
        bool is_float = dtype == TUTTI_F32 || dtype == TUTTI_BF16 || dtype == TUTTI_F16;
        r->any = true;
        r->adds_floats =
            r->adds_floats && (is_float || node->op->collective == TTI_COLLECTIVE_GATHER);
        r->in = TTI_MAX(r->in, tti_value_n_bytes(node->in[0]));
        r->out = TTI_MAX(r->out, tti_value_n_bytes(node->out[0]));
        r->scratch = TTI_MAX(r->scratch, host_staged->scratch_bytes(node, NULL));
    }
}

static buffer_sizes room_of(const tti_plan *plan) {
    buffer_sizes r = {.adds_floats = true};
    make_room(&plan->shard, &r);
    make_room(&plan->eval, &r);
    /* Memory for adjacent sums that run as one. */
    for (int s = 0; s < plan->shard.n_steps; s++) {
        size_t n_bytes = tti_joint_bytes(&plan->shard, s);
        r.in = TTI_MAX(r.in, n_bytes);
        r.out = TTI_MAX(r.out, n_bytes);
    }
    return r;
}

/* ---- adjacent sums that run as one ---- */

/* Bytes of a sum, including those that run with it. */
static size_t sum_bytes(const tti_device_tp *e, const tti_node *node) {
    const tutti_graph *g = tti_setup_of(e->x)->desc.plan->shard.graph;
    bool trains = node->id < g->n_nodes && g->nodes[node->id] == node;
    return trains && !tti_sharded_of(e->x) ? e->joint[node->id] : tti_value_n_bytes(node->in[0]);
}

/* ---- through the host ---- */

static tutti_status alloc_host(tti_device_tp *e) {
    buffer_sizes r = room_of(tti_setup_of(e->x)->desc.plan);
    e->in = e->ops->memory.alloc_host(TTI_MAX(r.in, (size_t)1));
    e->out = e->ops->memory.alloc_host(TTI_MAX(r.out, (size_t)1));
    e->scratch = malloc(r.scratch + 1);
    if (e->in && e->out && e->scratch) return TUTTI_OK;
    return tti_fail(TUTTI_E_NOMEM,
                    "exec: cannot allocate %zu bytes of pinned memory for collectives",
                    r.in + r.out);
}

/* Earlier kernels may wait for another stage. */
static tutti_status await_host(const tti_device_tp *e) {
    if (tti_device_is_between(e->x))
        return tti_device_p2p_await(tti_device_p2p_of(e->x), TTI_EVENT_TP);
    return e->ops->queues.await_host_event(TTI_EVENT_TP);
}

static tutti_status run_on_host(const tti_device_tp *e, const tti_kargs *a, size_t n_bytes) {
    void *in = e->in, *out = e->out;
    const tti_kargs host = {
        .node = a->node, .in = &in, .out = &out, .scratch = e->scratch, .run = a->run};
    tutti_dtype dtype = a->node->in[0]->type.dtype;
    if (a->node->op->collective != TTI_COLLECTIVE_SUM)
        return tti_collective_kernel.run(e->comm, &host);
    return tutti_comm_all_reduce(e->comm, in, out, n_bytes / tutti_dtype_bytes(dtype), dtype,
                                 TUTTI_SUM, TUTTI_ALG_DIRECT);
}

/* ---- between devices: conditions ---- */

/* A stage may have no collective inside its layers, but all tensor ranks take part in the other
 * sums. */
static bool is_needed(const tti_setup *setup, const buffer_sizes *r) {
    const tti_mesh *mesh = setup->desc.mesh;
    return r->any || (mesh && mesh->tensor && mesh->size.stage > 1);
}

/* True if a captured graph can contain collectives of floats.  Equal on all workers. */
static bool is_requested(const tti_setup *setup) {
    const tti_device_ops *ops = setup->desc.backend->device;
    bool can = ops->collectives.connect && ops->collectives.tp_collective;
    bool plain = !setup->desc.offload && !setup->desc.mixed && !setup->desc.server &&
                 !tti_device_host_staged_alone(setup) && !setup->desc.reference;
    bool stages = setup->desc.mesh->size.stage == 1 || ops->p2p.send;
    return can && plain && stages && tti_shard_map_is_even(&setup->shard_map);
}

/* Bytes of the largest collective: values of programs, sums of shards, votes, squares of slots. */
static size_t max_tp_bytes(const tti_setup *setup, const buffer_sizes *r) {
    size_t n_sums =
        (size_t)tti_device_n_reported(setup) + 2 * (size_t)setup->desc.plan->n_slots + 1;
    size_t n_bytes = TTI_MAX(TTI_MAX(r->in, r->out), n_sums * sizeof(double));
    return (n_bytes + TP_ALIGN - 1) / TP_ALIGN * TP_ALIGN;
}

/* ---- norms between collectives ---- */

static uint64_t mix(uint64_t hash, uint64_t word) {
    return (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 29);
}

/* True if all values of a norm that other devices access are in the arena. */
static bool is_in_arena(const tti_program *program, const tti_collective_norm *joint) {
    const tti_buf *bufs = program->bufs;
    return (!joint->scatter || bufs[joint->scatter->in[0]->id].space == TTI_SPACE_ARENA) &&
           (!joint->gather || bufs[joint->gather->out[0]->id].space == TTI_SPACE_ARENA);
}

/* True for norms with collectives on both sides.  If the device supports open rows: also for norms
 * with one collective, and for single gathers. */
static bool takes(const tti_device_ops *ops, const tti_collective_norm *joint) {
    return (joint->scatter && joint->gather) || ops->fusions.open_rows;
}

static bool exchange_at(const tti_device_ops *ops, const tti_program *program, int s,
                        tti_collective_norm *joint) {
    bool found = tti_collective_norm_at(program, s, joint) || tti_rows_gather_at(program, s, joint);
    return found && takes(ops, joint) && is_in_arena(program, joint);
}

static int product_of(const tti_device_ops *ops, const tti_program *program, int s,
                      const tti_collective_norm *joint, int n_ranks) {
    int p = ops->fusions.can_push && joint->scatter ? tti_collective_norm_product(program, s) : -1;
    if (p < 0) return -1;
    return ops->fusions.can_push(program->steps[p], (size_t)joint->n_rows, n_ranks) ? p : -1;
}

/* Bytes of the largest value that other workers send to an inbox. */
static size_t inbox_bytes(const tti_device_ops *ops, const tti_program *program, int n_ranks) {
    tti_collective_norm joint;
    size_t most = 0;
    for (int s = 0; tti_device_joins_norms(ops, n_ranks) && s < program->n_steps; s++) {
        if (!exchange_at(ops, program, s, &joint)) continue;
        if (product_of(ops, program, s, &joint, n_ranks) < 0) continue;
        most = TTI_MAX(most, tti_value_n_bytes(joint.scatter->out[0]));
    }
    return most * (size_t)(n_ranks - 1);
}

size_t tti_device_tp_bytes(const tti_setup *setup) {
    buffer_sizes r = room_of(setup->desc.plan);
    bool connects =
        is_needed(setup, &r) && setup->desc.mesh && setup->desc.mesh->tensor && is_requested(setup);
    if (!connects || !r.adds_floats) return 0;
    const tti_plan *plan = setup->desc.plan;
    int n_ranks = tutti_comm_n_ranks(setup->desc.mesh->tensor);
    return 2 * max_tp_bytes(setup, &r) +
           TTI_MAX(inbox_bytes(setup->desc.backend->device, &plan->shard, n_ranks),
                   inbox_bytes(setup->desc.backend->device, &plan->eval, n_ranks));
}

/* A digest of the offsets that other devices access; 0: there is no norm between collectives. */
static uint64_t digest_norms(const tti_device_ops *ops, const tti_program *program, int n_ranks,
                             uint64_t hash) {
    tti_collective_norm joint;
    for (int s = 0; s < program->n_steps; s++) {
        if (!exchange_at(ops, program, s, &joint)) continue;
        hash = mix(hash, (uint64_t)(product_of(ops, program, s, &joint, n_ranks) + 1));
        hash = mix(hash, (uint64_t)s) | 1;
        if (joint.scatter) hash = mix(hash, program->bufs[joint.scatter->in[0]->id].offset) | 1;
        if (joint.gather) hash = mix(hash, program->bufs[joint.gather->out[0]->id].offset) | 1;
    }
    return hash;
}

/* Allocates the arena here if all workers have equal offsets in theirs. */
static tutti_status alloc_arena(tti_device_tp *e) {
    const tti_setup *setup = tti_setup_of(e->x);
    int n_ranks = tutti_comm_n_ranks(e->comm);
    const tti_program *shard = &setup->desc.plan->shard, *eval = &setup->desc.plan->eval;
    uint64_t mine = digest_norms(e->ops, shard, n_ranks, 0), *all;
    if (mine) mine = mix(digest_norms(e->ops, eval, n_ranks, mine), setup->arena_bytes) | 1;
    if (setup->n_in_flight != 1 || !tti_device_joins_norms(e->ops, n_ranks)) mine = 0;
    TTI_TRY(tti_comm_gather_words(e->comm, mine, &all));
    e->joins = mine != 0;
    for (int r = 0; r < n_ranks; r++) e->joins = e->joins && all[r] == mine;
    free(all);
    size_t n_inbox =
        TTI_MAX(inbox_bytes(e->ops, shard, n_ranks), inbox_bytes(e->ops, eval, n_ranks));
    e->inbox = (setup->arena_bytes + TP_ALIGN - 1) / TP_ALIGN * TP_ALIGN;
    e->arena_bytes = e->inbox + n_inbox + 64;
    e->pushes = e->joins && n_inbox > 0;
    if (e->joins) e->arena = setup->desc.backend->alloc(e->arena_bytes);
    return TUTTI_OK;
}

void *tti_device_tp_arena(const tti_device_tp *e) { return e ? e->arena : NULL; }

static bool joins(const tti_device_tp *e, const tti_program *program,
                  const tti_collective_norm *joint) {
    return e && e->group && e->joins && takes(e->ops, joint) && is_in_arena(program, joint);
}

static int product_before(const tti_device_tp *e, const tti_program *program, int s,
                          const tti_collective_norm *joint) {
    return product_of(e->ops, program, s, joint, tutti_comm_n_ranks(e->comm));
}

static size_t inbox_of(const tti_device_tp *e) { return e->inbox; }

/* ---- between devices: connecting ---- */

static void leave(tti_device_tp *e) {
    if (e->group) e->ops->collectives.disconnect(e->group);
    e->group = NULL;
    tti_setup_of(e->x)->desc.backend->release(e->staging, 2 * e->tp_half_bytes);
    e->staging = NULL;
}

/* Connects only if every worker could allocate its memory. */
static tutti_status try_devices(tti_device_tp *e, const buffer_sizes *r) {
    bool good = false;
    TTI_TRY(tti_device_have_own(tti_setup_of(e->x), &good));
    if (!good)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "there are fewer devices than tensor parallel workers");
    e->tp_half_bytes = max_tp_bytes(tti_setup_of(e->x), r);
    e->staging = tti_setup_of(e->x)->desc.backend->alloc(2 * e->tp_half_bytes);
    TTI_TRY(alloc_arena(e));
    good = e->staging && (e->arena || !e->joins);
    TTI_TRY(tti_device_agree(tti_setup_of(e->x), &good));
    if (!good)
        return tti_fail(TUTTI_E_UNSUPPORTED, "no %zu bytes on every device", 2 * e->tp_half_bytes);
    const tti_mesh *mesh = tti_setup_of(e->x)->desc.mesh;
    float *partials[] = {e->staging};
    const tti_device_partitions arena = {.data = e->arena};
    const tti_device_peers peers = {.partials = partials,
                                    .n_partials = 1,
                                    .n_flat = 2 * e->tp_half_bytes / sizeof(float),
                                    .n_most = 2 * e->tp_half_bytes / sizeof(float),
                                    .tp_half_bytes = e->tp_half_bytes,
                                    .sources = &arena,
                                    .n_sources = e->joins};
    e->line = (tti_device_line){.x = e->x,
                                .comm = e->comm,
                                .turn = mesh->at.data * mesh->size.stage + mesh->at.stage,
                                .n_lines = mesh->size.data * mesh->size.stage,
                                .others = "workers"};
    return tti_device_connect_line(&e->line, &peers, &e->group);
}

static tutti_status connect_devices(tti_device_tp *e, const buffer_sizes *r) {
    tutti_status st = try_devices(e, r);
    if (st == TUTTI_OK) {
        e->ops->collectives.describe(e->group, &e->transport);
        if (e->joins) tti_str_add(&e->transport, ", norms with them");
        if (e->pushes) tti_str_add(&e->transport, ", overlapped with products before them");
        return TUTTI_OK;
    }
    if (st != TUTTI_E_UNSUPPORTED) return st;
    tti_str_printf(&e->transport, "through the host: %.300s", tutti_last_error());
    tti_clear_error();
    leave(e);
    return alloc_host(e);
}

tutti_status tti_device_tp_give_up(tti_device_tp *e, const char *why) {
    leave(e);
    tti_str_clear(&e->transport);
    tti_str_printf(&e->transport, "through the host: %.300s", why);
    return alloc_host(e);
}

void tti_device_tp_destroy(tti_device_tp *e) {
    if (!e) return;
    leave(e);
    if (e->arena) tti_setup_of(e->x)->desc.backend->release(e->arena, e->arena_bytes);
    tti_str_free(&e->transport);
    e->ops->memory.release_host(e->in);
    e->ops->memory.release_host(e->out);
    free(e->scratch);
    free(e->joint);
    free(e);
}

void *tti_device_tp_group(const tti_device_tp *e) { return e ? e->group : NULL; }

void tti_device_tp_describe(const tti_device_tp *e, tti_str *str) {
    if (e) tti_str_add(str, tti_str_text(&e->transport));
}

/* ---- between devices: a step ---- */

void tti_device_tp_begin(tti_device_tp *e, bool overlapped) {
    if (!e) return;
    e->overlapped = overlapped;
    e->pending = e->alone = e->pulled = false;
}

static void alone(tti_device_tp *e) {
    if (e) e->alone = true;
}

tutti_status tti_device_tp_wait(tti_device_tp *e) {
    if (!e || !e->pending) return TUTTI_OK;
    e->pending = e->pulled = false;
    TTI_TRY(e->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_PEER));
    return tti_profile_upto(e->x, TTI_ROW_COMPUTE,
                            tti_span_of(TTI_SPAN_WAIT, "waiting for a collective"), -1);
}

static tti_span_id between_devices(const tti_node *node) {
    return tti_span_node(TTI_SPAN_LAYERS, node, "collective between devices");
}

/* All workers are idle before a kernel starts that waits for the others. */
static tutti_status put_alone(tti_device_tp *e) {
    e->alone = false;
    if (e->overlapped) return TUTTI_OK;
    TTI_TRY(e->ops->queues.sync());
    return tutti_comm_barrier(e->comm);
}

/* Waits until the collective has completed or a peer is lost. */
static tutti_status end_alone(tti_device_tp *e) {
    if (e->overlapped) return TUTTI_OK;
    TTI_TRY(tti_device_tp_wait(e));
    TTI_TRY(e->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, TTI_EVENT_TP));
    TTI_TRY(tti_device_tp_await(e, TTI_EVENT_TP));
    return e->ops->queues.sync();
}

static tutti_status enqueue_collective(tti_device_tp *e, const tti_tp_collective *tp,
                                       tti_span_id id) {
    bool alone = e->alone;
    TTI_TRY(put_alone(e));
    TTI_TRY(e->ops->queues.order(TTI_QUEUE_PEER, TTI_QUEUE_COMPUTE));
    TTI_TRY(tti_profile_from(e->x, TTI_ROW_TP));
    TTI_TRY(e->ops->collectives.tp_collective(e->group, tp, e->overlapped && !alone));
    TTI_TRY(tti_profile_upto(e->x, TTI_ROW_TP, id, -1));
    e->pending = true;
    e->pulled = false;
    return end_alone(e);
}

/* Overlaps with the next kernels. */
static tutti_status gather_rows(tti_device_tp *e, const tti_device_norm *norm) {
    TTI_TRY(e->ops->queues.order(TTI_QUEUE_PEER, TTI_QUEUE_COMPUTE));
    TTI_TRY(tti_profile_from(e->x, TTI_ROW_TP));
    TTI_TRY(e->ops->fusions.gather_rows(e->group, norm));
    e->pending = true;
    e->pulled = false;
    tti_span_id id = tti_span_node(TTI_SPAN_LAYERS, norm->node, "rows between devices");
    return tti_profile_upto(e->x, TTI_ROW_TP, id, -1);
}

static tutti_status norm_between(tti_device_tp *e, tti_device_norm *norm, bool overlapped) {
    norm->kept =
        overlapped && e->overlapped && norm->pushed && !norm->stays && e->ops->fusions.gather_rows;
    /* Runs in the compute queue, where each kernel waits only for the previous one.  Waiting for
     * two queues takes longer. */
    const tti_device_ops *ops = e->ops;
    if (!e->pulled) TTI_TRY(tti_device_tp_wait(e));
    TTI_TRY(put_alone(e));
    int timestamp = tti_profile_take(e->x, 2);
    if (timestamp > 0) TTI_TRY(ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, timestamp));
    TTI_TRY((norm->part ? ops->fusions.norm_grad : ops->fusions.norm)(e->group, norm));
    if (timestamp > 0) TTI_TRY(ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, timestamp + 1));
    tti_profile_between(e->x, TTI_ROW_TP, between_devices(norm->node), -1, timestamp);
    tti_span_id wait = tti_span_of(TTI_SPAN_WAIT, "waiting for a collective");
    TTI_TRY(tti_profile_upto(e->x, TTI_ROW_COMPUTE, wait, -1));
    TTI_TRY(end_alone(e));
    return norm->kept ? gather_rows(e, norm) : TUTTI_OK;
}

/* Other workers have read the previous message by now: they send their rows after reading it, and
 * those have arrived. */
static tutti_status push(tti_device_tp *e, const tti_device_push *push) {
    if (!e->pulled) TTI_TRY(tti_device_tp_wait(e));
    return e->ops->fusions.push(e->group, push);
}

/* Lets the next step begin with this worker's rows, while those of other workers still arrive. */
static tutti_status open_rows(tti_device_tp *e, tti_device_norm *rows) {
    const tti_device_ops *ops = e->ops;
    if (!e->pulled) TTI_TRY(tti_device_tp_wait(e));
    e->alone = false;
    rows->kept = true;
    TTI_TRY(ops->fusions.open_rows(e->group, rows));
    TTI_TRY(tti_profile_upto(e->x, TTI_ROW_COMPUTE,
                             tti_span_of(TTI_SPAN_WAIT, "waiting for a collective"), -1));
    return gather_rows(e, rows);
}

static bool opens(const tti_device_tp *e) { return e->overlapped; }

static bool may_pull(const tti_device_tp *e, const tti_node *product,
                     const tti_collective_norm *joint) {
    if (!joint->gather) return false;
    return e->ops->fusions.can_pull && product->in[0] == joint->gather->out[0] &&
           e->ops->fusions.can_pull(product, (size_t)joint->n_rows, tutti_comm_n_ranks(e->comm));
}

static tutti_status pull(tti_device_tp *e, const tti_device_push *pull) {
    TTI_TRY(e->ops->fusions.pull(e->group, pull));
    e->pulled = true;
    return TUTTI_OK;
}

tutti_status tti_device_tp_sum(tti_device_tp *e, double *terms, size_t n) {
    const tti_tp_collective tp = {.kind = TTI_COLLECTIVE_SUM,
                                  .dtype = TUTTI_F64,
                                  .in = terms,
                                  .out = terms,
                                  .n_rows = 1,
                                  .part_bytes = n * sizeof *terms};
    alone(e);
    TTI_TRY(enqueue_collective(e, &tp, tti_span_of(TTI_SPAN_SUMS, "collective between devices")));
    return tti_device_tp_wait(e);
}

tutti_status tti_device_tp_await(tti_device_tp *e, int event) {
    return tti_device_late(tti_setup_of(e->x), e->ops->collectives.await(e->group, event));
}

/* ---- the kernel ---- */

static size_t no_scratch(const tti_node *node, const void *state) {
    (void)node, (void)state;
    return 0;
}

static tutti_status run_on_device_or_host(void *state, const tti_kargs *a) {
    tti_device_tp *e = state;
    if (!e->group) {
        bool sums = a->node->op->collective == TTI_COLLECTIVE_SUM;
        size_t n_in = sums ? sum_bytes(e, a->node) : tti_value_n_bytes(a->node->in[0]);
        size_t n_out = sums ? n_in : tti_value_n_bytes(a->node->out[0]);
        if (sums && n_in == 0) return TUTTI_OK;
        TTI_TRY(e->ops->queues.copy(TTI_QUEUE_COMPUTE, e->in, a->in[0], n_in));
        TTI_TRY(e->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, TTI_EVENT_TP));
        TTI_TRY(tti_profile_upto(e->x, TTI_ROW_COMPUTE,
                                 tti_span_of(TTI_SPAN_LAYERS, "values to the host"), -1));
        TTI_TRY(await_host(e));
        int64_t start = tti_now_ns();
        TTI_TRY(run_on_host(e, a, n_in));
        int64_t end = tti_now_ns();
        tti_exec_waited(e->x, end - start);
        tti_span_id id = tti_span_node(TTI_SPAN_LAYERS, a->node, "collective through the host");
        tti_profile_add(e->x, TTI_ROW_TP, id, -1, start, end);
        return e->ops->queues.copy(TTI_QUEUE_COMPUTE, a->out[0], e->out, n_out);
    }
    tti_tp_collective tp = {.kind = a->node->op->collective,
                            .dtype = a->node->in[0]->type.dtype,
                            .in = a->in[0],
                            .out = a->out[0]};
    tti_collective_rows(a->node, &tp.n_rows, &tp.part_bytes);
    if (tp.kind == TTI_COLLECTIVE_SUM) tp.part_bytes = sum_bytes(e, a->node);
    if (tp.part_bytes > 0 && tp.n_rows > 0)
        return enqueue_collective(e, &tp, between_devices(a->node));
    e->alone = false;
    return TUTTI_OK;
}

static const tti_kernel kernel = {
    .op = "*", .name = "collective", .scratch_bytes = no_scratch, .run = run_on_device_or_host};

static const tti_tp_calls calls = {
    .kernel = &kernel,
    .alone = alone,
    .wait = tti_device_tp_wait,
    .joins = joins,
    .norm = norm_between,
    .product = product_before,
    .inbox = inbox_of,
    .push = push,
    .may_pull = may_pull,
    .pull = pull,
    .opens = opens,
    .open_rows = open_rows,
    .group = tti_device_tp_group,
};

tutti_status tti_device_tp_create(tti_exec *x, tti_device_tp **out) {
    const tti_setup *setup = tti_setup_of(x);
    buffer_sizes r = room_of(setup->desc.plan);
    *out = NULL;
    if (!setup->desc.backend->device || !is_needed(setup, &r)) return TUTTI_OK;
    tti_device_tp *e = *out = calloc(1, sizeof *e);
    if (!e) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    e->calls = &calls;
    e->x = x;
    e->ops = setup->desc.backend->device;
    e->comm = setup->desc.mesh ? setup->desc.mesh->tensor : NULL;
    /* Only if gradients are laid out as in the flat arrays. */
    const tti_program *program = &tti_setup_of(e->x)->desc.plan->shard;
    e->joint = calloc((size_t)program->graph->n_nodes + 1, sizeof *e->joint);
    if (!e->joint) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int s = 0; s < program->n_steps; s++)
        e->joint[program->steps[s]->id] = tti_joint_bytes(program, s);
    /* Stages have different programs, but either all workers connect or none does. */
    bool wanted = e->comm && is_requested(setup), adds = r.adds_floats;
    if (wanted) TTI_TRY(tti_device_agree(setup, &adds));
    return wanted && adds ? connect_devices(e, &r) : alloc_host(e);
}
