/* flat_update.c - the update program: clip, optimizer, averages, hash, on all compute threads.
 *
 * The plan fixes the blocks and the order of sums over them. So the result does not depend on
 * threads, on workers, or on which worker updates a block. */
#include "exec/update/flat_update.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/partitions.h"

/* ---- partitions ----
 *
 * A bucket has few blocks, so each partition is longer or shorter than its exact share by up to
 * half a block.  To keep these errors from adding up, shares are counted over all buckets so
 * far. */

/* State of assigning the updates of a bucket: each rank in turn takes blocks until it has its
 * share. */
typedef struct partitioner {
    const tti_plan *plan;
    size_t *given; /* [n_ranks]: elements of ranks 0 .. r together in the previous buckets */
    int n_ranks, n_owners;
    int next; /* next update */
} partitioner;

/* The begin of block i, or the end of the bucket after its last block. */
static size_t begin_of(const tti_plan *plan, int i, size_t end) {
    return i < plan->n_updates ? TTI_MIN(plan->updates[i].first, end) : end;
}

static void cut(partitioner *c, const tti_bucket *bucket, size_t *bounds) {
    size_t end = bucket->first + bucket->n_elems, n = (size_t)c->n_owners;
    bounds[0] = bucket->first;
    for (int r = 0; r < c->n_ranks; r++) {
        size_t due = TTI_MIN((size_t)r + 1, n) * end / n, at = bounds[r];
        while (at < end) { /* take the next block if at least half of it is due */
            size_t next = begin_of(c->plan, c->next + 1, end);
            if (c->given[r] + (at - bucket->first) + (next - at) / 2 >= due) break;
            at = next;
            c->next++;
        }
        if (r == c->n_owners - 1) {
            while (begin_of(c->plan, c->next, end) < end) c->next++;
            at = end;
        }
        bounds[r + 1] = at;
        c->given[r] += at - bucket->first;
    }
}

/* Partitions are adjacent, since they and blocks have multiples of 16 elements. */
static void find_places(const tti_plan *plan, tti_share_table *table) {
    size_t n = (size_t)table->n_ranks;
    for (int r = 0; r < table->n_ranks; r++) {
        size_t at = 0;
        for (size_t b = 0; b < (size_t)plan->n_buckets; b++) {
            const size_t *bound = table->bounds + b * (n + 1) + r;
            table->from[b * n + (size_t)r] = at;
            at += bound[1] - bound[0];
        }
        table->n_most = TTI_MAX(table->n_most, at);
    }
}

static tutti_status fill_table(const tti_plan *plan, int n_owners, tti_share_table *table) {
    size_t n_row = (size_t)table->n_ranks + 1, n_bounds = (size_t)plan->n_buckets * n_row + 1;
    partitioner c = {.plan = plan, .n_ranks = table->n_ranks, .n_owners = n_owners};
    table->bounds = calloc(n_bounds, sizeof(size_t));
    table->in_bucket = calloc(n_bounds, sizeof(size_t));
    table->from = calloc(n_bounds, sizeof(size_t));
    table->digests = calloc((size_t)plan->n_buckets + 1, sizeof *table->digests);
    c.given = calloc(n_row, sizeof *c.given);
    bool ok = table->bounds && table->in_bucket && table->from && table->digests && c.given;
    for (int b = 0; ok && b < plan->n_buckets; b++) {
        size_t *bounds = table->bounds + (size_t)b * n_row;
        size_t *in_bucket = table->in_bucket + (size_t)b * n_row;
        cut(&c, &plan->buckets[b], bounds);
        for (size_t r = 0; r < n_row; r++) in_bucket[r] = bounds[r] - plan->buckets[b].first;
        table->digests[b] = tti_bounds_digest(in_bucket, n_row);
    }
    free(c.given);
    if (!ok) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    find_places(plan, table);
    return TUTTI_OK;
}

tutti_status tti_share_table_create(const tti_plan *plan, int n_ranks, int n_owners,
                                    tti_share_table **out) {
    TTI_ASSERT(n_owners >= 1 && n_owners <= n_ranks);
    tti_share_table *table = calloc(1, sizeof *table);
    *out = NULL;
    if (!table) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    table->n_ranks = n_ranks;
    tutti_status st = fill_table(plan, n_owners, table);
    if (st == TUTTI_OK)
        *out = table;
    else
        tti_share_table_destroy(table);
    return st;
}

