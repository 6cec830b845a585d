/* peers_connect.c - connects and disconnects the devices of a job.
 *
 * The first method reads the memory of the others, which threads of a process share and other
 * processes open by handles; it is tested before it is used.  The second is NCCL, and if hosts have
 * several devices the third is both: the first inside hosts, the second between them.  All ranks
 * agree on the method. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/comm/p2p.h"
#include "backend/cuda/comm/peers_group.h"
#include "backend/cuda/comm/tp.h"
#include "base/clock.h"

static_assert(sizeof(tti_peers_arena) <= 2 << 20, "ARENA_BYTES");
static_assert((int)TTI_PEERS_MAX <= (int)TTI_HOSTS_RANKS, "ranks of tti_peer_hosts");
static_assert((int)TTI_PEERS_TERMS <= (int)TTI_HOSTS_TERMS, "terms of tti_peer_hosts");

enum {
    PAGE_BYTES = 2 << 20,  /* of the device: what others read has pages for itself */
    ARENA_BYTES = 2 << 20, /* of tti_peers_arena */
    TRIAL_EVENT = 15,      /* no other event is recorded until devices are connected */
    TRIAL_ELEMS = 1 << 16, /* of a sum that is compared */
    TRIAL_UNIT = 8,        /* elements: 16 bytes of rounded ones */
    TIMED_ELEMS = 1 << 22, /* of a sum that is timed */
};

typedef tti_peers_hello hello;
typedef tti_peers_group group;

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

/* Ranks that continue after a loss look for it whenever they wait for their device; others wait so
 * only for NCCL, whose kernels know no time limit. */
static bool watches_always(const group *g) { return g->peers.grace_ms > 0; }

/* ---- memory of the others ---- */

