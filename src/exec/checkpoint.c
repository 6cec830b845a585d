/* checkpoint.c - reads and writes parameters, states and averages, wherever they are: on a device,
 * in parts on several workers, at a parameter server. */
#include <stdlib.h>
#include <string.h>

#include "comm/parts.h"
#include "comm/transport.h"
#include "exec/device/device.h"
#include "exec/exec.h"
#include "exec/worker/worker.h"

/* ---- whole arrays ---- */

/* The executor with the optimizer state and the averages. */
const tti_exec *tti_exec_state_owner(const tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_offload *offload = tti_offload_of(x);
    const tti_exec *served = setup->desc.server
                                 ? tti_calls_of(setup->desc.server)->state_owner(setup->desc.server)
                                 : NULL;
    if (offload) return tti_offload_host(offload);
    return served ? served : x; /* of a server elsewhere there is a copy of the averages */
}

float *tti_exec_params(tti_exec *x) {
    tti_arrays *arrays = tti_arrays_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_offload *offload = tti_offload_of(x);
    if (tti_exec_has_sharded_params(arrays)) return NULL;
    if (offload) return tti_arrays_of(tti_offload_host(offload))->params;
    return device ? tti_exec_device_mirror(device, 0) : arrays->params;
}

float *tti_exec_state(tti_exec *x, int k) {
    if (tti_exec_has_parts(tti_setup_of(x))) return NULL;
    return tti_device_of(tti_exec_state_owner(x))
               ? tti_exec_device_mirror(tti_device_of(x), 2 + k)
               : tti_arrays_of(tti_exec_state_owner(x))->states[k];
}

float *tti_exec_ema(tti_exec *x) {
    if (tti_exec_has_parts(tti_setup_of(x))) return NULL;
    return tti_device_of(tti_exec_state_owner(x)) ? tti_exec_device_mirror(tti_device_of(x), 1)
                                                  : tti_arrays_of(tti_exec_state_owner(x))->ema;
}

bool tti_exec_has_ema(const tti_exec *x) {
    return tti_arrays_of(tti_exec_state_owner(x))->ema != NULL;
}

tutti_status tti_exec_pull(tti_exec *x) {
    return tti_device_of(x) ? tti_exec_device_pull(x) : TUTTI_OK;
}

/* Every worker has read the same values: one of them sends them to the server, or each its range.
 */
tutti_status tti_exec_push(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    tti_exec_device *device = tti_device_of(x);
    arrays->has_whole_ema = false;
    tti_update_forget_hashes(tti_update_of(x));
    tti_server *server = setup->desc.server;
    if (server && tti_calls_of(server)->has_ranges(server))
        tti_calls_of(server)->store(x, TTI_STATE_PARAMS, (tti_range){0, setup->desc.plan->n_flat},
                                    tti_exec_params(x));
    else if (server && setup->desc.server_worker == 0)
        memcpy(tti_arrays_of(tti_calls_of(server)->state_owner(server))->params, tti_exec_params(x),
               setup->desc.plan->n_flat * sizeof *arrays->params);
    if (device) TTI_TRY(tti_exec_device_push(x));
    if (tti_exec_has_sharded_params(arrays)) return tti_sharded_rehash(x);
    if (device) return TUTTI_OK;
    if (setup->desc.shared_params && setup->n_ranks > 1)
        return tutti_comm_barrier(setup->desc.comm);
    return TUTTI_OK;
}

/* Memory of the host for gathered state. */
static tutti_status staging_of(tti_exec *x, float **staging) {
    *staging = NULL;
    if (tti_arrays_of(x)->sharded) return TUTTI_OK; /* it has its own */
    if (tti_device_of(x)) return tti_exec_device_staging(x, staging);
    *staging = tti_exec_grads(x);
    return TUTTI_OK;
}

/* On a device, the pulled copy. */
static float *state_array(tti_arrays *arrays, tti_exec_device *device, int64_t k) {
    if (device && k == TTI_STATE_PARAMS) return tti_exec_device_mirror(device, 0);
    if (device) return tti_exec_device_mirror(device, k == TTI_STATE_EMA ? 1 : 2 + (int)k);
    if (k == TTI_STATE_PARAMS) return arrays->params;
    return k == TTI_STATE_EMA ? arrays->ema : arrays->states[k];
}

