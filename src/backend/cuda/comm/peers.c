/* peers.c - the reduction algorithms between the devices of a job, and how they wait for each
 * other.
 *
 * If devices access each other's memory a kernel adds (peers.cu).  NCCL adds by itself in fast
 * mode; otherwise it only moves chunks, and a kernel adds them in the given order.  Devices of
 * several hosts use both (peers_hosts.c). */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/comm/p2p.h"
#include "backend/cuda/comm/peers_group.h"
#include "backend/cuda/comm/tp.h"
#include "base/clock.h"

enum {
    UNIT = 8, /* elements: 16 bytes of rounded ones */
    MAX_MESSAGES = TTI_PEERS_MAX * TTI_PEERS_PARTIALS + TTI_PEERS_TERMS,
};

typedef tti_peers_group group;

/* ---- partitions and sums over peers' memory ---- */

tti_chunk tti_peers_partition_of(const group *g, size_t which, int rank) {
    const size_t *bound = g->peers.bounds + which * ((size_t)g->peers.n_ranks + 1) + rank;
    return (tti_chunk){bound[0], bound[1] - bound[0]};
}

size_t tti_peers_longest_partition(const group *g, size_t which) {
    size_t n = 0;
    for (int r = 0; r < g->peers.n_ranks; r++)
        n = TTI_MAX(n, tti_peers_partition_of(g, which, r).n_elems);
    return n;
}

size_t tti_peers_longest(const group *g) {
    size_t n = tti_chunk_of(g->peers.n_most, 0, g->peers.n_ranks).n_elems;
    for (size_t i = 0; i < g->peers.n_groups; i++)
        n = TTI_MAX(n, tti_peers_longest_partition(g, i));
    return n;
}

int tti_peers_balanced(const uint8_t *n_adds, int n) {
    for (int i = 0; i < n; i++)
        if (n_adds[i] != __builtin_ctz((unsigned)i + 1)) return 0;
    return n == 2 || n == 4 || n == 8 ? n : 0;
}

/* ---- what is sent ---- */

/* How much later an element of a group lies in a partial sum than in the flat range. */
static ptrdiff_t elems_later(const group *g, int64_t which, int rank, int partial) {
    if (which == TTI_PEERS_WHOLE) return 0;
    size_t row = (size_t)rank * g->peers.n_groups + (size_t)which;
    size_t first = tti_peers_partition_of(g, (size_t)which, 0).first;
    return (ptrdiff_t)g->at[row * TTI_PEERS_PARTIALS + (size_t)partial] - (ptrdiff_t)first;
}

/* Elements to floats as they are sent. */
static size_t sent_floats(const group *g, size_t n_elems) {
    TTI_ASSERT(!g->is_paired || n_elems % UNIT == 0);
    return g->is_paired ? n_elems / 2 : n_elems;
}

static tti_chunk sent_chunk(const group *g, tti_chunk elems) {
    return (tti_chunk){sent_floats(g, elems.first), sent_floats(g, elems.n_elems)};
}

ptrdiff_t tti_peers_shift_of(const group *g, int64_t which, int rank, int partial) {
    ptrdiff_t later = elems_later(g, which, rank, partial);
    TTI_ASSERT(!g->is_paired || later % UNIT == 0);
    return g->is_paired ? later / 2 : later;
}

/* Where the sum of this rank's partition goes as f32. */
static float *wanted_at(const group *g, int64_t which, tti_chunk mine) {
    const tti_device_partitions *sums = &g->peers.sums;
    int me = g->peers.rank;
    if (which == TTI_PEERS_WHOLE || !sums->data)
        return g->partials[0] + ((ptrdiff_t)mine.first + elems_later(g, which, me, 0));
    if (!sums->places) return sums->data + mine.first;
    return sums->data + sums->places[(size_t)which * (size_t)g->peers.n_ranks + (size_t)me];
}

float *tti_peers_sum_of(const group *g, int64_t which, tti_chunk mine) {
    if (!g->is_paired) return wanted_at(g, which, mine);
    return g->sent[0] + ((ptrdiff_t)mine.first + tti_peers_shift_of(g, which, g->peers.rank, 0));
}

