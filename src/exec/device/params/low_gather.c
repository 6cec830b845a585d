/* low_gather.c - fetches parameters in 16 bits from their owners if a step reads only their 16-bit
 * copies.
 *
 * The order of the copies differs from that of the parameters, so a bucket is a list of pieces:
 * runs of 16-bit copies, and runs of parameters without a copy.  The list follows from the plan and
 * is equal on all workers. */
#include <stdlib.h>

#include "exec/device/params/device_params.h"
#include "exec/device/state/device_state.h"
#include "exec/worker/worker.h"

enum { UNIT = 8 }; /* 16-bit elements; 4 words */

struct tti_low_gather {
    tti_exec *x;
    tti_device_reduce *reduce;
    bool *slots;              /* [n_slots]: the slot is sent in 16 bits */
    tti_device_piece *pieces; /* device memory, bucket after bucket */
    int *first;               /* [n_buckets + 1] */
    size_t *n_words;          /* [n_buckets] */
    int n_pieces, n_most;
    tti_device_piece *list; /* while the list is built; NULL: pieces are only counted */
};

/* ---- selecting slots ---- */

/* Slots that the program also reads in 32 bits, alone or as part of a joined value, are not sent in
 * 16 bits. */
static void exclude_f32_reads(const tti_plan *plan, bool *slots) {
    const tti_program *program = &plan->shard;
    for (int s = 0; s < program->n_steps; s++)
        for (int k = 0; k < program->steps[s]->n_in; k++) {
            const tutti_value *value = program->steps[s]->in[k];
            tti_buf buf = program->bufs[value->id];
            size_t first = buf.offset / sizeof(float);
            size_t last = first + (size_t)tti_value_n_elems(value);
            for (int i = 0; buf.space == TTI_SPACE_PARAM && i < plan->n_slots; i++) {
                const tti_slot *slot = &plan->slots[i];
                if (slot->first < last && first < slot->first + slot->n_elems) slots[i] = false;
            }
        }
}

static int find_slots(const tti_setup *setup, bool *slots) {
    const tti_plan *plan = setup->desc.plan;
    size_t n_bounds = (size_t)plan->n_buckets * ((size_t)setup->n_ranks + 1);
    int n = 0;
    for (int i = 0; i < plan->n_slots; i++) {
        const tti_slot *slot = &plan->slots[i];
        slots[i] = slot->has_low_copy && !slot->buffer && slot->n_elems % UNIT == 0 &&
                   slot->low_copy % UNIT == 0;
        for (size_t b = 0; b < n_bounds; b++) {
            size_t bound = setup->share.bounds[b];
            bool divides = bound > slot->first && bound < slot->first + slot->n_elems;
            if (divides && (bound - slot->first) % UNIT != 0) slots[i] = false;
        }
    }
    exclude_f32_reads(plan, slots);
    for (int i = 0; i < plan->n_slots; i++) n += slots[i];
    return n;
}

double tti_low_gather_share(const tti_low_gather *g) {
    const tti_plan *plan = tti_setup_of(g->x)->desc.plan;
    size_t n = 0, n_low = 0;
    for (int i = 0; i < plan->n_slots; i++) {
        n += plan->slots[i].n_elems;
        n_low += g->slots[i] ? plan->slots[i].n_elems : 0;
    }
    return n > 0 ? (double)n_low / (double)n : 0;
}

bool tti_low_gather_has(const tti_low_gather *g, int slot) { return g && g->slots[slot]; }

/* ---- pieces ---- */

static void add_piece(tti_low_gather *g, int bucket, tti_device_piece piece) {
    if (piece.n_words == 0) return;
    if (g->list) {
        g->list[g->n_pieces] = piece;
        g->n_words[bucket] += piece.n_words;
    }
    g->n_pieces++;
}

/* Adds elements first .. last-1 of a rank's parameters, in 32 bits. */
static void add_whole(tti_low_gather *g, int bucket, int rank, size_t first, size_t last) {
    uint32_t *params = (uint32_t *)(void *)tti_exec_array(g->x, TTI_STATE_PARAMS);
    size_t n = last > first ? last - first : 0;
    add_piece(g, bucket, (tti_device_piece){rank, TTI_FROM_PARAMS, first, n, params + first});
}

