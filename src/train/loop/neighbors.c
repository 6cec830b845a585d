/* neighbors.c - plans the transfers of partitions between hosts, and finds the hosts that have a
 * partition.
 *
 * Sends block, so all ranks process one list of transfers in the same order.  Transfers from every
 * second host come first, so that hosts do not wait for each other in a chain. */
#include "train/loop/neighbors.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/partitions.h"
#include "train/loop/carry.h"

/* A partition of all arrays. */
typedef struct partition {
    int part; /* part of the model */
    tti_range *ranges;
    int n_ranges;
    size_t n_elems; /* elements in all arrays together */
} partition;

typedef struct transfer {
    int from, to;
    int slot; /* slot of the partition in the mirror */
    partition part;
} transfer;

struct tti_neighbors {
    tti_mirror *mirror;
    transfer *list; /* [n], owned: transfers of this rank: at most one sent, any number received */
    int n;
    float *buffer; /* has room for the largest transfer */
};

/* ---- partitions ---- */

/* Finds partition number `at` of n, numbered as in tti_mirror_stamp. */
static tutti_status find_partition(const tti_exec *exec, const tti_mirror *mirror, int at, int n,
                                   partition *out) {
    int n_parts = tti_mirror_n_parts(mirror);
    *out = (partition){.part = at % n_parts};
    TTI_TRY(tti_exec_find_partition(exec, tti_mirror_plan(mirror, out->part), at / n_parts,
                                    n / n_parts, &out->ranges, &out->n_ranges));
    for (int i = 0; i < out->n_ranges; i++)
        out->n_elems += out->ranges[i].last - out->ranges[i].first;
    out->n_elems *= (size_t)tti_mirror_n_arrays(mirror);
    return TUTTI_OK;
}

/* Copies a partition from the mirror to packed, or back. */
static void copy_partition(const tti_mirror *mirror, int64_t step, const partition *part,
                           float *packed, bool to_mirror) {
    for (int i = 0; i < tti_mirror_n_arrays(mirror); i++) {
        float *array = tti_mirror_array(mirror, step, part->part, i);
        for (int k = 0; k < part->n_ranges; k++) {
            float *at = array + part->ranges[k].first;
            size_t n = part->ranges[k].last - part->ranges[k].first;
            memcpy(to_mirror ? at : packed, to_mirror ? packed : at, n * sizeof *at);
            packed += n;
        }
    }
}

static tutti_status make_buffer(size_t n_elems, float **out) {
    *out = malloc(n_elems * sizeof **out + 64);
    return *out ? TUTTI_OK
                : tti_fail(TUTTI_E_NOMEM, "train: out of memory for the partition of a worker");
}

/* ---- transfers ---- */

/* The hosts of an epoch, by their first ranks. */
typedef struct host_list {
    int n_ranks, n_hosts;
    int *host_of; /* [n_ranks], owned */
    int *first;   /* [n_hosts + 1], owned: first rank of each host, then n_ranks */
} host_list;

static void list_hosts_free(host_list *hosts) {
    free(hosts->host_of);
    free(hosts->first);
}

static tutti_status list_hosts(int host_first, tutti_comm *comm, host_list *out) {
    uint64_t *all;
    size_t n = (size_t)tutti_comm_n_ranks(comm);
    *out = (host_list){.n_ranks = (int)n};
    TTI_TRY(tti_comm_gather_words(comm, (uint64_t)host_first, &all));
    out->host_of = calloc(n, sizeof *out->host_of);
    out->first = calloc(n + 1, sizeof *out->first);
    bool ok = out->host_of && out->first;
    for (int r = 0; ok && r < out->n_ranks; r++) {
        if (all[r] == (uint64_t)r) out->first[out->n_hosts++] = r;
        out->host_of[r] = out->n_hosts - 1;
    }
    free(all);
    if (!ok) return tti_fail(TUTTI_E_NOMEM, "train: out of memory for hosts of %zu workers", n);
    out->first[out->n_hosts] = out->n_ranks;
    return TUTTI_OK;
}

