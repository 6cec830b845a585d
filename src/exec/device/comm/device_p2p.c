/* device_p2p.c - point-to-point slots between stages in device memory.
 *
 * A slot is empty or full, and only its two ends access it. So a stage waits only for its own
 * messages, and stages do not synchronize as a group.
 *
 * Gradients of tied parameters are sent chunk by chunk through two alternating slots: the
 * parameter's first stage adds a chunk and sends the sum back while the next chunk arrives. */
#include "exec/device/comm/device_p2p.h"

#include <stdio.h>
#include <stdlib.h>

#include "exec/device/comm/device_axis.h"
#include "exec/device/comm/device_tp.h"
#include "exec/device/state/device_state.h"
#include "exec/worker/worker.h"

enum {
    ALIGN = 256,
    TRIAL_ELEMS = 1024, /* the least that an inbox has, for the trial sum */
    N_BUFFERS = 2,
    MAX_MESSAGE_ELEMS = 1 << 21 /* elements of a gradient in one message */
};

struct tti_device_p2p {
    tti_exec *x;
    const tti_device_ops *ops;
    char *inbox;
    size_t n_bytes;
    size_t *at;           /* [n_slots]: offset of the slot in the inbox of its reader */
    size_t tp_half_bytes; /* half of the space at the start of the inbox for sums over all stages */
    int n_slots, n_events;
    void *group; /* NULL: not connected */
    tti_device_line line;
    tti_str transport;
    bool overlapped;
};

/* ---- slots: first those of the mailbox, then those of tied parameters ---- */

static int n_others(const tti_tied_param *tied) { return tied->n_stages - 1; }

static int count_slots(const tti_pipe *pipe) {
    const tti_stages *s = pipe->stages;
    int n = pipe->n_slots;
    for (int i = 0; i < s->n_tied; i++) n += 2 * N_BUFFERS * n_others(&s->tied[i]);
    return n;
}

/* The first of the alternating slots from a stage to the parameter's first stage, or in the
 * opposite direction (back). */
static int first_tied_slot(const tti_pipe *pipe, int tied, int stage, bool back) {
    const tti_stages *s = pipe->stages;
    int slot = pipe->n_slots;
    for (int i = 0; i < tied; i++) slot += 2 * N_BUFFERS * n_others(&s->tied[i]);
    int before = tti_tied_count_below(&s->tied[tied], stage);
    return slot + 2 * N_BUFFERS * (before - 1) + (back ? N_BUFFERS : 0);
}

static int owner_stage_of(const tti_tied_param *tied) { return tied->stages[0]; }

/* The chunk length: about a quarter of the parameter, so that both ends work at the same time. */
static size_t chunk_length(size_t n_elems) {
    size_t part = (n_elems / 4 + ALIGN) / ALIGN * ALIGN;
    return TTI_MIN(part, (size_t)MAX_MESSAGE_ELEMS);
}

static void assign_offset(size_t *at, size_t *n_bytes, size_t more) {
    if (at) *at = *n_bytes;
    *n_bytes += (more + ALIGN - 1) / ALIGN * ALIGN;
}

/* Assigns inbox offsets to the slots of a tied parameter that this stage reads: on its first stage
 * those from all others, on another stage those back from the first. */
static void assign_tied_offsets(const tti_setup *setup, const tti_pipe *pipe, int tied, size_t *at,
                                size_t *n_bytes) {
    const tti_stages *s = pipe->stages;
    const tti_tied_param *t = &s->tied[tied];
    int index = tti_plan_find_slot(setup->desc.plan, t->name), first = owner_stage_of(t);
    if (index < 0) return;
    size_t chunk = chunk_length(setup->desc.plan->slots[index].n_elems) * sizeof(float);
    for (int k = 1; k < t->n_stages; k++) {
        int stage = t->stages[k];
        if (s->stage != first && s->stage != stage) continue;
        int slot = first_tied_slot(pipe, tied, stage, s->stage == stage);
        for (int i = 0; i < N_BUFFERS; i++)
            assign_offset(at ? &at[slot + i] : NULL, n_bytes, chunk);
    }
}

/* Bytes of the largest sum over all stages: the sums of shards, hashes and votes. Equal on all
 * stages. */
static size_t max_sum_bytes(const tti_setup *setup) {
    size_t n = tti_n_shard_sums(setup) + 3 * (size_t)setup->n_ranks;
    return (n * sizeof(double) + ALIGN - 1) / ALIGN * ALIGN;
}

/* Returns the bytes of the inbox. at [n_slots] (NULL: not wanted) receives the offsets in it of the
 * slots that this stage reads. */
