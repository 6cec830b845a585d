/* device_peers.h - devices of one process that read each other's memory: the sums of fake_peers.h
 * as commands of device_module.c, which includes this. */
#ifndef TTI_TESTS_DEVICE_PEERS_H
#define TTI_TESTS_DEVICE_PEERS_H

#include <stdio.h>
#include <unistd.h>

#include "exec/fake_norm.h"
#include "exec/fake_p2p.h"
#include "exec/fake_peers.h"
#include "exec/fake_tp.h"

/* A device that finds an error is lost.  If a peer is lost it goes on, with sums that are not
 * valid, and says so to the host. */
static void note(tutti_status status) {
    if (status == TUTTI_OK) return;
    if (status != TUTTI_E_PEER) {
        current->lost = true;
        return;
    }
    if (!current->failure)
        snprintf(current->heard, sizeof current->heard, "%s", tutti_last_error());
    current->failure = 1;
}

static const uint32_t *peers_failure(const void *group) {
    (void)group;
    return &current->failure;
}

/* No two may share a device, and all must be of one process. */
static tutti_status look_for_peers(const tti_device_peers *peers) {
    struct place {
        int64_t process;
        int32_t index, peers;
    } mine = {getpid(), current->index, option("peers=", 0) != 0}, all[FAKE_MAX_RANKS];
    TTI_ASSERT(peers->n_ranks <= FAKE_MAX_RANKS);
    if (peers->n_slots > 0 && option("p2p=", 1) == 0)
        return tti_fail(TUTTI_E_UNSUPPORTED, "test devices send nothing");
    TTI_TRY(peers->all_gather(peers->user, &mine, all, sizeof mine));
    for (int a = 0; a < peers->n_ranks; a++) {
        bool alone = !all[a].peers || all[a].process != all[0].process;
        for (int b = 0; b < a; b++) alone = alone || all[a].index == all[b].index;
        if (alone)
            return tti_fail(TUTTI_E_UNSUPPORTED, "test devices %d and others do not see each other",
                            all[a].index);
    }
    return TUTTI_OK;
}

/* As the communicator says, or as the environment does. */
static const int *hosts_of(const tti_device_peers *peers) {
    const char *text = getenv("TUTTI_TEST_DEVICE"), *at = text ? strstr(text, "hosts=") : NULL;
    for (int r = 0; at && r < peers->n_ranks; r++)
        current->hosts[r] = at[(int)strlen("hosts=") + r] - '0';
    return at ? current->hosts : peers->hosts;
}

static tutti_status peers_connect(const tti_device_peers *peers, void **group) {
    tti_device_peers given = *peers;
    given.hosts = peers->hosts ? hosts_of(peers) : NULL;
    TTI_TRY(look_for_peers(peers));
    TTI_TRY(fake_connect(&given, group));
    return peers->n_slots > 0 ? fake_open_box(*group) : TUTTI_OK;
}

static void peers_describe(const void *group, tti_str *str) {
    fake_describe(group, str);
    if (((const fake_group *)group)->peers.algorithm == TTI_DEVICE_LIBRARY)
        tti_str_printf(str, " %d", (int)option("library=", 1));
}

static bool peers_are_linked(const void *group) {
    (void)group;
    return option("linked=", 0) != 0;
}

static void describe_library(tti_str *str) { tti_str_add(str, "a library of tests 1.2"); }

/* As clock=1 says. */
static int64_t sum_ns(const tti_device_peers *p, size_t n_elems) {
    int64_t n_bytes = (int64_t)(n_elems * sizeof(float));
    if (p->algorithm != TTI_DEVICE_LIBRARY) return 1000 + n_bytes;
    return n_bytes / 2 + (p->fast ? 11000 : 111000);
}

static void run_sum(command *c) {
    current->clock_ns += sum_ns(&((fake_group *)c->state)->peers, c->n);
    note(fake_sum(c->state, c->first, c->n, false));
}

static tutti_status peers_sum(void *group, size_t first, size_t n_elems, bool overlapped) {
    (void)overlapped;
    return put(&(command){
        .run = run_sum, .queue = TTI_QUEUE_COMM, .state = group, .first = first, .n = n_elems});
}

static void run_sum_partitions(command *c) { note(fake_sum_partitions(c->state, c->n, false)); }

