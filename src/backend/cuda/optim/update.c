/* update.c - the update program: device copies of its tables, and the order of its kernels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/optim/optim_rule.h"
#include "backend/cuda/optim/peers_update.h"
#include "backend/cuda/runtime/device.h"

enum { SHORTEST_ITEM = 1024, LONGEST_ITEM = 16384 /* elements; of a block, at most */ };

typedef struct update {
    tti_update_view view;
    bool takes_norms, rereads;
    void *memory; /* device: hyper, hash, lanes, partials, norms, slots, blocks */
    uint64_t *hash;
    tutti_status (*complete_words)(void *user, void *words,
                                   size_t n_words); /* NULL: nothing to complete */
    void *user;
} update;

static size_t aligned(size_t n_bytes) { return (n_bytes + 255) & ~(size_t)255; }

/* A region of the device memory, as long as there is some: with base NULL only the size counts. */
static void *take(char *base, size_t *at, size_t n_bytes) {
    void *region = base ? base + *at : NULL;
    *at += aligned(n_bytes);
    return region;
}

/* Points the view into base, and returns the bytes in all. */
static size_t lay_out(update *u, char *base) {
    size_t at = 0, n_blocks = (size_t)u->view.n_blocks, n_slots = (size_t)u->view.n_slots;
    u->view.hyper = take(base, &at, sizeof(tti_hyper));
    u->hash = take(base, &at, sizeof *u->hash);
    u->view.hash_lanes = take(base, &at, n_blocks * TTI_HASH_LANES * sizeof(uint32_t));
    u->view.arrived = take(base, &at, n_blocks * sizeof(uint32_t));
    u->view.n_done = take(base, &at, sizeof *u->view.n_done);
    u->view.partials = take(base, &at, 2 * n_blocks * sizeof(double));
    u->view.norms = take(base, &at, 2 * n_slots * sizeof(float));
    u->view.slot_first = take(base, &at, (n_slots + 1) * sizeof(int));
    u->view.blocks = take(base, &at, n_blocks * sizeof(tti_update_block));
    u->view.items = take(base, &at, (size_t)u->view.n_items * sizeof(tti_update_item));
    return at;
}

/* The first block of each slot; blocks of a slot are neighbours, slots in rising order. */
static void find_slots(const tti_update_desc *desc, int *first) {
    int block = 0;
    for (int slot = 0; slot <= desc->n_slots; slot++) {
        while (block < desc->n_blocks && desc->blocks[block].slot < slot) block++;
        first[slot] = block;
    }
}

/* Blocks of at most so many elements each; items NULL: they are only counted. */
static int cut(const tti_update_desc *desc, uint32_t most, tti_update_item *items) {
    int n = 0;
    for (int i = 0; i < desc->n_blocks; i++)
        for (uint32_t at = 0; at < desc->blocks[i].n_elems; at += most, n++) {
            uint32_t last = TTI_MIN(desc->blocks[i].n_elems, at + most);
            if (items) items[n] = (tti_update_item){i, at, last};
        }
    return n;
}

/* The shortest items whose number does not exceed that of co-resident blocks, if there are any. */
static uint32_t length_of_items(const tti_update_desc *desc) {
    uint32_t most = SHORTEST_ITEM;
    while (most < LONGEST_ITEM && cut(desc, most, NULL) > TTI_PEERS_BLOCKS) most += SHORTEST_ITEM;
    return most;
}

/* from goes to where a pointer of the view says. */
static tutti_status put(const void *const *to, const void *from, size_t n_bytes) {
    void *dst = NULL;
    memcpy(&dst, to, sizeof dst);
    return tti_cuda_copy(TTI_QUEUE_COMPUTE, dst, from, n_bytes);
}

static tutti_status upload(update *u, const tti_update_desc *desc) {
    size_t n_slots = (size_t)desc->n_slots + 1, n_items = (size_t)u->view.n_items;
    int *first = calloc(n_slots, sizeof *first);
    tti_update_item *items = calloc(n_items + 1, sizeof *items);
    tutti_status st = TUTTI_OK;
    if (first && items) {
        find_slots(desc, first);
        cut(desc, length_of_items(desc), items);
        st = put((const void *const *)&u->view.slot_first, first, n_slots * sizeof *first);
    } else {
        st = tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    }
    if (st == TUTTI_OK)
        st = put((const void *const *)&u->view.blocks, desc->blocks,
                 (size_t)desc->n_blocks * sizeof *desc->blocks);
    if (st == TUTTI_OK)
        st = put((const void *const *)&u->view.items, items, n_items * sizeof *items);
    if (st == TUTTI_OK) st = tti_cuda_sync();
    free(items);
    free(first);
    return st;
}

static tutti_status build(update *u, const tti_update_desc *desc) {
    u->view.n_items = cut(desc, length_of_items(desc), NULL);
    size_t n_bytes = lay_out(u, NULL);
    u->memory = tti_backend_cuda.alloc(n_bytes);
    if (!u->memory) return tti_fail(TUTTI_E_NOMEM, "cuda: %zu bytes for the update", n_bytes);
    lay_out(u, u->memory);
    return upload(u, desc);
}

