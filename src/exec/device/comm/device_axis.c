/* device_axis.c - block lists, reduced on the device before their sums are exchanged.
 *
 * A worker first adds its own blocks, and the axis adds the results; the host does the same, so the
 * bits are the same. */
#include "exec/device/comm/device_axis.h"

#include <stdlib.h>

#include "exec/device/comm/device_tp.h"
#include "exec/worker/worker.h"

/* Lists in the memory of the device, and how many bytes each array has. */
typedef struct lists {
    tti_device_lists of;
    void *memory[3];
    size_t n_bytes[3];
} lists;

struct tti_device_axis {
    tti_exec *x;
    const tti_device_ops *ops;
    tti_device_p2p *p2p; /* of the stages; NULL: there are none */
    lists total, slots;  /* of one double for a block; of two */
    double *sums;        /* [1 + 2 * n_slots] device */
    double *zeros;       /* [n_shards][TTI_SUMS] device */
    size_t n_sums, n_zeros;
};

/* On the host, while the lists are built. */
typedef struct draft {
    int32_t *begin, *member, *home;
    int n, n_members;
} draft;

static tutti_status draft_init(draft *d, const tti_plan *plan) {
    size_t n_lists = 2 * (size_t)plan->n_slots + 2, n_members = 2 * (size_t)plan->n_updates + 1;
    *d = (draft){0};
    d->begin = calloc(n_lists, sizeof *d->begin);
    d->home = calloc(n_lists, sizeof *d->home);
    d->member = calloc(n_members, sizeof *d->member);
    bool ok = d->begin && d->home && d->member;
    return ok ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
}

static void draft_fini(draft *d) {
    free(d->begin);
    free(d->home);
    free(d->member);
}

static void end_list(draft *d, int32_t home) {
    d->home[d->n++] = home;
    d->begin[d->n] = d->n_members;
}

/* All blocks, in the place of the first. */
static void list_blocks(const tti_exec *x, draft *d) {
    const tti_setup *setup = tti_setup_of(x);
    for (int i = 0; i < setup->desc.plan->n_updates; i++)
        if (tti_divided_counts(setup->divided, setup->desc.plan->updates[i].slot))
            d->member[d->n_members++] = i;
    end_list(d, 0);
}

/* The blocks of each slot, at the position of its first; parts that the first worker counts have
 * none. */
static void list_slots(const tti_exec *x, draft *d) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_plan *plan = setup->desc.plan;
    for (int l = 0; l < 2 * plan->n_slots; l++) {
        int32_t home = 0;
        for (int i = 0; i < plan->n_updates; i++) {
            const tti_update_step *step = &plan->updates[i];
            if (step->slot != l / 2) continue;
            if (step->first == plan->slots[step->slot].first) home = 2 * i + l % 2;
            if (tti_divided_counts_here(setup->divided, step->slot))
                d->member[d->n_members++] = 2 * i + l % 2;
        }
        end_list(d, home);
    }
}

static tutti_status put_array(tti_device_axis *a, lists *l, int which, const void *from, size_t n) {
    l->n_bytes[which] = (n + 1) * sizeof(int32_t);
    l->memory[which] = tti_setup_of(a->x)->desc.backend->alloc(l->n_bytes[which]);
    if (!l->memory[which])
        return tti_fail(TUTTI_E_NOMEM, "exec: %zu bytes on the device", l->n_bytes[which]);
    if (n == 0) return TUTTI_OK;
    return a->ops->queues.copy(TTI_QUEUE_COMPUTE, l->memory[which], from, n * sizeof(int32_t));
}

static tutti_status put_lists(tti_device_axis *a, const draft *d, lists *l) {
    TTI_TRY(put_array(a, l, 0, d->begin, (size_t)d->n + 1));
    TTI_TRY(put_array(a, l, 1, d->member, (size_t)d->n_members));
    TTI_TRY(put_array(a, l, 2, d->home, (size_t)d->n));
    l->of = (tti_device_lists){
        .begin = l->memory[0], .member = l->memory[1], .home = l->memory[2], .n = d->n};
    return a->ops->queues.sync();
}

static tutti_status make_lists(tti_device_axis *a, lists *l,
                               void (*list)(const tti_exec *x, draft *d)) {
    draft d;
    tutti_status st = draft_init(&d, tti_setup_of(a->x)->desc.plan);
    if (st == TUTTI_OK) {
        list(a->x, &d);
        st = put_lists(a, &d, l);
    }
    draft_fini(&d);
    return st;
}

