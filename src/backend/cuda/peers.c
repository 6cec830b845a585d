/* peers.c - the devices of a job: how they meet, and the two ways in which they add.
 *
 * The first way reads the memory of the others, which threads of a process have as it is and other
 * processes open by handles; it is tried on numbers before it is trusted.  The second is NCCL: in
 * fast mode its own sum; else it only moves chunks, and a kernel adds them in the given order.
 * Which way is taken is agreed on by all ranks. */
#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/device.h"
#include "backend/cuda/nccl.h"
#include "backend/cuda/peers.h"
#include "backend/cuda/trade.h"
#include "base/clock.h"

static_assert(sizeof(tti_peers_arena) <= 2 << 20, "ARENA_BYTES");

enum {
    MAX_PIECES = 12, /* that can be opened from outside */
    /* The arena, then the pieces, then the sources. */
    N_SHARED = 1 + MAX_PIECES + TTI_MAX_SOURCES,
    ARENA_BYTES = 2 << 20, /* of tti_peers_arena: a page of the device for itself */
    TRIAL_ELEMS = 1 << 16, /* of a sum that is compared */
    UNIT = 8,              /* elements: 16 bytes of rounded ones */
    MAX_MESSAGES = TTI_PEERS_MAX * MAX_PIECES + TTI_PEERS_TERMS,
    GRACE_NS = 2000000000, /* in which work at hand may end after a peer is lost */
    CHECK_NS = 1000000,
    SPIN_NS = 2000000
};

/* What a rank says of itself. */
typedef struct hello {
    uint64_t process[2]; /* the same for threads of one process only */
    unsigned char uuid[16];
    int32_t device, n_shared;
    int32_t is_open; /* its memory can be shared */
    int32_t has_nccl;
    void *memory[N_SHARED];
    cudaIpcMemHandle_t handles[N_SHARED];
    tti_nccl_id id; /* of rank 0 */
} hello;

typedef struct group {
    tti_device_peers peers;
    struct group *with; /* has the state that both look at; NULL: this one has */
    tti_device_term terms[TTI_PEERS_TERMS];
    float *pieces[MAX_PIECES];
    uint16_t *low; /* device [n_flat]: what travels where it is rounded; NULL: the pieces do */
    tti_peers_view view;
    float *sources[TTI_PEERS_MAX][TTI_MAX_SOURCES]; /* of all ranks, as they are seen here */
    hello *all;                                     /* [n_ranks] */
    void *opened[TTI_PEERS_MAX][N_SHARED]; /* by handle: to be closed; NULL: not ours to close */
    tti_peers_arena *arena;
    bool direct; /* the memory of all ranks is there */
    tti_nccl *nccl;
    float *chunks; /* device [terms of others][longest chunk] */
    size_t chunk;  /* elements */
    uint32_t *words;
    size_t *at; /* [n_ranks][n_groups][MAX_PIECES]: where groups begin in pieces */
    size_t chunks_bytes, words_bytes, low_bytes;
} group;

static tutti_status all_gather(const group *g, const void *src, void *dst, size_t n_bytes) {
    return g->peers.all_gather(g->peers.user, src, dst, n_bytes);
}

/* Whether every rank says yes. */
static tutti_status agree(const group *g, bool mine, bool *all) {
    int32_t yes = mine, said[TTI_PEERS_MAX];
    TTI_TRY(all_gather(g, &yes, said, sizeof yes));
    *all = true;
    for (int r = 0; r < g->peers.n_ranks; r++) *all = *all && said[r];
    return TUTTI_OK;
}

/* ---- memory of the others ---- */

static void *shared_memory(const group *g, int i) {
    int source = i - 1 - g->peers.n_pieces;
    if (i == 0) return g->arena;
    if (source >= 0) return g->peers.sources[source].data;
    return g->low ? (void *)g->low : (void *)g->pieces[i - 1];
}

