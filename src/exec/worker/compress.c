/* compress.c - gradient compression: selects the tensors, keeps their residuals, and builds the
 * messages.
 *
 * The data of a tensor has fixed offsets in a few long arrays, in the order of the slots. So each
 * message of a bucket is a range of an array, sent by one collective.
 *
 * Top-k with error feedback: Stich, Cordonnier, Jaggi, Sparsified SGD with memory (2018); Lin et
 * al., Deep gradient compression (2018).  PowerSGD: Vogels, Karimireddy, Jaggi (2019).  Residuals
 * are kept as parts of the mean gradient, so they fit steps of any number of samples. */
#include "exec/worker/compress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "exec/worker/worker.h"

typedef enum kind { WHOLE, FROZEN, TOPK, LOW_RANK } kind;

/* How a slot is sent, and its offsets in the messages. */
typedef struct packing {
    kind kind;
    size_t k;           /* TOPK: number of elements that are sent */
    tti_low_rank shape; /* LOW_RANK */
    size_t pair, first, second;
} packing;

typedef struct pair {
    uint32_t index; /* offset in the slot */
    float value;
} pair;

/* A position in each message. */
typedef struct place {
    size_t pair, first, second;
} place;

struct tti_compress {
    packing *packings; /* [n_slots + 1]; the last one has the ends of the messages */
    float *residual;   /* [n_flat], NULL: nothing is compressed */
    pair *pairs,
        *all_pairs;        /* TOPK: own pairs, shared with peers; pairs of [n_ranks] for one call */
    float *first, *second; /* first message: whole slots and P; second message: Q, which the next
                              step starts from; shared */
    uint32_t *counts, *index; /* scratch to select the largest elements */
};

bool tti_compress_wanted(const tti_exec_desc *desc, int n_ranks) {
    return desc->fast && n_ranks > 1 && desc->compression != TTI_COMPRESS_NONE;
}

/* ---- selects the tensors that are compressed ---- */

/* True if a slot is not sent at all. */
static bool is_left_out(const tti_slot *slot) { return !slot->buffer && slot->rule.frozen; }

static packing pack(const tti_exec_desc *desc, const tti_slot *slot) {
    if (slot->buffer) return (packing){.kind = WHOLE};
    if (is_left_out(slot)) return (packing){.kind = FROZEN};
    if (slot->param->out[0]->type.shape.n_dims < 2) return (packing){.kind = WHOLE};
    if (desc->compression == TTI_COMPRESS_TOPK) {
        size_t k = (size_t)ceil(desc->topk * (double)slot->n_elems);
        bool is_less =
            k * sizeof(pair) < slot->n_elems * sizeof(float) && slot->n_elems <= UINT32_MAX;
        return (packing){.kind = is_less ? TOPK : WHOLE, .k = k};
    }
    size_t rows = (size_t)slot->param->out[0]->type.shape.dim[0];
    size_t cols = rows > 0 ? slot->n_elems / rows : 0, r = (size_t)desc->low_rank;
    bool is_less = r * (rows + cols) < slot->n_elems;
    return (packing){.kind = is_less ? LOW_RANK : WHOLE, .shape = {rows, cols, desc->low_rank}};
}

/* With TTI_COMPRESS_TOPK: the number of elements of a slot that are sent as pairs; 0: the slot is
 * sent whole. */
static size_t top_k_of(const tti_exec_desc *desc, const tti_slot *slot) {
    packing p = pack(desc, slot);
    return p.kind == TOPK ? p.k : 0;
}

/* The key of the random directions of a slot: element i of direction k in a step is 2 u - 1, u of
 * the first word of the draw at (step << 16 | k, i). */
static uint64_t direction_key(const tti_exec_desc *desc, const tti_slot *slot) {
    return tti_mix64(desc->seed, tti_hash_name(slot->param->name));
}

