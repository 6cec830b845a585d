/* device_compress.c - compresses gradients on a device. */
#include "exec/device/comm/device_reduce.h"

#include <stdlib.h>

#include "exec/device/state/device_state.h"
#include "exec/worker/worker.h"

struct tti_device_compress {
    tti_exec *x;
    const tti_device_ops *ops;
    tti_compress_places places;
    void *group, *powersgd, *topk; /* topk NULL: no pairs are sent */
    float *residual, *message, *own, *scratch;
    tti_topk_pair *pairs, *all_pairs; /* this worker's pairs; those of all workers for one bucket */
    size_t *bounds, *at;              /* of the pairs, in elements, in the format of peers_fetch */
    tti_device_partitions source;     /* this worker's pairs in that format */
};

/* ---- conditions and memory ---- */

/* The index of an element of a matrix has 32 bits. */
static bool fits(const tti_plan *plan) {
    for (int s = 0; s < plan->n_slots; s++)
        if (plan->slots[s].n_elems > UINT32_MAX) return false;
    return true;
}

bool tti_device_compress_can(const tti_exec_desc *desc, int n_ranks) {
    bool is_whole = !desc->mesh && !desc->plan->stages && desc->zero == 0;
    bool is_plain = is_whole && !desc->server && !desc->local && !desc->offload && !desc->mixed;
    return tti_compress_wanted(desc, n_ranks) && is_plain && desc->backend->device &&
           desc->backend->device->powersgd.create && desc->backend->device->topk.create &&
           desc->backend->device->collectives.connect && fits(desc->plan);
}

static size_t residual_bytes(const tti_exec_desc *desc) {
    return desc->plan->n_flat * sizeof(float) + 64;
}

static size_t message_bytes(const tti_exec_desc *desc, const tti_compress_places *p) {
    return p->message[2 * desc->plan->n_buckets] * sizeof(float) + 64;
}

static size_t scratch_bytes(const tti_compress_places *p) {
    return p->n_scratch * sizeof(float) + 64;
}

static size_t pair_bytes(const tti_exec_desc *desc, const tti_compress_places *p) {
    return p->pairs[desc->plan->n_buckets] * sizeof(tti_topk_pair) + 64;
}

static size_t all_pair_bytes(const tti_compress_places *p, int n_ranks) {
    return p->n_most_pairs * (size_t)n_ranks * sizeof(tti_topk_pair) + 64;
}

size_t tti_device_compress_bytes(const tti_exec_desc *desc, int n_ranks) {
    tti_compress_places p;
    if (!tti_device_compress_can(desc, n_ranks)) return 0;
    if (tti_compress_places_init(desc, &p) != TUTTI_OK) return 0;
    size_t n = residual_bytes(desc) + 2 * message_bytes(desc, &p) + scratch_bytes(&p) +
               pair_bytes(desc, &p) + all_pair_bytes(&p, n_ranks);
    tti_compress_places_fini(&p);
    return n;
}

/* ---- create and destroy ---- */

/* Connects the devices that add the uncompressed values. The message takes the place of the
 * gradients. */
static tutti_status connect_compressed(tti_device_compress *c, const tti_device_peers *others,
                                       void *with) {
    tti_device_peers peers = *others;
    c->source = (tti_device_partitions){(float *)(void *)c->pairs, c->at};
    int n_buckets = tti_setup_of(c->x)->desc.plan->n_buckets;
    peers.partials = &c->message;
    peers.n_flat = c->places.message[2 * n_buckets];
    peers.n_most = TTI_MAX(c->places.n_longest, 4);
    peers.n_words = (size_t)tti_setup_of(c->x)->n_ranks;
    peers.with = with;
    if (c->places.n_most_pairs > 0) {
        peers.bounds = c->bounds;
        peers.n_groups = (size_t)n_buckets;
        peers.sources = &c->source;
        peers.n_sources = 1;
    }
    return c->ops->collectives.connect(&peers, &c->group);
}

static tutti_status create_powersgd(tti_device_compress *c, float *grads) {
    const tti_compress_places *p = &c->places;
    int n_buckets = tti_setup_of(c->x)->desc.plan->n_buckets;
    return c->ops->powersgd.create(&(tti_powersgd_desc){.slots = p->powersgd,
                                                        .first = p->first_powersgd,
                                                        .n_buckets = n_buckets,
                                                        .grads = grads,
                                                        .residual = c->residual,
                                                        .message = c->message,
                                                        .own = c->own,
                                                        .scratch = c->scratch,
                                                        .n_message = p->message[2 * n_buckets],
                                                        .args = tti_device_of(c->x)->args},
                                   &c->powersgd);
}

