/* device_axis.c - connects the devices along an axis of the mesh; adds the reported sums; reduces
 * lists of blocks on the device before their sums are exchanged.
 *
 * A worker adds its own blocks first, then the axis adds the results. The host uses the same order,
 * so the bits are equal. */
#include "exec/device/comm/device_axis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "comm/partitions.h"
#include "comm/progress.h"
#include "exec/device/comm/device_reduce.h"
#include "exec/device/comm/device_tp.h"
#include "exec/worker/worker.h"

/* Sums of the shards, the previous step's hashes in two halves, and votes. */
size_t tti_device_n_shared_sums(const tti_setup *setup) {
    return tti_n_shard_sums(setup) + 3 * (size_t)setup->n_ranks;
}

int tti_device_n_reported(const tti_setup *setup) {
    return (int)tti_device_n_shared_sums(setup) +
           (tti_exec_has_partitions(setup) ? setup->n_ranks : 0);
}

uint64_t tti_device_reported_hash(const tti_setup *setup, const double *reported) {
    uint64_t hash = 0;
    for (int r = 0; r < setup->n_ranks; r++)
        hash += tti_f64_to_bits(reported[(int)tti_device_n_shared_sums(setup) + r]);
    return hash;
}

tutti_status tti_device_store_reported(tti_exec *x, const double *reported, uint64_t step) {
    tti_tally *tally = tti_tally_of(x);
    const double *votes = reported + tally->n_sums - 1;
    memcpy(tally->sums, reported, (tally->n_sums - 1) * sizeof *reported);
    tally->sums[tally->n_sums - 1] = 0;
    for (int rank = 0; rank < tti_setup_of(x)->n_ranks; rank++)
        tally->sums[tally->n_sums - 1] += votes[rank];
    if (tti_exec_has_sharded_params(x)) {
        /* If no other worker has these parameters: compares their hash before this update with the
         * hash after the previous one. */
        const tti_setup *setup = tti_setup_of(x);
        tti_param_hashes *hashes = tti_sharded_of(x)->hashes;
        const double *halves = reported + tti_n_shard_sums(setup);
        for (int r = 0; tti_tally_of(x)->has_hash && r < setup->n_ranks; r++) {
            uint64_t hash = (uint64_t)halves[2 * r] << 32 | (uint64_t)halves[2 * r + 1];
            if (hash == hashes->by_rank[r]) continue;
            return tti_fail(
                TUTTI_E_MISMATCH,
                "step %llu: the parameters of rank %d changed in memory after the update",
                (unsigned long long)step, r);
        }
        const double *own = reported + tti_device_n_shared_sums(setup);
        for (int r = 0; r < setup->n_ranks; r++) hashes->by_rank[r] = tti_f64_to_bits(own[r]);
        return TUTTI_OK;
    }
    return tti_exec_compare_hashes(x, step);
}

/* ---- conditions ---- */

bool tti_device_ends_on_host(const tti_setup *setup) {
    bool compresses = tti_compress_wanted(&setup->desc, setup->n_ranks);
    return setup->desc.local ||
           (compresses && !tti_device_compress_can(&setup->desc, setup->n_ranks));
}

/* True if the host joins the values of shards, which it always does for pipeline stages. */
static bool joins_on_host(const tti_setup *setup) {
    const tti_stages *stages = setup->desc.plan->stages;
    return stages ? stages->is_joined : setup->syncs.n > 0 && setup->n_ranks > 1;
}

bool tti_device_host_staged_alone(const tti_setup *setup) {
    bool is_partitioned = setup->desc.zero > 1 && setup->n_ranks > 1;
    return tti_device_ends_on_host(setup) ||
           (setup->divided && (is_partitioned || joins_on_host(setup)));
}

tutti_status tti_device_agree(const tti_setup *setup, bool *yes) {
    int32_t all = *yes;
    tutti_comm *comm = setup->desc.mesh ? setup->desc.mesh->world : setup->desc.comm;
    if (setup->n_ranks > 1 || setup->divided)
        TTI_TRY(tutti_comm_all_reduce(comm, &all, &all, 1, TUTTI_I32, TUTTI_MIN, TUTTI_ALG_AUTO));
    *yes = all != 0;
    return TUTTI_OK;
}

/* In an elastic run the other workers wait until this step ends, but a step with a lost peer rarely
 * completes. A worker that does not complete it gets the state from one that did. */
int tti_device_grace_ms(const tti_setup *setup) {
    enum { ELASTIC_GRACE_MS = 20 };
    return setup->desc.elastic ? ELASTIC_GRACE_MS : 0;
}

void tti_device_terms(const tti_sum_order *order, tti_device_term *terms) {
    for (int t = 0; t < order->n_terms; t++)
        terms[t] = (tti_device_term){order->terms[t].rank, order->terms[t].partial,
                                     order->terms[t].n_adds};
}