void tti_share_table_destroy(tti_share_table *table) {
    if (!table) return;
    free(table->bounds);
    free(table->in_bucket);
    free(table->from);
    free(table->digests);
    free(table);
}

tutti_status tti_share_init_among(const tti_plan *plan, int rank, int n_ranks, int n_owners,
                                  tti_share *share) {
    tti_share_table *table;
    *share = (tti_share){0};
    TTI_TRY(tti_share_table_create(plan, n_ranks, n_owners, &table));
    tutti_status st = tti_share_init_by(plan, rank, table, share);
    share->own = table;
    return st;
}

tutti_status tti_share_init_by(const tti_plan *plan, int rank, const tti_share_table *table,
                               tti_share *share) {
    *share = (tti_share){.n_ranks = table->n_ranks,
                         .bounds = table->bounds,
                         .in_bucket = table->in_bucket,
                         .from = table->from,
                         .digests = table->digests,
                         .n_most = table->n_most};
    size_t n = (size_t)plan->n_updates + 1;
    share->blocks = calloc(n, sizeof *share->blocks);
    share->is_own = calloc(n, sizeof *share->is_own);
    if (!share->blocks || !share->is_own) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    /* State lies in the order of the blocks, each at a multiple of 16 elements as its slot is. */
    for (int i = 0; i < plan->n_updates; i++) {
        const tti_update_step *step = &plan->updates[i];
        const size_t *bound = tti_share_bounds(share, plan, step->first) + rank;
        if (step->first < bound[0] || step->first >= bound[1]) continue;
        share->is_own[i] = true;
        share->blocks[share->n_blocks++] = (tti_own_block){i, share->n_elems};
        share->n_elems += (step->n_elems + 15) & ~(size_t)15;
    }
    return TUTTI_OK;
}

void tti_share_make_whole(const tti_plan *plan, tti_share *share) {
    for (int i = 0; i < share->n_blocks; i++)
        share->blocks[i].state = plan->updates[share->blocks[i].update].first;
    share->n_elems = plan->n_flat;
}

/* The block end nearest to the exact boundary. */
static size_t nearest_block_end(const tti_plan *plan, size_t due) {
    size_t before = 0;
    for (int i = 0; i < plan->n_updates; i++) {
        size_t first = plan->updates[i].first;
        if (first >= due) return first - due < due - before ? first : before;
        before = first;
    }
    return plan->n_flat - due < due - before ? plan->n_flat : before;
}

tti_range tti_share_range(const tti_plan *plan, int r, int n) {
    size_t step = plan->n_flat / (size_t)n;
    return (tti_range){r == 0 ? 0 : nearest_block_end(plan, step * (size_t)r),
                       r == n - 1 ? plan->n_flat : nearest_block_end(plan, step * ((size_t)r + 1))};
}

tutti_status tti_share_init_range(const tti_plan *plan, int r, int n, tti_share *share) {
    tti_range keys = tti_share_range(plan, r, n);
    int n_own = 0;
    TTI_TRY(tti_share_init_among(plan, 0, 1, 1, share));
    for (int i = 0; i < share->n_blocks; i++) {
        tti_own_block own = share->blocks[i];
        size_t first = plan->updates[own.update].first;
        share->is_own[own.update] = first >= keys.first && first < keys.last;
        own.state = first - keys.first;
        if (share->is_own[own.update]) share->blocks[n_own++] = own;
    }
    share->n_blocks = n_own;
    share->n_elems = share->n_most = keys.last - keys.first;
    return TUTTI_OK;
}

void tti_share_fini(tti_share *share) {
    tti_share_table_destroy(share->own);
    free(share->blocks);
    free(share->is_own);
    *share = (tti_share){0};
}

bool tti_share_next(const tti_share *share, const tti_plan *plan, int *at, tti_share_run *run) {
    if (*at >= share->n_blocks) return false;
    const tti_own_block *own = &share->blocks[*at];
    *run = (tti_share_run){plan->updates[own->update].first, own->state, 0};
    for (; *at < share->n_blocks; ++*at, ++own) {
        const tti_update_step *step = &plan->updates[own->update];
        if (step->first - run->first != own->state - run->state) break;
        run->n_elems = step->first + step->n_elems - run->first;
    }
    return true;
}