static tutti_status peers_sum_parts(void *group, size_t which, bool overlapped) {
    (void)overlapped;
    return put(
        &(command){.run = run_sum_partitions, .queue = TTI_QUEUE_COMM, .state = group, .n = which});
}

/* Another bit in the last element of the part of rank 0, where there is one. */
static void spoil(const fake_group *g, size_t which, float *dst) {
    const size_t *part = g->peers.bounds + which * ((size_t)g->peers.n_ranks + 1);
    uint32_t bits;
    bool counts = current->index == 1 && part[1] > part[0];
    if (!counts || ++current->n_fetched != option("spoils=", 0)) return;
    memcpy(&bits, dst + (part[1] - part[0]) - 1, sizeof bits);
    bits ^= 1;
    memcpy(dst + (part[1] - part[0]) - 1, &bits, sizeof bits);
}

static void run_fetch(command *c) {
    note(fake_fetch(c->state, c->n, (int)c->first, c->dst, false));
    spoil(c->state, c->n, c->dst);
}

static tutti_status peers_fetch(void *group, size_t which, int source, float *dst,
                                bool overlapped) {
    (void)overlapped;
    return put(&(command){.run = run_fetch,
                          .queue = TTI_QUEUE_COMM,
                          .state = group,
                          .dst = dst,
                          .n = which,
                          .first = (size_t)source});
}

static bool peers_gathers_pieces(const void *group) { return !((const fake_group *)group)->hosts; }

/* A bit of what device 1 gets is spoiled as in run_fetch. */
static void run_fetch_pieces(command *c) {
    const tti_device_piece *pieces = c->src;
    note(fake_fetch_pieces(c->state, pieces, (int)c->n));
    for (size_t i = 0; i < c->n; i++) {
        bool counts = current->index == 1 && pieces[i].rank == 0;
        if (counts && ++current->n_fetched == option("spoils=", 0)) *pieces[i].dst ^= 1;
    }
}

static tutti_status peers_fetch_pieces(void *group, const tti_device_piece *pieces, int n,
                                       size_t n_words, bool overlapped) {
    (void)n_words, (void)overlapped;
    return put(&(command){.run = run_fetch_pieces,
                          .queue = TTI_QUEUE_COMM,
                          .state = group,
                          .src = pieces,
                          .n = (size_t)n});
}

static void run_all_gather(command *c) {
    note(fake_all_gather(c->state, c->dst, c->n, c->first, c->last));
}

static tutti_status peers_all_gather(void *group, void *words, size_t n_words, size_t first,
                                     size_t last) {
    return put(&(command){.run = run_all_gather,
                          .state = group,
                          .dst = words,
                          .n = n_words,
                          .first = first,
                          .last = last});
}

/* first: of the own shards, of which there are gather.n_shards; last: of all. */
static void run_join_all(command *c) {
    const tti_op *op = tti_op_find(c->extra[0]);
    size_t n_own = (size_t)c->gather.n_shards, n_bytes = c->n * sizeof(float);
    float *parts = calloc(c->last * c->n, sizeof *parts);
    if (!parts) abort();
    for (size_t s = 0; s < n_own; s++) memcpy(parts + (c->first + s) * c->n, c->in[s], n_bytes);
    note(fake_all_gather(c->state, parts, c->last * c->n, c->first * c->n,
                         (c->first + n_own) * c->n));
    op->join(parts, c->last, c->n, c->out[0]);
    for (size_t s = 1; s < n_own; s++) memcpy(c->out[s], c->out[0], n_bytes);
    free(parts);
}

static tutti_status peers_join(void *group, const tti_device_join *join, bool *done) {
    const tti_device_peers *peers = &((fake_group *)group)->peers;
    int first = join->bounds[peers->rank], n_own = join->bounds[peers->rank + 1] - first;
    command c = {.run = run_join_all,
                 .state = group,
                 .n = join->n_elems,
                 .first = (size_t)first,
                 .last = (size_t)join->bounds[peers->n_ranks],
                 .gather.n_shards = n_own,
                 .extra = {join->op}};
    *done = true;
    for (int r = 0; r < peers->n_ranks; r++)
        if (join->bounds[r + 1] - join->bounds[r] > TTI_MAX_OUT) *done = false;
    for (int s = 0; *done && s < n_own; s++) {
        c.in[s] = (void *)(uintptr_t)join->in[s];
        c.out[s] = join->out[s];
    }
    return *done ? put(&c) : TUTTI_OK;
}

