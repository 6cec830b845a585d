/* checkpoint.c - reads and writes parameters, states and averages, wherever they are: on a device,
 * partitioned over several workers, at a parameter server. */
#include <stdlib.h>
#include <string.h>

#include "comm/partitions.h"
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
    return served ? served : x; /* the averages of a remote server are copied to x */
}

float *tti_exec_params(tti_exec *x) {
    tti_exec_device *device = tti_device_of(x);
    tti_offload *offload = tti_offload_of(x);
    if (tti_exec_has_sharded_params(x)) return NULL;
    if (offload) return tti_exec_array(tti_offload_host(offload), TTI_STATE_PARAMS);
    return device ? tti_exec_device_mirror(device, TTI_STATE_PARAMS)
                  : tti_exec_array(x, TTI_STATE_PARAMS);
}

float *tti_exec_state(tti_exec *x, int k) {
    if (tti_exec_has_partitions(tti_setup_of(x))) return NULL;
    return tti_device_of(tti_exec_state_owner(x)) ? tti_exec_device_mirror(tti_device_of(x), k)
                                                  : tti_exec_array(tti_exec_state_owner(x), k);
}

float *tti_exec_ema(tti_exec *x) {
    if (tti_exec_has_partitions(tti_setup_of(x))) return NULL;
    return tti_device_of(tti_exec_state_owner(x))
               ? tti_exec_device_mirror(tti_device_of(x), TTI_STATE_EMA)
               : tti_exec_array(tti_exec_state_owner(x), TTI_STATE_EMA);
}

bool tti_exec_has_ema(const tti_exec *x) {
    return tti_exec_array(tti_exec_state_owner(x), TTI_STATE_EMA) != NULL;
}

tutti_status tti_exec_pull(tti_exec *x) {
    return tti_device_of(x) ? tti_exec_device_pull(x) : TUTTI_OK;
}

/* All workers have read the same values. One of them sends them to the server; with several servers
 * each sends its own range. */
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
        memcpy(tti_exec_array(tti_calls_of(server)->state_owner(server), TTI_STATE_PARAMS),
               tti_exec_params(x), setup->desc.plan->n_flat * sizeof(float));
    if (device) TTI_TRY(tti_exec_device_push(x));
    if (tti_exec_has_sharded_params(x)) return tti_sharded_rehash(x);
    if (device) return TUTTI_OK;
    if (setup->desc.shared_params && setup->n_ranks > 1)
        return tutti_comm_barrier(setup->desc.comm);
    return TUTTI_OK;
}

/* Memory of the host for gathered state. */
static tutti_status staging_of(tti_exec *x, float **staging) {
    *staging = NULL;
    if (tti_sharded_of(x)) return TUTTI_OK; /* sharded workers have their own staging memory */
    if (tti_device_of(x)) return tti_exec_device_staging(x, staging);
    *staging = tti_exec_grads(x);
    return TUTTI_OK;
}

/* On a device: the copy in host memory that tti_exec_pull made. */
static float *state_array(const tti_exec *x, int64_t k) {
    tti_exec_device *device = tti_device_of(x);
    return device ? tti_exec_device_mirror(device, k) : tti_exec_array(x, k);
}

/* Gathers the partitions of the averages into the buffer of the summed gradients. */
tutti_status tti_exec_gather_averages(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    tti_exec_device *device = tti_device_of(x);
    float *whole;
    if (!device) return tti_zero_gather_ema(x);
    if (arrays->has_whole_ema) return TUTTI_OK;
    arrays->has_whole_ema = true;
    if (tti_sharded_of(x)) return tti_exec_device_averages(x);
    TTI_TRY(tti_exec_device_staging(x, &whole));
    TTI_TRY(tti_exec_device_pull_ema(x));
    tti_zero_place_own(setup, tti_exec_device_mirror(device, TTI_STATE_EMA),
                       (tti_range){0, setup->desc.plan->n_flat}, whole);
    TTI_TRY(tti_zero_gather(setup, whole, whole));
    return tti_exec_device_put_staging(x);
}