static void move_on(place *at, const packing *p, const tti_slot *slot) {
    size_t r = (size_t)p->shape.r;
    if (p->kind == TOPK) at->pair += p->k;
    if (p->kind == WHOLE) at->first += slot->n_elems;
    if (p->kind == LOW_RANK) at->first += r * p->shape.rows;
    if (p->kind == LOW_RANK) at->second += r * p->shape.cols;
}

/* Fills packings [n_slots + 1] unless NULL, and returns the ends of the messages. */
static place pack_all(const tti_exec_desc *desc, packing *packings) {
    const tti_plan *plan = desc->plan;
    place at = {0};
    for (int s = 0; s <= plan->n_slots; s++) {
        packing p = s < plan->n_slots ? pack(desc, &plan->slots[s]) : (packing){.kind = WHOLE};
        p.pair = at.pair;
        p.first = at.first;
        p.second = at.second;
        if (packings) packings[s] = p;
        if (s < plan->n_slots) move_on(&at, &p, &plan->slots[s]);
    }
    return at;
}

size_t tti_compress_bytes(const tti_exec_desc *desc, int n_ranks) {
    if (!tti_compress_wanted(desc, n_ranks)) return 0;
    place end = pack_all(desc, NULL);
    size_t n = end.pair * ((size_t)n_ranks + 1) * sizeof(pair);
    n += (end.first + end.second + desc->plan->n_flat) * sizeof(float);
    return end.pair ? n + (end.pair + TTI_TOPK_COUNTS) * sizeof(uint32_t) : n;
}

void tti_compress_kinds(const tti_exec_desc *desc, double *pairs, double *summed) {
    place end = pack_all(desc, NULL);
    *pairs = (double)(end.pair * sizeof(pair));
    *summed = (double)((end.first + end.second) * sizeof(float));
}

double tti_compress_sent(const tti_exec_desc *desc, int n_ranks) {
    double pairs, summed, others = n_ranks - 1;
    tti_compress_kinds(desc, &pairs, &summed);
    return others * pairs + 2 * others / n_ranks * summed;
}

size_t tti_compress_message_bytes(const tti_exec_desc *desc, size_t first, size_t n_elems) {
    const tti_plan *plan = desc->plan;
    place end = {0};
    for (int s = 0; s < plan->n_slots; s++) {
        const tti_slot *slot = &plan->slots[s];
        if (slot->first < first || slot->first - first >= n_elems) continue;
        packing p = pack(desc, slot);
        move_on(&end, &p, slot);
    }
    return end.pair * sizeof(pair) + (end.first + end.second) * sizeof(float);
}

/* ---- create and destroy ---- */

tutti_status tti_compress_create(const tti_setup *setup, tti_compress **out) {
    tti_compress *c = *out = calloc(1, sizeof *c);
    if (!c) return tti_fail(TUTTI_E_NOMEM, "compress: out of memory");
    c->packings = calloc((size_t)setup->desc.plan->n_slots + 1, sizeof *c->packings);
    c->residual = calloc(setup->desc.plan->n_flat + 1, sizeof *c->residual);
    if (!c->packings || !c->residual) return tti_fail(TUTTI_E_NOMEM, "compress: out of memory");
    place end = pack_all(&setup->desc, c->packings);
    void *memory;
    TTI_TRY(tutti_comm_alloc(setup->desc.comm, end.pair * sizeof(pair) + 64, &memory));
    c->pairs = memory;
    TTI_TRY(tutti_comm_alloc(setup->desc.comm, end.first * sizeof(float) + 64, &memory));
    c->first = memory;
    TTI_TRY(tutti_comm_alloc(setup->desc.comm, end.second * sizeof(float) + 64, &memory));
    c->second = memory;
    if (end.pair == 0) return TUTTI_OK;
    c->all_pairs = calloc(end.pair, (size_t)setup->n_ranks * sizeof *c->all_pairs);
    c->index = calloc(end.pair, sizeof *c->index);
    c->counts = calloc(TTI_TOPK_COUNTS, sizeof *c->counts);
    if (c->all_pairs && c->index && c->counts) return TUTTI_OK;
    return tti_fail(TUTTI_E_NOMEM, "compress: %zu elements to send", end.pair);
}

