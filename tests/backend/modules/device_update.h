/* device_update.h - the update of the module of devices for tests: sgd, clipping by the norm,
 * averages, the hash; over the same blocks as a GPU's. */
#ifndef DEVICE_UPDATE_H
#define DEVICE_UPDATE_H

typedef struct update {
    tti_update_desc desc;
    tti_update_block *blocks;
    double *partials; /* [n_blocks] */
    float momentum;
} update;

static tutti_status update_create(const tti_update_desc *desc, void **out) {
    bool plain = desc->clip_value <= 0 && desc->l1 <= 0;
    if (desc->node && (strcmp(desc->node->op->name, "sgd") != 0 || !plain))
        return tti_fail(TUTTI_E_UNSUPPORTED, "test device: plain sgd alone is known");
    update *u = calloc(1, sizeof *u);
    size_t n_bytes = (size_t)desc->n_blocks * sizeof *u->blocks;
    if (u) u->blocks = malloc(n_bytes + 1);
    if (u) u->partials = calloc((size_t)desc->n_blocks + 1, sizeof *u->partials);
    TTI_ASSERT(u && u->blocks && u->partials);
    u->desc = *desc;
    memcpy(u->blocks, desc->blocks, n_bytes);
    if (desc->node) u->momentum = (float)tti_attr_float(desc->node, "momentum");
    *out = u;
    return TUTTI_OK;
}

static void train_elements(const update *u, const tti_update_block *b, float scale) {
    const tti_step_args *args = u->desc.args;
    const float *restrict g = u->desc.grads + b->grads;
    float *restrict w = u->desc.params + b->params, lr = args->lr * b->lr_factor;
    float momentum = u->momentum, decay = b->decay, inv_rows = args->inv_rows;
    if (b->kind == TTI_BLOCK_BUFFER) {
        for (size_t i = 0; i < b->n_elems; i++) w[i] = (1 - decay) * w[i] + decay * inv_rows * g[i];
    } else if (b->kind == TTI_BLOCK_TRAINED) {
        float *restrict m = u->desc.states[0] + b->state;
        for (size_t i = 0; i < b->n_elems; i++) {
            m[i] = momentum * m[i] + (g[i] * scale + decay * w[i]);
            w[i] -= lr * m[i];
        }
    }
}

static void average_elements(const update *u, const tti_update_block *b) {
    float decay = b->kind == TTI_BLOCK_BUFFER ? 0 : (float)u->desc.ema_decay;
    const float *restrict w = u->desc.params + b->params;
    float *restrict ema = u->desc.ema + b->state;
    for (size_t i = 0; i < b->n_elems; i++) ema[i] = decay * ema[i] + (1 - decay) * w[i];
}

static void narrow_element(const update *u, const tti_update_block *b, size_t i) {
    double w = (double)u->desc.params[b->params + i];
    if (b->has_low_copy) tti_store_elem(u->desc.low_dtype, u->desc.low_copies, b->low_copy + i, w);
}

static void train_block(const update *u, const tti_update_block *b, float scale) {
    if (!b->is_own || u->desc.report->bad) return;
    train_elements(u, b, scale);
    if (u->desc.ema) average_elements(u, b);
    for (size_t i = 0; b->has_low_copy && i < b->n_elems; i++) narrow_element(u, b, i);
}

static uint64_t hash_block(const update *u, const tti_update_block *b) {
    return b->hash_weight *
           tti_backend_cpu.hash(u->desc.params + b->params, b->n_elems, b->hash_at);
}

/* others: of the blocks that are not own. */
static uint64_t hash_of(const update *u, bool own, bool others) {
    uint64_t hash = 0;
    for (int i = 0; i < u->desc.n_blocks; i++) {
        const tti_update_block *b = &u->blocks[i];
        if (b->is_here && (b->is_own ? own : others)) hash += hash_block(u, b);
    }
    return hash;
}

static void run_squares(command *c) {
    const update *u = c->state;
    for (int i = 0; i < u->desc.n_blocks; i++) {
        const tti_update_block *b = &u->blocks[i];
        bool counts = b->is_own && b->kind == TTI_BLOCK_TRAINED;
        u->partials[i] =
            counts ? tti_backend_cpu.sum_squares(u->desc.grads + b->grads, b->n_elems) : 0;
    }
}

static bool looks_at_norm(const update *u) {
    return u->desc.clip_norm > 0 || u->desc.watch_gradients;
}

static float clip_of(const update *u, double inv_count) {
    double sum = 0;
    if (!looks_at_norm(u)) return 1;
    for (int i = 0; i < u->desc.n_blocks; i++) sum += u->partials[i];
    double norm = sqrt(sum) * inv_count;
    u->desc.report->grad_norm = norm;
    if (!isfinite(norm)) u->desc.report->bad |= TTI_BAD_GRADIENT;
    bool clips = u->desc.clip_norm > 0 && norm > u->desc.clip_norm;
    return clips ? (float)(u->desc.clip_norm / (norm + 1e-6)) : 1;
}

