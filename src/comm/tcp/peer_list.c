/* peer_list.c - the list of ranks to which a link has a connection or a message.
 *
 * The list is sorted by rank, so that every rank checks for failures in the same order.  Memory and
 * loops grow with the number of peers, not with the ranks of the job. */
#include <stdlib.h>

#include "comm/tcp/tcp.h"

/* The number of peers with a lower rank. */
static int place_of(const tcp_state *s, int rank) {
    int first = 0, last = s->n_peers;
    while (first < last) {
        int middle = (first + last) / 2;
        if (s->peers[middle]->rank < rank)
            first = middle + 1;
        else
            last = middle;
    }
    return first;
}

tcp_peer *tti_tcp_peer(const tcp_state *s, int rank) {
    int i = place_of(s, rank);
    return i < s->n_peers && s->peers[i]->rank == rank ? s->peers[i] : NULL;
}

int tti_tcp_fd(const tcp_state *s, int rank) {
    const tcp_peer *p = tti_tcp_peer(s, rank);
    return p ? p->fd : -1;
}

/* Makes room for one more peer.  The poll array has one extra entry, for wake_fd. */
static bool widen(tcp_state *s) {
    if (s->n_peers < s->cap_peers) return true;
    size_t n = s->cap_peers ? 2 * (size_t)s->cap_peers : 8;
    tcp_peer **peers = realloc(s->peers, n * sizeof *peers);
    if (peers) s->peers = peers;
    tcp_peer **polled = realloc(s->polled, n * sizeof *polled);
    if (polled) s->polled = polled;
    struct pollfd *polls = realloc(s->polls, (n + 1) * sizeof *polls);
    if (polls) s->polls = polls;
    if (!peers || !polled || !polls) return false;
    s->cap_peers = (int)n;
    return true;
}

tcp_peer *tti_tcp_add_peer(tcp_state *s, int rank) {
    tcp_peer *p = tti_tcp_peer(s, rank);
    if (p) return p;
    p = widen(s) ? calloc(1, sizeof *p) : NULL;
    if (!p) {
        (void)tti_fail(TUTTI_E_NOMEM, "comm: out of memory for a connection");
        return NULL;
    }
    p->rank = rank;
    p->fd = -1;
    int at = place_of(s, rank);
    for (int i = s->n_peers++; i > at; i--) s->peers[i] = s->peers[i - 1];
    s->peers[at] = p;
    return p;
}

void tti_tcp_free_peers(tcp_state *s) {
    for (int i = 0; i < s->n_peers; i++) free(s->peers[i]);
    free(s->peers);
    free(s->polls);
    free(s->polled);
}
