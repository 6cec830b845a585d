/* consistency.c - compares the parameter hashes of all workers.
 *
 * The hash of each step's update is sent with the sums of the next step.  When hashes differ, or on
 * a full check, hashes by tensor are gathered and the rank that disagrees is named.  Parameters
 * that exist on one worker only are compared with their own past (flat_update.c). */
#include <stdio.h>
#include <stdlib.h>

#include "exec/device/device.h"
#include "exec/exec.h"
#include "exec/worker/worker.h"

/* ---- hashes of what is in memory ---- */

static tutti_status hash_own(tti_exec *x, uint64_t *out) {
    const tti_setup *setup = tti_setup_of(x);
    uint64_t hash = 0;
    if (tti_device_of(x)) return tti_exec_device_own_hash(x, out);
    for (int i = 0; i < setup->share.n_blocks; i++) {
        const tti_own_block *own = &setup->share.blocks[i];
        const tti_update_step *step = &setup->desc.plan->updates[own->update];
        hash += tti_hash_block(setup->desc.backend, step, tti_own_params(x, own));
    }
    *out = hash;
    return TUTTI_OK;
}

tutti_status tti_sharded_rehash(tti_exec *x) {
    uint64_t own;
    TTI_TRY(hash_own(x, &own));
    return tti_sharded_gather_hashes(x, own);
}

tutti_status tti_exec_params_hash(tti_exec *x, uint64_t *hash) {
    if (tti_exec_has_sharded_params(x)) {
        /* The hash of the last update, plus the change of this worker's blocks since then. */
        const tti_param_hashes *hashes = tti_sharded_of(x)->hashes;
        uint64_t own;
        TTI_TRY(hash_own(x, &own));
        *hash = hashes->all - hashes->own + own;
        return TUTTI_OK;
    }
    if (tti_device_of(x)) return tti_exec_device_hash(x, hash);
    *hash = tti_exec_flat_hash(x);
    return TUTTI_OK;
}

tutti_status tti_exec_whole_hash(tti_exec *x, uint64_t *hash) {
    TTI_TRY(tti_exec_params_hash(x, hash));
    return tti_divided_hash(tti_setup_of(x)->divided, hash);
}

/* The rank whose hash differs from the others; -1 with two ranks, where it cannot be decided. */
static int odd_rank(const int64_t *hashes, int n_ranks, int stride) {
    for (int r = 0; r < n_ranks && n_ranks > 2; r++) {
        int n_same = 0;
        for (int q = 0; q < n_ranks; q++) n_same += hashes[q * stride] == hashes[r * stride];
        if (2 * n_same < n_ranks) return r;
    }
    return -1;
}

static tutti_status compare(const tti_setup *setup, const int64_t *all, uint64_t step) {
    int n_slots = setup->desc.plan->n_slots;
    for (int i = 0; i < n_slots; i++)
        for (int r = 1; r < setup->n_ranks; r++) {
            if (all[r * n_slots + i] == all[i]) continue;
            const char *name = setup->desc.plan->slots[i].param->name;
            int odd = odd_rank(all + i, setup->n_ranks, n_slots);
            if (odd >= 0)
                return tti_fail(TUTTI_E_MISMATCH,
                                "step %llu: parameter '%s' of rank %d differs from the other ranks",
                                (unsigned long long)step, name, odd);
            return tti_fail(TUTTI_E_MISMATCH,
                            "step %llu: parameter '%s' differs between rank 0 and rank %d",
                            (unsigned long long)step, name, r);
        }
    return TUTTI_OK;
}

/* Compares within a data group, whose workers have equal arrays. */
static tutti_status check_data_group(const tti_setup *setup, const int64_t *mine, uint64_t step) {
    size_t n_slots = (size_t)setup->desc.plan->n_slots;
    if (setup->n_ranks == 1) return TUTTI_OK;
    int64_t *all = calloc(n_slots * (size_t)setup->n_ranks + 1, sizeof *all);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    tutti_status st = tutti_comm_all_gather(setup->desc.comm, mine, all, n_slots, TUTTI_I64);
    if (st == TUTTI_OK) st = compare(setup, all, step);
    free(all);
    return st;
}

/* A device that has all parameters hashes them faster than the host, which would have to copy them
 * first. All workers take the same decision. */
static tutti_status compare_devices(tti_exec *x, bool *same) {
    const tti_setup *setup = tti_setup_of(x);
    uint64_t hash;
    *same = false;
    if (!tti_device_of(x) || tti_offload_of(x) || setup->divided || setup->desc.mixed)
        return TUTTI_OK;
    TTI_TRY(tti_exec_device_hash(x, &hash));
    int64_t mine = (int64_t)hash, *all = calloc((size_t)setup->n_ranks, sizeof *all);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    tutti_status st = tutti_comm_all_gather(setup->desc.comm, &mine, all, 1, TUTTI_I64);
    *same = st == TUTTI_OK;
    for (int r = 0; r < setup->n_ranks; r++) *same = *same && all[r] == all[0];
    free(all);
    return st;
}

/* whole: also compares workers that hold parts of one model. */
static tutti_status check_slots(tti_exec *x, uint64_t step, bool whole) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    int n_slots = setup->desc.plan->n_slots;
    if (setup->n_ranks == 1 && !setup->divided) return TUTTI_OK;
    /* Only one copy exists. Each update compares it with the result of the previous update. */
    if (tti_exec_has_sharded_params(x) || setup->desc.shared_params) return TUTTI_OK;
    bool same;
    TTI_TRY(compare_devices(x, &same));
    if (same) return TUTTI_OK;
    int64_t *mine = calloc((size_t)n_slots + 1, sizeof *mine);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    if (!mine) return st;
    if (device) TTI_TRY_GOTO(tti_exec_device_pull_params(x), cleanup);
    const float *params = device ? tti_exec_device_mirror(device, TTI_STATE_PARAMS)
                                 : tti_exec_array(x, TTI_STATE_PARAMS);
    for (int i = 0; i < n_slots; i++) {
        const tti_slot *slot = &setup->desc.plan->slots[i];
        mine[i] = (int64_t)tti_backend_cpu.hash(params + slot->first, slot->n_elems, 0);
    }
    if (whole) TTI_TRY_GOTO(tti_divided_check(setup->divided, mine, step), cleanup);
    st = check_data_group(setup, mine, step);
cleanup:
    free(mine);
    return st;
}

tutti_status tti_exec_check_params(tti_exec *x, uint64_t step) {
    return check_slots(x, step, true);
}

tutti_status tti_exec_name_difference(tti_exec *x, tutti_status st) {
    char known[512];
    uint64_t step;
    if (!tti_exec_hashes_differed(x, &step)) return st;
    snprintf(known, sizeof known, "%s", tutti_last_error());
    TTI_TRY(check_slots(x, step, false)); /* other data groups do not know the mismatch */
    return tti_fail(st, "%s", known);
}