/* The summed gradients in host memory; on a device, after tti_exec_whole_gradients. */
static float *gradients_of(tti_exec *x) {
    tti_exec_device *device = tti_device_of(x);
    return device ? tti_exec_device_gradients(device) : tti_exec_grads(x);
}

/* ---- slot by slot, if a data group has partitions ---- */

/* Sent by rank 0 of a data group to its other ranks. */
typedef struct request {
    int64_t k; /* END: no further requests */
    uint64_t first, n_elems;
} request;

enum { END = -9 };

/* Returns the host executor for a device without optimizer state, else x. */
static tti_exec *with_state(tti_exec *x) {
    tti_offload *offload = tti_offload_of(x);
    return offload ? tti_offload_host(offload) : x;
}

/* Summed gradients of sharded workers, which are stored by bucket or next to the state. */
static tutti_status gather_gradients_of_slot(tti_exec *x, const request *want) {
    const tti_setup *setup = tti_setup_of(x);
    if (tti_device_of(x))
        return tti_sharded_gather_slot(x, gradients_of(x), want->first, want->n_elems);
    float *own = calloc(setup->share.n_elems + 1, sizeof *own);
    if (!own) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory for gradients");
    for (int i = 0; i < setup->share.n_blocks; i++) {
        const tti_own_block *block = &setup->share.blocks[i];
        const tti_update_step *step = &setup->desc.plan->updates[block->update];
        memcpy(own + block->state, tti_own_grads(x, block), step->n_elems * sizeof *own);
    }
    tutti_status st = tti_sharded_gather_slot(x, own, want->first, want->n_elems);
    if (st == TUTTI_OK)
        st = tutti_comm_barrier(setup->desc.comm); /* until here other ranks read own */
    free(own);
    return st;
}

/* A slot lies in one bucket, so the bounds of the bucket, clipped to the slot, are the partitions
 * to gather. */
static tutti_status gather_slot(tti_exec *x, const request *want, float *to) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_sharded *sharded = tti_sharded_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    if (sharded && want->k == TTI_STATE_GRADS) return gather_gradients_of_slot(x, want);
    if (sharded)
        return tti_sharded_gather_slot(x, state_array(x, want->k), want->first, want->n_elems);
    const size_t *bounds = tti_share_bounds(&setup->share, setup->desc.plan, want->first);
    size_t last = want->first + want->n_elems;
    size_t *slot = calloc((size_t)setup->n_ranks + 1, sizeof *slot);
    if (!slot) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int r = 0; r <= setup->n_ranks; r++)
        slot[r] = TTI_MIN(TTI_MAX(bounds[r], want->first), last);
    arrays->has_whole_ema = false;
    tti_zero_place_own(setup, state_array(x, want->k), (tti_range){want->first, last}, to);
    tutti_status st = tti_comm_gather_partitions(
        setup->desc.comm,
        &(tti_partitions_desc){
            .src = to, .dst = to, .bounds = slot, .n_groups = 1, .dtype = TUTTI_F32});
    free(slot);
    return st;
}

static tutti_status broadcast_request(const tti_setup *setup, request *want) {
    return tutti_comm_broadcast(setup->desc.comm, want, sizeof *want, TUTTI_U8, 0);
}

/* NULL: the array is partitioned. */
static float *whole_array(tti_exec *x, int k) {
    if (k == TTI_STATE_PARAMS) return tti_exec_params(x);
    if (k == TTI_STATE_GRADS) return tti_sharded_of(x) ? NULL : gradients_of(x);
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
    *data = tti_sharded_of(x) ? tti_sharded_of(x)->staging : whole + first;
    return TUTTI_OK;
}

static tutti_status serve_data_group(tti_exec *x) {
    float *whole;
    x = with_state(x);
    if (!tti_exec_has_partitions(tti_setup_of(x))) return TUTTI_OK;
    TTI_TRY(staging_of(x, &whole));
    TTI_TRY(tti_exec_pull(x));
    for (;;) {
        request want = {0};
        TTI_TRY(broadcast_request(tti_setup_of(x), &want));
        if (want.k == END) return TUTTI_OK;
        TTI_TRY(gather_slot(x, &want, whole));
    }
}