static int by_value(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

tutti_status tti_device_have_own(const tti_setup *setup, bool *own) {
    tti_comm_place place;
    tutti_comm *world = setup->desc.mesh->world;
    int n = tutti_comm_n_ranks(world);
    tti_comm_get_place(world, &place);
    uint64_t *all, mine = (uint64_t)(uint32_t)place.host << 32 | (uint32_t)setup->desc.device.index;
    TTI_TRY(tti_comm_gather_words(world, mine, &all));
    qsort(all, (size_t)n, sizeof *all, by_value);
    *own = true;
    for (int r = 1; r < n; r++) *own = *own && all[r] != all[r - 1];
    free(all);
    return TUTTI_OK;
}

tutti_status tti_device_late(const tti_setup *setup, tutti_status st) {
    char kept[2048];
    tti_str who = {0};
    if (st != TUTTI_E_TIMEOUT) return st;
    tti_comm_describe_late(setup->desc.mesh ? setup->desc.mesh->world : setup->desc.comm, &who);
    if (who.n_bytes > 0) {
        snprintf(kept, sizeof kept, "%s", tutti_last_error());
        st = tti_fail(st, "%s: %s", kept, tti_str_text(&who));
    }
    tti_str_free(&who);
    return st;
}

static tutti_status all_gather(void *user, const void *src, void *dst, size_t n_bytes) {
    const tti_device_line *line = user;
    return tutti_comm_all_gather(line->comm, src, dst, n_bytes, TUTTI_U8);
}

/* A lost worker on another line of this model blocks this line too; a lost worker in another
 * replica ends the job. */
static tutti_status check_line(void *user) {
    const tti_device_line *line = user;
    TTI_TRY(tti_comm_check(tti_setup_of(line->x)->desc.mesh->model));
    return tti_comm_check(line->comm);
}

static tutti_status connect_line(tti_device_line *line, const tti_device_peers *wanted,
                                 void **group) {
    tti_sum_order order;
    int n_ranks = tutti_comm_n_ranks(line->comm);
    TTI_TRY(tti_sum_order_ranks(n_ranks, &order));
    tti_device_term *terms = calloc((size_t)order.n_terms, sizeof *terms);
    tti_device_peers peers = *wanted;
    peers.rank = tutti_comm_rank(line->comm);
    peers.n_ranks = n_ranks;
    peers.timeout_ms = tti_comm_timeout_ms(line->comm);
    peers.grace_ms = tti_device_grace_ms(tti_setup_of(line->x));
    peers.shown = tutti_comm_rank(tti_setup_of(line->x)->desc.mesh->world);
    peers.terms = terms;
    peers.n_terms = order.n_terms;
    peers.n_words = (size_t)n_ranks;
    peers.algorithm = TTI_DEVICE_PEERS;
    peers.user = line;
    peers.all_gather = all_gather;
    peers.check = check_line;
    if (terms) tti_device_terms(&order, terms);
    tutti_status st =
        terms ? tti_setup_of(line->x)->desc.backend->device->collectives.connect(&peers, group)
              : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    free(terms);
    tti_sum_order_free(&order);
    return st;
}

/* Connecting a device, for example allocating memory, may wait for other devices, and a device
 * under test waits for its peers. So the lines connect one after the other. */
tutti_status tti_device_connect_line(tti_device_line *line, const tti_device_peers *wanted,
                                     void **group) {
    tutti_status st = TUTTI_OK;
    for (int i = 0; i < line->n_lines; i++) {
        if (i == line->turn) st = connect_line(line, wanted, group);
        if (st != TUTTI_OK && st != TUTTI_E_UNSUPPORTED) return st;
        TTI_TRY(tutti_comm_barrier(tti_setup_of(line->x)->desc.mesh->world));
    }
    bool all = st == TUTTI_OK;
    TTI_TRY(tti_device_agree(tti_setup_of(line->x), &all));
    if (st != TUTTI_OK || all) return st;
    return tti_fail(TUTTI_E_UNSUPPORTED, "devices of other %s do not reach each other",
                    line->others);
}

/* ---- lists of blocks ---- */

/* Lists in device memory; n_bytes: size of each array. */
typedef struct lists {
    tti_device_lists of;
    void *memory[3];
    size_t n_bytes[3];
} lists;

struct tti_device_axis {
    tti_exec *x;
    const tti_device_ops *ops;
    tti_device_p2p *p2p; /* one for the stages; NULL: there are no stages */
    lists total, slots;  /* scratch for one double per block; for two */
    double *sums;        /* [1 + 2 * n_slots] device */
    double *zeros;       /* [n_zeros] device: zero values used in place of the sums of shards */
    size_t n_sums, n_zeros;
};

/* On the host, while the lists are built. */
typedef struct draft {
    int32_t *begin, *member, *home;
    int n, n_members;
} draft;

static void end_list(draft *d, int32_t home) {
    d->home[d->n++] = home;
    d->begin[d->n] = d->n_members;
}

/* All blocks, stored at the position of the first. */
static void list_blocks(const tti_exec *x, draft *d) {
    const tti_setup *setup = tti_setup_of(x);
    for (int i = 0; i < setup->desc.plan->n_updates; i++)
        if (tti_divided_counts(setup->divided, setup->desc.plan->updates[i].slot))
            d->member[d->n_members++] = i;
    end_list(d, 0);
}

/* The blocks of each slot, at the position of its first block. Tensor shards that rank 0 counts
 * have none. */
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
        return tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu bytes of device memory",
                        l->n_bytes[which]);
    if (n == 0) return TUTTI_OK;
    return a->ops->queues.copy(TTI_QUEUE_COMPUTE, l->memory[which], from, n * sizeof(int32_t));
}