/* Two processes that live at the same time differ in it. */
static void name_process(uint64_t *name) {
    static int64_t born_ns;
    int64_t none = 0, now = tti_now_ns();
    __atomic_compare_exchange_n(&born_ns, &none, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    name[0] = (uint64_t)getpid();
    name[1] = (uint64_t)born_ns;
}

static tutti_status say_hello(group *g, hello *me) {
    struct cudaDeviceProp p;
    int device = tti_cuda_device()->desc.index;
    TTI_CUDA(cudaGetDeviceProperties(&p, device));
    name_process(me->process);
    memcpy(me->uuid, &p.uuid, sizeof me->uuid);
    me->device = device;
    me->n_shared = 1 + g->peers.n_pieces + g->peers.n_sources;
    me->is_open = g->arena != NULL;
    for (int i = 0; i < me->n_shared; i++) {
        me->memory[i] = shared_memory(g, i);
        if (cudaIpcGetMemHandle(&me->handles[i], me->memory[i]) == cudaSuccess) continue;
        cudaGetLastError(); /* threads need none; others see the zeros and take another way */
        memset(&me->handles[i], 0, sizeof me->handles[i]);
    }
    return TUTTI_OK;
}

static bool is_same_process(const hello *a, const hello *b) {
    return memcmp(a->process, b->process, sizeof a->process) == 0;
}

static tutti_status check_devices(const group *g) {
    for (int a = 0; a < g->peers.n_ranks; a++)
        for (int b = a + 1; b < g->peers.n_ranks; b++)
            if (memcmp(g->all[a].uuid, g->all[b].uuid, sizeof g->all[a].uuid) == 0)
                return tti_fail(TUTTI_E_UNSUPPORTED, "ranks %d and %d share a device", a, b);
    return TUTTI_OK;
}

static bool reach_device(int device) {
    int can = 0;
    cudaError_t error = cudaDeviceCanAccessPeer(&can, tti_cuda_device()->desc.index, device);
    if (error == cudaSuccess && can) error = cudaDeviceEnablePeerAccess(device, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) error = cudaSuccess;
    cudaGetLastError();
    return error == cudaSuccess && can;
}

/* The memory of a rank as this process sees it; false: it cannot. */
static bool open_rank(group *g, int rank, void **seen) {
    const hello *peer = &g->all[rank], *me = &g->all[g->peers.rank];
    static const cudaIpcMemHandle_t none;
    bool here = is_same_process(peer, me);
    if (!peer->is_open) return false;
    if (here && rank != g->peers.rank && !reach_device(peer->device)) return false;
    for (int i = 0; i < peer->n_shared; i++) {
        seen[i] = peer->memory[i];
        if (here) continue;
        if (memcmp(&peer->handles[i], &none, sizeof none) == 0) return false;
        cudaError_t error =
            cudaIpcOpenMemHandle(&seen[i], peer->handles[i], cudaIpcMemLazyEnablePeerAccess);
        cudaGetLastError();
        if (error != cudaSuccess) return false;
        g->opened[rank][i] = seen[i];
    }
    return true;
}

static void close_ranks(group *g) {
    for (int r = 0; r < g->peers.n_ranks; r++)
        for (int i = 0; i < N_SHARED; i++)
            if (g->opened[r][i] && cudaIpcCloseMemHandle(g->opened[r][i]) != cudaSuccess)
                cudaGetLastError();
    memset(g->opened, 0, sizeof g->opened);
}

static bool open_all(group *g) {
    void *seen[TTI_PEERS_MAX][N_SHARED] = {{NULL}};
    for (int r = 0; r < g->peers.n_ranks; r++)
        if (!open_rank(g, r, seen[r])) return false;
    for (int r = 0; r < g->peers.n_ranks; r++) {
        g->view.arena[r] = seen[r][0];
        g->view.sum[r] = seen[r][1];
        for (int i = 0; i < g->peers.n_sources; i++)
            g->sources[r][i] = seen[r][g->all[r].n_shared - g->peers.n_sources + i];
    }
    for (int i = 0; i < g->peers.n_terms; i++)
        g->view.terms.data[i] = seen[g->terms[i].rank][1 + g->terms[i].piece];
    return true;
}

/* ---- the order of the sum ---- */

/* As many terms as the complete tree has leaves, added the way a complete tree is. */
static bool is_balanced(const tti_device_term *terms, int n) {
    for (int i = 0; i < n; i++)
        if (terms[i].n_adds != __builtin_ctz((unsigned)i + 1)) return false;
    return n == 2 || n == 4 || n == 8;
}

static void order_terms(group *g) {
    tti_peers_terms *t = &g->view.terms;
    t->n = g->peers.n_terms;
    t->balanced = is_balanced(g->terms, t->n) ? t->n : 0;
    for (int i = 0; i < t->n; i++) t->n_adds[i] = (uint8_t)g->terms[i].n_adds;
}

/* ---- the first way: is it true? ---- */

static float trial_value(int rank, int piece, size_t i) {
    return (float)((rank * 7 + piece * 3 + (int)(i % 97)) % 13);
}

static float trial_sum(const group *g, size_t i) {
    float sum = 0;
    for (int t = 0; t < g->peers.n_terms; t++)
        sum += trial_value(g->terms[t].rank, g->terms[t].piece, i);
    return sum;
}

/* Small whole numbers, so that neither order nor rounding matters; and one word from every rank. */
static tutti_status put_trial(group *g, size_t n, float *host, uint32_t *words) {
    for (int p = 0; p < g->peers.n_pieces; p++) {
        for (size_t i = 0; i < n; i++) host[i] = trial_value(g->peers.rank, p, i);
        TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, g->pieces[p], host, n * sizeof *host));
        TTI_TRY(tti_cuda_sync());
    }
    for (int r = 0; r < g->peers.n_ranks; r++) words[r] = 1000u + (uint32_t)g->peers.rank;
    TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, g->words, words, TTI_PEERS_MAX * sizeof *words));
    return tti_cuda_sync();
}