void tti_compress_destroy(tti_compress *c) {
    if (!c) return; /* the communicator owns shared memory */
    free(c->packings);
    free(c->residual);
    free(c->all_pairs);
    free(c->index);
    free(c->counts);
    free(c);
}

bool tti_compress_is_on(const tti_exec *x) {
    return tti_compress_of(x) &&
           tti_exec_begun(x)->step >= (uint64_t)tti_setup_of(x)->desc.compress_after;
}

/* ---- a bucket ---- */

/* An operation on a range of whole slots. */
typedef struct work {
    tti_exec *x;
    tti_compress *c;
    float *sum;      /* the sum from the first element of the first slot on */
    size_t origin;   /* offset of that element in the flat arrays */
    int begin, end;  /* range of slots */
    float unit, inv; /* a sum of gradients is unit times the mean; 1 / unit */
} work;

static float *grad_of(const work *w, int s) {
    return w->sum + (tti_setup_of(w->x)->desc.plan->slots[s].first - w->origin);
}

static float *residual_of(const work *w, int s) {
    return w->c->residual + tti_setup_of(w->x)->desc.plan->slots[s].first;
}

/* Adds the residual to the gradient, which gives the value to send. */
static void add_residual(const work *w, int s) {
    float *g = grad_of(w, s);
    const float *e = residual_of(w, s);
    for (size_t i = 0; i < tti_setup_of(w->x)->desc.plan->slots[s].n_elems; i++)
        g[i] += e[i] * w->unit;
}

static void keep_residual(const work *w, int s, const float *left) {
    float *e = residual_of(w, s);
    for (size_t i = 0; i < tti_setup_of(w->x)->desc.plan->slots[s].n_elems; i++)
        e[i] = left[i] * w->inv;
}

static tutti_status add_pairs(const work *w, int s, const pair *pairs) {
    const packing *p = &w->c->packings[s];
    float *g = grad_of(w, s);
    for (size_t i = 0; i < p->k; i++) {
        if (pairs[i].index >= tti_setup_of(w->x)->desc.plan->slots[s].n_elems)
            return tti_fail(TUTTI_E_MISMATCH,
                            "compress: received element %u of '%s', which has %zu elements",
                            pairs[i].index, tti_setup_of(w->x)->desc.plan->slots[s].param->name,
                            tti_setup_of(w->x)->desc.plan->slots[s].n_elems);
        g[pairs[i].index] += pairs[i].value;
    }
    return TUTTI_OK;
}

/* Adds the pairs of all workers, in the order of the workers. */
static tutti_status all_gather_pairs(const work *w) {
    tti_compress *c = w->c;
    size_t first = c->packings[w->begin].pair, n = c->packings[w->end].pair - first;
    if (n == 0) return TUTTI_OK;
    for (int s = w->begin; s < w->end; s++)
        if (c->packings[s].kind == TOPK) {
            /* The largest elements become pairs; the rest becomes the residual. */
            const packing *p = &w->c->packings[s];
            float *g = grad_of(w, s), *e = residual_of(w, s);
            pair *to = w->c->pairs + p->pair;
            add_residual(w, s);
            tti_topk_select(g, tti_setup_of(w->x)->desc.plan->slots[s].n_elems, p->k, w->c->counts,
                            w->c->index);
            keep_residual(w, s, g);
            for (size_t i = 0; i < p->k; i++) {
                uint32_t at = w->c->index[i];
                to[i] = (pair){at, g[at]};
                e[at] = 0;
            }
        }
    TTI_TRY(tutti_comm_all_gather(tti_setup_of(w->x)->desc.comm, c->pairs + first, c->all_pairs, n,
                                  TUTTI_I64));
    tti_exec_count_sent(w->x,
                        (double)(tti_setup_of(w->x)->n_ranks - 1) * (double)(n * sizeof(pair)));
    for (int s = w->begin; s < w->end; s++) {
        const packing *p = &c->packings[s];
        if (p->kind != TOPK) continue;
        memset(grad_of(w, s), 0, tti_setup_of(w->x)->desc.plan->slots[s].n_elems * sizeof(float));
        for (int r = 0; r < tti_setup_of(w->x)->n_ranks; r++)
            TTI_TRY(add_pairs(w, s, c->all_pairs + (size_t)r * n + (p->pair - first)));
    }
    return TUTTI_OK;
}