static void *shared_memory(const group *g, int i) {
    int source = i - 1 - g->peers.n_partials;
    if (i == 0) return g->arena;
    if (source == g->peers.n_sources) return g->staging;
    if (source >= 0) return g->peers.sources[source].data;
    return g->sent[i - 1];
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
    int device = tti_cuda_index();
    TTI_CUDA(cudaGetDeviceProperties(&p, device));
    name_process(me->process);
    memcpy(me->uuid, &p.uuid, sizeof me->uuid);
    me->device = device;
    me->n_shared = 1 + g->peers.n_partials + g->peers.n_sources + (g->staging != NULL);
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

/* The memory of a rank as this process sees it; false: it cannot. */
static bool open_rank(group *g, int rank, void **seen) {
    const hello *peer = &g->all[rank], *me = &g->all[g->peers.rank];
    static const cudaIpcMemHandle_t none;
    bool here = is_same_process(peer, me);
    if (!peer->is_open) return false;
    if (here && rank != g->peers.rank && !tti_cuda_reach(peer->device)) return false;
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
        for (int i = 0; i < TTI_PEERS_SHARED; i++)
            if (g->opened[r][i] && cudaIpcCloseMemHandle(g->opened[r][i]) != cudaSuccess)
                cudaGetLastError();
    memset(g->opened, 0, sizeof g->opened);
}

/* The sources follow the partial sums. */
static void see_sources(group *g, int rank, void *const *seen) {
    int first = g->all[rank].n_shared - g->peers.n_sources - (g->staging != NULL);
    for (int i = 0; i < g->peers.n_sources; i++) g->sources[rank][i] = seen[first + i];
    if (g->staging) g->near_staging[rank] = seen[first + g->peers.n_sources];
}

static bool open_all(group *g) {
    void *seen[TTI_PEERS_MAX][TTI_PEERS_SHARED] = {{NULL}};
    for (int r = 0; r < g->peers.n_ranks; r++)
        if (!open_rank(g, r, seen[r])) return false;
    for (int r = 0; r < g->peers.n_ranks; r++) {
        g->view.arena[r] = seen[r][0];
        g->view.sum[r] = seen[r][1];
        see_sources(g, r, seen[r]);
    }
    for (int i = 0; i < g->peers.n_terms; i++)
        g->view.terms.data[i] = seen[g->terms[i].rank][1 + g->terms[i].partial];
    return true;
}

/* The ranks of this host among themselves; terms of others stay NULL. */
static bool open_near(group *g) {
    const tti_peer_hosts *h = g->hosts;
    void *seen[TTI_PEERS_SHARED] = {NULL};
    g->near = (tti_peers_view){.rank = tti_peer_near_index(h, h->rank),
                               .n_ranks = h->n_near,
                               .state = g->view.state,
                               .timeout_ns = g->view.timeout_ns};
    g->near.terms.n = h->n_terms;
    g->near.terms.rounds = g->is_paired;
    for (int t = 0; t < h->n_terms; t++) g->near.terms.n_adds[t] = (uint8_t)h->n_adds[t];
    for (int i = 0; i < h->n_near; i++) {
        int rank = h->near[i];
        if (!open_rank(g, rank, seen)) return false;
        g->near.arena[i] = seen[0];
        g->near.sum[i] = seen[1];
        see_sources(g, rank, seen);
        for (int t = 0; t < h->n_terms; t++)
            if (g->terms[t].rank == rank) g->near.terms.data[t] = seen[1 + g->terms[t].partial];
    }
    return true;
}

/* ---- the order of the sum ---- */

static void order_terms(group *g) {
    tti_peers_terms *t = &g->view.terms;
    t->n = g->peers.n_terms;
    t->rounds = g->is_paired;
    for (int i = 0; i < t->n; i++) t->n_adds[i] = (uint8_t)g->terms[i].n_adds;
    t->balanced = tti_peers_balanced(t->n_adds, t->n);
}

/* ---- peer memory: does it work? ---- */

static float trial_value(int rank, int partial, size_t i) {
    return (float)((rank * 7 + partial * 3 + (int)(i % 97)) % 13);
}

/* Smaller ones where each of many sums is rounded to bf16, which has the whole numbers up to 256.
 */
static float trial_term(const group *g, int rank, int partial, size_t i) {
    float value = trial_value(rank, partial, i);
    return g->is_paired ? (float)((int)value % 4) : value;
}

static float trial_sum(const group *g, size_t i) {
    float sum = 0;
    for (int t = 0; t < g->peers.n_terms; t++)
        sum += trial_term(g, g->terms[t].rank, g->terms[t].partial, i);
    return sum;
}

/* Small whole numbers, so that neither order nor rounding matters; and one word from every rank. */
static tutti_status put_trial(group *g, size_t n, float *host, uint32_t *words) {
    for (int p = 0; p < g->peers.n_partials; p++) {
        for (size_t i = 0; i < n; i++) host[i] = trial_term(g, g->peers.rank, p, i);
        TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, g->partials[p], host, n * sizeof *host));
        TTI_TRY(tti_cuda_sync());
    }
    for (int r = 0; r < g->peers.n_ranks; r++) words[r] = 1000u + (uint32_t)g->peers.rank;
    TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, g->words, words, TTI_PEERS_MAX * sizeof *words));
    return tti_cuda_sync();
}

static tutti_status run_trial(group *g, size_t n, float *host, uint32_t *words, bool *good) {
    cudaStream_t stream = tti_cuda_stream();
    size_t n_ranks = (size_t)g->peers.n_ranks, me = (size_t)g->peers.rank;
    TTI_CUDA(tti_peers_sum_direct(g, 0, n, false, stream));
    TTI_CUDA(tti_launch_peers_all_gather(&g->view, g->words, n_ranks, me, me + 1, stream));
    TTI_CUDA(cudaMemcpyAsync(host, g->partials[0], n * sizeof *host, cudaMemcpyDefault, stream));
    TTI_CUDA(cudaMemcpyAsync(words, g->words, n_ranks * sizeof *words, cudaMemcpyDefault, stream));
    TTI_TRY(tti_cuda_record_host_event(TTI_QUEUE_COMPUTE, TRIAL_EVENT));
    TTI_TRY(tti_cuda_await(TRIAL_EVENT));
    *good = *g->view.state == 0;
    for (size_t i = 0; i < n; i++) *good = *good && host[i] == trial_sum(g, i);
    for (size_t r = 0; r < n_ranks; r++) *good = *good && words[r] == 1000u + r;
    return TUTTI_OK;
}

