/* fake_peers.h - sums between devices that are the host: by chunks, in the order they are given, at
 * once. */
#ifndef TTI_TESTS_EXEC_FAKE_PEERS_H
#define TTI_TESTS_EXEC_FAKE_PEERS_H

#include <math.h>
#include <stdlib.h>

#include "backend/chunk.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "exec/fake_device.h"
#include "exec/fake_hosts.h"
#include "exec/program/accumulate.h"

enum { FAKE_MAX_RANKS = 8, FAKE_MAX_TERMS = 128, FAKE_MAX_GROUPS = 256 };

typedef struct fake_group {
    tti_device_peers peers;
    tti_device_term terms[FAKE_MAX_TERMS];
    float *partials[FAKE_MAX_RANKS][TTI_MAX_PARTIALS];
    float *sources[FAKE_MAX_RANKS][TTI_MAX_SOURCES];
    size_t at[FAKE_MAX_RANKS][FAKE_MAX_GROUPS]
             [TTI_MAX_PARTIALS];  /* where groups are in partial sums */
    fake_hosts *hosts;            /* NULL: all memory is in reach */
    uint64_t n_collectives;       /* fake_tp.h */
    tti_device_norm rows_arrived; /* whose rows were last sent to the others */
    uint64_t brought_hash;
    struct fake_box *box; /* fake_p2p.h */
    bool has_failed;      /* of what waits in it */
    int64_t waited_ns;    /* for the others, so far */
} fake_group;

static inline tutti_status fake_order(tti_queue after, tti_queue before) {
    return after == before ? tti_fail(TUTTI_E_INTERNAL, "a queue waits for itself") : TUTTI_OK;
}

static inline tutti_status fake_exchange(fake_group *g, const void *mine, void *all,
                                         size_t n_bytes) {
    int64_t start = tti_now_ns();
    tutti_status st = g->peers.all_gather(g->peers.user, mine, all, n_bytes);
    g->waited_ns += tti_now_ns() - start;
    return st;
}

static inline tutti_status fake_barrier(fake_group *g) {
    char mine = 1, all[FAKE_MAX_RANKS];
    return fake_exchange(g, &mine, all, 1);
}

static inline tutti_status fake_places(fake_group *g) {
    const tti_device_peers *p = &g->peers;
    size_t mine[FAKE_MAX_GROUPS][TTI_MAX_PARTIALS] = {{0}};
    TTI_ASSERT(p->n_groups <= FAKE_MAX_GROUPS);
    for (size_t i = 0; i < p->n_groups; i++)
        for (size_t k = 0; k < (size_t)p->n_partials; k++)
            mine[i][k] = p->at ? p->at[i * (size_t)p->n_partials + k]
                               : p->bounds[i * ((size_t)p->n_ranks + 1)];
    return p->all_gather(p->user, mine, g->at, sizeof mine);
}

static inline tutti_status fake_connect(const tti_device_peers *peers, void **out) {
    fake_group *g = calloc(1, sizeof *g);
    if (!g) return tti_fail(TUTTI_E_NOMEM, "out of memory");
    g->peers = *peers;
    float *mine[TTI_MAX_PARTIALS] = {NULL};
    for (int i = 0; i < peers->n_partials; i++) mine[i] = peers->partials[i];
    for (int t = 0; t < peers->n_terms; t++) g->terms[t] = peers->terms[t];
    *out = g;
    TTI_TRY(peers->all_gather(peers->user, mine, g->partials, sizeof mine));
    float *sources[TTI_MAX_SOURCES] = {NULL};
    for (int i = 0; i < peers->n_sources; i++) sources[i] = peers->sources[i].data;
    TTI_TRY(peers->all_gather(peers->user, sources, g->sources, sizeof sources));
    if (peers->tp_half_bytes == 0) TTI_TRY(fake_hosts_create(peers, &g->hosts));
    return fake_places(g);
}

static inline void fake_disconnect(void *group) {
    fake_group *g = group;
    if (g) fake_hosts_destroy(g->hosts);
    free(g);
}

static inline void fake_describe(const void *group, tti_str *str) {
    const fake_group *g = group;
    bool by_library = g->peers.algorithm == TTI_DEVICE_LIBRARY;
    tti_str_printf(str, by_library ? "library of %d" : "%d at once", g->peers.n_ranks);
    if (g->hosts) tti_str_printf(str, ", of %d hosts", g->hosts->of.n_hosts);
}