static void run_reported(command *c) { note(fake_report_sums(&c->step_sums)); }

static tutti_status report_sums(const tti_device_step_sums *step_sums) {
    return put(&(command){.run = run_reported, .step_sums = *step_sums});
}

static void run_tp(command *c) { note(fake_tp(c->state, &c->tp)); }

static tutti_status peers_tp(void *group, const tti_tp_collective *tp, bool overlapped) {
    (void)overlapped;
    return put(&(command){.run = run_tp, .queue = TTI_QUEUE_PEER, .state = group, .tp = *tp});
}

static void run_norm(command *c) { note(fake_norm(c->state, &c->norm, &tti_backend_cpu)); }

static tutti_status peers_norm(void *group, const tti_device_norm *norm) {
    return put(&(command){.run = run_norm, .state = group, .norm = *norm});
}

/* The hash of this rank's rows of the norm that was pulled last. */
static uint64_t hash_rows(const fake_group *g) {
    const tti_device_norm *n = &g->rows_arrived;
    size_t row_bytes = n->width * tutti_dtype_bytes(n->node->in[0]->type.dtype);
    const unsigned char *whole = (const unsigned char *)g->sources[g->peers.rank][0] + n->whole;
    uint64_t hash = 0;
    for (size_t r = 0; r < n->n_blocks * n->n_rows; r++) {
        const unsigned char *row = whole + fake_row_at(g, n->n_rows, r, g->peers.rank) * row_bytes;
        for (size_t i = 0; i < row_bytes; i++) hash = (hash ^ row[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static void run_bring(command *c) {
    fake_group *g = c->state;
    g->rows_arrived = c->norm;
    g->brought_hash = hash_rows(g);
    note(fake_bring(c->state, &c->norm));
}

/* Sends may run until then, so the sent memory must not have been overwritten. */
static void run_sent(command *c) {
    const fake_group *g = c->state;
    if (hash_rows(g) != g->brought_hash)
        note(tti_fail(TUTTI_E_INTERNAL, "rows were written over that had not left"));
}

static void run_open(command *c) { note(fake_open_rows(c->state, &c->norm)); }

static tutti_status peers_open_rows(void *group, const tti_device_norm *rows) {
    return put(&(command){.run = run_open, .state = group, .norm = *rows});
}

static tutti_status peers_gather_rows(void *group, const tti_device_norm *norm) {
    return put(
        &(command){.run = run_bring, .queue = TTI_QUEUE_PEER, .state = group, .norm = *norm});
}

static bool can_push(const tti_node *product, size_t n_rows, int n_ranks) {
    return n_rows > 0 && n_ranks > 1 &&
           (strcmp(product->op->name, "linear") == 0 || strcmp(product->op->name, "matmul") == 0);
}

static void run_push(command *c) { fake_push(c->state, &c->norm, c->dst); }

static tutti_status peers_push(void *group, const tti_device_push *push) {
    TTI_TRY(push->kernel->run(push->state, push->args));
    command c = {.run = run_push, .state = group, .dst = push->args->out[0]};
    c.norm = (tti_device_norm){.node = push->args->node,
                               .inbox = push->inbox,
                               .n_blocks = push->n_blocks,
                               .n_rows = push->n_rows,
                               .width = push->width};
    return put(&c);
}

static bool can_pull(const tti_node *product, size_t n_rows, int n_ranks) {
    return n_rows > 0 && n_ranks > 1 && strncmp(product->op->name, "linear", 6) == 0;
}

static tutti_status peers_pull(void *group, const tti_device_push *pull) {
    TTI_TRY(order(TTI_QUEUE_COMPUTE, TTI_QUEUE_PEER));
    TTI_TRY(pull->kernel->run(pull->state, pull->args));
    return put(&(command){.run = run_sent, .queue = TTI_QUEUE_PEER, .state = group});
}

static void run_fold(command *c) { fake_fold(c->src, &c->lists, c->dst); }

static tutti_status fold(const double *values, const tti_device_lists *lists, double *sums) {
    return put(&(command){.run = run_fold, .src = values, .dst = sums, .lists = *lists});
}

static void run_unfold(command *c) { fake_unfold(c->dst, c->n, &c->lists, c->src); }

static tutti_status unfold(double *values, size_t n_values, const tti_device_lists *lists,
                           const double *sums) {
    return put(
        &(command){.run = run_unfold, .src = sums, .dst = values, .n = n_values, .lists = *lists});
}

/* ---- values for one other rank ---- */

/* One queue goes on while another waits, as far as nothing in it waits. */
static bool can_go_on(const command *c);

static void go_on(tti_queue queue) {
    captured_graph *r = &current->queues[queue];
    while (!current->lost && r->n_done < r->n && can_go_on(&r->commands[r->n_done]))
        advance(queue, r->n_done + 1);
}

static void tp_goes_on(void) { go_on(TTI_QUEUE_PEER); }
static void compute_goes_on(void) { go_on(TTI_QUEUE_COMPUTE); }

static void run_put(command *c) { fake_put_message(c->state, &c->message, compute_goes_on); }
static void run_take(command *c) { fake_fetch_message(c->state, c->message.slot, tp_goes_on); }
static void run_leave(command *c) { fake_leave_message(c->state, c->message.slot); }

static bool reaches_all(const command *c) {
    void (*const those[])(command *) = {
        run_sum,      run_sum_partitions, run_fetch, run_fetch_pieces,
        run_join_all, run_all_gather,     run_tp};
    for (size_t i = 0; i < TTI_COUNT(those); i++)
        if (c->run == those[i]) return true;
    return false;
}

static bool can_go_on(const command *c) {
    if (!c->run) return current->queues[c->before].n_done >= c->n;
    if (c->run == run_put) return fake_slot_is(c->state, c->message.slot, false);
    if (c->run == run_take) return fake_slot_is(c->state, c->message.slot, true);
    return !reaches_all(c);
}

static tutti_status peers_put(void *group, const tti_device_message *message, bool overlapped) {
    (void)overlapped;
    TTI_ASSERT(message->place % 16 == 0);
    return put(
        &(command){.run = run_put, .queue = TTI_QUEUE_PEER, .state = group, .message = *message});
}

static tutti_status peers_take(void *group, int slot) {
    return put(&(command){.run = run_take, .state = group, .message.slot = slot});
}

static tutti_status peers_leave(void *group, int slot, int from) {
    (void)from;
    return put(&(command){.run = run_leave, .state = group, .message.slot = slot});
}

/* The time inside a library is not known. */
static tutti_status peers_waited(void *group, int64_t *t_ns) {
    const fake_group *g = group;
    *t_ns = g->peers.algorithm == TTI_DEVICE_LIBRARY ? -1 : g->waited_ns;
    return check();
}

static tutti_status peers_await(void *group, int number) {
    TTI_TRY(await(number));
    if (current->failure) return tti_fail(TUTTI_E_PEER, "%s", current->heard);
    return fake_failure(group);
}

static void peers_disconnect(void *group) {
    if (group) advance_all();
    if (group) fake_close_box(group);
    fake_disconnect(group);
}

/* ---- links ---- */

/* A pattern that goes over the link and is compared. */
static bool carries(int other) {
    uint32_t sent[64], got[64];
    for (uint32_t i = 0; i < 64; i++) sent[i] = 2654435761u * (i + 64 * (uint32_t)other);
    memcpy(got, sent, sizeof got);
    if (option("wrong=", -1) == current->index) got[41] ^= 1u << 7;
    return memcmp(got, sent, sizeof got) == 0;
}

/* Every one is as good as can be, carries a wrong bit, or cannot be measured. */
static tutti_status read_link(int other, tti_device_link *out) {
    int64_t full = option("full=", -1);
    TTI_TRY(check());
    if (full == current->index || full == other)
        return tti_fail(TUTTI_E_NOMEM, "cuda: device %d has no room", (int)full);
    *out = (tti_device_link){
        .is_direct = true, .is_right = carries(other), .bytes_per_s = 1e10, .latency_us = 1};
    return TUTTI_OK;
}

#endif /* TTI_TESTS_DEVICE_PEERS_H */