tutti_status tti_device_compress_create(tti_exec *x, const tti_device_peers *peers, void *with,
                                        tti_device_compress **out) {
    tti_device_compress *c = *out = calloc(1, sizeof *c);
    if (!c) return tti_fail(TUTTI_E_NOMEM, "compress: out of memory");
    *c = (tti_device_compress){.x = x, .ops = tti_setup_of(x)->desc.backend->device};
    float *grads = tti_exec_buffer(c->x, tti_setup_of(c->x)->acc.partial_buffer[0]);
    TTI_TRY(tti_compress_places_init(&tti_setup_of(c->x)->desc, &c->places));
    const tti_exec_desc *desc = &tti_setup_of(c->x)->desc;
    const tti_compress_places *p = &c->places;
    TTI_TRY(tti_device_alloc(tti_setup_of(c->x), &c->residual, residual_bytes(desc)));
    TTI_TRY(tti_device_alloc(tti_setup_of(c->x), &c->message, message_bytes(desc, p)));
    TTI_TRY(tti_device_alloc(tti_setup_of(c->x), &c->own, message_bytes(desc, p)));
    TTI_TRY(tti_device_alloc(tti_setup_of(c->x), &c->scratch, scratch_bytes(p)));
    TTI_TRY(tti_device_alloc(tti_setup_of(c->x), &c->pairs, pair_bytes(desc, p)));
    TTI_TRY(tti_device_alloc(tti_setup_of(c->x), &c->all_pairs,
                             all_pair_bytes(p, tti_setup_of(c->x)->n_ranks)));
    /* One partition of each bucket per rank, at the same offset of its pairs. */
    size_t n_ranks = (size_t)tti_setup_of(c->x)->n_ranks,
           n_buckets = (size_t)tti_setup_of(c->x)->desc.plan->n_buckets;
    const size_t *pairs = c->places.pairs, each = sizeof(tti_topk_pair) / sizeof(float);
    c->bounds = calloc(n_buckets * (n_ranks + 1) + 1, sizeof *c->bounds);
    c->at = calloc(n_buckets * n_ranks + 1, sizeof *c->at);
    if (!c->bounds || !c->at) return tti_fail(TUTTI_E_NOMEM, "compress: out of memory");
    for (size_t b = 0; b < n_buckets; b++)
        for (size_t r = 0; r <= n_ranks; r++) {
            c->bounds[b * (n_ranks + 1) + r] = r * (pairs[b + 1] - pairs[b]) * each;
            if (r < n_ranks) c->at[b * n_ranks + r] = pairs[b] * each;
        }
    TTI_TRY(connect_compressed(c, peers, with));
    TTI_TRY(create_powersgd(c, grads));
    if (p->n_most_pairs == 0) return TUTTI_OK;
    return c->ops->topk.create(
        &(tti_topk_desc){.slots = p->topk,
                         .first = p->first_topk,
                         .pairs = p->pairs,
                         .n_buckets = tti_setup_of(c->x)->desc.plan->n_buckets,
                         .n_ranks = tti_setup_of(c->x)->n_ranks,
                         .grads = grads,
                         .residual = c->residual,
                         .own = c->pairs,
                         .all = c->all_pairs,
                         .args = tti_device_of(c->x)->args},
        &c->topk);
}

void tti_device_compress_destroy(tti_device_compress *c) {
    if (!c) return;
    c->ops->collectives.disconnect(c->group);
    c->ops->powersgd.destroy(c->powersgd);
    c->ops->topk.destroy(c->topk);
    if (c->places.message) {
        const tti_exec_desc *desc = &tti_setup_of(c->x)->desc;
        const tti_backend *backend = desc->backend;
        const tti_compress_places *p = &c->places;
        backend->release(c->residual, residual_bytes(desc));
        backend->release(c->message, message_bytes(desc, p));
        backend->release(c->own, message_bytes(desc, p));
        backend->release(c->scratch, scratch_bytes(p));
        backend->release(c->pairs, pair_bytes(desc, p));
        backend->release(c->all_pairs, all_pair_bytes(p, tti_setup_of(c->x)->n_ranks));
    }
    tti_compress_places_fini(&c->places);
    free(c->bounds);
    free(c->at);
    free(c);
}

/* ---- a bucket ---- */

static tutti_status sum(tti_device_compress *c, int message, bool overlapped) {
    const size_t *at = &c->places.message[message];
    return c->ops->collectives.all_reduce(c->group, at[0], at[1] - at[0], overlapped);
}

tutti_status tti_device_compress_begin(tti_device_compress *c, int bucket, bool overlapped) {
    TTI_TRY(c->ops->powersgd.left(c->powersgd, bucket));
    if (c->topk) TTI_TRY(c->ops->topk.choose(c->topk, bucket));
    return sum(c, 2 * bucket, overlapped);
}

/* A model uses one of the two: PowerSGD or top-k pairs. */
tutti_status tti_device_compress_end(tti_device_compress *c, int bucket, bool overlapped) {
    TTI_TRY(c->ops->powersgd.right(c->powersgd, bucket));
    if (c->topk) {
        float *all = (float *)(void *)c->all_pairs;
        TTI_TRY(c->ops->collectives.all_gather(c->group, (size_t)bucket, 0, all, overlapped));
        TTI_TRY(c->ops->topk.add(c->topk, bucket));
    } else {
        TTI_TRY(sum(c, 2 * bucket + 1, overlapped));
    }
    return c->ops->powersgd.end(c->powersgd, bucket);
}

void *tti_device_compress_group(const tti_device_compress *c) { return c->group; }