/* The pieces take part as they are, or rounded. */
static cudaError_t sum_by_peers(group *g, size_t first, size_t n, bool beside,
                                cudaStream_t stream) {
    if (!g->low) return tti_launch_peers_sum(&g->view, first, n, beside, stream);
    tutti_dtype wire = g->peers.wire;
    float *sum = g->pieces[0] + first;
    cudaError_t error = tti_launch_round(wire, sum, g->low + first, n, stream);
    if (error == cudaSuccess)
        error = tti_launch_peers_sum_low(wire, &g->view, first, n, beside, stream);
    return error == cudaSuccess ? tti_launch_unround(wire, g->low + first, sum, n, stream) : error;
}

static tutti_status run_trial(group *g, size_t n, float *host, uint32_t *words, bool *good) {
    cudaStream_t stream = tti_cuda_stream();
    size_t n_ranks = (size_t)g->peers.n_ranks, me = (size_t)g->peers.rank;
    TTI_CUDA(sum_by_peers(g, 0, n, false, stream));
    TTI_CUDA(tti_launch_peers_spread(&g->view, g->words, n_ranks, me, me + 1, stream));
    TTI_CUDA(cudaMemcpyAsync(host, g->pieces[0], n * sizeof *host, cudaMemcpyDefault, stream));
    TTI_CUDA(cudaMemcpyAsync(words, g->words, n_ranks * sizeof *words, cudaMemcpyDefault, stream));
    TTI_CUDA(cudaStreamSynchronize(stream));
    *good = *g->view.state == 0;
    for (size_t i = 0; i < n; i++) *good = *good && host[i] == trial_sum(g, i);
    for (size_t r = 0; r < n_ranks; r++) *good = *good && words[r] == 1000u + r;
    return TUTTI_OK;
}

/* Nothing may wait for the device from the second agreement on, until the trial has ended. */
static tutti_status try_direct(group *g, bool *good) {
    size_t n = TTI_MIN(g->peers.n_flat, (size_t)TRIAL_ELEMS) / UNIT * UNIT;
    float *host = calloc(n + 1, sizeof *host);
    uint32_t words[TTI_PEERS_MAX];
    if (!host) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    bool ready = false, mine = false;
    tutti_status st = put_trial(g, n, host, words);
    if (st == TUTTI_OK) st = tti_cuda_check(tti_launch_peers_load(), "cudaFuncGetAttributes");
    if (st == TUTTI_OK) st = tti_cuda_check(tti_launch_trade_load(), "cudaFuncGetAttributes");
    if (st == TUTTI_OK) st = agree(g, true, &ready);
    if (st == TUTTI_OK) st = run_trial(g, n, host, words, &mine);
    if (st == TUTTI_OK) st = agree(g, mine, good);
    for (int p = 0; st == TUTTI_OK && p < g->peers.n_pieces; p++)
        st = tti_cuda_clear(TTI_QUEUE_COMPUTE, g->pieces[p], n * sizeof *host);
    if (st == TUTTI_OK) st = tti_cuda_sync();
    free(host);
    return st;
}

/* What a rank writes into its sources must be what the others see there. */
static tutti_status try_sources(group *g, bool *good) {
    float saved[TTI_MAX_SOURCES][4], word[4], seen[4];
    *good = true;
    for (int i = 0; i < g->peers.n_sources; i++) {
        float *mine = g->peers.sources[i].data;
        for (int k = 0; k < 4; k++) word[k] = trial_value(g->peers.rank, i, (size_t)k);
        TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, saved[i], mine, sizeof word));
        TTI_TRY(tti_cuda_sync());
        TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, mine, word, sizeof word));
        TTI_TRY(tti_cuda_sync());
    }
    TTI_TRY(agree(g, true, good)); /* all have written */
    for (int r = 0; r < g->peers.n_ranks; r++)
        for (int i = 0; i < g->peers.n_sources; i++) {
            TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, seen, g->sources[r][i], sizeof seen));
            TTI_TRY(tti_cuda_sync());
            for (int k = 0; k < 4; k++) *good = *good && seen[k] == trial_value(r, i, (size_t)k);
        }
    TTI_TRY(agree(g, *good, good)); /* all have read */
    for (int i = 0; i < g->peers.n_sources; i++)
        TTI_TRY(
            tti_cuda_copy(TTI_QUEUE_COMPUTE, g->peers.sources[i].data, saved[i], sizeof saved[i]));
    return tti_cuda_sync();
}