const size_t *tti_share_bounds(const tti_share *share, const tti_plan *plan, size_t first) {
    size_t bucket = (size_t)tti_plan_find_bucket(plan, first);
    return share->bounds + bucket * (size_t)(share->n_ranks + 1);
}

enum { N_HYPER = 8 };

/* A kernel of the update program, bound for one compute thread. */
typedef struct bound_kernel {
    const tti_kernel *kernel; /* NULL: the node is a source */
    void *state;
    void *scratch;
    size_t scratch_bytes;
} bound_kernel;

typedef struct update_thread {
    bound_kernel *kernels; /* [update_graph->n_nodes] */
    uint64_t hash;         /* hash of the parameters that it updated in this step */
    tutti_status status;   /* the first failure in this step, with its message */
    char error[512];
} update_thread;

struct tti_update {
    tti_flat_update_desc desc;
    bool *counts;           /* desc.counts */
    update_thread *threads; /* [n_threads] */
    int n_threads;
    double *partials, *norms;
    uint64_t
        *block_hashes; /* [share->n_blocks]: hashes of own parameters after the last update; NULL:
                          other workers have the same parameters, and hashes are compared */
    bool has_block_hashes; /* parameters were not written since */
    tti_update_overlap overlap;
    tti_update_step_desc step;
    float hyper[N_HYPER];
    tti_range stretch; /* own blocks that the compute threads update now */
};

/* ---- creation ---- */

tutti_status tti_update_create(const tti_flat_update_desc *desc, tti_update **out) {
    size_t n_slots = (size_t)desc->plan->n_slots;
    tti_update *u = *out = calloc(1, sizeof *u);
    if (!u) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    u->desc = *desc;
    u->counts = malloc(n_slots + 1);
    u->partials = calloc(2 * (size_t)desc->plan->n_updates + 2, sizeof *u->partials);
    u->norms = calloc(2 * n_slots + 2, sizeof *u->norms);
    if (desc->keeps_hashes)
        u->block_hashes = calloc((size_t)desc->share->n_blocks + 1, sizeof *u->block_hashes);
    bool ok = u->counts && u->partials && u->norms && (u->block_hashes || !desc->keeps_hashes);
    if (ok) memcpy(u->counts, desc->counts, n_slots);
    return ok ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
}

static void release_thread(const tti_update *u, update_thread *thread) {
    const tutti_graph *g = u->desc.plan->update_graph;
    for (int i = 0; thread->kernels && i < g->n_nodes; i++) {
        bound_kernel *b = &thread->kernels[i];
        if (b->kernel && b->kernel->release) b->kernel->release(b->state);
        u->desc.backend->release(b->scratch, b->scratch_bytes + 64);
    }
    free(thread->kernels);
}

static tutti_status bind_thread(const tti_update *u, update_thread *thread) {
    const tutti_graph *g = u->desc.plan->update_graph;
    thread->kernels = calloc((size_t)g->n_nodes + 1, sizeof *thread->kernels);
    if (!thread->kernels) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        bound_kernel *b = &thread->kernels[i];
        if (node->op->traits & TTI_SOURCE) continue;
        b->kernel = u->desc.backend->select(node, u->desc.reference);
        if (b->kernel->prepare) TTI_TRY(b->kernel->prepare(node, &b->state));
        if (b->kernel->scratch_bytes) b->scratch_bytes = b->kernel->scratch_bytes(node, b->state);
        b->scratch = u->desc.backend->alloc(b->scratch_bytes + 64);
        if (!b->scratch) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    }
    return TUTTI_OK;
}

tutti_status tti_update_bind(tti_update *u, int n_compute_threads) {
    for (int i = 0; i < u->n_threads; i++) release_thread(u, &u->threads[i]);
    free(u->threads);
    u->n_threads = 0;
    u->threads = calloc((size_t)n_compute_threads + 1, sizeof *u->threads);
    if (!u->threads) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    u->n_threads = n_compute_threads;
    for (int i = 0; i < n_compute_threads; i++) TTI_TRY(bind_thread(u, &u->threads[i]));
    return TUTTI_OK;
}