/* Adds the pieces of a rank's partition.  Slots are in the order of the flat arrays. */
static void add_partition(tti_low_gather *g, int bucket, int rank, size_t first, size_t last) {
    const tti_plan *plan = tti_setup_of(g->x)->desc.plan;
    uint32_t *copies = tti_exec_low_copies(g->x);
    size_t done = first;
    for (int i = 0; i < plan->n_slots; i++) {
        const tti_slot *slot = &plan->slots[i];
        size_t from = TTI_MAX(first, slot->first);
        size_t to = TTI_MIN(last, slot->first + slot->n_elems);
        if (!g->slots[i] || from >= to) continue;
        TTI_ASSERT(from >= done);
        add_whole(g, bucket, rank, done, from);
        size_t at = (slot->low_copy + (from - slot->first)) / 2;
        add_piece(g, bucket,
                  (tti_device_piece){rank, TTI_FROM_LOW_COPIES, at, (to - from) / 2, copies + at});
        done = to;
    }
    add_whole(g, bucket, rank, done, last);
}

static void add_buckets(tti_low_gather *g) {
    const tti_setup *setup = tti_setup_of(g->x);
    size_t n_bounds = (size_t)setup->n_ranks + 1;
    g->n_pieces = 0;
    for (int b = 0; b < setup->desc.plan->n_buckets; b++) {
        const size_t *bound = setup->share.bounds + (size_t)b * n_bounds;
        g->first[b] = g->n_pieces;
        for (int r = 0; r < setup->n_ranks; r++) add_partition(g, b, r, bound[r], bound[r + 1]);
    }
    g->first[setup->desc.plan->n_buckets] = g->n_pieces;
}

/* ---- create and fetch ---- */

static tutti_status make_pieces(tti_low_gather *g) {
    const tti_setup *setup = tti_setup_of(g->x);
    const tti_device_ops *ops = setup->desc.backend->device;
    add_buckets(g);
    size_t n_bytes = (size_t)g->n_pieces * sizeof *g->list;
    g->list = calloc((size_t)g->n_pieces + 1, sizeof *g->list);
    if (!g->list) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    add_buckets(g);
    g->n_most = g->n_pieces;
    TTI_TRY(tti_device_alloc(setup, &g->pieces, n_bytes));
    TTI_TRY(ops->queues.copy(TTI_QUEUE_COMPUTE, g->pieces, g->list, n_bytes));
    TTI_TRY(ops->queues.sync());
    free(g->list);
    g->list = NULL;
    return TUTTI_OK;
}

tutti_status tti_low_gather_create(tti_exec *x, tti_device_reduce *reduce, tti_low_gather **out) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_plan *plan = setup->desc.plan;
    bool can = setup->desc.backend->device->update.complete_low && tti_exec_low_copies(x) &&
               tti_device_reduce_gathers_pieces(reduce);
    *out = NULL;
    if (!can) return TUTTI_OK;
    tti_low_gather *g = calloc(1, sizeof *g);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    if (g) {
        *g = (tti_low_gather){.x = x, .reduce = reduce};
        g->slots = calloc((size_t)plan->n_slots + 1, sizeof *g->slots);
        g->first = calloc((size_t)plan->n_buckets + 1, sizeof *g->first);
        g->n_words = calloc((size_t)plan->n_buckets + 1, sizeof *g->n_words);
    }
    bool has_memory = g && g->slots && g->first && g->n_words;
    bool any = has_memory && find_slots(setup, g->slots) > 0;
    if (has_memory) st = any ? make_pieces(g) : TUTTI_OK;
    if (st == TUTTI_OK && any)
        *out = g;
    else
        tti_low_gather_destroy(g);
    return st;
}

void tti_low_gather_destroy(tti_low_gather *g) {
    if (!g) return;
    size_t n_bytes = (size_t)g->n_most * sizeof *g->pieces;
    if (g->pieces) tti_setup_of(g->x)->desc.backend->release(g->pieces, n_bytes);
    free(g->list);
    free(g->slots);
    free(g->first);
    free(g->n_words);
    free(g);
}

tutti_status tti_low_gather_fetch(tti_low_gather *g, int bucket, bool overlapped) {
    int first = g->first[bucket], n = g->first[bucket + 1] - first;
    return tti_device_reduce_fetch_pieces(g->reduce, g->pieces + first, n, g->n_words[bucket],
                                          overlapped);
}