static tutti_status end_data_group(const tti_setup *setup) {
    return tti_exec_has_partitions(setup) ? broadcast_request(setup, &(request){.k = END})
                                          : TUTTI_OK;
}

tutti_status tti_exec_whole_gradients(tti_exec *x, float **grads) {
    x = with_state(x);
    bool in_blocks = tti_sharded_of(x) != NULL;
    if (tti_device_of(x)) {
        TTI_TRY(tti_exec_device_pull_gradients(x));
        *grads = in_blocks ? NULL : gradients_of(x);
        return TUTTI_OK;
    }
    *grads = in_blocks ? NULL : tti_exec_grads(x);
    if (!*grads || !tti_exec_divides(tti_setup_of(x))) return TUTTI_OK;
    return tti_zero_gather(tti_setup_of(x), *grads, *grads);
}

tutti_status tti_exec_pull_params(tti_exec *x) {
    bool on_device = tti_device_of(x) && !tti_offload_of(x);
    return on_device ? tti_exec_device_pull_params(x) : TUTTI_OK;
}

tutti_status tti_exec_broadcast_params(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_update_forget_hashes(tti_update_of(with_state(x)));
    if (setup->n_ranks == 1) return TUTTI_OK;
    if (setup->desc.shared_params) return tutti_comm_barrier(setup->desc.comm);
    return tutti_comm_broadcast(setup->desc.comm, tti_exec_params(x), setup->desc.plan->n_flat,
                                TUTTI_F32, 0);
}

void tti_exec_store(tti_exec *x, int k, size_t first, size_t n_elems, const float *data) {
    x = with_state(x);
    float *whole = whole_array(x, k);
    tti_update_forget_hashes(tti_update_of(x));
    bool in_ranges =
        tti_setup_of(x)->desc.server &&
        tti_calls_of(tti_setup_of(x)->desc.server)->has_ranges(tti_setup_of(x)->desc.server);
    bool is_server =
        in_ranges || (tti_setup_of(x)->desc.server &&
                      tti_setup_of(x)->desc.server_worker != 0); /* worker 0 stores the copy */
    if (in_ranges)
        tti_calls_of(tti_setup_of(x)->desc.server)
            ->store(x, k, (tti_range){first, first + n_elems}, data);
    if (tti_setup_of(x)->desc.shared_params && tti_setup_of(x)->rank != 0) return;
    if (!whole && is_server) return;
    if (whole) {
        if (k == TTI_STATE_PARAMS || !is_server || whole == tti_exec_array(x, TTI_STATE_EMA))
            memmove(whole + first, data, n_elems * sizeof *data);
        return;
    }
    float *state = state_array(x, k);
    for (int i = 0; i < tti_setup_of(x)->share.n_blocks; i++) {
        const tti_own_block *own = &tti_setup_of(x)->share.blocks[i];
        const tti_update_step *step = &tti_setup_of(x)->desc.plan->updates[own->update];
        if (step->first < first || step->first >= first + n_elems) continue;
        memcpy(state + own->state, data + (step->first - first), step->n_elems * sizeof *data);
    }
    tti_arrays_of(x)->has_whole_ema = false;
}

const tti_device_ops *tti_exec_state_device(const tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    bool has = tti_device_of(x) && !tti_offload_of(x) && !setup->desc.server &&
               !tti_exec_has_partitions(setup);
    return has ? setup->desc.backend->device : NULL;
}

tutti_status tti_exec_copy_out(tti_exec *x, int k, float *to) {
    return tti_exec_device_copy_flat(x, k, to, true);
}

tutti_status tti_exec_broadcast_array(tti_exec *x, int k, int source, bool *done) {
    *done = false;
    if (!tti_exec_state_device(x)) return TUTTI_OK;
    return tti_exec_device_broadcast(x, k, source, done);
}

tutti_status tti_exec_copy_in(tti_exec *x, int k, const float *from) {
    return tti_exec_device_copy_flat(x, k, (float *)(uintptr_t)from, false);
}