static tutti_status make_lists(tti_device_axis *a, lists *l,
                               void (*list)(const tti_exec *x, draft *d)) {
    draft d;
    const tti_plan *plan = tti_setup_of(a->x)->desc.plan;
    size_t n_lists = 2 * (size_t)plan->n_slots + 2, n_members = 2 * (size_t)plan->n_updates + 1;
    d = (draft){0};
    d.begin = calloc(n_lists, sizeof *d.begin);
    d.home = calloc(n_lists, sizeof *d.home);
    d.member = calloc(n_members, sizeof *d.member);
    bool ok = d.begin && d.home && d.member;
    tutti_status st = ok ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    if (st == TUTTI_OK) {
        list(a->x, &d);
        TTI_TRY_GOTO(put_array(a, l, 0, d.begin, (size_t)d.n + 1), cleanup);
        TTI_TRY_GOTO(put_array(a, l, 1, d.member, (size_t)d.n_members), cleanup);
        TTI_TRY_GOTO(put_array(a, l, 2, d.home, (size_t)d.n), cleanup);
        l->of = (tti_device_lists){
            .begin = l->memory[0], .member = l->memory[1], .home = l->memory[2], .n = d.n};
        st = a->ops->queues.sync();
    }
cleanup:
    free(d.begin);
    free(d.home);
    free(d.member);
    return st;
}

tutti_status tti_device_axis_create(tti_exec *x, tti_device_p2p *p2p, tti_device_axis **out) {
    tti_device_axis *a = *out = calloc(1, sizeof *a);
    if (!a) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    a->x = x;
    a->p2p = p2p;
    a->ops = tti_setup_of(x)->desc.backend->device;
    const tti_backend *backend = tti_setup_of(a->x)->desc.backend;
    a->n_sums = 1 + 2 * (size_t)tti_setup_of(a->x)->desc.plan->n_slots;
    a->n_zeros = tti_n_shard_sums(tti_setup_of(a->x));
    a->sums = backend->alloc(a->n_sums * sizeof *a->sums);
    a->zeros = backend->alloc(a->n_zeros * sizeof *a->zeros);
    if (!a->sums || !a->zeros) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory on the device");
    TTI_TRY(make_lists(a, &a->total, list_blocks));
    return make_lists(a, &a->slots, list_slots);
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

/* Sums over tensor ranks, then over stages. This equals one tree over all workers if the number of
 * tensor ranks is a power of two. */
static tutti_status sum_model(tti_device_axis *a, double *terms, size_t n) {
    if (tti_device_tp_group(tti_tp_of(a->x))) TTI_TRY(tti_device_tp_sum(tti_tp_of(a->x), terms, n));
    return a->p2p ? tti_device_p2p_sum(a->p2p, terms, n) : TUTTI_OK;
}

tutti_status tti_device_axis_sums(tti_device_axis *a, double *sums) {
    const tti_setup *setup = tti_setup_of(a->x);
    const tti_mesh *mesh = setup->desc.mesh;
    double *votes = sums + a->n_zeros + 2 * (size_t)setup->n_ranks;
    bool has_loss = mesh->at.tensor == 0 && mesh->at.stage == mesh->size.stage - 1;
    if (!has_loss)
        TTI_TRY(a->ops->queues.copy(TTI_QUEUE_COMPUTE, sums, a->zeros, a->n_zeros * sizeof *sums));
    TTI_TRY(sum_model(a, sums, a->n_zeros));
    return sum_model(a, votes, (size_t)setup->n_ranks);
}

tutti_status tti_device_axis_sync_and_barrier(tti_device_axis *a) {
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