/* From the second agreement until the end of the test no call may wait for the device. */
static tutti_status try_direct(group *g, bool *good) {
    size_t n = TTI_MIN(g->peers.n_flat, (size_t)TRIAL_ELEMS) / TRIAL_UNIT * TRIAL_UNIT;
    float *host = calloc(n + 1, sizeof *host);
    uint32_t words[TTI_PEERS_MAX];
    if (!host) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    bool ready = false, mine = false;
    tutti_status st = put_trial(g, n, host, words);
    if (st == TUTTI_OK) st = tti_cuda_check(tti_launch_peers_load(), "cudaFuncGetAttributes");
    if (st == TUTTI_OK) st = tti_cuda_check(tti_launch_tp_load(), "cudaFuncGetAttributes");
    if (st == TUTTI_OK) st = tti_cuda_check(tti_launch_p2p_load(), "cudaFuncGetAttributes");
    if (st == TUTTI_OK) st = tti_cuda_check(tti_launch_tp_norm_load(), "cudaFuncGetAttributes");
    if (st == TUTTI_OK)
        st = tti_cuda_check(tti_launch_tp_norm_grad_load(), "cudaFuncGetAttributes");
    if (st == TUTTI_OK) st = agree(g, true, &ready);
    if (st == TUTTI_OK) st = run_trial(g, n, host, words, &mine);
    if (st == TUTTI_OK) st = agree(g, mine, good);
    for (int p = 0; st == TUTTI_OK && p < g->peers.n_partials; p++)
        st = tti_cuda_clear(TTI_QUEUE_COMPUTE, g->partials[p], n * sizeof *host);
    if (st == TUTTI_OK) st = tti_cuda_sync();
    free(host);
    return st;
}

/* The memory of another rank as seen here: a source, or staging after them. */
static float *fetched_from(const group *g, int rank, int i) {
    return i < g->peers.n_sources ? g->sources[rank][i] : g->near_staging[rank];
}

/* The values that a rank writes there must be visible to the others. */
static tutti_status try_sources(group *g, int n_sources, bool *good) {
    float saved[TTI_MAX_SOURCES + 1][4], word[4], seen[4];
    *good = true;
    for (int i = 0; i < n_sources; i++) {
        float *mine = fetched_from(g, g->peers.rank, i);
        for (int k = 0; k < 4; k++) word[k] = trial_value(g->peers.rank, i, (size_t)k);
        TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, saved[i], mine, sizeof word));
        TTI_TRY(tti_cuda_sync());
        TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, mine, word, sizeof word));
        TTI_TRY(tti_cuda_sync());
    }
    TTI_TRY(agree(g, true, good)); /* all have written */
    for (int r = 0; r < g->peers.n_ranks; r++)
        for (int i = 0; i < n_sources; i++) {
            if (!fetched_from(g, r, i)) continue; /* of another host */
            TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, seen, fetched_from(g, r, i), sizeof seen));
            TTI_TRY(tti_cuda_sync());
            for (int k = 0; k < 4; k++) *good = *good && seen[k] == trial_value(r, i, (size_t)k);
        }
    TTI_TRY(agree(g, *good, good)); /* all have read */
    for (int i = 0; i < n_sources; i++)
        TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, fetched_from(g, g->peers.rank, i), saved[i],
                              sizeof saved[i]));
    return tti_cuda_sync();
}

static tutti_status connect_direct(group *g) {
    bool open = false, good = false;
    TTI_TRY(agree(g, open_all(g), &open));
    if (open) TTI_TRY(try_direct(g, &good));
    if (good && g->peers.n_sources > 0) TTI_TRY(try_sources(g, g->peers.n_sources, &good));
    if (!good) *g->view.state = 0; /* the next algorithm starts without a failure */
    g->direct = good;
    return TUTTI_OK;
}