void tti_update_destroy(tti_update *u) {
    if (!u) return;
    for (int i = 0; i < u->n_threads; i++) release_thread(u, &u->threads[i]);
    free(u->threads);
    free(u->counts);
    free(u->partials);
    free(u->norms);
    free(u->block_hashes);
    free(u);
}

/* ---- overlap with a consumer ---- */

void tti_update_set_overlap(tti_update *u, const tti_update_overlap *overlap) {
    u->overlap = *overlap;
}

bool tti_update_overlaps(const tti_update *u) { return u->overlap.updated != NULL; }

tutti_status tti_update_report(const tti_update *u, size_t first, size_t last) {
    return u->overlap.updated(u->overlap.user, first, last);
}

/* ---- blocks ---- */

/* The own blocks of a compute thread. */
static tti_range range_of(const tti_update *u, int thread) {
    return tti_compute_thread_range((size_t)u->desc.share->n_blocks, 1, thread, u->n_threads);
}

static const tti_update_step *step_of(const tti_update *u, const tti_own_block *own) {
    return &u->desc.plan->updates[own->update];
}

static float *params_of(const tti_update *u, const tti_own_block *own) {
    const tti_update_arrays *a = &u->step.arrays;
    return a->params + (a->own_params ? own->state : step_of(u, own)->first);
}

static float *grads_of(const tti_update *u, const tti_own_block *own) {
    const tti_update_arrays *a = &u->step.arrays;
    return a->grads + (a->own_grads ? own->state : step_of(u, own)->first);
}

/* Stores the first failure of a thread for the caller's thread. */
static void keep_failure(update_thread *thread, tutti_status status) {
    if (status == TUTTI_OK || thread->status != TUTTI_OK) return;
    thread->status = status;
    snprintf(thread->error, sizeof thread->error, "%s", tutti_last_error());
}

/* Runs a node of the update program on a block.  Its inputs are w, states, g, hyper and norms, as
 * the update ops expect them; outs NULL: w and states are updated in place. */
static tutti_status run_block(const tti_update *u, int thread, const tti_own_block *own,
                              const tti_node *node, void **outs) {
    const tti_update_step *step = step_of(u, own);
    const tti_slot *slot = &u->desc.plan->slots[step->slot];
    const bound_kernel *bound = &u->threads[thread].kernels[node->id];
    const double *norm = &u->norms[2 * step->slot];
    int n = 0, n_states = slot->buffer ? 0 : u->desc.plan->n_states;
    float hyper[N_HYPER], norms[2] = {(float)norm[0], (float)norm[1]};
    void *in[TTI_MAX_IN], *out[TTI_MAX_OUT];
    memcpy(hyper, u->hyper, sizeof u->hyper);
    hyper[0] = (float)(u->hyper[0] * slot->rule.lr_factor);
    in[n++] = params_of(u, own);
    for (int k = 0; k < n_states; k++) in[n++] = u->step.arrays.states[k] + own->state;
    in[n++] = grads_of(u, own);
    in[n++] = hyper;
    if (tti_takes_norms(node->op)) in[n++] = norms;
    for (int k = 0; k < n_states + 1; k++) out[k] = outs ? outs[k] : in[k];
    tti_run run = {.seed = u->desc.seed};
    tti_kargs args = {.node = node, .in = in, .out = out, .scratch = bound->scratch, .run = &run};
    return bound->kernel->run(bound->state, &args);
}

/* ---- L1, clipping and norms ---- */

static void set_hyper(tti_update *u, double clip) {
    const tti_update_step_desc *s = &u->step;
    double t = (double)s->step + 1;
    double hyper[N_HYPER] = {s->lr,
                             s->inv_count,
                             clip,
                             t,
                             1 - pow(u->desc.beta1, t),
                             1 - pow(u->desc.beta2, t),
                             s->n_rows > 0 ? 1.0 / (double)s->n_rows : 0};
    for (int i = 0; i < N_HYPER; i++) u->hyper[i] = (float)hyper[i];
}