/* which below 0: of the flat range; else of a group, i from its first element on. */
static inline float fake_term(const fake_group *g, int which, int t, size_t i) {
    int rank = g->terms[t].rank, partial = g->terms[t].partial;
    return g->partials[rank][partial][(which < 0 ? 0 : g->at[rank][which][partial]) + i];
}

/* As it travels. */
static inline float fake_rounded(const fake_group *g, float value) {
    if (g->peers.wire == TUTTI_F32) return value;
    if (g->peers.wire == TUTTI_BF16) return tti_bf16_to_f32(tti_f32_to_bf16(value));
    return tti_f16_to_f32(tti_f32_to_f16(value));
}

static inline void fake_copy_rounded(const fake_group *g, const float *term, size_t n, float *to) {
    bool rounds = g->peers.wire != TUTTI_F32;
    if (!rounds) memcpy(to, term, n * sizeof *to);
    for (size_t e = 0; rounds && e < n; e++) to[e] = fake_rounded(g, term[e]);
}

enum { FAKE_BLOCK = 128 };

/* Elements first .. first+n-1 of the sum, at most FAKE_BLOCK, to to. */
static inline void fake_sum_block(const fake_group *g, int which, size_t first, size_t n,
                                  float *to) {
    float stack[32][FAKE_BLOCK];
    int depth = 0;
    for (int t = 0; t < g->peers.n_terms; t++) {
        int rank = g->terms[t].rank, partial = g->terms[t].partial;
        size_t at = which < 0 ? 0 : g->at[rank][which][partial];
        fake_copy_rounded(g, g->partials[rank][partial] + at + first, n, stack[depth++]);
        for (int k = 0; k < g->terms[t].n_adds; k++, depth--)
            for (size_t e = 0; e < n; e++)
                stack[depth - 2][e] =
                    fake_partial(&g->peers, stack[depth - 2][e], stack[depth - 1][e]);
    }
    if (depth == 1) fake_copy_rounded(g, stack[0], n, to);
    for (size_t e = 0; depth != 1 && e < n; e++) to[e] = NAN;
}

/* The same of a leaf, whose terms are all of this host. */
static inline float fake_leaf(const fake_group *g, int which, const tti_leaf *leaf, size_t i) {
    float stack[32];
    int n = 0;
    for (int t = leaf->first; t < leaf->first + leaf->n_terms; t++) {
        if (g->peers.hosts[g->terms[t].rank] != g->hosts->of.here) abort();
        stack[n++] = fake_rounded(g, fake_term(g, which, t, i));
        for (int k = 0; k < g->hosts->of.n_adds[t]; k++, n--)
            stack[n - 2] = fake_partial(&g->peers, stack[n - 2], stack[n - 1]);
    }
    return n == 1 ? stack[0] : NAN;
}

/* The own partition of a sum, to to: inside the hosts, then between them.  Elements of a group
 * count from begin on. */
static inline tutti_status fake_sum_own(fake_group *g, int which, size_t begin,
                                        const tti_chunk *partitions, float *to) {
    const fake_hosts *h = g->hosts;
    tti_peer_run runs[TTI_HOSTS_RANKS];
    int n_runs = tti_peer_hosts_runs(&h->of, partitions, runs);
    TTI_TRY(fake_barrier(g));
    for (int i = 0; i < n_runs; i++)
        for (int k = 0; k < h->of.n_leaves; k++) {
            const tti_leaf *leaf = &h->of.leaves[k];
            size_t n = runs[i].partition.n_elems, at = runs[i].at + (size_t)leaf->index * n;
            for (size_t e = 0; leaf->host == h->of.here && e < n; e++)
                h->staging[g->peers.rank][at + e] =
                    fake_leaf(g, which, leaf, runs[i].partition.first - begin + e);
        }
    TTI_TRY(fake_send_leaves(&g->peers, h, partitions));
    size_t n_mine = partitions[g->peers.rank].n_elems;
    for (size_t e = 0; e < n_mine; e++) to[e] = fake_over_leaves(&g->peers, h, n_mine, e);
    return fake_barrier(g);
}