/* A direction that has become zero would stay zero, so another one is drawn, the same on all
 * workers. */
static void redraw(const work *w, int s, float *q) {
    const packing *p = &w->c->packings[s];
    uint64_t key =
        direction_key(&tti_setup_of(w->x)->desc, &tti_setup_of(w->x)->desc.plan->slots[s]);
    for (int k = 0; k < p->shape.r; k++, q += p->shape.cols) {
        if (tti_low_rank_norm(q, p->shape.cols) != 0) continue;
        uint64_t hi = tti_exec_begun(w->x)->step << 16 | (uint64_t)k;
        for (size_t i = 0; i < p->shape.cols; i++)
            q[i] = 2 * tti_philox_unit(tti_philox_draw(key, hi, i).v[0]) - 1;
    }
}

/* Writes the first message: P of low-rank slots, other slots unchanged. */
static void fill_first(const work *w, int s) {
    const packing *p = &w->c->packings[s];
    float *to = w->c->first + p->first, *q = w->c->second + p->second;
    if (p->kind == WHOLE)
        memcpy(to, grad_of(w, s), tti_setup_of(w->x)->desc.plan->slots[s].n_elems * sizeof *to);
    if (p->kind != LOW_RANK) return;
    add_residual(w, s);
    redraw(w, s, q);
    tti_low_rank_left(&p->shape, grad_of(w, s), q, to);
}

/* Reads the first message, and writes Q, this worker's matrix in the directions of P, to the second
 * one. */
static void fill_second(const work *w, int s) {
    const packing *p = &w->c->packings[s];
    float *from = w->c->first + p->first, *q = w->c->second + p->second, *g = grad_of(w, s);
    if (p->kind == WHOLE)
        memcpy(g, from, tti_setup_of(w->x)->desc.plan->slots[s].n_elems * sizeof *from);
    if (p->kind != LOW_RANK) return;
    tti_low_rank_orthonormalize(from, p->shape.r, p->shape.rows);
    tti_low_rank_right(&p->shape, g, from, q);
    tti_low_rank_subtract(&p->shape, from, q, g);
    keep_residual(w, s, g);
}

static tutti_status all_reduce(const work *w, float *data, size_t n) {
    if (n == 0) return TUTTI_OK;
    tti_exec_count_sent(w->x, tti_exec_reduce_bytes(tti_setup_of(w->x), n * sizeof *data));
    return tutti_comm_all_reduce(tti_setup_of(w->x)->desc.comm, data, data, n, TUTTI_F32, TUTTI_SUM,
                                 tti_setup_of(w->x)->desc.alg);
}