/* ---- the library ---- */

size_t tti_peers_n_foreign_terms(const group *g) {
    size_t n = 0;
    for (int t = 0; t < g->peers.n_terms; t++) n += g->terms[t].rank != g->peers.rank;
    return n;
}

static tutti_status make_chunks(group *g) {
    bool is_partitioned = g->peers.n_groups > 0;
    g->chunk = tti_peers_longest(g);
    g->chunks_bytes = g->peers.fast && !is_partitioned
                          ? 0
                          : tti_peers_n_foreign_terms(g) * g->chunk * sizeof(float);
    g->chunks = tti_cuda_alloc(g->chunks_bytes);
    return g->chunks ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "cuda: %zu bytes", g->chunks_bytes);
}

static tutti_status connect_nccl(group *g) {
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
    const tti_nccl_desc desc = {.id = &g->all[0].id,
                                .rank = g->peers.rank,
                                .n_ranks = g->peers.n_ranks,
                                .timeout_ms = g->peers.timeout_ms,
                                .check = g->peers.check,
                                .user = g->peers.user};
    TTI_TRY(tti_nccl_create(&desc, &g->nccl));
    if (!watches_always(g)) tti_cuda_add_watcher(&g->watcher);
    return TUTTI_OK;
}

/* ---- inside hosts first ---- */

/* Before any message, since the shared memory depends on it.  In fast mode NCCL adds over hosts by
 * itself. */
static tutti_status prepare_hosts(group *g) {
    const tti_device_peers *p = &g->peers;
    bool moves = !p->fast || (p->n_groups > 0 && !g->rounded[0]);
    if (p->algorithm == TTI_DEVICE_LIBRARY || p->tp_half_bytes > 0 || !moves) return TUTTI_OK;
    g->hosts = calloc(1, sizeof *g->hosts);
    if (!g->hosts) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    if (!tti_peer_hosts_make(p, tti_peers_longest(g), g->hosts)) return TUTTI_OK;
    size_t n_bytes = tti_peer_hosts_staging(g->hosts) * sizeof(float);
    g->staging_bytes = (n_bytes / PAGE_BYTES + 1) * PAGE_BYTES; /* for itself, as the arena */
    g->staging = tti_cuda_alloc(g->staging_bytes);
    return g->staging ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "cuda: %zu bytes", g->staging_bytes);
}

static tutti_status run_hosts_trial(group *g, size_t n, float *host, bool *good) {
    cudaStream_t stream = tti_cuda_stream();
    TTI_TRY(tti_peers_sum_hierarchical(g, 0, n, false, stream));
    TTI_TRY(tti_cuda_record_host_event(TTI_QUEUE_COMPUTE, TRIAL_EVENT));
    TTI_TRY(tti_cuda_peers_await(g, TRIAL_EVENT));
    TTI_TRY(tti_cuda_copy(TTI_QUEUE_COMPUTE, host, g->partials[0], n * sizeof *host));
    TTI_TRY(tti_cuda_sync());
    *good = true;
    for (size_t i = 0; i < n; i++) *good = *good && host[i] == trial_sum(g, i);
    return TUTTI_OK;
}

/* As try_direct. */
static tutti_status try_hosts(group *g, bool *good) {
    size_t most = TTI_MIN(g->peers.n_flat, g->peers.n_most);
    size_t n = TTI_MIN(most, (size_t)TRIAL_ELEMS) / TRIAL_UNIT * TRIAL_UNIT;
    float *host = calloc(n + 1, sizeof *host);
    uint32_t words[TTI_PEERS_MAX];
    if (!host) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    bool ready = false, mine = false;
    tutti_status st = put_trial(g, n, host, words);
    if (st == TUTTI_OK) st = tti_cuda_check(tti_launch_peers_load(), "cudaFuncGetAttributes");
    if (st == TUTTI_OK) st = agree(g, true, &ready);
    if (st == TUTTI_OK) st = run_hosts_trial(g, n, host, &mine);
    if (st == TUTTI_OK) st = agree(g, mine, good);
    for (int p = 0; st == TUTTI_OK && p < g->peers.n_partials; p++)
        st = tti_cuda_clear(TTI_QUEUE_COMPUTE, g->partials[p], n * sizeof *host);
    if (st == TUTTI_OK) st = tti_cuda_sync();
    free(host);
    return st;
}