/* Exact mode: rounds elements first .. of every partial sum before it is sent. */
static cudaError_t round_partials(const group *g, int64_t which, size_t first, size_t n,
                                  cudaStream_t stream) {
    cudaError_t error = cudaSuccess;
    for (int k = 0; error == cudaSuccess && k < g->peers.n_partials; k++) {
        ptrdiff_t at = (ptrdiff_t)first + elems_later(g, which, g->peers.rank, k);
        error = tti_launch_round(g->peers.wire, g->partials[k] + at, g->rounded[k] + at, n, stream);
    }
    return error;
}

/* The partial sums take part as they are, or rounded. */
cudaError_t tti_peers_sum_direct(group *g, size_t first, size_t n, bool overlapped,
                                 cudaStream_t stream) {
    tutti_dtype wire = g->peers.wire;
    cudaError_t error;
    if (!g->rounded[0]) return tti_launch_peers_sum(&g->view, first, n, overlapped, stream);
    error = round_partials(g, TTI_PEERS_WHOLE, first, n, stream);
    if (error == cudaSuccess)
        error = g->is_paired
                    ? tti_launch_peers_sum(&g->view, sent_floats(g, first), sent_floats(g, n),
                                           overlapped, stream)
                    : tti_launch_peers_sum_16bit(wire, &g->view, first, n, overlapped, stream);
    if (error != cudaSuccess) return error;
    return tti_launch_unround(wire, g->rounded[0] + first, g->partials[0] + first, n, stream);
}

/* ---- sums ---- */

/* Lists this rank's partitions of the chunks [n_ranks] that others sum, and others' partitions of
 * its own. */
static int list_chunks(const group *g, int64_t which, const tti_chunk *chunks,
                       tti_nccl_message *list) {
    const tti_device_peers *p = &g->peers;
    size_t mine = chunks[p->rank].n_elems * sizeof(float), slot = 0;
    int n_messages = 0;
    for (int r = 0; r < p->n_ranks; r++) {
        tti_chunk c = chunks[r];
        for (int k = 0; r != p->rank && c.n_elems > 0 && k < p->n_partials; k++)
            list[n_messages++] = (tti_nccl_message){
                .peer = r,
                .out = g->sent[k] + ((ptrdiff_t)c.first + tti_peers_shift_of(g, which, p->rank, k)),
                .n_bytes = c.n_elems * sizeof(float)};
    }
    for (int t = 0; mine > 0 && t < p->n_terms; t++)
        if (g->terms[t].rank != p->rank)
            list[n_messages++] = (tti_nccl_message){
                .peer = g->terms[t].rank, .in = g->chunks + g->chunk * slot++, .n_bytes = mine};
    return n_messages;
}

/* Sends this rank's chunk to all, and receives theirs in dst. */
static int list_sums(const group *g, const tti_chunk *chunks, float *dst, tti_nccl_message *list) {
    const tti_device_peers *p = &g->peers;
    tti_chunk mine = chunks[p->rank];
    int n_messages = 0;
    for (int r = 0; r < p->n_ranks; r++) {
        tti_chunk c = chunks[r];
        if (r == p->rank) continue;
        if (mine.n_elems > 0)
            list[n_messages++] = (tti_nccl_message){
                .peer = r, .out = g->sent[0] + mine.first, .n_bytes = mine.n_elems * sizeof(float)};
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
        int rank = g->terms[t].rank, partial = g->terms[t].partial;
        ptrdiff_t at = (ptrdiff_t)mine.first + tti_peers_shift_of(g, which, rank, partial);
        terms.data[t] =
            rank == g->peers.rank ? g->sent[partial] + at : g->chunks + g->chunk * slot++;
    }
    TTI_TRY(tti_nccl_send_recv(g->nccl, list, list_chunks(g, which, chunks, list), stream));
    return tti_cuda_check(
        tti_launch_terms_sum(&terms, tti_peers_sum_of(g, which, mine), mine.n_elems, stream),
        "sum");
}

static void chunks_of(const group *g, size_t first, size_t n, tti_chunk *chunks) {
    for (int r = 0; r < g->peers.n_ranks; r++) {
        chunks[r] = tti_chunk_of(n, r, g->peers.n_ranks);
        chunks[r].first += first;
    }
}

