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

static tti_powersgd_slot powersgd_slot_of(const tti_exec_desc *desc, const tti_slot *slot) {
    tti_low_rank shape = tti_compress_shape(desc, slot);
    return (tti_powersgd_slot){.grads = slot->first,
                               .key = tti_compress_key(desc, slot),
                               .rows = (uint32_t)shape.rows,
                               .cols = (uint32_t)shape.cols,
                               .r = (uint32_t)shape.r};
}

/* The slots of a bucket; their messages have no places yet. */
static void list_bucket(const tti_exec_desc *desc, int bucket, tti_compress_places *p) {
    const tti_bucket *b = &desc->plan->buckets[bucket];
    int n_powersgd = p->first_powersgd[bucket], n_topk = p->first_topk[bucket];
    size_t n_pairs = p->pairs[bucket], scratch = 0;
    for (int s = 0; s < desc->plan->n_slots; s++) {
        const tti_slot *slot = &desc->plan->slots[s];
        size_t k = tti_compress_k(desc, slot);
        bool is_here = slot->first >= b->first && slot->first < b->first + b->n_elems;
        if (!is_here || tti_compress_leaves_out(slot)) continue;
        if (k > 0) {
            p->topk[n_topk++] = (tti_topk_slot){.grads = slot->first,
                                                .pairs = n_pairs,
                                                .n = (uint32_t)slot->n_elems,
                                                .k = (uint32_t)k};
            n_pairs += k;
            continue;
        }
        tti_powersgd_slot *t = &p->powersgd[n_powersgd++];
        *t = powersgd_slot_of(desc, slot);
        t->scratch = take(&scratch, tti_powersgd_scratch(t));
    }
    p->first_powersgd[bucket + 1] = n_powersgd;
    p->first_topk[bucket + 1] = n_topk;
    p->pairs[bucket + 1] = (n_pairs + 1) & ~(size_t)1; /* of two elements each */
    p->n_scratch = TTI_MAX(p->n_scratch, scratch);
    p->n_most_pairs = TTI_MAX(p->n_most_pairs, p->pairs[bucket + 1] - p->pairs[bucket]);
}

static void place_messages(int bucket, tti_compress_places *p) {
    size_t *message = &p->message[2 * bucket], at = message[0];
    int first = p->first_powersgd[bucket], last = p->first_powersgd[bucket + 1];
    for (int i = first; i < last; i++) {
        tti_powersgd_slot *t = &p->powersgd[i];
        t->left = take(&at, t->r ? (size_t)t->r * t->rows : t->cols);
    }
    message[1] = at;
    for (int i = first; i < last; i++)
        p->powersgd[i].right = take(&at, (size_t)p->powersgd[i].r * p->powersgd[i].cols);
    message[2] = at;
    p->n_longest = TTI_MAX(p->n_longest, at - message[0]);
}

tutti_status tti_compress_places_init(const tti_exec_desc *desc, tti_compress_places *out) {
    size_t n_slots = (size_t)desc->plan->n_slots, n_buckets = (size_t)desc->plan->n_buckets;
    *out =
        (tti_compress_places){.powersgd = calloc(n_slots + 1, sizeof *out->powersgd),
                              .first_powersgd = calloc(n_buckets + 1, sizeof *out->first_powersgd),
                              .message = calloc(2 * n_buckets + 1, sizeof *out->message),
                              .topk = calloc(n_slots + 1, sizeof *out->topk),
                              .first_topk = calloc(n_buckets + 1, sizeof *out->first_topk),
                              .pairs = calloc(n_buckets + 1, sizeof *out->pairs)};
    if (!out->powersgd || !out->first_powersgd || !out->message || !out->topk || !out->first_topk ||
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
    free(p->powersgd);
    free(p->first_powersgd);
    free(p->message);
    free(p->topk);
    free(p->first_topk);
    free(p->pairs);
    *p = (tti_compress_places){0};
}
