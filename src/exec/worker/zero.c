/* zero.c - partitions of optimizer state: reduces, updates and gathers them.
 *
 * Gathered values are placed in the buffer of the summed gradients at the offsets of their
 * parameters, so partitions have the same bounds everywhere and no memory is allocated. */
#include "exec/worker/zero.h"

#include <string.h>

#include "comm/parts.h"
#include "comm/transport.h"
#include "exec/worker/worker.h"

bool tti_exec_divides(const tti_exec *x) { return x->share.n_ranks > 1; }

bool tti_exec_has_parts(const tti_exec *x) { return tti_exec_divides(x) && !x->desc.one_copy; }

bool tti_exec_has_range(const tti_exec *x) { return x->desc.n_ranges > 1; }

tutti_status tti_zero_join(tti_exec *x, double *values, size_t n_each) {
    if (tti_exec_has_range(x)) return x->desc.join(x->desc.join_user, values, n_each);
    if (!tti_exec_divides(x)) return TUTTI_OK;
    size_t n = (size_t)x->desc.plan->n_updates;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_each && !x->share.is_own[i]; k++) values[i * n_each + k] = 0;
    /* Each sum has only one nonzero term: the order of the additions does not matter. */
    return tutti_comm_all_reduce(x->desc.comm, values, values, n * n_each, TUTTI_F64, TUTTI_SUM,
                                 TUTTI_ALG_AUTO);
}

void tti_zero_bounds(const tti_exec *x, size_t first, size_t *bounds) {
    const size_t *flat = tti_share_bounds(&x->share, x->desc.plan, first);
    for (int r = 0; r <= x->n_ranks; r++) bounds[r] = flat[r] - first;
}

tutti_status tti_zero_gather(tti_exec *x, const float *src, float *dst) {
    return tti_comm_gather_parts(x->desc.comm,
                                 &(tti_parts_desc){.src = src,
                                                   .dst = dst,
                                                   .bounds = x->share.bounds,
                                                   .n_groups = (size_t)x->desc.plan->n_buckets,
                                                   .dtype = TUTTI_F32});
}

/* With sharded gradients others read the parameters directly. */
tutti_status tti_zero_gather_params(tti_exec *x) {
    return tti_zero_gather(x, x->lean ? x->params : tti_exec_grads(x), x->params);
}

tutti_status tti_zero_gather_bucket(tti_exec *x, int bucket) {
    size_t n = (size_t)x->share.n_ranks + 1;
    return tti_comm_gather_parts(x->desc.comm,
                                 &(tti_parts_desc){.src = x->lean ? x->params : tti_exec_grads(x),
                                                   .dst = x->params,
                                                   .bounds = x->share.bounds + (size_t)bucket * n,
                                                   .n_groups = 1,
                                                   .dtype = TUTTI_F32});
}

float *tti_zero_averages(tti_exec *x) { return x->lean ? x->lean->averages : tti_exec_grads(x); }

/* Memory of the host for gathered state. */
static tutti_status staging_of(tti_exec *x, float **staging) {
    *staging = NULL;
    if (x->lean) return TUTTI_OK; /* it has its own */
    if (x->device) return tti_exec_device_staging(x, staging);
    *staging = tti_exec_grads(x);
    return TUTTI_OK;
}

/* On a device, the pulled copy. */
static float *state_array(tti_exec *x, int64_t k) {
    if (x->device && k == TTI_STATE_PARAMS) return tti_exec_device_mirror(x, 0);
    if (x->device) return tti_exec_device_mirror(x, k == TTI_STATE_EMA ? 1 : 2 + (int)k);
    if (k == TTI_STATE_PARAMS) return x->params;
    return k == TTI_STATE_EMA ? x->ema : x->states[k];
}

/* Own elements of a state array between first and last, put at the places of their parameters. */
static void spread(tti_exec *x, int64_t k, size_t first, size_t last, float *to) {
    const float *state = state_array(x, k);
    for (int i = 0; i < x->share.n_blocks; i++) {
        const tti_own_block *own = &x->share.blocks[i];
        const tti_update_step *step = &x->desc.plan->updates[own->update];
        if (step->first < first || step->first >= last) continue;
        memcpy(to + step->first, state + own->state, step->n_elems * sizeof *to);
    }
}

tutti_status tti_zero_gather_ema(tti_exec *x) {
    float *whole;
    if (x->has_whole_ema) return TUTTI_OK;
    x->has_whole_ema = true;
    if (x->lean && x->device) return tti_exec_device_averages(x);
    if (x->lean) return tti_lean_gather_averages(x);
    TTI_TRY(staging_of(x, &whole));
    if (x->device) TTI_TRY(tti_exec_device_pull_ema(x));
    spread(x, TTI_STATE_EMA, 0, x->desc.plan->n_flat, whole);
    TTI_TRY(tti_zero_gather(x, whole, whole));
    return x->device ? tti_exec_device_put_staging(x) : TUTTI_OK;
}

