/* accumulate.c - plans the additions of shard gradients along the tree. */
#include "exec/program/accumulate.h"

#include <stdlib.h>

#include "base/error.h"

typedef struct player {
    tti_accumulation *acc;
    tti_partial stack[TTI_MAX_PARTIALS];
    int buffer[TTI_MAX_PARTIALS]; /* of the pieces on the stack */
    int depth;
    bool *busy; /* [n shards]: buffers in use */
} player;

static int take_buffer(player *p) {
    int b = 0;
    while (p->busy[b]) b++;
    p->busy[b] = true;
    p->acc->n_buffers = TTI_MAX(p->acc->n_buffers, b + 1);
    return b;
}

/* The two topmost pieces are the halves of one subtree. */
static bool are_siblings(const player *p) {
    if (p->depth < 2) return false;
    const tti_partial *left = &p->stack[p->depth - 2], *right = &p->stack[p->depth - 1];
    return left->level == right->level && left->index % 2 == 0 && right->index == left->index + 1;
}

static void push(player *p, int shard, int buffer) {
    p->stack[p->depth] = (tti_partial){.level = 0, .index = shard};
    p->buffer[p->depth++] = buffer;
    while (are_siblings(p)) {
        p->depth--;
        tti_partial *left = &p->stack[p->depth - 1];
        *left = (tti_partial){.level = left->level + 1, .index = left->index / 2};
        p->acc->merges[p->acc->n_merges++] =
            (tti_merge){p->buffer[p->depth - 1], p->buffer[p->depth]};
        p->busy[p->buffer[p->depth]] = false;
    }
}

static void play_shard_group(player *p, tti_shard_group *shard_group) {
    for (int i = 0; i < shard_group->n_shards; i++) shard_group->buffer[i] = take_buffer(p);
    shard_group->first_merge = p->acc->n_merges;
    for (int i = 0; i < shard_group->n_shards; i++)
        push(p, shard_group->first + i, shard_group->buffer[i]);
    shard_group->n_merges = p->acc->n_merges - shard_group->first_merge;
}

tutti_status tti_accumulation_init(tti_accumulation *acc, int first, int last,
                                   int n_compute_threads) {
    TTI_ASSERT(first <= last && n_compute_threads >= 1 &&
               n_compute_threads <= TTI_MAX_COMPUTE_THREADS);
    *acc = (tti_accumulation){0};
    size_t n_shards = (size_t)(last - first);
    player p = {.acc = acc, .busy = calloc(n_shards + 1, sizeof(bool))};
    acc->shard_groups = calloc(n_shards + 1, sizeof *acc->shard_groups);
    acc->merges = calloc(n_shards + 1, sizeof *acc->merges);
    if (!p.busy || !acc->shard_groups || !acc->merges) {
        free(p.busy);
        tti_accumulation_fini(acc);
        return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    }
    for (int s = first; s < last; s += n_compute_threads) {
        tti_shard_group *shard_group = &acc->shard_groups[acc->n_shard_groups++];
        *shard_group =
            (tti_shard_group){.first = s, .n_shards = TTI_MIN(n_compute_threads, last - s)};
        play_shard_group(&p, shard_group);
    }
    acc->n_pieces = p.depth;
    for (int i = 0; i < p.depth; i++) {
        acc->pieces[i] = p.stack[i];
        acc->piece_buffer[i] = p.buffer[i];
    }
    free(p.busy);
    return TUTTI_OK;
}

void tti_accumulation_fini(tti_accumulation *acc) {
    free(acc->shard_groups);
    free(acc->merges);
    *acc = (tti_accumulation){0};
}