static void run_update(command *c) {
    const update *u = c->state;
    double n = 0, loss = 0;
    for (int s = 0; s < u->desc.n_shards; s++)
        loss += u->desc.sums[u->desc.n_sums * s], n += u->desc.sums[u->desc.n_sums * s + 1];
    uint64_t reported_ns = u->desc.report->reported_ns;
    uint32_t kept = u->desc.args->keep_bad ? u->desc.report->bad : 0;
    uint32_t peer = u->desc.failure && *u->desc.failure ? TTI_BAD_PEER : 0u;
    *u->desc.report =
        (tti_step_report){.bad = kept | (isfinite(loss) ? 0u : TTI_BAD_LOSS) | peer,
                          .waited_ns = reported_ns ? (uint64_t)tti_now_ns() - reported_ns : 0};
    double inv_count = (n > 0 ? 1 / n : 0) / (double)u->desc.args->loss_scale;
    float scale = (float)inv_count * clip_of(u, inv_count);
    for (int i = 0; i < u->desc.n_blocks; i++) train_block(u, &u->blocks[i], scale);
    if (!u->desc.report->bad) u->desc.report->params_hash = hash_of(u, true, false);
}

static tutti_status update_run(void *state) {
    const update *u = state;
    if (looks_at_norm(u)) TTI_TRY(put(&(command){.run = run_squares, .state = state}));
    if (looks_at_norm(u) && u->desc.complete_words)
        TTI_TRY(u->desc.complete_words(u->desc.user, u->partials, 2 * (size_t)u->desc.n_blocks));
    return put(&(command){.run = run_update, .state = state});
}

#include "device_joint.h"

static void run_complete(command *c) {
    const update *u = c->state;
    bool rereads = false;
    for (int i = 0; i < u->desc.n_blocks; i++) rereads |= !u->blocks[i].is_here;
    if (u->desc.report->bad) return;
    if (rereads) u->desc.report->params_hash = hash_of(u, true, true);
    for (size_t i = c->first; !rereads && i < c->last; i++) {
        const tti_update_block *b = &u->blocks[i];
        if (b->is_own) continue;
        u->desc.report->params_hash += hash_block(u, b);
        for (size_t k = 0; k < b->n_elems; k++) narrow_element(u, b, k);
    }
}

static uint64_t hash_low(const update *u, const tti_update_block *b) {
    float *wide = malloc(b->n_elems * sizeof *wide);
    TTI_ASSERT(wide);
    for (size_t i = 0; i < b->n_elems; i++)
        wide[i] = (float)tti_load_elem(u->desc.low_dtype, u->desc.low_copies, b->low_copy + i);
    uint64_t hash = b->hash_weight * tti_backend_cpu.hash(wide, b->n_elems, b->hash_at);
    free(wide);
    return hash;
}

static void run_complete_low(command *c) {
    const update *u = c->state;
    if (u->desc.report->bad) return;
    for (size_t i = c->first; i < c->last; i++) {
        const tti_update_block *b = &u->blocks[i];
        if (b->is_sent_low) {
            uint64_t counted = b->is_own ? hash_block(u, b) : 0;
            u->desc.report->params_hash += hash_low(u, b) - counted;
        } else if (!b->is_own) {
            u->desc.report->params_hash += hash_block(u, b);
            for (size_t k = 0; k < b->n_elems; k++) narrow_element(u, b, k);
        }
    }
}

static tutti_status update_complete_low(void *state, int first, int n) {
    return put(&(command){.run = run_complete_low,
                          .state = state,
                          .first = (size_t)first,
                          .last = (size_t)(first + n)});
}

static tutti_status update_complete(void *state, int first, int n) {
    return put(&(command){
        .run = run_complete, .state = state, .first = (size_t)first, .last = (size_t)(first + n)});
}

static tutti_status update_hash(void *state, uint64_t *hash) {
    advance_all();
    *hash = hash_of(state, true, true);
    return check();
}

static void run_narrow(command *c) {
    const update *u = c->state;
    for (int i = 0; i < u->desc.n_blocks; i++)
        for (size_t k = 0; k < u->blocks[i].n_elems; k++) narrow_element(u, &u->blocks[i], k);
}

static tutti_status update_low_copies(void *state) {
    return put(&(command){.run = run_narrow, .state = state});
}

static void update_destroy(void *state) {
    update *u = state;
    if (u) free(u->blocks);
    if (u) free(u->partials);
    free(u);
}

#endif /* DEVICE_UPDATE_H */
