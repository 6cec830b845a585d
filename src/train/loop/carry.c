/* carry.c - copies flat arrays out of a worker and into the next one. */
#include "train/loop/carry.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fault.h"

/* Returns array i: parameters, then state, then averages; NULL after the last. */
static float *array_of(tti_exec *exec, const tti_plan *plan, int i) {
    if (i == 0) return tti_exec_params(exec);
    if (i <= plan->n_states) return tti_exec_state(exec, i - 1);
    return i == plan->n_states + 1 && tti_exec_has_ema(exec) ? tti_exec_ema(exec) : NULL;
}

static int key_of(const tti_plan *plan, int i) {
    if (i == 0) return TTI_STATE_PARAMS;
    return i <= plan->n_states ? i - 1 : TTI_STATE_EMA;
}

void tti_carry_free(tti_carry *carry) {
    for (int i = 0; i < carry->n_arrays; i++)
        if (carry->device)
            carry->device->memory.release_lasting(carry->arrays[i]);
        else
            free(carry->arrays[i]);
    free(carry->arrays);
    carry->arrays = NULL;
    carry->device = NULL;
    carry->n_arrays = 0;
}

void tti_carry_end(tti_carry *carry) {
    tti_carry_free(carry);
    tti_lasting_samples_free(&carry->samples);
}

tti_lasting_samples *tti_carry_samples(tti_carry *carry, int place) {
    if (!carry) return NULL;
    if (carry->samples_place != place) tti_lasting_samples_free(&carry->samples);
    carry->samples_place = place;
    return &carry->samples;
}

/* Copies the arrays to device memory. *kept false: the device has no room for them. */
static tutti_status keep_on_device(tti_carry *carry, tti_exec *exec, const tti_plan *plan,
                                   bool *kept) {
    int n = 1 + plan->n_states + tti_exec_has_ema(exec);
    size_t n_bytes = plan->n_flat * sizeof(float);
    carry->arrays = calloc((size_t)n, sizeof *carry->arrays);
    if (!carry->arrays) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    for (; carry->n_arrays < n; carry->n_arrays++) {
        float *copy =
            TTI_FAULT("carry.device") ? NULL : carry->device->memory.alloc_lasting(n_bytes);
        if (!copy) break;
        carry->arrays[carry->n_arrays] = copy;
        TTI_TRY(tti_exec_copy_out(exec, key_of(plan, carry->n_arrays), copy));
    }
    *kept = carry->n_arrays == n;
    if (!*kept) tti_clear_error();
    if (!*kept) tti_carry_free(carry);
    return TUTTI_OK;
}

tutti_status tti_carry_keep(tti_carry *carry, tti_exec *exec, const tti_plan *plan) {
    int n = 0;
    bool kept = false;
    tti_carry_free(carry);
    carry->n_flat = plan->n_flat;
    carry->device = tti_exec_state_device(exec);
    if (carry->device) TTI_TRY(keep_on_device(carry, exec, plan, &kept));
    if (kept) return TUTTI_OK;
    TTI_TRY(tti_exec_pull(exec));
    while (array_of(exec, plan, n)) n++;
    carry->arrays = calloc((size_t)n + 1, sizeof *carry->arrays);
    for (; carry->arrays && carry->n_arrays < n; carry->n_arrays++) {
        float *copy = malloc(plan->n_flat * sizeof *copy + 1);
        if (!copy) break;
        memcpy(copy, array_of(exec, plan, carry->n_arrays), plan->n_flat * sizeof *copy);
        carry->arrays[carry->n_arrays] = copy;
    }
    if (carry->arrays && carry->n_arrays == n) return TUTTI_OK;
    tti_carry_free(carry);
    carry->at.has = 0;
    return tti_fail(TUTTI_E_NOMEM, "train: out of memory for the state of a worker");
}

tti_blueprint tti_carry_blueprint(const tti_blueprint *whole, int n_workers) {
    tti_blueprint b = *whole;
    b.n_workers = n_workers;
    b.mesh.data = n_workers / tti_mesh_n_model(&b.mesh);
    b.config.parallel.workers = n_workers;
    return b;
}