static tutti_status meet_direct(group *g) {
    bool open = false, good = false;
    TTI_TRY(agree(g, g->peers.way != TTI_WAY_LIBRARY && open_all(g), &open));
    if (open) TTI_TRY(try_direct(g, &good));
    if (good && g->peers.n_sources > 0) TTI_TRY(try_sources(g, &good));
    if (!good) *g->view.state = 0; /* the other way starts afresh */
    g->direct = good;
    return TUTTI_OK;
}

/* ---- the second way ---- */

static size_t n_foreign_terms(const group *g) {
    size_t n = 0;
    for (int t = 0; t < g->peers.n_terms; t++) n += g->terms[t].rank != g->peers.rank;
    return n;
}

/* The part of a rank of group which. */
static tti_chunk part_of(const group *g, size_t which, int rank) {
    const size_t *bound = g->peers.bounds + which * ((size_t)g->peers.n_ranks + 1) + rank;
    return (tti_chunk){bound[0], bound[1] - bound[0]};
}

static size_t longest_part(const group *g, size_t which) {
    size_t n = 0;
    for (int r = 0; r < g->peers.n_ranks; r++) n = TTI_MAX(n, part_of(g, which, r).n_elems);
    return n;
}

static tutti_status make_chunks(group *g) {
    bool in_parts = g->peers.n_groups > 0;
    g->chunk = tti_chunk_of(g->peers.n_most, 0, g->peers.n_ranks).n_elems;
    for (size_t i = 0; i < g->peers.n_groups; i++) g->chunk = TTI_MAX(g->chunk, longest_part(g, i));
    g->chunks_bytes =
        g->peers.fast && !in_parts ? 0 : n_foreign_terms(g) * g->chunk * sizeof(float);
    g->chunks = tti_cuda_alloc(g->chunks_bytes);
    return g->chunks ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "cuda: %zu bytes", g->chunks_bytes);
}

static tutti_status meet_library(group *g) {
    for (int r = 0; r < g->peers.n_ranks; r++) {
        if (g->all[r].has_nccl) continue;
        tti_str why = {0};
        tti_nccl_load(&why);
        tutti_status st = tti_fail(TUTTI_E_UNSUPPORTED,
                                   "the devices cannot read each other's memory, and rank "
                                   "%d has no NCCL: %.300s",
                                   r, r == g->peers.rank ? tti_str_text(&why) : "");
        tti_str_free(&why);
        return st;
    }
    TTI_TRY(make_chunks(g));
    return tti_nccl_create(&g->all[0].id, g->peers.rank, g->peers.n_ranks, g->peers.timeout_ms,
                           &g->nccl);
}

/* ---- meeting and parting ---- */

static tutti_status check_size(const tti_device_peers *p) {
    if (p->n_ranks > TTI_PEERS_MAX || p->n_terms > TTI_PEERS_TERMS)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "at most %d ranks with %d summands add on devices, these are %d with %d",
                        TTI_PEERS_MAX, TTI_PEERS_TERMS, p->n_ranks, p->n_terms);
    int n_most = 0;
    for (int t = 0; t < p->n_terms; t++) n_most = TTI_MAX(n_most, p->terms[t].piece + 1);
    TTI_ASSERT(p->n_sources <= TTI_MAX_SOURCES);
    if (n_most <= MAX_PIECES) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED, "a rank has %d summands, at most %d add on devices",
                    n_most, MAX_PIECES);
}

static tutti_status prepare(group *g) {
    const tti_device_peers *p = &g->peers;
    g->words_bytes = TTI_MAX((size_t)p->n_ranks * p->n_words, (size_t)TTI_PEERS_MAX) * 4;
    g->all = calloc((size_t)p->n_ranks, sizeof *g->all);
    g->arena = tti_cuda_alloc(ARENA_BYTES);
    g->words = tti_cuda_alloc(g->words_bytes);
    g->with = p->with;
    g->view.state = g->with ? g->with->view.state : tti_cuda_alloc_host(sizeof *g->view.state);
    if (p->fast && p->wire != TUTTI_F32) {
        g->low_bytes = p->n_flat * sizeof *g->low;
        g->low = tti_cuda_alloc(g->low_bytes);
        if (!g->low) return tti_fail(TUTTI_E_NOMEM, "cuda: %zu bytes", g->low_bytes);
    }
    if (!g->all || !g->arena || !g->words || !g->view.state)
        return tti_fail(TUTTI_E_NOMEM, "cuda: no memory to meet the other devices");
    g->view.rank = p->rank;
    g->view.n_ranks = p->n_ranks;
    g->view.timeout_ns = (uint64_t)p->timeout_ms * 1000000u;
    memcpy(g->terms, p->terms, (size_t)p->n_terms * sizeof *g->terms);
    memcpy(g->pieces, p->pieces, (size_t)p->n_pieces * sizeof *g->pieces);
    order_terms(g);
    return TUTTI_OK;
}