static size_t assign_offsets(const tti_setup *setup, const tti_pipe *pipe, size_t *at) {
    size_t n_bytes = 2 * max_sum_bytes(setup);
    for (int i = 0; i < pipe->n_slots; i++)
        if (pipe->slots[i].to == pipe->stages->stage)
            assign_offset(at ? &at[i] : NULL, &n_bytes, pipe->slots[i].n_bytes);
    for (int i = 0; i < pipe->stages->n_tied; i++)
        assign_tied_offsets(setup, pipe, i, at, &n_bytes);
    return TTI_MAX(n_bytes, TRIAL_ELEMS * sizeof(float));
}

size_t tti_device_p2p_bytes(const tti_exec *x) {
    const tti_pipe *pipe = tti_pipe_of(x);
    return pipe ? assign_offsets(tti_setup_of(x), pipe, NULL) : 0;
}

/* The reader of a slot. Its writer is the reader of the slot in the opposite direction. */
static int reader_of(const tti_pipe *pipe, int slot) {
    const tti_stages *s = pipe->stages;
    if (slot < pipe->n_slots) return pipe->slots[slot].to;
    for (int i = 0; i < s->n_tied; i++)
        for (int k = 1; k < s->tied[i].n_stages; k++) {
            int stage = s->tied[i].stages[k];
            int slot_to_owner = first_tied_slot(pipe, i, stage, false);
            if (slot >= slot_to_owner && slot < slot_to_owner + N_BUFFERS)
                return owner_stage_of(&s->tied[i]);
            if (slot >= slot_to_owner && slot < slot_to_owner + 2 * N_BUFFERS) return stage;
        }
    TTI_ASSERT(false);
    return -1;
}

static int writer_of(const tti_pipe *pipe, int slot) {
    int first = pipe->n_slots, turn = (slot - first) % (2 * N_BUFFERS);
    if (slot < first) return pipe->slots[slot].from;
    return reader_of(pipe, turn < N_BUFFERS ? slot + N_BUFFERS : slot - N_BUFFERS);
}

/* ---- the inbox, and the offsets of slots in other stages' inboxes ---- */

static tutti_status exchange_offsets(tti_device_p2p *m, const size_t *mine) {
    int n_stages = tti_pipe_of(m->x)->stages->n_stages;
    size_t n = (size_t)m->n_slots;
    size_t *all = calloc(n * (size_t)n_stages, sizeof *all);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    tutti_status st =
        tutti_comm_all_gather(tti_pipe_of(m->x)->comm, mine, all, n * sizeof *mine, TUTTI_U8);
    for (int i = 0; st == TUTTI_OK && i < m->n_slots; i++)
        m->at[i] = all[(size_t)reader_of(tti_pipe_of(m->x), i) * n + (size_t)i];
    free(all);
    return st;
}

static tutti_status alloc_inbox(tti_device_p2p *m) {
    m->n_slots = count_slots(tti_pipe_of(m->x));
    m->tp_half_bytes = max_sum_bytes(tti_setup_of(m->x));
    m->at = calloc((size_t)m->n_slots + 1, sizeof *m->at);
    size_t *mine = calloc((size_t)m->n_slots + 1, sizeof *mine);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    if (m->at && mine) {
        m->n_bytes = assign_offsets(tti_setup_of(m->x), tti_pipe_of(m->x), mine);
        m->inbox = tti_setup_of(m->x)->desc.backend->alloc(m->n_bytes);
        st = m->inbox ? exchange_offsets(m, mine)
                      : tti_fail(TUTTI_E_NOMEM,
                                 "pipeline: cannot allocate %zu bytes for values of other stages",
                                 m->n_bytes);
    }
    free(mine);
    return st;
}

void *tti_device_p2p_address(const tti_device_p2p *m, int slot) { return m->inbox + m->at[slot]; }

/* ---- connecting ---- */

/* Equal on all workers. */
static bool is_requested(const tti_setup *setup) {
    const tti_device_ops *ops = setup->desc.backend->device;
    return ops->collectives.connect && ops->p2p.send && !setup->desc.offload &&
           !setup->desc.mixed && !setup->desc.server && !tti_device_host_staged_alone(setup) &&
           !setup->desc.reference;
}

static tutti_status connect_stages(tti_device_p2p *m) {
    const tti_mesh *mesh = tti_setup_of(m->x)->desc.mesh;
    float *partials[] = {(float *)(void *)m->inbox};
    const tti_device_peers peers = {.partials = partials,
                                    .n_partials = 1,
                                    .n_flat = TRIAL_ELEMS,
                                    .n_most = TRIAL_ELEMS,
                                    .tp_half_bytes = m->tp_half_bytes,
                                    .n_slots = m->n_slots,
                                    .with = tti_device_tp_group(tti_tp_of(m->x))};
    bool good = false;
    TTI_TRY(tti_device_have_own(tti_setup_of(m->x), &good));
    if (!good) return tti_fail(TUTTI_E_UNSUPPORTED, "there are fewer devices than workers");
    m->line = (tti_device_line){.x = m->x,
                                .comm = tti_pipe_of(m->x)->comm,
                                .turn = mesh->at.data * mesh->size.tensor + mesh->at.tensor,
                                .n_lines = mesh->size.data * mesh->size.tensor,
                                .others = "stages"};
    return tti_device_connect_line(&m->line, &peers, &m->group);
}