/* Orders by step, then by the actions after a step: its evaluation, then its checkpoint. */
int64_t tti_carry_order(const tti_carry_position *at) {
    int64_t step = at->state.step;
    if (!at->has) return -1;
    return 4 * step + (at->eval_step == step) + 2 * (at->saved_step == step);
}

/* Copies the arrays to the executor; they may be on its device. */
static tutti_status put_arrays(const tti_carry *carry, tti_exec *exec, const tti_plan *plan) {
    if (carry->device) {
        for (int i = 0; i < carry->n_arrays; i++)
            TTI_TRY(tti_exec_copy_in(exec, key_of(plan, i), carry->arrays[i]));
        return TUTTI_OK;
    }
    if (carry->n_arrays > 0) TTI_TRY(tti_exec_pull(exec)); /* allocates the arrays on the host */
    for (int i = 0; i < carry->n_arrays; i++)
        memcpy(array_of(exec, plan, i), carry->arrays[i], carry->n_flat * sizeof(float));
    return carry->n_arrays > 0 ? tti_exec_push(exec) : TUTTI_OK;
}

/* Sends the arrays from device to device, or through the host. */
static tutti_status send_arrays(tutti_comm *comm, tti_exec *exec, const tti_plan *plan,
                                int source) {
    float *array;
    int n = 1 + plan->n_states + tti_exec_has_ema(exec);
    bool done = true;
    for (int i = 0; i < n && done; i++)
        TTI_TRY(tti_exec_broadcast_array(exec, key_of(plan, i), source, &done));
    if (done) return TUTTI_OK;
    TTI_TRY(tti_exec_pull(exec));
    for (int i = 0; (array = array_of(exec, plan, i)); i++)
        TTI_TRY(tutti_comm_broadcast(comm, array, plan->n_flat, TUTTI_F32, source));
    return TUTTI_OK;
}

/* Sends the state of the most advanced worker to all workers. */
static tutti_status send_state(tti_carry *carry, tutti_comm *comm, tti_exec *exec,
                               const tti_plan *plan, int source) {
    TTI_TRY(send_arrays(comm, exec, plan, source));
    tti_carry_position at = carry->at;
    size_t n_words = sizeof at / sizeof(int64_t);
    TTI_TRY(tutti_comm_broadcast(comm, &at, n_words, TUTTI_I64, source));
    carry->at = at;
    carry->at.state.shard_map = NULL; /* a pointer of another process */
    return TUTTI_OK;
}

tutti_status tti_carry_share(tti_carry *carry, tutti_comm *comm, tti_exec *exec,
                             const tti_plan *plan, bool *any) {
    int64_t mine = tti_carry_order(&carry->at), furthest = mine, least = mine;
    int source = comm ? tutti_comm_n_ranks(comm) : 0;
    _Static_assert(sizeof(tti_carry_position) % sizeof(int64_t) == 0, "sent as words");
    if (comm) {
        int64_t ends[] = {mine, -mine}, first;
        TTI_TRY(tutti_comm_all_reduce(comm, ends, ends, 2, TUTTI_I64, TUTTI_MAX, TUTTI_ALG_AUTO));
        furthest = ends[0];
        least = -ends[1];
        first = mine == furthest ? tutti_comm_rank(comm) : source;
        TTI_TRY(
            tutti_comm_all_reduce(comm, &first, &first, 1, TUTTI_I64, TUTTI_MIN, TUTTI_ALG_AUTO));
        source = (int)first;
    }
    *any = furthest >= 0;
    if (!*any) return TUTTI_OK;
    TTI_TRY(put_arrays(carry, exec, plan));
    if (furthest != least) TTI_TRY(send_state(carry, comm, exec, plan, source));
    tti_carry_free(carry); /* not before: after a failure carry must still have the arrays */
    return tti_exec_push(exec);
}
