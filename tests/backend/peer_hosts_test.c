/* peer_hosts_test.c - lists of what ranks of several hosts add and send: what one sends another one
 * expects, nothing lies on something else, and the order of the sum is kept. */
#include "backend/peer_hosts.h"

#include <string.h>

#include "t.h"

enum { MAX = TTI_HOSTS_RANKS, LONGEST = 40 };

/* The terms of n ranks in the order of a tree over them, one each. */
static int list_terms(int n, tti_device_term *terms) {
    int height = 0;
    for (int r = 0; r < n; r++) {
        int n_adds = __builtin_ctz((unsigned)r + 1);
        terms[r] = (tti_device_term){r, 0, n_adds};
        height += 1 - n_adds;
    }
    terms[n - 1].n_adds += height - 1;
    return n;
}

static bool make(int rank, int n_ranks, const int *hosts, tti_peer_hosts *h) {
    tti_device_term terms[MAX + 1];
    tti_device_peers peers = {.rank = rank, .n_ranks = n_ranks, .hosts = hosts, .terms = terms};
    peers.n_terms = list_terms(n_ranks, terms);
    return tti_peer_hosts_make(&peers, LONGEST, h);
}

T_CASE(hosts_of_one_rank_each_have_no_inside) {
    T_UNUSED;
    static const int one[] = {0, 0, 0}, each[] = {0, 1, 2}, some[] = {0, 1, 1}, many[MAX + 1] = {1};
    tti_peer_hosts h;
    T_EQ(make(0, 3, NULL, &h), false);
    T_EQ(make(0, 3, one, &h), false);
    T_EQ(make(0, 3, each, &h), false);
    T_EQ(make(0, MAX + 1, many, &h), false);
    T_EQ(make(0, 3, some, &h), true);
}

T_CASE(leaves_are_the_largest_trees_of_a_host) {
    T_UNUSED;
    static const int whole[] = {0, 0, 0, 0, 1, 1, 1, 1}, turns[] = {0, 1, 0, 1};
    static const int odd[] = {0, 1, 1, 1, 1, 1, 1, 1};
    tti_peer_hosts h;
    T_EQ(make(5, 8, whole, &h), true);
    T_EQ(h.n_leaves, 2);
    T_EQ(h.leaves[1].first, 4);
    T_EQ(h.leaves[1].n_terms, 4);
    T_EQ(h.leaves[1].host, 1);
    T_EQ(h.leaves[1].n_adds, 1);
    T_EQ(h.n_adds[7], 2);
    T_EQ(make(0, 4, turns, &h), true);
    T_EQ(h.n_leaves, 4);
    T_EQ(h.leaves[2].index, 1);
    T_EQ(make(0, 8, odd, &h), true);
    T_EQ(h.n_leaves, 4); /* 0, 1, 2 to 3, 4 to 7 */
    T_EQ(h.leaves_of[1], 3);
}

/* ---- what ranks do together ---- */

typedef struct job {
    int n_ranks, hosts[MAX];
    size_t n_elems[MAX]; /* of partitions */
} job;

static const job jobs[] = {
    {4, {0, 0, 1, 1}, {8, 8, 8, 4}},
    {4, {0, 1, 1, 1}, {0, 40, 4, 8}},
    {8, {0, 0, 1, 1, 2, 2, 3, 3}, {4, 0, 4, 40, 0, 4, 4, 4}},
    {7, {0, 1, 1, 2, 2, 0, 1}, {4, 8, 12, 16, 20, 24, 28}},
    {16, {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0}, {40, 40, 40}},
};

static void partitions_of(const job *j, tti_chunk *partitions) {
    size_t at = 12;
    for (int r = 0; r < j->n_ranks; r++, at += j->n_elems[r - 1])
        partitions[r] = (tti_chunk){at, j->n_elems[r]};
}

/* Each message has one at the other end, as long and of the same partition; there is one in a
 * direction.
 */
static void match(const job *j, int (*list)(const tti_peer_hosts *h, const tti_chunk *partitions,
                                            tti_peer_message *messages)) {
    tti_peer_message said[MAX][TTI_HOSTS_MESSAGES];
    tti_chunk partitions[MAX];
    tti_peer_hosts h;
    int n[MAX];
    partitions_of(j, partitions);
    for (int r = 0; r < j->n_ranks; r++) {
        T_EQ(make(r, j->n_ranks, j->hosts, &h), true);
        n[r] = list(&h, partitions, said[r]);
        assert_true(n[r] <= TTI_HOSTS_MESSAGES);
    }
    for (int r = 0; r < j->n_ranks; r++)
        for (int i = 0; i < n[r]; i++) {
            const tti_peer_message *m = &said[r][i];
            int n_found = 0;
            assert_true(j->hosts[m->peer] != j->hosts[r]);
            assert_true(m->n_elems > 0);
            for (int k = 0; k < n[m->peer]; k++) {
                const tti_peer_message *other = &said[m->peer][k];
                if (other->peer != r || other->sends == m->sends) continue;
                T_EQ(other->owner, m->owner);
                T_EQ(other->n_elems, m->n_elems);
                n_found++;
            }
            T_EQ(n_found, 1);
        }
}