tutti_status tti_cuda_update_create(const tti_update_desc *desc, void **out) {
    *out = NULL;
    update *u = calloc(1, sizeof *u);
    if (!u) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    u->view = (tti_update_view){.n_blocks = desc->n_blocks,
                                .n_slots = desc->n_slots,
                                .n_shards = desc->n_shards,
                                .n_sums = desc->n_sums,
                                .params = desc->params,
                                .grads = desc->grads,
                                .ema = desc->ema,
                                .low_copies = desc->low_copies,
                                .low_dtype = desc->low_dtype,
                                .args = desc->args,
                                .sums = desc->sums,
                                .report = desc->report,
                                .failure = desc->failure,
                                .clip_norm = desc->clip_norm,
                                .clip_value = (float)desc->clip_value,
                                .l1 = (float)desc->l1,
                                .ema_decay = (float)desc->ema_decay,
                                .ema_rest = (float)(1.0 - desc->ema_decay),
                                .watch = desc->watch_gradients};
    u->complete_words = desc->complete_words;
    u->user = desc->user;
    for (int i = 0; i < desc->n_blocks; i++) u->rereads |= !desc->blocks[i].is_here;
    for (int k = 0; k < desc->n_states && k < 2; k++) u->view.states[k] = desc->states[k];
    tutti_status st = TUTTI_OK;
    if (desc->node) {
        st = tti_cuda_rule(desc->node, &u->view.rule);
        u->takes_norms = (desc->node->op->traits & TTI_NORMS) != 0;
    }
    if (st == TUTTI_OK) st = build(u, desc);
    if (st != TUTTI_OK) {
        tti_cuda_update_destroy(u);
        return st;
    }
    *out = u;
    return TUTTI_OK;
}

/* Sums of other workers' blocks, n_each to a block. */
static tutti_status complete_partials(const update *u, size_t n_each) {
    if (!u->complete_words) return TUTTI_OK;
    size_t n_words = (size_t)u->view.n_blocks * n_each * (sizeof(double) / sizeof(uint32_t));
    return u->complete_words(u->user, u->view.partials, n_words);
}

static tutti_status clip(const update *u) {
    TTI_CUDA(tti_launch_update_squares(&u->view, tti_cuda_stream()));
    TTI_TRY(complete_partials(u, 1));
    return tti_cuda_check(tti_launch_update_clip(&u->view, tti_cuda_stream()), "clip");
}

static tutti_status find_norms(const update *u) {
    TTI_CUDA(tti_launch_update_tensor_squares(&u->view, tti_cuda_stream()));
    TTI_TRY(complete_partials(u, 2));
    return tti_cuda_check(tti_launch_update_norms(&u->view, tti_cuda_stream()), "norms");
}

tutti_status tti_cuda_update_run(void *state) {
    update *u = state;
    const tti_update_view *view = &u->view;
    cudaStream_t stream = tti_cuda_stream();
    TTI_CUDA(tti_launch_update_hyper(view, stream));
    if (view->l1 > 0 || view->clip_value > 0) TTI_CUDA(tti_launch_update_prepare(view, stream));
    if (view->clip_norm > 0 || view->watch) TTI_TRY(clip(u));
    if (u->takes_norms) TTI_TRY(find_norms(u));
    return tti_cuda_check(tti_launch_update_step(view, stream), "update");
}

const tti_update_view *tti_cuda_update_plain(const void *state) {
    const update *u = state;
    const tti_update_view *view = &u->view;
    bool changes = view->l1 > 0 || view->clip_value > 0;
    bool looks = view->clip_norm > 0 || view->watch || u->takes_norms;
    return changes || looks || u->complete_words || u->rereads ? NULL : view;
}

tutti_status tti_cuda_update_complete(void *state, int first, int n) {
    const update *u = state;
    uint64_t *hash = &u->view.report->params_hash;
    cudaStream_t stream = tti_cuda_stream();
    if (u->rereads) TTI_CUDA(cudaMemsetAsync(hash, 0, sizeof *hash, stream));
    tti_hash_job job = {u->rereads ? TTI_HASH_GOOD : TTI_HASH_OTHERS, first, n};
    return tti_cuda_check(tti_launch_update_hash(&u->view, hash, job, stream), "update");
}

tutti_status tti_cuda_update_hash(void *state, uint64_t *hash) {
    update *u = state;
    cudaStream_t stream = tti_cuda_stream();
    TTI_CUDA(cudaMemsetAsync(u->hash, 0, sizeof *u->hash, stream));
    tti_hash_job job = {TTI_HASH_ALL, 0, u->view.n_blocks};
    TTI_CUDA(tti_launch_update_hash(&u->view, u->hash, job, stream));
    TTI_CUDA(cudaMemcpyAsync(hash, u->hash, sizeof *hash, cudaMemcpyDeviceToHost, stream));
    return tti_cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

tutti_status tti_cuda_update_low_copies(void *state) {
    const update *u = state;
    return tti_cuda_check(tti_launch_update_low_copies(&u->view, tti_cuda_stream()), "update");
}

void tti_cuda_update_destroy(void *state) {
    update *u = state;
    if (!u) return;
    tti_backend_cuda.release(u->memory, lay_out(u, NULL));
    free(u);
}