void tti_exec_copy_own(tti_exec *x, int k, float *whole) {
    x = with_state(x);
    const tti_setup *setup = tti_setup_of(x);
    const float *from = state_array(x, k);
    bool is_whole = k == TTI_STATE_PARAMS && !tti_exec_has_sharded_params(x);
    tti_share_run run;
    for (int at = 0; tti_share_next(&setup->share, setup->desc.plan, &at, &run);)
        memcpy(whole + run.first, from + (is_whole ? run.first : run.state),
               run.n_elems * sizeof *whole);
}

tutti_status tti_exec_find_partition(const tti_exec *x, const tti_plan *plan, int rank, int n_ranks,
                                     tti_range **ranges, int *n) {
    tti_exec_desc desc = tti_setup_of(x)->desc;
    tti_share share = {0};
    tti_share_run run;
    *n = 0;
    *ranges = NULL;
    desc.plan = plan;
    tutti_status st = tti_exec_init_share(&desc, rank, n_ranks, &share);
    if (st == TUTTI_OK) *ranges = malloc(((size_t)share.n_blocks + 1) * sizeof **ranges);
    if (st == TUTTI_OK && !*ranges) st = tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int at = 0; st == TUTTI_OK && tti_share_next(&share, plan, &at, &run);)
        (*ranges)[(*n)++] = (tti_range){run.first, run.first + run.n_elems};
    tti_share_fini(&share);
    return st;
}

/* ---- a parameter of a divided model: each worker has a tensor shard of it, or nothing ---- */

/* Sent by rank 0 to the other ranks. */
typedef struct param_request {
    int64_t k; /* PARAMS_END: no further requests */
    uint64_t name;
} param_request;

enum { PARAMS_END = -3 };

static tutti_status grow(float **memory, size_t *n_elems, size_t wanted) {
    if (*n_elems >= wanted && *memory) return TUTTI_OK;
    free(*memory);
    *memory = malloc(wanted * sizeof **memory + 64);
    *n_elems = *memory ? wanted : 0;
    return *memory
               ? TUTTI_OK
               : tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu floats of a parameter", wanted);
}

static tutti_status ask(const tti_divided *d, param_request *want) {
    return tutti_comm_broadcast(d->mesh->model, want, sizeof *want, TUTTI_U8, 0);
}

/* This worker's array k of a slot. Sharded values are gathered over the data group. */
static tutti_status own_array(tti_exec *x, int k, int slot, const float **data) {
    const tti_slot *s = &tti_setup_of(x)->desc.plan->slots[slot];
    return tti_exec_fetch(x, k, s->first, s->n_elems, data);
}

/* Sends every tensor shard of the parameter for which this worker is the owner. */
static tutti_status answer(tti_exec *x, const param_request *want) {
    const tti_divided *d = tti_setup_of(x)->divided;
    for (int i = 0; i < d->plan->n_slots; i++) {
        const tti_tensor_shard_id *id = &tti_tensor_shard_ids(d, d->rank)[i];
        const float *data;
        if (id->name != want->name || !tti_tensor_shard_counts(d, d->rank, id)) continue;
        TTI_TRY(own_array(x, (int)want->k, i, &data));
        TTI_TRY(tutti_comm_send(d->mesh->model, data, d->plan->slots[i].n_elems, TUTTI_F32, 0));
    }
    return TUTTI_OK;
}

/* Copies a tensor shard to its positions in the whole parameter, or from there. */
static void place(const tutti_shape *shape, uint64_t cut, float *whole, float *tensor_shard,
                  bool take) {
    size_t n_elems = (size_t)tutti_shape_n_elems(shape), inner = 1, outer = 1;
    if (cut == 0) {
        memcpy(take ? tensor_shard : whole, take ? whole : tensor_shard, n_elems * sizeof *whole);
        return;
    }
    int dim = (int)(cut >> 48) - 1;
    size_t groups = cut >> 32 & 0xffff, n = cut >> 16 & 0xffff, index = cut & 0xffff;
    for (int i = dim + 1; i < shape->n_dims; i++) inner *= (size_t)shape->dim[i];
    for (int i = 0; i < dim; i++) outer *= (size_t)shape->dim[i];
    size_t run = (size_t)shape->dim[dim] / groups / n * inner;
    for (size_t i = 0; i < outer * groups; i++) {
        float *in_whole = whole + (i * n + index) * run, *in_shard = tensor_shard + i * run;
        memcpy(take ? in_shard : in_whole, take ? in_whole : in_shard, run * sizeof *whole);
    }
}