tutti_status tti_device_p2p_create(tti_exec *x, tti_device_p2p **out) {
    tti_device_p2p *m = calloc(1, sizeof *m);
    *out = m;
    if (!m) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    m->x = x;
    m->ops = tti_setup_of(x)->desc.backend->device;
    TTI_TRY(alloc_inbox(m));
    if (!is_requested(tti_setup_of(m->x))) return TUTTI_OK;
    tutti_status st = connect_stages(m);
    if (st == TUTTI_OK) {
        m->ops->collectives.describe(m->group, &m->transport);
        return TUTTI_OK;
    }
    if (st != TUTTI_E_UNSUPPORTED) return st;
    tti_str_printf(&m->transport, "through the host: %.300s", tutti_last_error());
    tti_clear_error();
    m->ops->collectives.disconnect(m->group); /* another stage could not connect */
    m->group = NULL;
    return TUTTI_OK;
}

void tti_device_p2p_destroy(tti_device_p2p *m) {
    if (!m) return;
    if (m->group) m->ops->collectives.disconnect(m->group);
    tti_setup_of(m->x)->desc.backend->release(m->inbox, m->n_bytes);
    tti_str_free(&m->transport);
    free(m->at);
    free(m);
}

void tti_device_p2p_disconnect(tti_device_p2p *m) {
    if (m->group) m->ops->collectives.disconnect(m->group);
    m->group = NULL;
    tti_str_clear(&m->transport);
}

void *tti_device_p2p_group(const tti_device_p2p *m) { return m ? m->group : NULL; }

void tti_device_p2p_describe(const tti_device_p2p *m, tti_str *str) {
    tti_str_add(str, tti_str_text(&m->transport));
}

void tti_device_p2p_begin(tti_device_p2p *m, bool overlapped) { m->overlapped = overlapped; }

/* A barrier of all stages, after their devices are idle. */
static tutti_status sync_and_barrier(tti_device_p2p *m) {
    TTI_TRY(m->ops->queues.sync());
    return tutti_comm_barrier(tti_pipe_of(m->x)->comm);
}

/* ---- values ---- */

static tutti_status send_value(tti_device_p2p *m, int slot, const void *src, size_t n_bytes,
                               bool overlapped) {
    const tti_device_message message = {.slot = slot,
                                        .to = reader_of(tti_pipe_of(m->x), slot),
                                        .src = src,
                                        .place = m->at[slot],
                                        .n_bytes = n_bytes};
    return m->ops->p2p.send(m->group, &message, overlapped);
}

tutti_status tti_device_p2p_send(tti_device_p2p *m, int slot, const void *src, size_t n_bytes) {
    return send_value(m, slot, src, n_bytes, true);
}

/* Events are reused cyclically: a reused event completes later, so waiting for it is also
 * correct. */
tutti_status tti_device_p2p_record(tti_device_p2p *m, int *where) {
    *where = TTI_SUM_EVENTS + m->n_events++ % TTI_P2P_EVENTS;
    return m->ops->queues.record_event(TTI_QUEUE_PEER, *where);
}

tutti_status tti_device_p2p_recv(tti_device_p2p *m, int slot) {
    return m->ops->p2p.recv(m->group, slot);
}

tutti_status tti_device_p2p_release(tti_device_p2p *m, int slot) {
    return m->ops->p2p.release(m->group, slot, writer_of(tti_pipe_of(m->x), slot));
}

/* ---- tied parameters: gradients of parameters on several stages ---- */

/* A gradient that is sent through slots. */
typedef struct tied_grad {
    int tied;
    const tti_tied_param *param;
    float *data;
    size_t n_elems, chunk;
} tied_grad;

static size_t length_of(const tied_grad *g, size_t first) {
    return TTI_MIN(g->chunk, g->n_elems - first);
}

static int slot_of(const tti_device_p2p *m, const tied_grad *g, int stage, bool back,
                   size_t first) {
    return first_tied_slot(tti_pipe_of(m->x), g->tied, stage, back) +
           (int)(first / g->chunk % N_BUFFERS);
}