/* Milliseconds of the second of two sums, on the slowest rank. */
static tutti_status time_sum(group *g, bool hierarchical, size_t n, double *ms) {
    double mine = 0, all[TTI_PEERS_MAX];
    bool ready;
    g->hierarchical = hierarchical;
    for (int i = 0; i < 2; i++) {
        TTI_TRY(agree(g, true, &ready));
        int64_t start = tti_now_ns();
        TTI_TRY(tti_cuda_peers_sum(g, 0, n, false));
        TTI_TRY(tti_cuda_record_host_event(TTI_QUEUE_COMM, TRIAL_EVENT));
        TTI_TRY(tti_cuda_peers_await(g, TRIAL_EVENT));
        mine = (double)(tti_now_ns() - start) / TTI_NS_PER_MS;
    }
    TTI_TRY(all_gather(g, &mine, all, sizeof mine));
    for (int r = 0; r < g->peers.n_ranks; r++) *ms = TTI_MAX(*ms, all[r]);
    return TUTTI_OK;
}

/* Fewer bytes between hosts are not faster where something else is slow: a network of many links
 * that each carry little.  The bits are the same.  The partial sums are zero, and so are their
 * sums. */
static tutti_status choose_hosts(group *g) {
    size_t most = TTI_MIN(g->peers.n_flat, g->peers.n_most);
    size_t n = TTI_MIN(most, (size_t)TIMED_ELEMS) / TRIAL_UNIT * TRIAL_UNIT;
    g->hierarchical = true;
    if (g->peers.fast || n < TIMED_ELEMS / 16) return TUTTI_OK;
    TTI_TRY(time_sum(g, false, n, &g->library_ms));
    TTI_TRY(time_sum(g, true, n, &g->hosts_ms));
    g->hierarchical = g->peers.algorithm == TTI_DEVICE_HOSTS || g->hosts_ms < g->library_ms * 1.1;
    return TUTTI_OK;
}

/* NCCL is there. */
static tutti_status connect_hosts(group *g) {
    bool open = false, good = false;
    if (!g->staging) return TUTTI_OK;
    close_ranks(g); /* closes what the first method has opened */
    memset(g->sources, 0, sizeof g->sources);
    memset(g->near_staging, 0, sizeof g->near_staging);
    TTI_TRY(agree(g, open_near(g), &open));
    if (open) TTI_TRY(try_sources(g, g->peers.n_sources + 1, &good));
    if (good) TTI_TRY(try_hosts(g, &good));
    if (good) TTI_TRY(choose_hosts(g));
    if (g->hierarchical) { /* terms of others do not come */
        tti_cuda_release(g->chunks, g->chunks_bytes);
        g->chunks = NULL;
        g->chunks_bytes = 0;
    }
    return TUTTI_OK;
}

/* ---- connect and disconnect ---- */

static tutti_status check_size(const tti_device_peers *p) {
    if (p->n_ranks > TTI_PEERS_MAX || p->n_terms > TTI_PEERS_TERMS)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "at most %d ranks with %d summands add on devices, these are %d with %d",
                        TTI_PEERS_MAX, TTI_PEERS_TERMS, p->n_ranks, p->n_terms);
    if (p->n_slots > TTI_PEERS_SLOTS)
        return tti_fail(TUTTI_E_UNSUPPORTED, "at most %d values can be in flight, got %d",
                        TTI_PEERS_SLOTS, p->n_slots);
    int n_most = 0;
    for (int t = 0; t < p->n_terms; t++) n_most = TTI_MAX(n_most, p->terms[t].partial + 1);
    TTI_ASSERT(p->n_sources <= TTI_MAX_SOURCES);
    if (n_most <= TTI_PEERS_PARTIALS) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED, "a rank has %d partial sums, devices add at most %d",
                    n_most, TTI_PEERS_PARTIALS);
}