/* Whole partitions to the agents of their owners, who put them where the sum is to be. */
static inline tutti_status fake_sum_hosts(fake_group *g, const tti_chunk *partitions) {
    const fake_hosts *h = g->hosts;
    float *mine = g->partials[g->peers.rank][0], *in[TTI_HOSTS_MESSAGES] = {NULL};
    fake_post post = {.n = 0};
    post.n = tti_peer_hosts_returns(&h->of, partitions, post.list);
    TTI_TRY(fake_sum_own(g, -1, 0, partitions, mine + partitions[g->peers.rank].first));
    for (int i = 0; i < post.n; i++)
        post.out[i] = in[i] = mine + partitions[post.list[i].owner].first;
    TTI_TRY(fake_send(&g->peers, &post, in));
    for (int o = 0; o < g->peers.n_ranks; o++) {
        int agent = tti_peer_agent(&h->of, h->of.here, o);
        if (g->peers.hosts[agent] != h->of.here) abort();
        memmove(mine + partitions[o].first, g->partials[agent][0] + partitions[o].first,
                partitions[o].n_elems * sizeof *mine);
    }
    return fake_barrier(g);
}

static inline tutti_status fake_sum(void *group, size_t first, size_t n_elems, bool overlapped) {
    fake_group *g = group;
    (void)overlapped;
    if (first % 4 || n_elems % 4 || n_elems > g->peers.n_most)
        return tti_fail(TUTTI_E_INTERNAL, "elements %zu and %zu more", first, n_elems);
    tti_chunk c = tti_chunk_of(n_elems, g->peers.rank, g->peers.n_ranks),
              partitions[FAKE_MAX_RANKS];
    for (int r = 0; r < g->peers.n_ranks; r++) {
        partitions[r] = tti_chunk_of(n_elems, r, g->peers.n_ranks);
        partitions[r].first += first;
    }
    if (g->hosts) return fake_sum_hosts(g, partitions);
    TTI_TRY(fake_barrier(g));
    for (size_t i = 0; i < c.n_elems; i += FAKE_BLOCK) {
        size_t at = first + c.first + i, n = TTI_MIN(c.n_elems - i, FAKE_BLOCK);
        float sum[FAKE_BLOCK];
        fake_sum_block(g, -1, at, n, sum);
        for (int r = 0; r < g->peers.n_ranks; r++)
            memcpy(g->partials[r][0] + at, sum, n * sizeof *sum);
    }
    return fake_barrier(g);
}

static inline tutti_status fake_sum_partitions(void *group, size_t which, bool overlapped) {
    fake_group *g = group;
    const size_t *partition =
        g->peers.bounds + which * ((size_t)g->peers.n_ranks + 1) + g->peers.rank;
    (void)overlapped;
    if (which >= g->peers.n_groups || partition[0] % 4 || partition[1] % 4)
        return tti_fail(TUTTI_E_INTERNAL, "partition %zu from %zu to %zu", which, partition[0],
                        partition[1]);
    const size_t *first = g->peers.bounds + which * ((size_t)g->peers.n_ranks + 1);
    const tti_device_partitions *sums = &g->peers.sums;
    size_t rank = (size_t)g->peers.rank, place = which * (size_t)g->peers.n_ranks + rank;
    float *to = g->partials[rank][0] + g->at[rank][which][0] + (partition[0] - *first);
    if (sums->data) to = sums->data + (sums->places ? sums->places[place] : partition[0]);
    tti_chunk partitions[FAKE_MAX_RANKS];
    for (int r = 0; r < g->peers.n_ranks; r++)
        partitions[r] = (tti_chunk){first[r], first[r + 1] - first[r]};
    if (g->hosts) return fake_sum_own(g, (int)which, *first, partitions, to);
    TTI_TRY(fake_barrier(g));
    for (size_t i = partition[0]; i < partition[1]; i += FAKE_BLOCK)
        fake_sum_block(g, (int)which, i - *first, TTI_MIN(partition[1] - i, FAKE_BLOCK),
                       to + (i - partition[0]));
    return fake_barrier(g);
}