/* Of all ranks, since the pieces of one may be shorter than those of another. */
static tutti_status gather_places(group *g) {
    const tti_device_peers *p = &g->peers;
    size_t n = p->n_groups * MAX_PIECES;
    if (n == 0) return TUTTI_OK;
    size_t *mine = calloc(n, sizeof *mine);
    g->at = calloc((size_t)p->n_ranks * n, sizeof *g->at);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    for (size_t i = 0; mine && i < n; i++) {
        size_t which = i / MAX_PIECES, k = i % MAX_PIECES;
        bool is_told = p->at && k < (size_t)p->n_pieces;
        mine[i] = is_told ? p->at[which * (size_t)p->n_pieces + k] : part_of(g, which, 0).first;
    }
    if (mine && g->at) st = all_gather(g, mine, g->at, n * sizeof *mine);
    free(mine);
    return st;
}

static tutti_status meet_all(group *g) {
    hello *me = calloc(1, sizeof *me);
    if (!me) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    tutti_status st = say_hello(g, me);
    /* NCCL is looked for where the devices will need it: it takes its time. */
    bool reaches = g->peers.way != TTI_WAY_LIBRARY;
    if (st == TUTTI_OK) st = all_gather(g, me, g->all, sizeof *me);
    if (st == TUTTI_OK) st = gather_places(g);
    if (st == TUTTI_OK) st = check_devices(g);
    if (st == TUTTI_OK && reaches) st = meet_direct(g);
    if (st == TUTTI_OK && !g->direct && g->peers.n_traded > 0)
        st = tti_fail(TUTTI_E_UNSUPPORTED, "the devices cannot read each other's memory");
    if (st == TUTTI_OK && !g->direct) {
        me->has_nccl = tti_nccl_load(NULL);
        if (me->has_nccl && g->peers.rank == 0) st = tti_nccl_make_id(&me->id);
        if (st == TUTTI_OK) st = all_gather(g, me, g->all, sizeof *me);
        if (st == TUTTI_OK) st = meet_library(g);
    }
    free(me);
    return st;
}

tutti_status tti_cuda_peers_meet(const tti_device_peers *peers, void **out) {
    *out = NULL;
    TTI_TRY(check_size(peers));
    group *g = calloc(1, sizeof *g);
    if (!g) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    g->peers = *peers;
    tutti_status st = prepare(g);
    if (st == TUTTI_OK) st = meet_all(g);
    if (st != TUTTI_OK) {
        tti_cuda_peers_part(g);
        return st;
    }
    *out = g;
    return TUTTI_OK;
}

void tti_cuda_peers_part(void *state) {
    group *g = state;
    if (!g) return;
    if (cudaDeviceSynchronize() != cudaSuccess) cudaGetLastError();
    tti_nccl_destroy(g->nccl);
    close_ranks(g);
    tti_cuda_release(g->arena, ARENA_BYTES);
    tti_cuda_release(g->words, g->words_bytes);
    tti_cuda_release(g->chunks, g->chunks_bytes);
    tti_cuda_release(g->low, g->low_bytes);
    if (!g->with) tti_cuda_release_host(g->view.state);
    free(g->at);
    free(g->all);
    free(g);
}

void tti_cuda_peers_describe(const void *state, tti_str *str) {
    const group *g = state;
    if (g->direct)
        tti_str_add(str, "over peers' memory");
    else
        tti_nccl_describe(str);
}

/* ---- sums ---- */

/* How much later an element of a group lies in a piece than in the flat range; WHOLE: no group. */
enum { WHOLE = -1 };

static ptrdiff_t shift_of(const group *g, int64_t which, int rank, int piece) {
    if (which == WHOLE) return 0;
    size_t row = (size_t)rank * g->peers.n_groups + (size_t)which;
    size_t first = part_of(g, (size_t)which, 0).first;
    return (ptrdiff_t)g->at[row * MAX_PIECES + (size_t)piece] - (ptrdiff_t)first;
}

/* Where this rank wants the sum of its chunk. */
static float *sum_of(const group *g, int64_t which, tti_chunk mine) {
    const tti_device_parts_of *sums = &g->peers.sums;
    int me = g->peers.rank;
    if (which == WHOLE || !sums->data)
        return g->pieces[0] + ((ptrdiff_t)mine.first + shift_of(g, which, me, 0));
    if (!sums->places) return sums->data + mine.first;
    return sums->data + sums->places[(size_t)which * (size_t)g->peers.n_ranks + (size_t)me];
}

