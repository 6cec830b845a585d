/* compress_places.c - places of compressed tensors, bucket by bucket. */
#include "exec/worker/compress_places.h"

#include <stdlib.h>

#include "exec/worker/compress.h"

/* Reserves the next n elements of an array of n_all so far. */
static size_t take(size_t *n_all, size_t n) {
    size_t at = *n_all;
    *n_all += (n + 3) & ~(size_t)3;
    return at;
}

static tti_thin_slot thin_of(const tti_exec_desc *desc, const tti_slot *slot) {
    tti_low_rank shape = tti_compress_shape(desc, slot);
    return (tti_thin_slot){.grads = slot->first,
                           .key = tti_compress_key(desc, slot),
                           .rows = (uint32_t)shape.rows,
                           .cols = (uint32_t)shape.cols,
                           .r = (uint32_t)shape.r};
}

/* The slots of a bucket; their messages have no places yet. */
static void list_bucket(const tti_exec_desc *desc, int bucket, tti_compress_places *p) {
    const tti_bucket *b = &desc->plan->buckets[bucket];
    int n_thin = p->first_thin[bucket], n_picked = p->first_picked[bucket];
    size_t n_pairs = p->pairs[bucket], scratch = 0;
    for (int s = 0; s < desc->plan->n_slots; s++) {
        const tti_slot *slot = &desc->plan->slots[s];
        size_t k = tti_compress_k(desc, slot);
        bool is_here = slot->first >= b->first && slot->first < b->first + b->n_elems;
        if (!is_here || tti_compress_leaves_out(slot)) continue;
        if (k > 0) {
            p->picked[n_picked++] = (tti_picked_slot){.grads = slot->first,
                                                      .pairs = n_pairs,
                                                      .n = (uint32_t)slot->n_elems,
                                                      .k = (uint32_t)k};
            n_pairs += k;
            continue;
        }
        tti_thin_slot *t = &p->thin[n_thin++];
        *t = thin_of(desc, slot);
        t->scratch = take(&scratch, tti_thin_scratch(t));
    }
    p->first_thin[bucket + 1] = n_thin;
    p->first_picked[bucket + 1] = n_picked;
    p->pairs[bucket + 1] = (n_pairs + 1) & ~(size_t)1; /* of two elements each */
    p->n_scratch = TTI_MAX(p->n_scratch, scratch);
    p->n_most_pairs = TTI_MAX(p->n_most_pairs, p->pairs[bucket + 1] - p->pairs[bucket]);
}

static void place_messages(int bucket, tti_compress_places *p) {
    size_t *message = &p->message[2 * bucket], at = message[0];
    int first = p->first_thin[bucket], last = p->first_thin[bucket + 1];
    for (int i = first; i < last; i++) {
        tti_thin_slot *t = &p->thin[i];
        t->left = take(&at, t->r ? (size_t)t->r * t->rows : t->cols);
    }
    message[1] = at;
    for (int i = first; i < last; i++)
        p->thin[i].right = take(&at, (size_t)p->thin[i].r * p->thin[i].cols);
    message[2] = at;
    p->n_longest = TTI_MAX(p->n_longest, at - message[0]);
}

tutti_status tti_compress_places_init(const tti_exec_desc *desc, tti_compress_places *out) {
    size_t n_slots = (size_t)desc->plan->n_slots, n_buckets = (size_t)desc->plan->n_buckets;
    *out = (tti_compress_places){.thin = calloc(n_slots + 1, sizeof *out->thin),
                                 .first_thin = calloc(n_buckets + 1, sizeof *out->first_thin),
                                 .message = calloc(2 * n_buckets + 1, sizeof *out->message),
                                 .picked = calloc(n_slots + 1, sizeof *out->picked),
                                 .first_picked = calloc(n_buckets + 1, sizeof *out->first_picked),
                                 .pairs = calloc(n_buckets + 1, sizeof *out->pairs)};
    if (!out->thin || !out->first_thin || !out->message || !out->picked || !out->first_picked ||
        !out->pairs) {
        tti_compress_places_fini(out);
        return tti_fail(TUTTI_E_NOMEM, "compress: out of memory");
    }
    for (int b = 0; b < desc->plan->n_buckets; b++) {
        list_bucket(desc, b, out);
        place_messages(b, out);
    }
    return TUTTI_OK;
}

void tti_compress_places_fini(tti_compress_places *p) {
    free(p->thin);
    free(p->first_thin);
    free(p->message);
    free(p->picked);
    free(p->first_picked);
    free(p->pairs);
    *p = (tti_compress_places){0};
}