static void prepare_grads(int thread, void *arg) {
    const tti_update *u = arg;
    tti_range mine = range_of(u, thread);
    float count = u->hyper[1] > 0 ? 1 / u->hyper[1] : 0; /* an empty batch has no gradient */
    float l1 = (float)u->desc.l1 * count, most = (float)u->desc.clip_value * count;
    for (size_t b = mine.first; b < mine.last; b++) {
        const tti_own_block *own = &u->desc.share->blocks[b];
        const tti_update_step *step = step_of(u, own);
        const tti_slot *slot = &u->desc.plan->slots[step->slot];
        float *g = grads_of(u, own);
        const float *w = params_of(u, own);
        if (slot->buffer) continue;
        for (size_t i = 0; l1 > 0 && slot->decay && i < step->n_elems; i++)
            g[i] += w[i] > 0 ? l1 : w[i] < 0 ? -l1 : 0;
        for (size_t i = 0; most > 0 && i < step->n_elems; i++)
            g[i] = g[i] > most ? most : g[i] < -most ? -most : g[i];
    }
}

void tti_update_begin(tti_update *u, const tti_update_step_desc *desc) {
    u->step = *desc;
    for (int i = 0; i < u->n_threads; i++) u->threads[i].status = TUTTI_OK;
    set_hyper(u, 1);
    if (u->desc.l1 > 0 || u->desc.clip_value > 0)
        tti_compute_threads_run(u->step.pool, prepare_grads, u);
}

double *tti_update_partials(tti_update *u) { return u->partials; }
double *tti_update_norms(tti_update *u) { return u->norms; }
void tti_update_set_clip(tti_update *u, double clip) { set_hyper(u, clip); }

static void square_grads(int thread, void *arg) {
    tti_update *u = arg;
    tti_range mine = range_of(u, thread);
    for (size_t i = mine.first; i < mine.last; i++) {
        const tti_own_block *own = &u->desc.share->blocks[i];
        const tti_update_step *step = step_of(u, own);
        bool counts =
            !u->desc.plan->slots[step->slot].buffer && step->node && u->counts[step->slot];
        u->partials[own->update] =
            counts ? u->desc.backend->sum_squares(grads_of(u, own), step->n_elems) : 0;
    }
}

void tti_update_square_grads(tti_update *u) {
    tti_compute_threads_run(u->step.pool, square_grads, u);
}

/* Squares a block of w, and of the optimizer's step for it; or a block of its gradient. */
static tutti_status square_block(const tti_update *u, int thread, const tti_own_block *own,
                                 double *squares) {
    const tti_update_step *step = step_of(u, own);
    squares[0] = squares[1] = 0;
    if (!step->node || !tti_takes_norms(step->node->op)) return TUTTI_OK;
    const float *direction = grads_of(u, own);
    double scale = (double)u->hyper[1] * u->hyper[2];
    float block[TTI_UPDATE_BLOCK];
    if (step->direction) {
        TTI_TRY(run_block(u, thread, own, step->direction, (void *[]){block, NULL, NULL, NULL}));
        direction = block;
        scale = 1;
    }
    squares[0] = u->desc.backend->sum_squares(params_of(u, own), step->n_elems);
    squares[1] = u->desc.backend->sum_squares(direction, step->n_elems) * scale * scale;
    return TUTTI_OK;
}

static void square_steps(int thread, void *arg) {
    tti_update *u = arg;
    tti_range mine = range_of(u, thread);
    for (size_t i = mine.first; i < mine.last; i++) {
        const tti_own_block *own = &u->desc.share->blocks[i];
        keep_failure(&u->threads[thread],
                     square_block(u, thread, own, &u->partials[2 * own->update]));
    }
}

void tti_update_square_steps(tti_update *u) {
    tti_compute_threads_run(u->step.pool, square_steps, u);
}

/* ---- the update ---- */

static uint64_t hash_block(const tti_update *u, const tti_update_step *step, const float *w) {
    return tti_hash_block(u->desc.backend, step, w);
}