/* Elements of a partial sum: where groups have places of their own, up to the end of the last. */
static size_t partial_elems(const tti_device_peers *p, int partial) {
    size_t n = p->n_flat, n_bounds = (size_t)p->n_ranks + 1;
    for (size_t i = 0; p->at && i < p->n_groups; i++) {
        const size_t *bound = p->bounds + i * n_bounds;
        size_t at = p->at[i * (size_t)p->n_partials + (size_t)partial];
        n = TTI_MAX(n, at + (bound[p->n_ranks] - bound[0]));
    }
    return n;
}

/* The partial sums, or memory for their rounded copies. */
static tutti_status prepare_sent(group *g) {
    const tti_device_peers *p = &g->peers;
    g->is_paired = !p->fast && p->wire == TUTTI_BF16;
    for (int k = 0; k < p->n_partials; k++) {
        g->sent[k] = g->partials[k];
        if (p->wire == TUTTI_F32) continue;
        g->rounded_bytes[k] = partial_elems(p, k) * sizeof *g->rounded[k];
        g->rounded[k] = tti_cuda_alloc(g->rounded_bytes[k]);
        if (!g->rounded[k]) return tti_fail(TUTTI_E_NOMEM, "cuda: %zu bytes", g->rounded_bytes[k]);
        g->sent[k] = (float *)(void *)g->rounded[k];
    }
    return TUTTI_OK;
}

static tutti_status prepare(group *g) {
    const tti_device_peers *p = &g->peers;
    int64_t grace_ms = p->grace_ms > 0 ? p->grace_ms : TTI_CUDA_GRACE_MS;
    g->watcher = (tti_cuda_watcher){.check = tti_peers_check,
                                    .end = tti_peers_end,
                                    .user = g,
                                    .grace_ns = grace_ms * TTI_NS_PER_MS};
    g->words_bytes = TTI_MAX((size_t)p->n_ranks * p->n_words, (size_t)TTI_PEERS_MAX) * 4;
    g->all = calloc((size_t)p->n_ranks, sizeof *g->all);
    g->arena = tti_cuda_alloc(ARENA_BYTES);
    g->words = tti_cuda_alloc(g->words_bytes);
    g->with = p->with;
    g->waited = tti_cuda_alloc_host(sizeof g->arena->waited_ns);
    g->view.state = g->with ? g->with->view.state : tti_cuda_alloc_host(sizeof *g->view.state);
    if (!g->all || !g->arena || !g->words || !g->waited || !g->view.state)
        return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory for the connections to other devices");
    g->view.rank = p->rank;
    g->view.n_ranks = p->n_ranks;
    g->view.timeout_ns = (uint64_t)p->timeout_ms * 1000000u;
    memcpy(g->terms, p->terms, (size_t)p->n_terms * sizeof *g->terms);
    memcpy(g->partials, p->partials, (size_t)p->n_partials * sizeof *g->partials);
    TTI_TRY(prepare_sent(g));
    order_terms(g);
    if (watches_always(g)) tti_cuda_add_watcher(&g->watcher);
    return prepare_hosts(g);
}

/* Over all ranks, since the partial sums of one may be shorter than those of another. */
static tutti_status gather_places(group *g) {
    const tti_device_peers *p = &g->peers;
    size_t n = p->n_groups * TTI_PEERS_PARTIALS;
    if (n == 0) return TUTTI_OK;
    size_t *mine = calloc(n, sizeof *mine);
    g->at = calloc((size_t)p->n_ranks * n, sizeof *g->at);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    for (size_t i = 0; mine && i < n; i++) {
        size_t which = i / TTI_PEERS_PARTIALS, k = i % TTI_PEERS_PARTIALS;
        bool is_given = p->at && k < (size_t)p->n_partials;
        mine[i] = is_given ? p->at[which * (size_t)p->n_partials + k]
                           : tti_peers_partition_of(g, which, 0).first;
    }
    if (mine && g->at) st = all_gather(g, mine, g->at, n * sizeof *mine);
    free(mine);
    return st;
}