/* This rank's pieces of the chunks [n_ranks] that others sum, and others' pieces of its own. */
static int list_chunks(const group *g, int64_t which, const tti_chunk *chunks,
                       tti_nccl_message *list) {
    const tti_device_peers *p = &g->peers;
    size_t mine = chunks[p->rank].n_elems * sizeof(float), slot = 0;
    int n_messages = 0;
    for (int r = 0; r < p->n_ranks; r++) {
        tti_chunk c = chunks[r];
        for (int k = 0; r != p->rank && c.n_elems > 0 && k < p->n_pieces; k++)
            list[n_messages++] = (tti_nccl_message){
                .peer = r,
                .out = g->pieces[k] + ((ptrdiff_t)c.first + shift_of(g, which, p->rank, k)),
                .n_bytes = c.n_elems * sizeof(float)};
    }
    for (int t = 0; mine > 0 && t < p->n_terms; t++)
        if (g->terms[t].rank != p->rank)
            list[n_messages++] = (tti_nccl_message){
                .peer = g->terms[t].rank, .in = g->chunks + g->chunk * slot++, .n_bytes = mine};
    return n_messages;
}

/* What this rank has of chunks goes to all, and theirs come into dst. */
static int list_sums(const group *g, const tti_chunk *chunks, float *dst, tti_nccl_message *list) {
    const tti_device_peers *p = &g->peers;
    tti_chunk mine = chunks[p->rank];
    int n_messages = 0;
    for (int r = 0; r < p->n_ranks; r++) {
        tti_chunk c = chunks[r];
        if (r == p->rank) continue;
        if (mine.n_elems > 0)
            list[n_messages++] = (tti_nccl_message){.peer = r,
                                                    .out = g->pieces[0] + mine.first,
                                                    .n_bytes = mine.n_elems * sizeof(float)};
        if (c.n_elems > 0)
            list[n_messages++] = (tti_nccl_message){
                .peer = r, .in = dst + c.first, .n_bytes = c.n_elems * sizeof(float)};
    }
    return n_messages;
}

/* This rank's chunk of the sum. */
static tutti_status sum_chunk(group *g, int64_t which, const tti_chunk *chunks,
                              cudaStream_t stream) {
    tti_nccl_message list[MAX_MESSAGES];
    tti_peers_terms terms = g->view.terms;
    tti_chunk mine = chunks[g->peers.rank];
    size_t slot = 0;
    for (int t = 0; t < g->peers.n_terms; t++) {
        int rank = g->terms[t].rank, piece = g->terms[t].piece;
        ptrdiff_t at = (ptrdiff_t)mine.first + shift_of(g, which, rank, piece);
        terms.data[t] =
            rank == g->peers.rank ? g->pieces[piece] + at : g->chunks + g->chunk * slot++;
    }
    TTI_TRY(tti_nccl_exchange(g->nccl, list, list_chunks(g, which, chunks, list), stream));
    return tti_cuda_check(
        tti_launch_terms_sum(&terms, sum_of(g, which, mine), mine.n_elems, stream), "sum");
}

static tutti_status sum_by_moving(group *g, size_t first, size_t n, cudaStream_t stream) {
    tti_nccl_message list[MAX_MESSAGES];
    tti_chunk chunks[TTI_PEERS_MAX];
    for (int r = 0; r < g->peers.n_ranks; r++) {
        chunks[r] = tti_chunk_of(n, r, g->peers.n_ranks);
        chunks[r].first += first;
    }
    tti_chunk mine = chunks[g->peers.rank];
    TTI_TRY(sum_chunk(g, WHOLE, chunks, stream));
    float *sum = g->pieces[0];
    if (n % (4 * (size_t)g->peers.n_ranks) == 0)
        return tti_nccl_gather(g->nccl, sum + mine.first, sum + first, mine.n_elems * sizeof *sum,
                               stream);
    return tti_nccl_exchange(g->nccl, list, list_sums(g, chunks, sum, list), stream);
}

static tutti_status sum_rounded_by_library(group *g, size_t first, size_t n, cudaStream_t stream) {
    tutti_dtype wire = g->peers.wire;
    float *sum = g->pieces[0] + first;
    uint16_t *low = g->low + first;
    TTI_CUDA(tti_launch_round(wire, sum, low, n, stream));
    TTI_TRY(tti_nccl_sum(g->nccl, wire, low, n, stream));
    TTI_CUDA(tti_launch_unround(wire, low, sum, n, stream));
    return TUTTI_OK;
}

tutti_status tti_cuda_peers_sum(void *state, size_t first, size_t n_elems, bool beside) {
    group *g = state;
    cudaStream_t stream = tti_cuda_device()->streams[TTI_QUEUE_COMM];
    TTI_ASSERT(first % 4 == 0 && n_elems % 4 == 0 && n_elems <= g->peers.n_most);
    if (n_elems == 0) return TUTTI_OK;
    TTI_ASSERT(!g->low || (first % UNIT == 0 && n_elems % UNIT == 0));
    if (g->direct) {
        TTI_CUDA(sum_by_peers(g, first, n_elems, beside, stream));
        return TUTTI_OK;
    }
    if (g->low) return sum_rounded_by_library(g, first, n_elems, stream);
    if (g->peers.fast)
        return tti_nccl_sum(g->nccl, TUTTI_F32, g->pieces[0] + first, n_elems, stream);
    return sum_by_moving(g, first, n_elems, stream);
}