static int receiver_of(const host_list *hosts, int rank) {
    int host = hosts->host_of[rank], next = (host + 1) % hosts->n_hosts;
    int n_next = hosts->first[next + 1] - hosts->first[next];
    return hosts->first[next] + (rank - hosts->first[host]) % n_next;
}

/* Returns the round in which a host sends: hosts 0, 2, 4, ... in the first round, 1, 3, 5, ... in
 * the second.  With an odd number of hosts the last one has its own round, because it sends to host
 * 0, which sends in the first. */
static int turn_of(const host_list *hosts, int rank) {
    int host = hosts->host_of[rank];
    return host == hosts->n_hosts - 1 && hosts->n_hosts % 2 ? 2 : host % 2;
}

/* True if the rank sends.  Without ZeRO the first rank of a host with a part sends it, if no rank
 * of the next host has the part. */
static bool sends(const tti_mirror *mirror, const host_list *hosts, int rank) {
    int n_parts = tti_mirror_n_parts(mirror), host = hosts->host_of[rank];
    int next = (host + 1) % hosts->n_hosts;
    if (tti_mirror_divides_parts(mirror)) return true;
    if (!tti_mirror_copies(mirror, rank, hosts->first[host])) return false;
    for (int r = hosts->first[next]; r < hosts->first[next + 1]; r++)
        if (r % n_parts == rank % n_parts) return false;
    return true;
}

static tutti_status add_transfer(tti_neighbors *n, const host_list *hosts, const tti_exec *exec,
                                 int from, int to) {
    transfer *t = &n->list[n->n++];
    *t = (transfer){.from = from, .to = to, .slot = tti_mirror_slot_of(n->mirror, from)};
    int n_slots = tti_mirror_count_slots(n->mirror, hosts->n_ranks);
    return find_partition(exec, n->mirror, t->slot, n_slots, &t->part);
}

static tutti_status add_transfers(tti_neighbors *n, const host_list *hosts, const tti_exec *exec,
                                  int rank) {
    size_t n_most = 0;
    n->list = calloc((size_t)hosts->n_ranks + 1, sizeof *n->list);
    if (!n->list) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    for (int turn = 0; turn < 3; turn++)
        for (int from = 0; from < hosts->n_ranks; from++) {
            int to = receiver_of(hosts, from);
            if (turn_of(hosts, from) != turn || (from != rank && to != rank)) continue;
            if (!sends(n->mirror, hosts, from)) continue;
            TTI_TRY(add_transfer(n, hosts, exec, from, to));
            n_most = TTI_MAX(n_most, n->list[n->n - 1].part.n_elems);
        }
    return make_buffer(n_most, &n->buffer);
}

tutti_status tti_neighbors_create(int host_first, tutti_comm *comm, tti_exec *exec,
                                  tti_mirror *mirror, tti_neighbors **out) {
    host_list hosts;
    tti_neighbors *n = NULL;
    *out = NULL;
    tutti_status st = list_hosts(host_first, comm, &hosts);
    if (st == TUTTI_OK && hosts.n_hosts > 1) {
        n = calloc(1, sizeof *n);
        st = n ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    }
    if (n) {
        n->mirror = mirror;
        st = add_transfers(n, &hosts, exec, tutti_comm_rank(comm));
    }
    list_hosts_free(&hosts);
    if (st == TUTTI_OK)
        *out = n;
    else
        tti_neighbors_destroy(n);
    return st;
}

void tti_neighbors_destroy(tti_neighbors *n) {
    if (!n) return;
    for (int i = 0; i < n->n; i++) free(n->list[i].part.ranges);
    free(n->list);
    free(n->buffer);
    free(n);
}

