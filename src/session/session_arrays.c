/* session_arrays.c - parameters, gradients and optimizer state by name. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "session/session_state.h"
#include "train/job/job.h"
#include "train/job/optimizer.h"

/* An array of one parameter. */
typedef struct array_call {
    const tti_slot *slot;
    int k;              /* as in tti_exec_fetch */
    const float *write; /* NULL: it is read */
    float *read;        /* host memory */
    void *to_device;    /* then, from there, or from device to device; NULL: not wanted */
} array_call;

/* ---- names ---- */

static tutti_status unknown(tutti_array_kind kind, const char *name) {
    static const char *const kinds[] = {"parameter", "gradient", "optimizer state", "average"};
    return tti_fail(TUTTI_E_INVALID, "session: there is no %s '%s'", kinds[kind], name);
}

/* "NAME.STATE" */
static tutti_status find_state(const tutti_session *s, const char *name, array_call *out) {
    const char *dot = strrchr(name, '.');
    const tti_plan *plan = s->b->plan;
    for (int k = 0; dot && k < plan->n_states; k++) {
        if (strcmp(s->optimizer->states[k], dot + 1) != 0) continue;
        for (int i = 0; i < plan->n_slots; i++) {
            const char *param = plan->slots[i].param->name;
            bool is_it = strlen(param) == (size_t)(dot - name) &&
                         memcmp(param, name, (size_t)(dot - name)) == 0;
            if (!is_it || plan->slots[i].buffer) continue;
            *out = (array_call){.slot = &plan->slots[i], .k = k};
            return TUTTI_OK;
        }
    }
    return unknown(TUTTI_STATE, name);
}

static tutti_status find_array(const tutti_session *s, tutti_array_kind kind, const char *name,
                               array_call *out) {
    static const int numbers[] = {[TUTTI_PARAMETER] = TTI_STATE_PARAMS,
                                  [TUTTI_GRADIENT] = TTI_STATE_GRADS,
                                  [TUTTI_AVERAGE] = TTI_STATE_EMA};
    if ((unsigned)kind >= TUTTI_N_ARRAY_KINDS)
        return tti_fail(TUTTI_E_INVALID, "session: array kind %d does not exist", (int)kind);
    if (!name) return tti_fail(TUTTI_E_INVALID, "session: the name of an array is NULL");
    if (kind == TUTTI_STATE) return find_state(s, name, out);
    int i = tti_plan_find_slot(s->b->plan, name);
    bool is_missing = i < 0 || (kind == TUTTI_GRADIENT && s->b->plan->slots[i].buffer) ||
                      (kind == TUTTI_AVERAGE && !s->info.has_average);
    if (is_missing) return unknown(kind, name);
    if (kind == TUTTI_GRADIENT && !s->has_gradients)
        return tti_fail(TUTTI_E_INVALID,
                        "session: there is no gradient of '%s'; call tutti_session_gradients",
                        name);
    *out = (array_call){.slot = &s->b->plan->slots[i], .k = numbers[kind]};
    return TUTTI_OK;
}

static tutti_status check_tensor(const tutti_session *s, const char *name, const tti_slot *slot,
                                 const tutti_tensor *t) {
    char want[128], got[128];
    if (!t) return tti_fail(TUTTI_E_INVALID, "session: the tensor for '%s' is NULL", name);
    tutti_tensor named = *t;
    named.name = name;
    TTI_TRY(tti_tensor_check(s, "array", &named));
    const tutti_type *type = &slot->param->out[0]->type;
    if (t->type.dtype == TUTTI_F32 && tti_shape_equal(&t->type.shape, &type->shape))
        return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID, "session: the tensor for '%s' must be %s, got %s", name,
                    tti_type_text(&(tutti_type){TUTTI_F32, type->shape}, want, sizeof want),
                    tti_type_text(&t->type, got, sizeof got));
}

/* ---- one array ---- */

static bool is_first(const tti_session_worker *w) { return w->rank == 0; }

/* With desc.comm rank 0 alone can gather the parts of others, and every rank wants the result. */
static tutti_status share_read(tti_session_worker *w, const array_call *call) {
    if (!w->session->comm || tutti_comm_n_ranks(w->comm) == 1) return TUTTI_OK;
    return tutti_comm_broadcast(w->comm, call->read, call->slot->n_elems, TUTTI_F32, 0);
}