tutti_status tti_cuda_peers_sum_parts(void *state, size_t which, bool beside) {
    group *g = state;
    cudaStream_t stream = tti_cuda_device()->streams[TTI_QUEUE_COMM];
    tti_chunk parts[TTI_PEERS_MAX] = {{0, 0}};
    TTI_ASSERT(which < g->peers.n_groups);
    for (int r = 0; r < g->peers.n_ranks; r++) parts[r] = part_of(g, which, r);
    if (!g->direct) return sum_chunk(g, (int64_t)which, parts, stream);
    tti_chunk mine = parts[g->peers.rank];
    tti_peers_view view = g->view;
    for (int t = 0; t < view.terms.n; t++)
        view.terms.data[t] += shift_of(g, (int64_t)which, g->terms[t].rank, g->terms[t].piece);
    view.sum[g->peers.rank] = sum_of(g, (int64_t)which, mine) - (ptrdiff_t)mine.first;
    TTI_CUDA(tti_launch_peers_sum_part(&view, mine.first, mine.first + mine.n_elems,
                                       longest_part(g, which), beside, stream));
    return TUTTI_OK;
}

/* Where the part of a rank begins in a source of its. */
static size_t place_of(const group *g, size_t which, int source, int rank) {
    const size_t *places = g->peers.sources[source].places;
    if (!places) return part_of(g, which, rank).first;
    return places[which * (size_t)g->peers.n_ranks + (size_t)rank];
}

/* NULL: moved by the library. */
static const float *source_of(const group *g, size_t which, int source, int rank) {
    const float *from = g->direct               ? g->sources[rank][source]
                        : rank == g->peers.rank ? g->peers.sources[source].data
                                                : NULL;
    return from ? from + place_of(g, which, source, rank) : NULL;
}

static void find_parts(const group *g, size_t which, int source, float *dst,
                       tti_peers_parts *parts) {
    size_t first = part_of(g, which, 0).first;
    for (int r = 0; r < g->peers.n_ranks; r++) {
        tti_chunk c = part_of(g, which, r);
        parts->part[r].from = source_of(g, which, source, r);
        parts->part[r].to = dst + (c.first - first);
        parts->part[r].n_elems = c.n_elems;
    }
    int me = g->peers.rank; /* its own part may lie there already */
    if (parts->part[me].from == parts->part[me].to) parts->part[me].n_elems = 0;
}

/* The own part, which the library does not move. */
static tutti_status keep_part(const group *g, const tti_peers_parts *parts, cudaStream_t stream) {
    size_t n_bytes = parts->part[g->peers.rank].n_elems * sizeof(float);
    if (n_bytes == 0) return TUTTI_OK;
    return tti_cuda_check(
        cudaMemcpyAsync(parts->part[g->peers.rank].to, parts->part[g->peers.rank].from, n_bytes,
                        cudaMemcpyDefault, stream),
        "cudaMemcpyAsync");
}

/* This rank's part goes to all, and theirs come. */
static int list_parts(const group *g, size_t which, const tti_peers_parts *parts,
                      tti_nccl_message *list) {
    const float *mine = parts->part[g->peers.rank].from;
    size_t n_mine = part_of(g, which, g->peers.rank).n_elems;
    int n_messages = 0;
    for (int r = 0; r < g->peers.n_ranks; r++) {
        size_t n = parts->part[r].n_elems;
        if (r == g->peers.rank) continue;
        if (n_mine > 0)
            list[n_messages++] =
                (tti_nccl_message){.peer = r, .out = mine, .n_bytes = n_mine * sizeof *mine};
        if (n > 0)
            list[n_messages++] =
                (tti_nccl_message){.peer = r, .in = parts->part[r].to, .n_bytes = n * sizeof *mine};
    }
    return n_messages;
}

tutti_status tti_cuda_peers_fetch(void *state, size_t which, int source, float *dst, bool beside) {
    group *g = state;
    cudaStream_t stream = tti_cuda_device()->streams[TTI_QUEUE_COMM];
    tti_nccl_message list[MAX_MESSAGES];
    tti_peers_parts parts = {0};
    TTI_ASSERT(which < g->peers.n_groups && source < g->peers.n_sources);
    find_parts(g, which, source, dst, &parts);
    if (g->direct)
        return tti_cuda_check(
            tti_launch_peers_fetch(&g->view, &parts, longest_part(g, which), beside, stream),
            "peers_fetch");
    TTI_TRY(keep_part(g, &parts, stream));
    return tti_nccl_exchange(g->nccl, list, list_parts(g, which, &parts, list), stream);
}

/* ---- small vectors ---- */