static tutti_status sum_by_moving(group *g, size_t first, size_t n, const tti_chunk *chunks,
                                  cudaStream_t stream) {
    tti_nccl_message list[MAX_MESSAGES];
    tti_chunk mine = chunks[g->peers.rank];
    TTI_TRY(sum_chunk(g, TTI_PEERS_WHOLE, chunks, stream));
    float *sum = g->sent[0];
    if (n % (4 * (size_t)g->peers.n_ranks) == 0)
        return tti_nccl_gather(g->nccl, sum + mine.first, sum + first, mine.n_elems * sizeof *sum,
                               stream);
    return tti_nccl_send_recv(g->nccl, list, list_sums(g, chunks, sum, list), stream);
}

static tutti_status sum_rounded_by_library(group *g, size_t first, size_t n, cudaStream_t stream) {
    tutti_dtype wire = g->peers.wire;
    float *sum = g->partials[0] + first;
    uint16_t *rounded = g->rounded[0] + first;
    TTI_CUDA(tti_launch_round(wire, sum, rounded, n, stream));
    TTI_TRY(tti_nccl_sum(g->nccl, wire, rounded, n, stream));
    TTI_CUDA(tti_launch_unround(wire, rounded, sum, n, stream));
    return TUTTI_OK;
}

/* Exact mode: the whole sum to f32, after it has arrived rounded. */
static tutti_status unround_sum(const group *g, size_t first, size_t n, cudaStream_t stream) {
    if (!g->is_paired) return TUTTI_OK;
    return tti_cuda_check(
        tti_launch_unround(g->peers.wire, g->rounded[0] + first, g->partials[0] + first, n, stream),
        "unround");
}

tutti_status tti_peers_sum_hierarchical(group *g, size_t first, size_t n_elems, bool overlapped,
                                        cudaStream_t stream) {
    tti_chunk chunks[TTI_PEERS_MAX] = {{0, 0}};
    if (g->is_paired) TTI_CUDA(round_partials(g, TTI_PEERS_WHOLE, first, n_elems, stream));
    chunks_of(g, sent_floats(g, first), sent_floats(g, n_elems), chunks);
    TTI_TRY(tti_peers_hosts_sum(g, chunks, overlapped, stream));
    return unround_sum(g, first, n_elems, stream);
}

tutti_status tti_cuda_peers_sum(void *state, size_t first, size_t n_elems, bool overlapped) {
    group *g = state;
    cudaStream_t stream = tti_cuda_stream_of(TTI_QUEUE_COMM);
    TTI_ASSERT(first % 4 == 0 && n_elems % 4 == 0 && n_elems <= g->peers.n_most);
    if (n_elems == 0) return TUTTI_OK;
    TTI_ASSERT(!g->rounded[0] || (first % UNIT == 0 && n_elems % UNIT == 0));
    if (g->direct) {
        TTI_CUDA(tti_peers_sum_direct(g, first, n_elems, overlapped, stream));
        return TUTTI_OK;
    }
    if (g->peers.fast && g->rounded[0]) return sum_rounded_by_library(g, first, n_elems, stream);
    if (g->peers.fast)
        return tti_nccl_sum(g->nccl, TUTTI_F32, g->partials[0] + first, n_elems, stream);
    if (g->hierarchical) return tti_peers_sum_hierarchical(g, first, n_elems, overlapped, stream);
    tti_chunk chunks[TTI_PEERS_MAX] = {{0, 0}};
    size_t begin = sent_floats(g, first), n = sent_floats(g, n_elems);
    if (g->is_paired) TTI_CUDA(round_partials(g, TTI_PEERS_WHOLE, first, n_elems, stream));
    chunks_of(g, begin, n, chunks);
    TTI_TRY(sum_by_moving(g, begin, n, chunks, stream));
    return unround_sum(g, first, n_elems, stream);
}