/* Into the buffer of the summed gradients, of a worker that has parts of them. */
tutti_status tti_exec_gather_averages(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    tti_exec_device *device = tti_device_of(x);
    float *whole;
    if (!device) return tti_zero_gather_ema(x);
    if (arrays->has_whole_ema) return TUTTI_OK;
    arrays->has_whole_ema = true;
    if (arrays->sharded) return tti_exec_device_averages(x);
    TTI_TRY(tti_exec_device_staging(x, &whole));
    TTI_TRY(tti_exec_device_pull_ema(x));
    tti_zero_place_own(setup, tti_exec_device_mirror(device, 1),
                       (tti_range){0, setup->desc.plan->n_flat}, whole);
    TTI_TRY(tti_zero_gather(setup, whole, whole));
    return tti_exec_device_put_staging(x);
}

/* ---- slot by slot, where a data group has parts ---- */

/* The first worker's request to the others of its data group. */
typedef struct request {
    int64_t k; /* END: nothing more */
    uint64_t first, n_elems;
} request;

enum { END = -9 };

/* On the host, for a device without optimizer state. */
static tti_exec *with_state(tti_exec *x) {
    tti_offload *offload = tti_offload_of(x);
    return offload ? tti_offload_host(offload) : x;
}

/* Summed gradients of sharded workers, which lie in a bucket each or with the state. */
static tutti_status gather_gradients_of_slot(tti_exec *x, const request *want) {
    const tti_setup *setup = tti_setup_of(x);
    float *own = calloc(setup->share.n_elems + 1, sizeof *own);
    if (!own) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory for gradients");
    for (int i = 0; i < setup->share.n_blocks; i++) {
        const tti_own_block *block = &setup->share.blocks[i];
        const tti_update_step *step = &setup->desc.plan->updates[block->update];
        memcpy(own + block->state, tti_own_grads(x, block), step->n_elems * sizeof *own);
    }
    tutti_status st = tti_sharded_gather_slot(x, own, want->first, want->n_elems);
    if (st == TUTTI_OK) st = tutti_comm_barrier(setup->desc.comm); /* others read own */
    free(own);
    return st;
}

/* A slot lies in one bucket: its bounds, cut to the slot, are the parts to gather. */
static tutti_status gather_slot(tti_exec *x, const request *want, float *to) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    tti_exec_device *device = tti_device_of(x);
    if (arrays->sharded && want->k == TTI_STATE_GRADS) return gather_gradients_of_slot(x, want);
    if (arrays->sharded)
        return tti_sharded_gather_slot(x, state_array(arrays, device, want->k), want->first,
                                       want->n_elems);
    const size_t *bounds = tti_share_bounds(&setup->share, setup->desc.plan, want->first);
    size_t slot[TTI_MAX_RANKS + 1], last = want->first + want->n_elems;
    for (int r = 0; r <= setup->n_ranks; r++)
        slot[r] = TTI_MIN(TTI_MAX(bounds[r], want->first), last);
    arrays->has_whole_ema = false;
    tti_zero_place_own(setup, state_array(arrays, device, want->k), (tti_range){want->first, last},
                       to);
    return tti_comm_gather_parts(
        setup->desc.comm,
        &(tti_parts_desc){.src = to, .dst = to, .bounds = slot, .n_groups = 1, .dtype = TUTTI_F32});
}

static tutti_status broadcast_request(const tti_setup *setup, request *want) {
    return tutti_comm_broadcast(setup->desc.comm, want, sizeof *want, TUTTI_U8, 0);
}

/* NULL: it is in parts. */
static float *whole_array(tti_exec *x, int k) {
    if (k == TTI_STATE_PARAMS) return tti_exec_params(x);
    if (k == TTI_STATE_GRADS) return tti_arrays_of(x)->sharded ? NULL : tti_exec_grads(x);
    return k == TTI_STATE_EMA ? tti_exec_ema(x) : tti_exec_state(x, k);
}