tutti_status tti_neighbors_put(tti_neighbors *n, tutti_comm *comm, const tti_mirror_stamp *now) {
    int64_t step = now->step1 - 1;
    for (int i = 0; n && i < n->n; i++) {
        const transfer *t = &n->list[i];
        if (t->from == tutti_comm_rank(comm)) {
            copy_partition(n->mirror, step, &t->part, n->buffer, false);
            TTI_TRY(tutti_comm_send(comm, n->buffer, t->part.n_elems, TUTTI_F32, t->to));
            continue;
        }
        tti_mirror_begin(n->mirror, step, t->slot);
        TTI_TRY(tutti_comm_recv(comm, n->buffer, t->part.n_elems, TUTTI_F32, t->from));
        copy_partition(n->mirror, step, &t->part, n->buffer, true);
        tti_mirror_end(n->mirror, t->slot, now);
    }
    return TUTTI_OK;
}

/* ---- after a change ---- */

/* The stamps in the mirrors of the hosts of all ranks. */
typedef struct stamps {
    int n_ranks;
    int n_slots;          /* stamps per version: those of the largest mirror */
    tti_mirror_stamp *of; /* [n_ranks][TTI_MIRROR_VERSIONS][n_slots], owned */
} stamps;

static const tti_mirror_stamp *stamp_of(const stamps *all, int rank, int64_t version, int slot) {
    size_t row = (size_t)rank * TTI_MIRROR_VERSIONS + (size_t)version;
    return &all->of[row * (size_t)all->n_slots + (size_t)slot];
}