/* This rank's partition of a group; partitions [n_ranks] in floats as they are sent. */
static tutti_status sum_partitions(group *g, int64_t which, const tti_chunk *partitions,
                                   bool overlapped, cudaStream_t stream) {
    if (g->hierarchical) return tti_peers_hosts_sum_own(g, which, partitions, overlapped, stream);
    if (!g->direct) return sum_chunk(g, which, partitions, stream);
    tti_chunk mine = partitions[g->peers.rank];
    tti_peers_view view = g->view;
    for (int t = 0; t < view.terms.n; t++)
        view.terms.data[t] += tti_peers_shift_of(g, which, g->terms[t].rank, g->terms[t].partial);
    view.sum[g->peers.rank] = tti_peers_sum_of(g, which, mine) - (ptrdiff_t)mine.first;
    size_t longest = sent_floats(g, tti_peers_longest_partition(g, (size_t)which));
    TTI_CUDA(tti_launch_peers_sum_partition(&view, mine.first, mine.first + mine.n_elems, longest,
                                            overlapped, stream));
    return TUTTI_OK;
}

tutti_status tti_cuda_peers_sum_partitions(void *state, size_t which, bool overlapped) {
    group *g = state;
    cudaStream_t stream = tti_cuda_stream_of(TTI_QUEUE_COMM);
    tti_chunk partitions[TTI_PEERS_MAX] = {{0, 0}};
    TTI_ASSERT(which < g->peers.n_groups && (!g->peers.fast || !g->rounded[0]));
    for (int r = 0; r < g->peers.n_ranks; r++)
        partitions[r] = sent_chunk(g, tti_peers_partition_of(g, which, r));
    if (!g->is_paired) return sum_partitions(g, (int64_t)which, partitions, overlapped, stream);
    int me = g->peers.rank;
    tti_chunk mine = tti_peers_partition_of(g, which, me);
    tti_chunk last = tti_peers_partition_of(g, which, g->peers.n_ranks - 1);
    size_t first = tti_peers_partition_of(g, which, 0).first;
    TTI_CUDA(round_partials(g, (int64_t)which, first, last.first + last.n_elems - first, stream));
    TTI_TRY(sum_partitions(g, (int64_t)which, partitions, overlapped, stream));
    TTI_CUDA(tti_launch_unround(g->peers.wire, tti_peers_sum_of(g, (int64_t)which, partitions[me]),
                                wanted_at(g, (int64_t)which, mine), mine.n_elems, stream));
    return TUTTI_OK;
}

size_t tti_peers_place_of(const group *g, size_t which, int source, int rank) {
    const size_t *places = g->peers.sources[source].places;
    if (!places) return tti_peers_partition_of(g, which, rank).first;
    return places[which * (size_t)g->peers.n_ranks + (size_t)rank];
}

/* NULL: moved by the library. */
static const float *source_of(const group *g, size_t which, int source, int rank) {
    const float *from = g->direct               ? g->sources[rank][source]
                        : rank == g->peers.rank ? g->peers.sources[source].data
                                                : NULL;
    return from ? from + tti_peers_place_of(g, which, source, rank) : NULL;
}

static void find_partitions(const group *g, size_t which, int source, float *dst,
                            tti_peers_partitions *partitions) {
    size_t first = tti_peers_partition_of(g, which, 0).first;
    for (int r = 0; r < g->peers.n_ranks; r++) {
        tti_chunk c = tti_peers_partition_of(g, which, r);
        partitions->partition[r].from = source_of(g, which, source, r);
        partitions->partition[r].to = dst + (c.first - first);
        partitions->partition[r].n_elems = c.n_elems;
    }
    int me = g->peers.rank; /* its own partition may lie there already */
    partitions->n = g->peers.n_ranks;
    partitions->first = (me + 1) % partitions->n;
    if (partitions->partition[me].from == partitions->partition[me].to)
        partitions->partition[me].n_elems = 0;
}

/* The own partition, which the library does not move. */
static tutti_status keep_partition(const group *g, const tti_peers_partitions *partitions,
                                   cudaStream_t stream) {
    size_t n_bytes = partitions->partition[g->peers.rank].n_elems * sizeof(float);
    if (n_bytes == 0) return TUTTI_OK;
    return tti_cuda_check(cudaMemcpyAsync(partitions->partition[g->peers.rank].to,
                                          partitions->partition[g->peers.rank].from, n_bytes,
                                          cudaMemcpyDefault, stream),
                          "cudaMemcpyAsync");
}