static tutti_status read_worker(tti_session_worker *w, void *arg) {
    const array_call *call = arg;
    const float *data;
    float *grads;
    tutti_status st = TUTTI_OK;
    if (call->k == TTI_STATE_GRADS) TTI_TRY(tti_exec_whole_gradients(w->exec, &grads));
    if (!is_first(w)) {
        TTI_TRY(tti_exec_serve(w->exec));
        return share_read(w, call);
    }
    st = tti_exec_pull_array(w->exec, call->k, call->slot->param);
    if (st == TUTTI_OK) st = tti_exec_fetch_whole(w->exec, call->k, call->slot->param, &data);
    if (st == TUTTI_OK) memcpy(call->read, data, call->slot->n_elems * sizeof *data);
    TTI_TRY(tti_exec_serve_end(w->exec));
    TTI_TRY(st);
    return share_read(w, call);
}

static tutti_status write_worker(tti_session_worker *w, void *arg) {
    const array_call *call = arg;
    TTI_TRY(tti_exec_write_array(w->exec, call->k, call->slot->param, call->write));
    if (call->k != TTI_STATE_PARAMS || !tti_exec_has_ema(w->exec)) return TUTTI_OK;
    return tti_exec_write_array(w->exec, TTI_STATE_EMA, call->slot->param, call->write);
}

/* ---- arrays in device memory ---- */

static bool is_called(const tti_session_worker *w) { return w == &w->session->workers[0]; }

/* Copies on the device of the first worker, if it has the whole array. */
static tutti_status copy_worker(tti_session_worker *w, void *arg) {
    array_call *call = arg;
    bool done;
    if (!is_called(w)) return TUTTI_OK;
    TTI_TRY(tti_exec_copy_array(w->exec, call->k, call->slot->param, call->to_device, &done));
    if (done) call->to_device = NULL;
    return TUTTI_OK;
}

static tutti_status to_device_worker(tti_session_worker *w, void *arg) {
    const array_call *call = arg;
    if (!is_called(w)) return TUTTI_OK;
    TTI_TRY(tti_worker_copy(w, call->to_device, call->read, call->slot->n_elems * sizeof(float)));
    return tti_worker_sync(w);
}

static tutti_status from_device_worker(tti_session_worker *w, void *arg) {
    const array_call *call = arg;
    if (!is_called(w)) return TUTTI_OK;
    TTI_TRY(tti_worker_copy(w, call->read, call->write, call->slot->n_elems * sizeof(float)));
    return tti_worker_sync(w);
}

/* ---- calls ---- */

static tutti_status read_to_host(tutti_session *s, tutti_array_kind kind, array_call *call) {
    bool is_partitioned = s->b->config.parallel.zero > 0 && kind != TUTTI_GRADIENT;
    if (is_partitioned) s->has_gradients = false; /* state is gathered in their memory */
    TTI_TRY(tti_session_run(s, read_worker, call));
    for (size_t i = 0; kind == TUTTI_GRADIENT && i < call->slot->n_elems; i++)
        call->read[i] = (float)((double)call->read[i] * s->grad_scale);
    return TUTTI_OK;
}

static tutti_status alloc_host(const array_call *call, float **out) {
    *out = malloc(call->slot->n_elems * sizeof **out + 64);
    return *out ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "session: out of memory for an array");
}

static tutti_status read_to_device(tutti_session *s, tutti_array_kind kind, array_call *call) {
    if (!s->comm) TTI_TRY(tti_session_run(s, copy_worker, call));
    if (!call->to_device) return TUTTI_OK;
    TTI_TRY(alloc_host(call, &call->read));
    tutti_status st = read_to_host(s, kind, call);
    if (st == TUTTI_OK) st = tti_session_run(s, to_device_worker, call);
    free(call->read);
    return st;
}

static tutti_status read_array(tutti_session *s, tutti_array_kind kind, const char *name,
                               const tutti_tensor *tensor) {
    array_call call;
    TTI_TRY(find_array(s, kind, name, &call));
    TTI_TRY(check_tensor(s, name, call.slot, tensor));
    if (tensor->device > 0) {
        call.to_device = tensor->data;
        return read_to_device(s, kind, &call);
    }
    call.read = tensor->data;
    return read_to_host(s, kind, &call);
}

static tutti_status write_array(tutti_session *s, tutti_array_kind kind, const char *name,
                                const tutti_tensor *tensor) {
    array_call call;
    if (kind == TUTTI_GRADIENT)
        return tti_fail(TUTTI_E_INVALID, "session: gradients are read only");
    TTI_TRY(find_array(s, kind, name, &call));
    TTI_TRY(check_tensor(s, name, call.slot, tensor));
    call.write = tensor->data;
    s->has_gradients = false;
    if (tensor->device == 0) return tti_session_run(s, write_worker, &call);
    TTI_TRY(alloc_host(&call, &call.read));
    tutti_status st = tti_session_run(s, from_device_worker, &call);
    call.write = call.read;
    if (st == TUTTI_OK) st = tti_session_run(s, write_worker, &call);
    free(call.read);
    return st;
}