static bool is_same(const tti_mirror_stamp *a, const tti_mirror_stamp *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

/* The first rank whose host has partition r; -1: none. */
static int find_source(const stamps *all, const tti_mirror_stamp *wanted, int r) {
    int64_t version = (wanted->step1 - 1) % TTI_MIRROR_VERSIONS;
    for (int q = 0; q < all->n_ranks; q++)
        if (is_same(stamp_of(all, q, version, r), wanted)) return q;
    return -1;
}

/* True if every partition of the wanted step is on some host.  A stamp with step1 0 belongs to a
 * partition that was being written. */
static bool is_complete(const stamps *all, const tti_mirror_stamp *wanted) {
    if (wanted->step1 <= 0 || wanted->n > all->n_slots) return false;
    for (int r = 0; r < (int)wanted->n; r++)
        if (find_source(all, wanted, r) < 0) return false;
    return true;
}

static bool is_newer(const tti_mirror_stamp *a, const tti_mirror_stamp *b) {
    return a->epoch != b->epoch ? a->epoch > b->epoch : a->step1 > b->step1;
}

/* Returns the newest complete step; step1 0: there is none. */
static tti_mirror_stamp choose(const stamps *all) {
    tti_mirror_stamp best = {0};
    for (int q = 0; q < all->n_ranks; q++)
        for (int i = 0; i < TTI_MIRROR_VERSIONS; i++) {
            const tti_mirror_stamp *at = stamp_of(all, q, i, 0);
            if (is_newer(at, &best) && is_complete(all, at)) best = *at;
        }
    return best;
}

static tutti_status gather_stamps(const tti_mirror *mirror, tutti_comm *comm, stamps *all) {
    int32_t n_slots = tti_mirror_n_slots(mirror);
    TTI_TRY(
        tutti_comm_all_reduce(comm, &n_slots, &n_slots, 1, TUTTI_I32, TUTTI_MAX, TUTTI_ALG_AUTO));
    size_t n_mine = (size_t)TTI_MIRROR_VERSIONS * (size_t)n_slots;
    *all = (stamps){.n_ranks = tutti_comm_n_ranks(comm), .n_slots = n_slots};
    all->of = calloc((size_t)all->n_ranks * n_mine, sizeof *all->of);
    if (!all->of) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    tti_mirror_stamp *mine = all->of + (size_t)tutti_comm_rank(comm) * n_mine;
    for (int i = 0; i < TTI_MIRROR_VERSIONS; i++)
        for (int r = 0; r < n_slots; r++)
            mine[i * n_slots + r] = tti_mirror_get_stamp(mirror, i, r);
    return tutti_comm_all_gather(comm, mine, all->of, n_mine * sizeof *mine / sizeof(int64_t),
                                 TUTTI_I64);
}

/* Shares the position of the host that has recorded most actions after the step. */
static tutti_status share_position(const tti_mirror *mirror, tutti_comm *comm, int64_t step,
                                   tti_carry_position *position) {
    *position = tti_mirror_get_position(mirror, step);
    uint64_t *all;
    int source = 0;
    TTI_TRY(tti_comm_gather_words(comm, (uint64_t)tti_carry_order(position), &all));
    for (int r = 1; r < tutti_comm_n_ranks(comm); r++)
        if ((int64_t)all[r] > (int64_t)all[source]) source = r;
    free(all);
    return tutti_comm_broadcast(comm, position, sizeof *position / sizeof(int64_t), TUTTI_I64,
                                source);
}

/* Sends a partition from a host that has it to those that do not. */
static tutti_status share_partition(const tti_carry *carry, tutti_comm *comm, const partition *part,
                                    int source, const tti_mirror_stamp *wanted, const stamps *all,
                                    int r) {
    int64_t step = wanted->step1 - 1;
    int rank = tutti_comm_rank(comm), version = (int)(step % TTI_MIRROR_VERSIONS);
    bool has = is_same(stamp_of(all, rank, version, r), wanted);
    float *buffer;
    TTI_TRY(make_buffer(part->n_elems, &buffer));
    if (rank == source) copy_partition(carry->mirror, step, part, buffer, false);
    tutti_status st = tutti_comm_broadcast(comm, buffer, part->n_elems, TUTTI_F32, source);
    if (st == TUTTI_OK && !has && rank == carry->host_first) {
        tti_mirror_begin(carry->mirror, step, r);
        copy_partition(carry->mirror, step, part, buffer, true);
        tti_mirror_end(carry->mirror, r, wanted);
    }
    free(buffer);
    return st;
}

static bool all_have(const stamps *all, const tti_mirror_stamp *wanted, int r) {
    int64_t version = (wanted->step1 - 1) % TTI_MIRROR_VERSIONS;
    for (int q = 0; q < all->n_ranks; q++)
        if (!is_same(stamp_of(all, q, version, r), wanted)) return false;
    return true;
}

static tutti_status share_partitions(const tti_carry *carry, tutti_comm *comm, tti_exec *exec,
                                     const tti_mirror_stamp *wanted, const stamps *all) {
    for (int r = 0; r < (int)wanted->n; r++) {
        partition part;
        if (all_have(all, wanted, r)) continue;
        TTI_TRY(find_partition(exec, carry->mirror, r, (int)wanted->n, &part));
        tutti_status st =
            share_partition(carry, comm, &part, find_source(all, wanted, r), wanted, all, r);
        free(part.ranges);
        TTI_TRY(st);
    }
    return TUTTI_OK;
}

tutti_status tti_neighbors_collect(const tti_carry *carry, tutti_comm *comm, tti_exec *exec,
                                   int64_t *step, tti_carry_position *position) {
    stamps all = {0};
    tutti_status st = gather_stamps(carry->mirror, comm, &all);
    const tti_mirror_stamp wanted = st == TUTTI_OK ? choose(&all) : (tti_mirror_stamp){0};
    *step = wanted.step1 - 1;
    if (st == TUTTI_OK && *step >= 0) {
        st = share_partitions(carry, comm, exec, &wanted, &all);
        if (st == TUTTI_OK) st = share_position(carry->mirror, comm, *step, position);
        if (st == TUTTI_OK) st = tutti_comm_barrier(comm); /* all mirrors are complete */
    }
    free(all.of);
    return st;
}