/* This rank's partition goes to all, and theirs come. */
static int list_partitions(const group *g, size_t which, const tti_peers_partitions *partitions,
                           tti_nccl_message *list) {
    const float *mine = partitions->partition[g->peers.rank].from;
    size_t n_mine = tti_peers_partition_of(g, which, g->peers.rank).n_elems;
    int n_messages = 0;
    for (int r = 0; r < g->peers.n_ranks; r++) {
        size_t n = partitions->partition[r].n_elems;
        if (r == g->peers.rank) continue;
        if (n_mine > 0)
            list[n_messages++] =
                (tti_nccl_message){.peer = r, .out = mine, .n_bytes = n_mine * sizeof *mine};
        if (n > 0)
            list[n_messages++] = (tti_nccl_message){
                .peer = r, .in = partitions->partition[r].to, .n_bytes = n * sizeof *mine};
    }
    return n_messages;
}

tutti_status tti_cuda_peers_fetch(void *state, size_t which, int source, float *dst,
                                  bool overlapped) {
    group *g = state;
    cudaStream_t stream = tti_cuda_stream_of(TTI_QUEUE_COMM);
    tti_nccl_message list[MAX_MESSAGES];
    tti_peers_partitions partitions = {0};
    TTI_ASSERT(which < g->peers.n_groups && source < g->peers.n_sources);
    if (g->hierarchical) return tti_peers_hosts_fetch(g, which, source, dst, overlapped, stream);
    find_partitions(g, which, source, dst, &partitions);
    if (g->direct)
        return tti_cuda_check(
            tti_launch_peers_fetch(&g->view, &partitions, tti_peers_longest_partition(g, which),
                                   overlapped, stream),
            "peers_fetch");
    TTI_TRY(keep_partition(g, &partitions, stream));
    return tti_nccl_send_recv(g->nccl, list, list_partitions(g, which, &partitions, list), stream);
}

/* ---- small vectors ---- */

/* In the queue of the sums, because NCCL requires one order of its calls. */
static tutti_status gather_by_library(group *g, uint32_t *words, size_t n, size_t first,
                                      size_t last) {
    cudaStream_t stream = tti_cuda_stream_of(TTI_QUEUE_COMM);
    TTI_TRY(tti_cuda_order(TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE));
    TTI_CUDA(tti_launch_words_keep(words, n, first, last, stream));
    TTI_TRY(tti_nccl_gather(g->nccl, words, g->words, n * sizeof *words, stream));
    TTI_CUDA(tti_launch_words_or(words, g->words, n, g->peers.n_ranks, stream));
    return tti_cuda_order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM);
}

