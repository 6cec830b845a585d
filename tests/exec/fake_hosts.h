/* fake_hosts.h - sums between devices of several hosts as backend/peer_hosts.h lists them, of
 * devices that are the host: what would cross is counted, and nothing else reads another host. */
#ifndef TTI_TESTS_EXEC_FAKE_HOSTS_H
#define TTI_TESTS_EXEC_FAKE_HOSTS_H

#include <stdatomic.h>

#include "backend/peer_hosts.h"
#include "base/dtype.h"

/* Elements that all ranks have sent to other hosts. */
static _Atomic size_t fake_n_crossed;

/* What a rank shows the others to let messages through. */
typedef struct fake_post {
    tti_peer_message list[TTI_HOSTS_MESSAGES];
    const float *out[TTI_HOSTS_MESSAGES];
    int n;
} fake_post;

typedef struct fake_hosts {
    tti_peer_hosts of;
    float *staging[TTI_HOSTS_RANKS]; /* of all ranks; its own is owned */
} fake_hosts;

/* *out NULL: there is one host, or a rank has its host for itself. */
static inline tutti_status fake_hosts_create(const tti_device_peers *p, fake_hosts **out) {
    size_t longest = tti_chunk_of(p->n_most, 0, p->n_ranks).n_elems;
    fake_hosts *h = calloc(1, sizeof *h);
    *out = NULL;
    for (size_t i = 0; i < p->n_groups; i++)
        for (size_t *b = (size_t *)p->bounds + i * ((size_t)p->n_ranks + 1), r = 0;
             r < (size_t)p->n_ranks; r++)
            longest = TTI_MAX(longest, b[r + 1] - b[r]);
    if (!h || !tti_peer_hosts_make(p, longest, &h->of)) {
        free(h);
        return TUTTI_OK;
    }
    float *mine = calloc(tti_peer_hosts_staging(&h->of), sizeof *mine);
    h->staging[p->rank] = mine;
    *out = h;
    if (!mine) return tti_fail(TUTTI_E_NOMEM, "out of memory");
    return p->all_gather(p->user, &mine, h->staging, sizeof mine);
}

static inline void fake_hosts_destroy(fake_hosts *h) {
    if (h) free(h->staging[h->of.rank]);
    free(h);
}

/* in, out: of each message, where it goes or comes from. */
static inline tutti_status fake_send(const tti_device_peers *p, const fake_post *mine,
                                     float *const *in) {
    fake_post *all = calloc((size_t)p->n_ranks, sizeof *all);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "out of memory");
    tutti_status st = p->all_gather(p->user, mine, all, sizeof *mine);
    for (int i = 0; st == TUTTI_OK && i < mine->n; i++) {
        const tti_peer_message *m = &mine->list[i];
        if (p->hosts[m->peer] == p->hosts[p->rank]) abort();
        if (m->sends) fake_n_crossed += m->n_elems;
        bool came = m->sends;
        const fake_post *theirs = &all[m->peer];
        for (int k = 0; !m->sends && k < theirs->n; k++) {
            const tti_peer_message *sent = &theirs->list[k];
            if (!sent->sends || sent->peer != p->rank) continue;
            if (came || sent->owner != m->owner || sent->n_elems != m->n_elems) abort();
            memcpy(in[i], theirs->out[k], m->n_elems * sizeof(float));
            came = true;
        }
        if (!came) abort();
    }
    free(all);
    char here = 1, there[TTI_HOSTS_RANKS]; /* nobody changes what others still read */
    return st == TUTTI_OK ? p->all_gather(p->user, &here, there, 1) : st;
}

/* Leaves between the stagings. */
static inline tutti_status fake_send_leaves(const tti_device_peers *p, const fake_hosts *h,
                                            const tti_chunk *partitions) {
    fake_post post = {.n = 0};
    float *in[TTI_HOSTS_MESSAGES] = {NULL}, *mine = h->staging[p->rank];
    post.n = tti_peer_hosts_leaves(&h->of, partitions, post.list);
    for (int i = 0; i < post.n; i++) post.out[i] = in[i] = mine + post.list[i].at;
    return fake_send(p, &post, in);
}

/* A sum of two as it travels in exact mode; in fast mode only the last one is rounded. */
static inline float fake_partial(const tti_device_peers *p, float a, float b) {
    bool rounds = !p->fast && p->wire == TUTTI_BF16;
    return rounds ? tti_bf16_to_f32(tti_f32_to_bf16(a + b)) : a + b;
}

/* A sum of leaves over the own partition: element i of it. */
static inline float fake_over_leaves(const tti_device_peers *p, const fake_hosts *h, size_t n_elems,
                                     size_t i) {
    float stack[32];
    int n = 0;
    for (int k = 0; k < h->of.n_leaves; k++) {
        stack[n++] = h->staging[h->of.rank][tti_peer_leaf_at(&h->of, k, n_elems) + i];
        for (int a = h->of.leaves[k].n_adds; a > 0; a--, n--)
            stack[n - 2] = fake_partial(p, stack[n - 2], stack[n - 1]);
    }
    return n == 1 ? stack[0] : NAN;
}

#endif /* TTI_TESTS_EXEC_FAKE_HOSTS_H */