tutti_status tti_exec_fetch(tti_exec *x, int k, size_t first, size_t n_elems, const float **data) {
    request want = {k, first, n_elems};
    x = with_state(x);
    if (k >= 0 && tti_setup_of(x)->desc.server &&
        tti_calls_of(tti_setup_of(x)->desc.server)->has_ranges(tti_setup_of(x)->desc.server))
        return tti_calls_of(tti_setup_of(x)->desc.server)
            ->fetch(x, k, (tti_range){first, first + n_elems}, data);
    float *whole = whole_array(x, k);
    if (whole) {
        *data = whole + first;
        return TUTTI_OK;
    }
    TTI_TRY(staging_of(x, &whole));
    TTI_TRY(broadcast_request(tti_setup_of(x), &want));
    TTI_TRY(gather_slot(x, &want, whole));
    *data = tti_arrays_of(x)->sharded ? tti_arrays_of(x)->sharded->staging : whole + first;
    return TUTTI_OK;
}

tutti_status tti_exec_serve_data(tti_exec *x) {
    float *whole;
    x = with_state(x);
    if (!tti_exec_has_parts(tti_setup_of(x))) return TUTTI_OK;
    TTI_TRY(staging_of(x, &whole));
    TTI_TRY(tti_exec_pull(x));
    for (;;) {
        request want = {0};
        TTI_TRY(broadcast_request(tti_setup_of(x), &want));
        if (want.k == END) return TUTTI_OK;
        TTI_TRY(gather_slot(x, &want, whole));
    }
}

tutti_status tti_exec_serve_data_end(const tti_setup *setup) {
    return tti_exec_has_parts(setup) ? broadcast_request(setup, &(request){.k = END}) : TUTTI_OK;
}

tutti_status tti_exec_whole_gradients(tti_exec *x, float **grads) {
    const tti_setup *setup = tti_setup_of(x);
    *grads = tti_arrays_of(x)->sharded ? NULL : tti_exec_grads(x);
    if (!*grads || !tti_exec_divides(setup)) return TUTTI_OK;
    return tti_zero_gather(setup, *grads, *grads);
}

tutti_status tti_exec_broadcast_params(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_update_forget_hashes(tti_update_of(x));
    if (setup->n_ranks == 1) return TUTTI_OK;
    if (setup->desc.shared_params) return tutti_comm_barrier(setup->desc.comm);
    return tutti_comm_broadcast(setup->desc.comm, tti_arrays_of(x)->params,
                                setup->desc.plan->n_flat, TUTTI_F32, 0);
}

void tti_exec_store(tti_exec *x, int k, size_t first, size_t n_elems, const float *data) {
    x = with_state(x);
    float *whole = whole_array(x, k);
    tti_update_forget_hashes(tti_update_of(x));
    bool in_ranges =
        tti_setup_of(x)->desc.server &&
        tti_calls_of(tti_setup_of(x)->desc.server)->has_ranges(tti_setup_of(x)->desc.server);
    bool is_server = in_ranges || (tti_setup_of(x)->desc.server &&
                                   tti_setup_of(x)->desc.server_worker != 0); /* has one of it */
    if (in_ranges)
        tti_calls_of(tti_setup_of(x)->desc.server)
            ->store(x, k, (tti_range){first, first + n_elems}, data);
    if (tti_setup_of(x)->desc.shared_params && tti_setup_of(x)->rank != 0) return;
    if (!whole && is_server) return;
    if (whole) {
        if (k == TTI_STATE_PARAMS || !is_server || whole == tti_arrays_of(x)->ema)
            memmove(whole + first, data, n_elems * sizeof *data);
        return;
    }
    float *state = state_array(tti_arrays_of(x), tti_device_of(x), k);
    for (int i = 0; i < tti_setup_of(x)->share.n_blocks; i++) {
        const tti_own_block *own = &tti_setup_of(x)->share.blocks[i];
        const tti_update_step *step = &tti_setup_of(x)->desc.plan->updates[own->update];
        if (step->first < first || step->first >= first + n_elems) continue;
        memcpy(state + own->state, data + (step->first - first), step->n_elems * sizeof *data);
    }
    tti_arrays_of(x)->has_whole_ema = false;
}