/* ---- state for a checkpoint, slot by slot ---- */

/* On the host, for a device without optimizer state. */
static tti_exec *with_state(tti_exec *x) { return x->offload ? tti_offload_host(x->offload) : x; }

/* The first worker's request to the others of its data group. */
typedef struct request {
    int64_t k; /* END: nothing more */
    uint64_t first, n_elems;
} request;

enum { END = -9 };

/* A slot lies in one bucket: its bounds, cut to the slot, are the parts to gather. */
static tutti_status gather_slot(tti_exec *x, const request *want, float *to) {
    if (x->lean)
        return tti_lean_gather_slot(x, state_array(x, want->k), want->first, want->n_elems);
    const size_t *bounds = tti_share_bounds(&x->share, x->desc.plan, want->first);
    size_t slot[TTI_MAX_RANKS + 1], last = want->first + want->n_elems;
    for (int r = 0; r <= x->n_ranks; r++) slot[r] = TTI_MIN(TTI_MAX(bounds[r], want->first), last);
    x->has_whole_ema = false;
    spread(x, want->k, want->first, last, to);
    return tti_comm_gather_parts(
        x->desc.comm,
        &(tti_parts_desc){.src = to, .dst = to, .bounds = slot, .n_groups = 1, .dtype = TUTTI_F32});
}

static tutti_status tell(tti_exec *x, request *want) {
    return tutti_comm_broadcast(x->desc.comm, want, sizeof *want, TUTTI_U8, 0);
}

/* NULL: it is in parts. */
static float *whole_array(tti_exec *x, int k) {
    if (k == TTI_STATE_PARAMS) return tti_exec_params(x);
    return k == TTI_STATE_EMA ? tti_exec_ema(x) : tti_exec_state(x, k);
}

tutti_status tti_exec_fetch(tti_exec *x, int k, size_t first, size_t n_elems, const float **data) {
    request want = {k, first, n_elems};
    x = with_state(x);
    if (k >= 0 && x->desc.server && tti_calls_of(x->desc.server)->has_ranges(x->desc.server))
        return tti_calls_of(x->desc.server)->fetch(x, k, (tti_range){first, first + n_elems}, data);
    float *whole = whole_array(x, k);
    if (whole) {
        *data = whole + first;
        return TUTTI_OK;
    }
    TTI_TRY(staging_of(x, &whole));
    TTI_TRY(tell(x, &want));
    TTI_TRY(gather_slot(x, &want, whole));
    *data = x->lean ? x->lean->staging : whole + first;
    return TUTTI_OK;
}

tutti_status tti_zero_serve(tti_exec *x) {
    float *whole;
    x = with_state(x);
    if (!tti_exec_has_parts(x)) return TUTTI_OK;
    TTI_TRY(staging_of(x, &whole));
    TTI_TRY(tti_exec_pull(x));
    for (;;) {
        request want = {0};
        TTI_TRY(tell(x, &want));
        if (want.k == END) return TUTTI_OK;
        TTI_TRY(gather_slot(x, &want, whole));
    }
}

tutti_status tti_zero_serve_end(tti_exec *x) {
    return tti_exec_has_parts(x) ? tell(x, &(request){.k = END}) : TUTTI_OK;
}

void tti_exec_store(tti_exec *x, int k, size_t first, size_t n_elems, const float *data) {
    x = with_state(x);
    float *whole = whole_array(x, k);
    x->has_block_hashes = false;
    bool in_ranges = x->desc.server && tti_calls_of(x->desc.server)->has_ranges(x->desc.server);
    bool is_server =
        in_ranges || (x->desc.server && x->desc.server_worker != 0); /* has one of it */
    if (in_ranges)
        tti_calls_of(x->desc.server)->store(x, k, (tti_range){first, first + n_elems}, data);
    if (x->desc.one_copy && x->rank != 0) return;
    if (!whole && is_server) return;
    if (whole) {
        if (k == TTI_STATE_PARAMS || !is_server || whole == x->ema)
            memmove(whole + first, data, n_elems * sizeof *data);
        return;
    }
    float *state = state_array(x, k);
    for (int i = 0; i < x->share.n_blocks; i++) {
        const tti_own_block *own = &x->share.blocks[i];
        const tti_update_step *step = &x->desc.plan->updates[own->update];
        if (step->first < first || step->first >= first + n_elems) continue;
        memcpy(state + own->state, data + (step->first - first), step->n_elems * sizeof *data);
    }
    x->has_whole_ema = false;
}