static tutti_status connect_all(group *g) {
    hello *me = calloc(1, sizeof *me);
    if (!me) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    tutti_status st = say_hello(g, me);
    /* NCCL is looked for where the devices will need it: it takes its time. */
    bool reaches = g->peers.algorithm == TTI_DEVICE_AUTO || g->peers.algorithm == TTI_DEVICE_PEERS;
    if (st == TUTTI_OK) st = all_gather(g, me, g->all, sizeof *me);
    if (st == TUTTI_OK) st = gather_places(g);
    if (st == TUTTI_OK) st = check_devices(g);
    if (st == TUTTI_OK && reaches) st = connect_direct(g);
    if (st == TUTTI_OK && !g->direct && (g->peers.tp_half_bytes > 0 || g->peers.n_slots > 0))
        st = tti_fail(TUTTI_E_UNSUPPORTED, "the devices cannot read each other's memory");
    if (st == TUTTI_OK && !g->direct) {
        me->has_nccl = tti_nccl_load(NULL);
        if (me->has_nccl && g->peers.rank == 0) st = tti_nccl_make_id(&me->id);
        if (st == TUTTI_OK) st = all_gather(g, me, g->all, sizeof *me);
        if (st == TUTTI_OK) st = connect_nccl(g);
        if (st == TUTTI_OK) st = connect_hosts(g);
    }
    free(me);
    return st;
}

tutti_status tti_cuda_peers_connect(const tti_device_peers *peers, void **out) {
    *out = NULL;
    TTI_TRY(check_size(peers));
    group *g = calloc(1, sizeof *g);
    if (!g) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    g->peers = *peers;
    tutti_status st = prepare(g);
    if (st == TUTTI_OK) st = connect_all(g);
    if (st != TUTTI_OK) {
        tti_cuda_peers_disconnect(g);
        return st;
    }
    *out = g;
    return TUTTI_OK;
}

void tti_cuda_peers_disconnect(void *state) {
    group *g = state;
    if (!g) return;
    if (tti_cuda_sync() != TUTTI_OK) tti_clear_error();
    tti_cuda_remove_watcher(&g->watcher);
    tti_nccl_destroy(g->nccl);
    close_ranks(g);
    tti_cuda_release(g->arena, ARENA_BYTES);
    tti_cuda_release(g->words, g->words_bytes);
    tti_cuda_release(g->chunks, g->chunks_bytes);
    for (int k = 0; k < TTI_PEERS_PARTIALS; k++)
        tti_cuda_release(g->rounded[k], g->rounded_bytes[k]);
    tti_cuda_release(g->staging, g->staging_bytes);
    tti_cuda_release_host(g->waited);
    if (!g->with) tti_cuda_release_host(g->view.state);
    free(g->hosts);
    free(g->at);
    free(g->all);
    free(g);
}

void tti_cuda_peers_describe(const void *state, tti_str *str) {
    const group *g = state;
    if (g->direct || g->hierarchical) tti_str_add(str, "over peers' memory");
    if (g->hierarchical) tti_str_add(str, " inside each host, between hosts by ");
    if (!g->direct) tti_nccl_describe(str);
    if (g->hosts_ms > 0)
        tti_str_printf(str, " (a trial: %.1f ms, without hosts %.1f)", g->hosts_ms, g->library_ms);
}

bool tti_cuda_peers_are_linked(const void *state) {
    const group *g = state;
    bool all = g->direct;
    for (int r = 0; r < g->peers.n_ranks; r++)
        all = all && (r == g->peers.rank || tti_cuda_has_link(g->all[r].uuid));
    return all;
}