tutti_status tti_session_array_type(tutti_session *s, tutti_array_kind kind, const char *name,
                                    tutti_type *out) {
    array_call call;
    TTI_TRY(tti_session_enter(s, "tutti_session_read_dlpack"));
    tutti_status st = find_array(s, kind, name, &call);
    if (st == TUTTI_OK) *out = (tutti_type){TUTTI_F32, call.slot->param->out[0]->type.shape};
    return tti_session_leave(s, st);
}

tutti_status tutti_session_read(tutti_session *s, tutti_array_kind kind, const char *name,
                                const tutti_tensor *tensor) {
    TTI_TRY(tti_session_enter(s, __func__));
    return tti_session_leave(s, read_array(s, kind, name, tensor));
}

tutti_status tutti_session_write(tutti_session *s, tutti_array_kind kind, const char *name,
                                 const tutti_tensor *tensor) {
    TTI_TRY(tti_session_enter(s, __func__));
    return tti_session_leave(s, write_array(s, kind, name, tensor));
}

/* ---- the hash ---- */

static tutti_status hash_worker(tti_session_worker *w, void *arg) {
    uint64_t hash = 0;
    tutti_status st = TUTTI_OK;
    if (is_first(w)) {
        st = tti_exec_pull(w->exec);
        if (st == TUTTI_OK) st = tti_snapshot_hash(w->b, w->exec, &hash);
        TTI_TRY(tti_exec_serve_end(w->exec));
        TTI_TRY(st);
    } else {
        TTI_TRY(tti_exec_serve(w->exec));
    }
    if (w->session->comm && tutti_comm_n_ranks(w->comm) > 1)
        TTI_TRY(tutti_comm_broadcast(w->comm, &hash, sizeof hash, TUTTI_U8, 0));
    if (w == &w->session->workers[0]) *(uint64_t *)arg = hash;
    return TUTTI_OK;
}

tutti_status tutti_session_hash(tutti_session *s, uint64_t *hash) {
    TTI_TRY(tti_session_enter(s, __func__));
    return tti_session_leave(s,
                             hash ? tti_session_run(s, hash_worker, hash)
                                  : tti_fail(TUTTI_E_INVALID, "tutti_session_hash: hash is NULL"));
}

/* ---- parameters as the caller's memory, without a copy ---- */

/* One array with all parameters, which every worker of the session reads and updates. */
static tutti_status check_one_array(const tutti_session *s) {
    const char *why = NULL;
    if (tti_session_device_ops(s))
        why = "they are in the memory of devices";
    else if (s->comm)
        why = "other processes have copies of them";
    else if (tti_job_has_server(tti_job_config_of(s->job)))
        why = "a parameter server has them";
    else if (s->n_workers > 1 && !s->shared_params)
        why = "each worker has its own or a part of them";
    if (!why) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "tutti_session_view: the parameters are not one array of this process, because "
                    "%s; use tutti_session_read",
                    why);
}

static tutti_status view(tutti_session *s, const char *name, tutti_tensor *out) {
    if (!name || !out)
        return tti_fail(TUTTI_E_INVALID, "tutti_session_view: %s is NULL", name ? "out" : "name");
    const tutti_parameter *found = NULL;
    for (int i = 0; i < s->info.n_parameters && !found; i++)
        if (strcmp(s->parameters[i].name, name) == 0) found = &s->parameters[i];
    if (!found) return tti_fail(TUTTI_E_INVALID, "session: there is no parameter '%s'", name);
    TTI_TRY(check_one_array(s));
    *out = (tutti_tensor){.name = found->name,
                          .type = {TUTTI_F32, found->shape},
                          .data = tti_exec_params(s->workers[0].exec) + found->first};
    s->has_views = true;
    return TUTTI_OK;
}

tutti_status tutti_session_view(tutti_session *s, const char *name, tutti_tensor *out) {
    TTI_TRY(tti_session_enter(s, __func__));
    return tti_session_leave(s, view(s, name, out));
}

static tutti_status push_worker(tti_session_worker *w, void *arg) {
    (void)arg;
    return tti_exec_push(w->exec);
}

tutti_status tti_session_accept_views(tutti_session *s) {
    return s->has_views ? tti_session_run(s, push_worker, NULL) : TUTTI_OK;
}