tutti_status tti_cuda_peers_all_gather(void *state, void *words, size_t n_words, size_t first,
                                       size_t last) {
    group *g = state;
    TTI_ASSERT(n_words <= g->peers.n_words);
    if (!g->direct) return gather_by_library(g, words, n_words, first, last);
    return tti_cuda_check(
        tti_launch_peers_all_gather(&g->view, words, n_words, first, last, tti_cuda_stream()),
        "peers_all_gather");
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

tutti_status tti_cuda_report_sums(const tti_device_step_sums *step_sums) {
    return tti_cuda_check(tti_launch_report_sums(step_sums, tti_cuda_stream()), "report_sums");
}

/* ---- tensor parallel collectives ---- */

const tti_peers_view *tti_cuda_tp_view(const void *state, size_t *n_bytes) {
    const group *g = state;
    TTI_ASSERT(g->direct && g->peers.n_terms == g->peers.n_ranks);
    for (int t = 0; t < g->peers.n_terms; t++) TTI_ASSERT(g->terms[t].rank == t);
    *n_bytes = g->peers.tp_half_bytes;
    return &g->view;
}

const tti_peers_view *tti_cuda_p2p_view(const void *state, int slot, int rank, void **partial) {
    const group *g = state;
    TTI_ASSERT(g->direct && slot >= 0 && slot < g->peers.n_slots);
    TTI_ASSERT(rank >= 0 && rank < g->peers.n_ranks);
    if (partial) *partial = g->view.sum[rank];
    return &g->view;
}

char *tti_cuda_tp_source(const void *state, int rank) {
    const group *g = state;
    TTI_ASSERT(g->peers.n_sources > 0);
    return (char *)g->sources[rank][0];
}

/* ---- waiting ---- */

/* The queue of copies waits for no kernels while steps are at work. */
tutti_status tti_cuda_peers_waited(void *state, int64_t *t_ns) {
    group *g = state;
    cudaStream_t stream = tti_cuda_stream_of(TTI_QUEUE_COPY);
    *t_ns = -1;
    if (!g->direct) return TUTTI_OK; /* the library does not measure it */
    TTI_CUDA(cudaMemcpyAsync(g->waited, &g->arena->waited_ns, sizeof g->arena->waited_ns,
                             cudaMemcpyDefault, stream));
    TTI_CUDA(cudaStreamSynchronize(stream));
    *t_ns = 0;
    for (int c = 0; c < TTI_N_CHANNELS; c++) *t_ns += (int64_t)g->waited[c];
    return TUTTI_OK;
}

/* Ends what waits on the device for a peer that will not come. */
void tti_peers_end(void *state) {
    group *g = state;
    __atomic_store_n(g->view.state, TTI_PEERS_ENDED, __ATOMIC_SEQ_CST);
    if (g->nccl) tti_nccl_abort(g->nccl);
}

tutti_status tti_peers_check(void *state) {
    group *g = state;
    TTI_TRY(g->peers.check(g->peers.user));
    return g->nccl ? tti_nccl_check(g->nccl) : TUTTI_OK;
}

/* A kernel that gives up has waited for as long as the limit, whenever the host began to wait. */
static tutti_status fail_late(group *g, int64_t waited_ns) {
    int64_t waited_ms = TTI_MAX(waited_ns / TTI_NS_PER_MS, (int64_t)g->peers.timeout_ms);
    tutti_status st = g->peers.check(g->peers.user); /* the host may know the cause */
    if (st != TUTTI_OK) return st;
    return tti_fail(
        TUTTI_E_TIMEOUT,
        "rank %d: its device waited %lld ms (parallel.timeout_ms=%d) for the %s of another rank",
        g->peers.shown, (long long)waited_ms, g->peers.timeout_ms,
        g->peers.tp_half_bytes > 0 || g->peers.n_slots > 0 ? "values" : "gradients");
}

const uint32_t *tti_cuda_peers_failure(const void *state) {
    return ((const group *)state)->view.state;
}

typedef struct peers_wait {
    group *g;
    int64_t start_ns, lost_ns; /* lost_ns 0: no peer is lost */
} peers_wait;

/* Checks peers while the event is pending: a failure of a peer counts once it has lasted. */
static tutti_status look_around(void *user, int64_t now) {
    peers_wait *w = user;
    group *g = w->g;
    int64_t waited_ns = now - w->start_ns;
    tutti_status st = tti_peers_check(g);
    bool late = g->nccl && waited_ns > g->peers.timeout_ms * TTI_NS_PER_MS;
    if (st == TUTTI_OK && late) {
        tti_peers_end(g);
        return fail_late(g, waited_ns);
    }
    if (st == TUTTI_OK) return TUTTI_OK;
    if (w->lost_ns == 0) w->lost_ns = now;
    if (now - w->lost_ns < g->watcher.grace_ns) return TUTTI_OK;
    tti_peers_end(g);
    return st;
}

tutti_status tti_cuda_peers_await(void *state, int event) {
    group *g = state;
    peers_wait w = {.g = g, .start_ns = tti_now_ns()};
    TTI_TRY(tti_cuda_poll(tti_cuda_device()->host_events[event], look_around, &w));
    if (__atomic_load_n(g->view.state, __ATOMIC_SEQ_CST) == 0) return TUTTI_OK;
    tti_peers_end(g); /* later work may wait for the same peer through NCCL */
    return fail_late(g, tti_now_ns() - w.start_ns);
}