/* In the queue of the sums, since NCCL wants one order of its calls. */
static tutti_status spread_by_library(group *g, uint32_t *words, size_t n, size_t first,
                                      size_t last) {
    cudaStream_t stream = tti_cuda_device()->streams[TTI_QUEUE_COMM];
    TTI_TRY(tti_cuda_order(TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE));
    TTI_CUDA(tti_launch_words_keep(words, n, first, last, stream));
    TTI_TRY(tti_nccl_gather(g->nccl, words, g->words, n * sizeof *words, stream));
    TTI_CUDA(tti_launch_words_or(words, g->words, n, g->peers.n_ranks, stream));
    return tti_cuda_order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM);
}

tutti_status tti_cuda_peers_spread(void *state, void *words, size_t n_words, size_t first,
                                   size_t last) {
    group *g = state;
    TTI_ASSERT(n_words <= g->peers.n_words);
    if (!g->direct) return spread_by_library(g, words, n_words, first, last);
    return tti_cuda_check(
        tti_launch_peers_spread(&g->view, words, n_words, first, last, tti_cuda_stream()),
        "peers_spread");
}

tutti_status tti_cuda_peers_join(void *state, const tti_device_join *join, bool *done) {
    group *g = state;
    int n_ranks = g->peers.n_ranks, first = join->bounds[g->peers.rank];
    tti_peers_join j = {.n_elems = join->n_elems,
                        .of_moments = strcmp(join->op, "sync_moments") == 0};
    TTI_ASSERT(j.of_moments || strcmp(join->op, "sync_sum") == 0);
    memcpy(j.bounds, join->bounds, ((size_t)n_ranks + 1) * sizeof *j.bounds);
    *done = g->direct && tti_peers_can_join(&j, n_ranks);
    if (!*done) return TUTTI_OK;
    for (int s = first; s < join->bounds[g->peers.rank + 1]; s++) {
        j.in[s - first] = join->in[s - first];
        j.out[s - first] = join->out[s - first];
    }
    return tti_cuda_check(tti_launch_peers_join(&g->view, &j, tti_cuda_stream()), "peers_join");
}

tutti_status tti_cuda_peers_tell(const tti_device_told *told) {
    return tti_cuda_check(tti_launch_peers_tell(told, tti_cuda_stream()), "peers_tell");
}

/* ---- exchanges ---- */

const tti_peers_view *tti_cuda_traders(const void *state, size_t *n_bytes) {
    const group *g = state;
    TTI_ASSERT(g->direct && g->peers.n_terms == g->peers.n_ranks);
    for (int t = 0; t < g->peers.n_terms; t++) TTI_ASSERT(g->terms[t].rank == t);
    *n_bytes = g->peers.n_traded;
    return &g->view;
}

/* ---- waiting ---- */

/* Ends what waits on the device for a peer that will not come. */
static void end_group(group *g) {
    __atomic_store_n(g->view.state, TTI_PEERS_ENDED, __ATOMIC_SEQ_CST);
    if (g->nccl) tti_nccl_abort(g->nccl);
}

static tutti_status check_peers(group *g) {
    TTI_TRY(g->peers.check(g->peers.user));
    return g->nccl ? tti_nccl_check(g->nccl) : TUTTI_OK;
}

static tutti_status fail_late(group *g) {
    tutti_status st = g->peers.check(g->peers.user); /* the host may know the cause */
    if (st != TUTTI_OK) return st;
    return tti_fail(TUTTI_E_TIMEOUT,
                    "rank %d: its device waited %d ms for the gradients of another rank",
                    g->peers.rank, g->peers.timeout_ms);
}

/* What to do while the mark has not come: a failure of a peer counts once it has lasted. */
static tutti_status look_around(group *g, int64_t now, int64_t start, int64_t *lost_ns) {
    tutti_status st = check_peers(g);
    bool late = g->nccl && now - start > g->peers.timeout_ms * TTI_NS_PER_MS;
    if (st == TUTTI_OK && late) {
        end_group(g);
        return fail_late(g);
    }
    if (st == TUTTI_OK) return TUTTI_OK;
    if (*lost_ns == 0) *lost_ns = now;
    if (now - *lost_ns < GRACE_NS) return TUTTI_OK;
    end_group(g);
    return st;
}

tutti_status tti_cuda_peers_await(void *state, int mark) {
    group *g = state;
    int64_t start = tti_now_ns(), checked = start, lost = 0;
    for (;;) {
        cudaError_t error = cudaEventQuery(tti_cuda_device()->marks[mark]);
        if (error != cudaErrorNotReady) {
            TTI_CUDA(error);
            uint32_t ended = __atomic_load_n(g->view.state, __ATOMIC_SEQ_CST);
            return ended ? fail_late(g) : TUTTI_OK;
        }
        int64_t now = tti_now_ns();
        if (now - checked > CHECK_NS) {
            checked = now;
            TTI_TRY(look_around(g, now, start, &lost));
        }
        if (now - start < SPIN_NS)
            sched_yield();
        else
            usleep(20);
    }
}