static tutti_status update_block(tti_update *u, int thread, size_t i) {
    const tti_own_block *own = &u->desc.share->blocks[i];
    const tti_update_step *step = step_of(u, own);
    float *w = params_of(u, own), *outgoing = u->step.arrays.outgoing;
    if (u->has_block_hashes && hash_block(u, step, w) != u->block_hashes[i])
        return tti_fail(TUTTI_E_MISMATCH,
                        "step %llu: parameter '%s' changed in memory after the last update; a "
                        "fault of the memory is likely",
                        (unsigned long long)u->step.step,
                        u->desc.plan->slots[step->slot].param->name);
    bool changes = step->node && !(u->step.keeps_params && !u->desc.plan->slots[step->slot].buffer);
    if (changes) TTI_TRY(run_block(u, thread, own, step->node, NULL));
    if (u->step.arrays.ema) {
        /* Running statistics are copied instead of averaged. */
        float decay = u->desc.plan->slots[step->slot].buffer ? 0 : (float)u->desc.ema;
        float *ema = u->step.arrays.ema + own->state;
        for (size_t k = 0; k < step->n_elems; k++) ema[k] = decay * ema[k] + (1 - decay) * w[k];
    }
    uint64_t hash = hash_block(u, step, w);
    u->threads[thread].hash += hash;
    if (u->block_hashes) u->block_hashes[i] = hash;
    if (outgoing) memcpy(outgoing + step->first, w, step->n_elems * sizeof *w);
    return TUTTI_OK;
}

static void update_blocks(int thread, void *arg) {
    tti_update *u = arg;
    size_t first = u->stretch.first, n = u->stretch.last - first;
    tti_range mine = tti_compute_thread_range(n, 1, thread, u->n_threads);
    for (size_t i = first + mine.first; i < first + mine.last; i++)
        keep_failure(&u->threads[thread], update_block(u, thread, i));
}

/* One past the last own block in the bucket of block first. */
static size_t end_of_stretch(const tti_update *u, size_t first) {
    const tti_plan *plan = u->desc.plan;
    const tti_own_block *blocks = u->desc.share->blocks;
    int bucket = tti_plan_find_bucket(plan, step_of(u, &blocks[first])->first);
    size_t end = plan->buckets[bucket].first + plan->buckets[bucket].n_elems, i = first;
    while (i < (size_t)u->desc.share->n_blocks && step_of(u, &blocks[i])->first < end) i++;
    return i;
}

static uint64_t sum_hashes(const tti_update *u) {
    uint64_t hash = 0;
    for (int i = 0; i < u->n_threads; i++) hash += u->threads[i].hash;
    return hash;
}

tutti_status tti_update_run(tti_update *u, uint64_t *hash) {
    const tti_own_block *blocks = u->desc.share->blocks;
    const tti_update_overlap *o = &u->overlap;
    size_t n = (size_t)u->desc.share->n_blocks;
    bool reports =
        o->updated && u->desc.share->n_ranks ==
                          1; /* with several ranks, parameters of other workers arrive later */
    for (int i = 0; i < u->n_threads; i++) u->threads[i].hash = 0;
    for (size_t first = 0; first < n; first = u->stretch.last) {
        u->stretch = (tti_range){first, reports ? end_of_stretch(u, first) : n};
        const tti_update_step *last = step_of(u, &blocks[u->stretch.last - 1]);
        size_t from = step_of(u, &blocks[first])->first, to = last->first + last->n_elems;
        if (o->awaited) TTI_TRY(o->awaited(o->user, from, to));
        tti_compute_threads_run(u->step.pool, update_blocks, u);
        for (int i = 0; i < u->n_threads; i++)
            if (u->threads[i].status != TUTTI_OK)
                return tti_fail(u->threads[i].status, "%s", u->threads[i].error);
        if (reports) TTI_TRY(o->updated(o->user, from, to));
    }
    u->has_block_hashes = u->block_hashes != NULL;
    *hash = sum_hashes(u);
    return TUTTI_OK;
}

static void hash_others(int thread, void *arg) {
    tti_update *u = arg;
    const tti_plan *plan = u->desc.plan;
    tti_range mine = tti_compute_thread_range((size_t)plan->n_updates, 1, thread, u->n_threads);
    for (size_t i = mine.first; i < mine.last; i++)
        if (!u->desc.share->is_own[i]) {
            const tti_update_step *step = &plan->updates[i];
            u->threads[thread].hash += hash_block(u, step, u->step.arrays.params + step->first);
        }
}

uint64_t tti_update_hash_others(tti_update *u) {
    tti_compute_threads_run(u->step.pool, hash_others, u);
    return sum_hashes(u);
}

void tti_update_forget_hashes(tti_update *u) { u->has_block_hashes = false; }