/* Elements of a tensor shard of this parameter; 0: cut does not match the parameter, so the sender
 * has another model. */
static size_t tensor_shard_elems(const tutti_shape *shape, uint64_t cut) {
    size_t n_elems = (size_t)tutti_shape_n_elems(shape), n = cut >> 16 & 0xffff;
    int dim = (int)(cut >> 48) - 1;
    if (cut == 0) return n_elems;
    if (dim >= shape->n_dims || n == 0 || (cut >> 32 & 0xffff) == 0) return 0;
    return shape->dim[dim] % (int64_t)(n * (cut >> 32 & 0xffff)) ? 0 : n_elems / n;
}

/* Receives the tensor shard of another worker, or copies this worker's, into d->whole. */
static tutti_status receive_tensor_shard(tti_exec *x, const param_request *want,
                                         const tti_node *param, int rank, int slot) {
    tti_divided *d = tti_setup_of(x)->divided;
    const tutti_shape *shape = &param->out[0]->type.shape;
    uint64_t cut = tti_tensor_shard_ids(d, rank)[slot].cut;
    size_t n_elems = tensor_shard_elems(shape, cut);
    const float *data;
    if (n_elems == 0)
        return tti_fail(TUTTI_E_INTERNAL, "exec: rank %d has another '%s'", rank, param->name);
    TTI_TRY(grow(&d->tensor_shard, &d->tensor_shard_elems, n_elems));
    if (rank == d->rank) {
        TTI_TRY(own_array(x, (int)want->k, slot, &data));
        memcpy(d->tensor_shard, data, n_elems * sizeof *d->tensor_shard);
    } else {
        TTI_TRY(tutti_comm_recv(d->mesh->model, d->tensor_shard, n_elems, TUTTI_F32, rank));
    }
    place(shape, cut, d->whole, d->tensor_shard, false);
    return TUTTI_OK;
}

tutti_status tti_exec_fetch_whole(tti_exec *x, int k, const tti_node *param, const float **data) {
    const tti_setup *setup = tti_setup_of(x);
    if (!setup->divided)
        return own_array(x, k, tti_plan_find_slot(setup->desc.plan, param->name), data);
    tti_divided *d = tti_setup_of(x)->divided;
    param_request want = {.k = k, .name = tti_tensor_shard_id_of(param).name};
    size_t n_found = 0, n_elems = (size_t)tti_value_n_elems(param->out[0]);
    TTI_TRY(grow(&d->whole, &d->whole_elems, n_elems));
    TTI_TRY(ask(d, &want));
    for (int r = 0; r < d->n_ranks; r++) {
        const tti_tensor_shard_id *ids = tti_tensor_shard_ids(d, r);
        for (size_t i = 0; i < d->n_most && ids[i].name; i++) {
            if (ids[i].name != want.name || !tti_tensor_shard_counts(d, r, &ids[i])) continue;
            TTI_TRY(receive_tensor_shard(x, &want, param, r, (int)i));
            n_found += tensor_shard_elems(&param->out[0]->type.shape, ids[i].cut);
        }
    }
    if (n_found != n_elems) {
        return tti_fail(TUTTI_E_INTERNAL, "exec: the workers have %zu of the %zu elements of '%s'",
                        n_found, n_elems, param->name);
    }
    *data = setup->divided->whole;
    return TUTTI_OK;
}