/* Parts of a source [n_ranks], to one of each other host and from there to all. */
static inline tutti_status fake_fetch_hosts(fake_group *g, int source, const size_t *place,
                                            const tti_chunk *partitions, float *dst) {
    const fake_hosts *h = g->hosts;
    int me = g->peers.rank;
    float *in[TTI_HOSTS_MESSAGES] = {NULL};
    fake_post post = {.n = 0};
    post.n = tti_peer_hosts_returns(&h->of, partitions, post.list);
    for (int i = 0; i < post.n; i++) {
        post.out[i] = g->sources[me][source] + place[me];
        in[i] = h->staging[me] + post.list[i].at;
    }
    TTI_TRY(fake_send(&g->peers, &post, in));
    for (int o = 0; o < g->peers.n_ranks; o++) {
        bool near = h->of.host_of[o] == h->of.here;
        int agent = tti_peer_agent(&h->of, h->of.here, o);
        const float *from = near ? g->sources[o][source] + place[o]
                                 : h->staging[agent] + tti_peer_return_at(&h->of, o);
        memmove(dst + (partitions[o].first - partitions[0].first), from,
                partitions[o].n_elems * sizeof *dst);
    }
    return fake_barrier(g);
}

static inline tutti_status fake_fetch(void *group, size_t which, int source, float *dst,
                                      bool overlapped) {
    fake_group *g = group;
    size_t n = (size_t)g->peers.n_ranks;
    const size_t *partition = g->peers.bounds + which * (n + 1);
    (void)overlapped;
    if (which >= g->peers.n_groups || source >= g->peers.n_sources)
        return tti_fail(TUTTI_E_INTERNAL, "group %zu from source %d", which, source);
    const size_t *places = g->peers.sources[source].places;
    const size_t *place = places ? places + which * n : partition;
    tti_chunk partitions[FAKE_MAX_RANKS];
    for (size_t r = 0; r < n; r++)
        partitions[r] = (tti_chunk){partition[r], partition[r + 1] - partition[r]};
    if (g->hosts) return fake_fetch_hosts(g, source, place, partitions, dst);
    TTI_TRY(fake_barrier(g));
    for (size_t r = 0; r < n; r++)
        memmove(dst + (partition[r] - partition[0]), g->sources[r][source] + place[r],
                (partition[r + 1] - partition[r]) * sizeof *dst);
    return fake_barrier(g);
}

static inline tutti_status fake_fetch_pieces(void *group, const tti_device_piece *pieces, int n) {
    fake_group *g = group;
    TTI_TRY(fake_barrier(g));
    for (int i = 0; i < n; i++) {
        const tti_device_piece *p = &pieces[i];
        if (p->rank != g->peers.rank)
            memcpy(p->dst, g->sources[p->rank][p->source] + p->at, p->n_words * sizeof *p->dst);
    }
    return fake_barrier(g);
}

static inline tutti_status fake_all_gather(void *group, void *words, size_t n_words, size_t first,
                                           size_t last) {
    fake_group *g = group;
    uint32_t *mine = words, *all = calloc(n_words * (size_t)g->peers.n_ranks, sizeof *all);
    if (!all || n_words > g->peers.n_words) return tti_fail(TUTTI_E_INTERNAL, "%zu", n_words);
    for (size_t i = 0; i < n_words; i++)
        if (i < first || i >= last) mine[i] = 0;
    tutti_status st = fake_exchange(g, mine, all, n_words * sizeof *all);
    for (size_t i = 0; i < n_words; i++) mine[i] = 0;
    for (size_t i = 0; i < n_words * (size_t)g->peers.n_ranks; i++) mine[i % n_words] |= all[i];
    free(all);
    return st;
}

/* As backend.h says of the sums. */
static inline tutti_status fake_report_sums(const tti_device_step_sums *t) {
    int n = t->n_sums;
    double *hashes = t->sums + n * t->n_shards, *votes = hashes + 2 * t->n_ranks;
    for (int i = 0; i < n * t->n_shards; i++)
        if (i < n * t->first_shard || i >= n * t->last_shard) t->sums[i] = 0;
    memset(hashes, 0, 3 * (size_t)t->n_ranks * sizeof *hashes);
    hashes[2 * t->rank] = (double)(uint32_t)(t->report->params_hash >> 32);
    hashes[2 * t->rank + 1] = (double)(uint32_t)t->report->params_hash;
    votes[t->rank] = t->args->vote;
    t->report->reported_ns = t->n_ranks > 1 ? (uint64_t)tti_now_ns() : 0;
    return TUTTI_OK;
}

#endif /* TTI_TESTS_EXEC_FAKE_PEERS_H */