T_CASE(what_is_sent_is_expected) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(jobs); i++) {
        match(&jobs[i], tti_peer_hosts_leaves);
        match(&jobs[i], tti_peer_hosts_returns);
    }
}

/* Marks elements at .. of staging, which nothing else has taken. */
static void take(char *staging, size_t n_staging, size_t at, size_t n_elems) {
    T_EQ(at % 4, 0);
    assert_true(at + n_elems <= n_staging);
    for (size_t i = at; i < at + n_elems; i++) {
        T_EQ(staging[i], 0);
        staging[i] = 1;
    }
}

/* The chunks that the rank adds, and those that it receives. */
static void take_leaves(const tti_peer_hosts *h, const tti_chunk *partitions, char *staging) {
    tti_peer_run runs[MAX];
    tti_peer_message list[TTI_HOSTS_MESSAGES];
    size_t n_staging = tti_peer_hosts_staging(h), n_mine = partitions[h->rank].n_elems, n_own = 0;
    int n_runs = tti_peer_hosts_runs(h, partitions, runs);
    for (int i = 0; i < n_runs; i++)
        take(staging, n_staging, runs[i].at,
             runs[i].partition.n_elems * (size_t)h->leaves_of[h->here]);
    for (int i = 0, n = tti_peer_hosts_leaves(h, partitions, list); i < n; i++)
        if (!list[i].sends) take(staging, n_staging, list[i].at, list[i].n_elems);
    for (int k = 0; k < h->n_leaves && n_mine > 0; k++) { /* the sum reads what is there */
        size_t at = tti_peer_leaf_at(h, k, n_mine);
        for (size_t e = at; e < at + n_mine; e++, n_own++) T_EQ(staging[e], 1);
    }
    T_EQ(n_own, n_mine * (size_t)h->n_leaves);
}

static void take_returns(const tti_peer_hosts *h, const tti_chunk *partitions, char *staging) {
    tti_peer_message list[TTI_HOSTS_MESSAGES];
    for (int i = 0, n = tti_peer_hosts_returns(h, partitions, list); i < n; i++) {
        if (list[i].sends) continue;
        T_EQ(list[i].at, tti_peer_return_at(h, list[i].owner));
        T_EQ(tti_peer_agent(h, h->here, list[i].owner), h->rank);
        take(staging, tti_peer_hosts_staging(h), list[i].at, list[i].n_elems);
    }
}

T_CASE(nothing_lies_on_something_else) {
    T_UNUSED;
    static char staging[64 * MAX * LONGEST];
    for (size_t i = 0; i < TTI_COUNT(jobs); i++)
        for (int r = 0; r < jobs[i].n_ranks; r++) {
            tti_chunk partitions[MAX];
            tti_peer_hosts h;
            partitions_of(&jobs[i], partitions);
            T_EQ(make(r, jobs[i].n_ranks, jobs[i].hosts, &h), true);
            assert_true(tti_peer_hosts_staging(&h) <= sizeof staging);
            memset(staging, 0, sizeof staging);
            take_leaves(&h, partitions, staging);
            memset(staging, 0, sizeof staging);
            take_returns(&h, partitions, staging);
        }
}

/* Each host has one rank for every partition, the owner on its own host; equal hosts divide the
 * work evenly. */
T_CASE(agents_are_of_their_host) {
    T_UNUSED;
    static const int hosts[] = {0, 0, 1, 1, 2, 2};
    tti_peer_hosts h;
    int n_partitions[6] = {0};
    T_EQ(make(0, 6, hosts, &h), true);
    for (int owner = 0; owner < 6; owner++)
        for (int host = 0; host < 3; host++) {
            int agent = tti_peer_agent(&h, host, owner);
            T_EQ(hosts[agent], host);
            if (hosts[owner] == host) T_EQ(agent, owner);
            n_partitions[agent]++;
        }
    for (int r = 0; r < 6; r++) T_EQ(n_partitions[r], 3);
    T_EQ(tti_peer_near_index(&h, 3), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_of_one_rank_each_have_no_inside),
        cmocka_unit_test(leaves_are_the_largest_trees_of_a_host),
        cmocka_unit_test(what_is_sent_is_expected),
        cmocka_unit_test(nothing_lies_on_something_else),
        cmocka_unit_test(agents_are_of_their_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