static tutti_status reduce_tied_grads(tti_device_p2p *m) {
    const tti_plan *plan = tti_setup_of(m->x)->desc.plan;
    const tti_stages *s = tti_pipe_of(m->x)->stages;
    for (int t = 0; t < s->n_tied; t++) {
        int index = tti_plan_find_slot(plan, s->tied[t].name);
        if (index < 0) continue;
        tied_grad g = {.tied = t,
                       .param = &s->tied[t],
                       .data = tti_exec_grads(m->x) + plan->slots[index].first,
                       .n_elems = plan->slots[index].n_elems,
                       .chunk = chunk_length(plan->slots[index].n_elems)};
        if (plan->slots[index].is_copy) {
            /* Sends the whole gradient chunk by chunk, and receives each sum when it is ready. */
            int stage = tti_pipe_of(m->x)->stages->stage;
            TTI_TRY(m->ops->queues.order(TTI_QUEUE_PEER, TTI_QUEUE_COMPUTE));
            for (size_t i = 0; i < g.n_elems; i += g.chunk)
                TTI_TRY(send_value(m, slot_of(m, &g, stage, false, i), g.data + i,
                                   length_of(&g, i) * sizeof *g.data, false));
            for (size_t i = 0; i < g.n_elems; i += g.chunk) {
                int slot = slot_of(m, &g, stage, true, i);
                TTI_TRY(tti_device_p2p_recv(m, slot));
                TTI_TRY(m->ops->queues.copy(TTI_QUEUE_COMPUTE, g.data + i,
                                            tti_device_p2p_address(m, slot),
                                            length_of(&g, i) * sizeof *g.data));
                TTI_TRY(tti_device_p2p_release(m, slot));
            }
        }
        for (size_t i = 0; !plan->slots[index].is_copy && i < g.n_elems; i += g.chunk) {
            /* The parameter's first stage adds the same chunk of each other stage, in the order of
             * stages. */
            size_t n = length_of(&g, i);
            for (int k = 1; k < g.param->n_stages; k++) {
                int slot = slot_of(m, &g, g.param->stages[k], false, i);
                TTI_TRY(tti_device_p2p_recv(m, slot));
                tti_setup_of(m->x)->desc.backend->accumulate(g.data + i,
                                                             tti_device_p2p_address(m, slot), n);
                TTI_TRY(tti_device_p2p_release(m, slot));
            }
            TTI_TRY(m->ops->queues.order(TTI_QUEUE_PEER, TTI_QUEUE_COMPUTE));
            for (int k = 1; k < g.param->n_stages; k++)
                TTI_TRY(send_value(m, slot_of(m, &g, g.param->stages[k], true, i), g.data + i,
                                   n * sizeof *g.data, false));
        }
    }
    return TUTTI_OK;
}

tutti_status tti_device_p2p_reduce_tied_grads(tti_device_p2p *m) {
    if (tti_pipe_of(m->x)->stages->n_tied == 0) return TUTTI_OK;
    if (!m->overlapped) TTI_TRY(sync_and_barrier(m));
    TTI_TRY(reduce_tied_grads(m));
    return m->overlapped ? TUTTI_OK : tti_device_p2p_sync(m);
}

/* ---- small sums over all stages ---- */

tutti_status tti_device_p2p_sum(tti_device_p2p *m, double *terms, size_t n) {
    const tti_tp_collective tp = {.kind = TTI_COLLECTIVE_SUM,
                                  .dtype = TUTTI_F64,
                                  .in = terms,
                                  .out = terms,
                                  .n_rows = 1,
                                  .part_bytes = n * sizeof *terms};
    TTI_ASSERT(tp.part_bytes <= m->tp_half_bytes);
    if (!m->overlapped) TTI_TRY(sync_and_barrier(m));
    TTI_TRY(m->ops->queues.order(TTI_QUEUE_PEER, TTI_QUEUE_COMPUTE));
    TTI_TRY(m->ops->collectives.tp_collective(m->group, &tp, false));
    TTI_TRY(m->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_PEER));
    return m->overlapped ? TUTTI_OK : tti_device_p2p_sync(m);
}

/* ---- waiting ---- */

tutti_status tti_device_p2p_await(tti_device_p2p *m, int event) {
    return tti_device_late(tti_setup_of(m->x), m->ops->collectives.await(m->group, event));
}

tutti_status tti_device_p2p_sync(tti_device_p2p *m) {
    TTI_TRY(m->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_PEER));
    TTI_TRY(m->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, TTI_EVENT_PIPE_IN));
    TTI_TRY(tti_device_p2p_await(m, TTI_EVENT_PIPE_IN));
    return m->ops->queues.sync();
}

void tti_device_p2p_abort(tti_device_p2p *m, tutti_status status) {
    char text[2048];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    if (m->group && tti_device_p2p_sync(m) != TUTTI_OK) tti_clear_error();
    status = tti_fail(status, "%s", text);
    (void)status;
}
