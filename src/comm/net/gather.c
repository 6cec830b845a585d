/* gather.c - all-gathers a few bytes of every rank while ranks join.
 *
 * Each rank sends its bytes to each other rank.  In a sparse group they go up the tree of ranks, in
 * which the parent of rank r is rank (r - 1) / TTI_FAN_OUT, and rank 0 sends all bytes down. */
#include <stdlib.h>
#include <string.h>

#include "comm/net/net.h"

static tutti_status swap_all(net_state *s, size_t n_bytes, char *all) {
    tti_message *messages = tti_message_list_room(&s->messages, 2 * s->n_ranks);
    if (!messages) return TUTTI_E_NOMEM;
    int n = 0;
    for (int i = 1; i < s->n_ranks; i++) {
        size_t peer = (size_t)((s->rank + i) % s->n_ranks);
        messages[n++] = (tti_message){
            .peer = (int)peer, .out = all + (size_t)s->rank * n_bytes, .n_bytes = n_bytes};
        messages[n++] =
            (tti_message){.peer = (int)peer, .in = all + peer * n_bytes, .n_bytes = n_bytes};
    }
    return tti_net_move(s, messages, n);
}

/* Copies the entries of a rank's subtree, in order, between all and packed, and returns their
 * number.  On each level the subtree is a run of ranks. packed NULL: only counts. */
static size_t walk_subtree(const net_state *s, int rank, size_t n_bytes, char *all, char *packed,
                           bool pack) {
    size_t n = 0;
    for (int64_t first = rank, last = rank; first < s->n_ranks;
         first = first * TTI_FAN_OUT + 1, last = last * TTI_FAN_OUT + TTI_FAN_OUT) {
        size_t n_level = (size_t)(TTI_MIN(last, (int64_t)s->n_ranks - 1) - first + 1);
        char *in_all = all + (size_t)first * n_bytes, *in_packed = packed + n * n_bytes;
        if (packed) memcpy(pack ? in_packed : in_all, pack ? in_all : in_packed, n_level * n_bytes);
        n += n_level;
    }
    return n;
}

static tutti_status move_one(net_state *s, int peer, const void *out, void *in, size_t n_bytes) {
    tti_message message = {.peer = peer, .out = out, .in = in, .n_bytes = n_bytes};
    return tti_net_move(s, &message, 1);
}

static tutti_status gather_up(net_state *s, size_t n_bytes, char *all, char *packed) {
    int first = s->rank * TTI_FAN_OUT + 1, above = (s->rank - 1) / TTI_FAN_OUT;
    for (int r = first; r < TTI_MIN(first + TTI_FAN_OUT, s->n_ranks); r++) {
        size_t n = walk_subtree(s, r, n_bytes, all, NULL, false);
        TTI_TRY(move_one(s, r, NULL, packed, n * n_bytes));
        (void)walk_subtree(s, r, n_bytes, all, packed, false);
    }
    if (s->rank == 0) return TUTTI_OK;
    size_t n = walk_subtree(s, s->rank, n_bytes, all, packed, true);
    return move_one(s, above, packed, NULL, n * n_bytes);
}

static tutti_status send_down(net_state *s, size_t n_bytes, char *all) {
    int first = s->rank * TTI_FAN_OUT + 1, above = (s->rank - 1) / TTI_FAN_OUT, n = 0;
    tti_message messages[TTI_FAN_OUT];
    size_t n_all = (size_t)s->n_ranks * n_bytes;
    if (s->rank > 0) TTI_TRY(move_one(s, above, NULL, all, n_all));
    for (int r = first; r < TTI_MIN(first + TTI_FAN_OUT, s->n_ranks); r++)
        messages[n++] = (tti_message){.peer = r, .out = all, .n_bytes = n_all};
    return tti_net_move(s, messages, n);
}

tutti_status tti_net_gather(net_state *s, const void *mine, size_t n_bytes, void *all) {
    memcpy((char *)all + (size_t)s->rank * n_bytes, mine, n_bytes);
    if (!s->is_sparse) return swap_all(s, n_bytes, all);
    char *packed = malloc((size_t)s->n_ranks * n_bytes);
    if (!packed)
        return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory for %d ranks", s->n_ranks);
    tutti_status st = gather_up(s, n_bytes, all, packed);
    if (st == TUTTI_OK) st = send_down(s, n_bytes, all);
    free(packed);
    return st;
}