tutti_status tti_compress_reduce(tti_exec *x, float *sum, size_t first, size_t n_elems) {
    const tti_plan *plan = tti_setup_of(x)->desc.plan;
    float unit = (float)TTI_MAX(tti_exec_begun(x)->n_rows, 1) * tti_exec_loss_scale(x);
    work w = {.x = x,
              .c = tti_compress_of(x),
              .sum = sum,
              .origin = first,
              .unit = unit,
              .inv = 1 / unit};
    while (w.begin < plan->n_slots && plan->slots[w.begin].first < first) w.begin++;
    for (w.end = w.begin; w.end < plan->n_slots && plan->slots[w.end].first < first + n_elems;)
        w.end++;
    TTI_TRY(all_gather_pairs(&w));
    const packing *begin = &w.c->packings[w.begin], *end = &w.c->packings[w.end];
    for (int s = w.begin; s < w.end; s++) fill_first(&w, s);
    TTI_TRY(all_reduce(&w, w.c->first + begin->first, end->first - begin->first));
    for (int s = w.begin; s < w.end; s++) fill_second(&w, s);
    TTI_TRY(all_reduce(&w, w.c->second + begin->second, end->second - begin->second));
    for (int s = w.begin; s < w.end; s++) {
        const packing *p = &w.c->packings[s];
        if (p->kind == LOW_RANK)
            tti_low_rank_product(&p->shape, w.c->first + p->first, w.c->second + p->second,
                                 grad_of(&w, s));
    }
    return TUTTI_OK;
}

/* ---- the layout of compressed messages, bucket by bucket ---- */

/* Reserves the next n elements of an array, which has n_all so far. */
static size_t reserve(size_t *n_all, size_t n) {
    size_t at = *n_all;
    *n_all += (n + 3) & ~(size_t)3;
    return at;
}

static tti_powersgd_slot powersgd_slot_of(const tti_exec_desc *desc, const tti_slot *slot) {
    /* With TTI_COMPRESS_POWERSGD: the matrix of a slot; r is 0 if the slot is sent whole. */
    packing p = pack(desc, slot);
    tti_low_rank shape =
        p.kind == LOW_RANK ? p.shape : (tti_low_rank){.rows = 1, .cols = slot->n_elems};
    return (tti_powersgd_slot){.grads = slot->first,
                               .key = direction_key(desc, slot),
                               .rows = (uint32_t)shape.rows,
                               .cols = (uint32_t)shape.cols,
                               .r = (uint32_t)shape.r};
}

/* Lists the slots of a bucket.  Their messages have no offsets yet. */
static void list_bucket(const tti_exec_desc *desc, int bucket, tti_compress_places *p) {
    const tti_bucket *b = &desc->plan->buckets[bucket];
    int n_powersgd = p->first_powersgd[bucket], n_topk = p->first_topk[bucket];
    size_t n_pairs = p->pairs[bucket], scratch = 0;
    for (int s = 0; s < desc->plan->n_slots; s++) {
        const tti_slot *slot = &desc->plan->slots[s];
        size_t k = top_k_of(desc, slot);
        bool is_here = slot->first >= b->first && slot->first < b->first + b->n_elems;
        if (!is_here || is_left_out(slot)) continue;
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
        t->scratch = reserve(&scratch, tti_powersgd_scratch(t));
    }
    p->first_powersgd[bucket + 1] = n_powersgd;
    p->first_topk[bucket + 1] = n_topk;
    p->pairs[bucket + 1] = (n_pairs + 1) & ~(size_t)1; /* a pair is two elements */
    p->n_scratch = TTI_MAX(p->n_scratch, scratch);
    p->n_most_pairs = TTI_MAX(p->n_most_pairs, p->pairs[bucket + 1] - p->pairs[bucket]);
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
        size_t *message = &out->message[2 * b], at = message[0];
        int first = out->first_powersgd[b], last = out->first_powersgd[b + 1];
        for (int i = first; i < last; i++) {
            tti_powersgd_slot *t = &out->powersgd[i];
            t->left = reserve(&at, t->r ? (size_t)t->r * t->rows : t->cols);
        }
        message[1] = at;
        for (int i = first; i < last; i++)
            out->powersgd[i].right =
                reserve(&at, (size_t)out->powersgd[i].r * out->powersgd[i].cols);
        message[2] = at;
        out->n_longest = TTI_MAX(out->n_longest, at - message[0]);
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
