/* device_topk.h - top-k of device_module.c, which includes this: exec/worker/compress_math.c. */
#ifndef TTI_TESTS_DEVICE_TOPK_H
#define TTI_TESTS_DEVICE_TOPK_H

#include "device_powersgd.h"
#include "exec/worker/compress.h"

typedef struct topk {
    tti_topk_desc desc;
    tti_topk_slot *slots;
    int *first;
    size_t *pairs;
    uint32_t *counts, *index;
} topk;

static void choose(const topk *p, const tti_topk_slot *s) {
    float *g = p->desc.grads + s->grads, *e = p->desc.residual + s->grads;
    float unit = unit_of(p->desc.args), inv = 1 / unit;
    for (uint32_t i = 0; i < s->n; i++) g[i] += e[i] * unit;
    tti_topk_select(g, s->n, s->k, p->counts, p->index);
    for (uint32_t i = 0; i < s->n; i++) e[i] = g[i] * inv;
    for (uint32_t i = 0; i < s->k; i++) {
        p->desc.own[s->pairs + i] = (tti_topk_pair){p->index[i], g[p->index[i]]};
        e[p->index[i]] = 0;
    }
}

static void run_choose(command *c) {
    const topk *p = c->state;
    for (int i = p->first[c->n]; i < p->first[c->n + 1]; i++) choose(p, &p->slots[i]);
}

static void run_add_pairs(command *c) {
    const topk *p = c->state;
    size_t n_all = p->pairs[c->n + 1] - p->pairs[c->n];
    for (int i = p->first[c->n]; i < p->first[c->n + 1]; i++) {
        const tti_topk_slot *s = &p->slots[i];
        float *g = p->desc.grads + s->grads;
        memset(g, 0, s->n * sizeof *g);
        for (size_t r = 0; r < (size_t)p->desc.n_ranks; r++) {
            const tti_topk_pair *from = p->desc.all + r * n_all + (s->pairs - p->pairs[c->n]);
            for (uint32_t k = 0; k < s->k; k++) g[from[k].index] += from[k].value;
        }
    }
}

static tutti_status pick_choose(void *state, int bucket) {
    return put_powersgd(run_choose, state, bucket);
}

static tutti_status pick_add(void *state, int bucket) {
    return put_powersgd(run_add_pairs, state, bucket);
}

static void pick_destroy(void *state) {
    topk *p = state;
    if (!p) return;
    free(p->slots);
    free(p->first);
    free(p->pairs);
    free(p->counts);
    free(p->index);
    free(p);
}

static tutti_status pick_create(const tti_topk_desc *desc, void **out) {
    size_t n_buckets = (size_t)desc->n_buckets, n_slots = (size_t)desc->first[n_buckets];
    topk *p = calloc(1, sizeof *p);
    TTI_ASSERT(p != NULL);
    *p = (topk){.desc = *desc,
                .slots = calloc(n_slots + 1, sizeof *p->slots),
                .first = calloc(n_buckets + 1, sizeof *p->first),
                .pairs = calloc(n_buckets + 1, sizeof *p->pairs),
                .counts = calloc(TTI_TOPK_COUNTS, sizeof *p->counts),
                .index = calloc(desc->pairs[n_buckets] + 1, sizeof *p->index)};
    TTI_ASSERT(p->slots && p->first && p->pairs && p->counts && p->index);
    memcpy(p->slots, desc->slots, n_slots * sizeof *p->slots);
    memcpy(p->first, desc->first, (n_buckets + 1) * sizeof *p->first);
    memcpy(p->pairs, desc->pairs, (n_buckets + 1) * sizeof *p->pairs);
    *out = p;
    return check();
}

#endif /* TTI_TESTS_DEVICE_TOPK_H */