static tutti_status make(tti_device_axis *a) {
    const tti_backend *backend = tti_setup_of(a->x)->desc.backend;
    a->n_sums = 1 + 2 * (size_t)tti_setup_of(a->x)->desc.plan->n_slots;
    a->n_zeros = (size_t)tti_setup_of(a->x)->desc.n_shards * TTI_SUMS;
    a->sums = backend->alloc(a->n_sums * sizeof *a->sums);
    a->zeros = backend->alloc(a->n_zeros * sizeof *a->zeros);
    if (!a->sums || !a->zeros) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory on the device");
    TTI_TRY(make_lists(a, &a->total, list_blocks));
    return make_lists(a, &a->slots, list_slots);
}

tutti_status tti_device_axis_create(tti_exec *x, tti_device_p2p *p2p, tti_device_axis **out) {
    *out = NULL;
    tti_device_axis *a = calloc(1, sizeof *a);
    if (!a) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    a->x = x;
    a->p2p = p2p;
    a->ops = tti_setup_of(x)->desc.backend->device;
    tutti_status st = make(a);
    if (st != TUTTI_OK) {
        tti_device_axis_destroy(a);
        return st;
    }
    *out = a;
    return TUTTI_OK;
}

static void release_lists(const tti_device_axis *a, lists *l) {
    for (int i = 0; i < 3; i++)
        tti_setup_of(a->x)->desc.backend->release(l->memory[i], l->n_bytes[i]);
}

void tti_device_axis_destroy(tti_device_axis *a) {
    if (!a) return;
    release_lists(a, &a->total);
    release_lists(a, &a->slots);
    tti_setup_of(a->x)->desc.backend->release(a->sums, a->n_sums * sizeof *a->sums);
    tti_setup_of(a->x)->desc.backend->release(a->zeros, a->n_zeros * sizeof *a->zeros);
    free(a);
}

/* Over the pieces of a layer, then over the stages: as in one tree over all of them, where there
 * are 1, 2, 4 ... pieces. */
static tutti_status sum_model(tti_device_axis *a, double *terms, size_t n) {
    if (tti_device_tp_group(tti_tp_of(a->x))) TTI_TRY(tti_device_tp_sum(tti_tp_of(a->x), terms, n));
    return a->p2p ? tti_device_p2p_sum(a->p2p, terms, n) : TUTTI_OK;
}

tutti_status tti_device_axis_sums(tti_device_axis *a, double *sums) {
    const tti_exec *x = a->x;
    const tti_setup *setup = tti_setup_of(x);
    const tti_mesh *mesh = setup->desc.mesh;
    double *votes = sums + a->n_zeros + 2 * (size_t)setup->n_ranks;
    bool has_loss = mesh->at.tensor == 0 && mesh->at.stage == mesh->size.stage - 1;
    if (!has_loss)
        TTI_TRY(a->ops->queues.copy(TTI_QUEUE_COMPUTE, sums, a->zeros, a->n_zeros * sizeof *sums));
    TTI_TRY(sum_model(a, sums, a->n_zeros));
    return sum_model(a, votes, (size_t)setup->n_ranks);
}

tutti_status tti_device_axis_meet(tti_device_axis *a) {
    TTI_TRY(a->ops->queues.sync());
    return tutti_comm_barrier(tti_setup_of(a->x)->desc.mesh->world);
}

tutti_status tti_device_axis_await(tti_device_axis *a, int event) {
    return a->p2p ? tti_device_p2p_await(a->p2p, event)
                  : tti_device_tp_await(tti_tp_of(a->x), event);
}

tutti_status tti_device_axis_partials(tti_device_axis *a, void *words, size_t n_words) {
    size_t n = n_words / 2;
    bool by_block = n <= (size_t)tti_setup_of(a->x)->desc.plan->n_updates;
    const tti_device_lists *l = by_block ? &a->total.of : &a->slots.of;
    TTI_TRY(a->ops->step.fold(words, l, a->sums));
    if (by_block)
        TTI_TRY(sum_model(a, a->sums, (size_t)l->n));
    else if (tti_device_tp_group(tti_tp_of(a->x)))
        TTI_TRY(tti_device_tp_sum(tti_tp_of(a->x), a->sums, (size_t)l->n));
    return a->ops->step.unfold(words, n, l, a->sums);
}