tutti_status tti_exec_store_whole(tti_exec *x, int k, const tti_node *param, const float *data) {
    const tti_setup *setup = tti_setup_of(x);
    int i = tti_plan_find_slot(setup->desc.plan, param->name);
    tti_divided *d = setup->divided;
    if (i < 0) return TUTTI_OK; /* the slot belongs to another stage */
    const tti_slot *slot = &setup->desc.plan->slots[i];
    uint64_t cut = tti_tensor_shard_id_of(slot->param).cut;
    if (cut == 0) {
        tti_exec_store(x, k, slot->first, slot->n_elems, data);
        return TUTTI_OK;
    }
    if (tensor_shard_elems(&param->out[0]->type.shape, cut) != slot->n_elems)
        return tti_fail(TUTTI_E_INTERNAL, "exec: the tensor shard of '%s' does not belong to it",
                        param->name);
    TTI_TRY(grow(&d->tensor_shard, &d->tensor_shard_elems, slot->n_elems));
    place(&param->out[0]->type.shape, cut, (float *)(uintptr_t)data, d->tensor_shard, true);
    tti_exec_store(x, k, slot->first, slot->n_elems, d->tensor_shard);
    return TUTTI_OK;
}

/* ---- one array ---- */

/* True if the device has the whole array of state k and no newer copy exists elsewhere. */
static bool is_on_device(const tti_exec *x, int k) {
    const tti_setup *setup = tti_setup_of(x);
    return tti_device_of(x) && !tti_offload_of(x) && !setup->divided && !setup->desc.server &&
           !tti_exec_divides(setup) && k != TTI_STATE_GRADS;
}

static tti_range range_of(const tti_exec *x, const tti_node *param) {
    const tti_plan *plan = tti_setup_of(x)->desc.plan;
    const tti_slot *slot = &plan->slots[tti_plan_find_slot(plan, param->name)];
    return (tti_range){slot->first, slot->first + slot->n_elems};
}

tutti_status tti_exec_pull_array(tti_exec *x, int k, const tti_node *param) {
    if (!is_on_device(x, k)) return tti_exec_pull(x);
    return tti_exec_device_pull_range(x, k, range_of(x, param));
}

tutti_status tti_exec_copy_array(tti_exec *x, int k, const tti_node *param, void *to, bool *done) {
    *done = is_on_device(x, k);
    return *done ? tti_exec_device_copy_range(x, k, range_of(x, param), to) : TUTTI_OK;
}

bool tti_exec_writes_to_device(const tti_exec *x) { return is_on_device(x, TTI_STATE_PARAMS); }

tutti_status tti_exec_write_array(tti_exec *x, int k, const tti_node *param, const float *data) {
    if (is_on_device(x, k)) return tti_exec_device_put_range(x, k, range_of(x, param), data);
    TTI_TRY(tti_exec_pull(x));
    TTI_TRY(tti_exec_store_whole(x, k, param, data));
    return tti_exec_push(x);
}

bool tti_exec_takes_parts(const tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    return !setup->divided && !setup->desc.server;
}

tutti_status tti_exec_store_part(tti_exec *x, int k, const tti_node *param, size_t first,
                                 size_t n_elems, const float *data) {
    tti_range whole = range_of(x, param);
    size_t at = whole.first + first;
    TTI_ASSERT(tti_exec_takes_parts(x) && first + n_elems <= whole.last - whole.first);
    if (is_on_device(x, k))
        return tti_exec_device_put_range(x, k, (tti_range){at, at + n_elems}, data);
    tti_exec_store(x, k, at, n_elems, data);
    return TUTTI_OK;
}

tutti_status tti_exec_serve(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_divided *d = setup->divided;
    if (!d || d->mesh->at.data > 0) return serve_data_group(x);
    TTI_TRY(tti_exec_pull(x));
    for (;;) {
        param_request want = {0};
        TTI_TRY(ask(d, &want));
        if (want.k == PARAMS_END) return end_data_group(setup);
        TTI_TRY(answer(x, &want));
    }
}

tutti_status tti_exec_serve_end(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    TTI_TRY(end_data_group(setup));
    return setup->divided ? ask(setup->divided, &(param_request){.k = PARAMS_END}) : TUTTI_OK;
}
