/* session_files.c - checkpoints and weight files of a session. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "ckpt/safetensors.h"
#include "data/dataset.h"
#include "session/session_state.h"
#include "train/loop/averaging.h"
#include "train/model/model_file.h"
#include "train/setup/pretrained.h"
#include "train/setup/resolved.h"
#include "train/setup/run_dir.h"

/* A call on files, for all workers. */
typedef struct file_call {
    const char *path;
    const char *yaml;
    tti_run_state state;
} file_call;

static tutti_status check_path(const char *who, const char *path) {
    if (path && *path) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID, "%s: the path is %s", who, path ? "empty" : "NULL");
}

/* Runs save on rank 0 while the other ranks send their parts. */
static tutti_status save_on_first(tti_session_worker *w, const file_call *call,
                                  tutti_status (*save)(tti_session_worker *, const file_call *)) {
    char text[TTI_SESSION_ERROR];
    if (w->rank != 0) return tti_exec_serve(w->exec);
    tutti_status st = save(w, call);
    if (st != TUTTI_OK) snprintf(text, sizeof text, "%s", tutti_last_error());
    TTI_TRY(tti_exec_serve_end(w->exec));
    return st == TUTTI_OK ? TUTTI_OK : tti_fail(st, "%s", text);
}

/* With local SGD the workers have different parameters between two averages. */
static tutti_status check_averaged(const tutti_session *s, const char *who) {
    const tti_job_config *c = &s->b->config;
    bool state;
    if (!tti_job_is_local(c) || s->step == 0 || s->b->n_workers == 1 ||
        tti_averaging_is_due(s->b, s->step, &state))
        return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID,
                    "%s: the workers have different parameters after step %lld; save after a step "
                    "that averages them (parallel.average_every=%lld)",
                    who, (long long)s->step, (long long)c->parallel.average_every);
}

/* ---- checkpoints ---- */

/* An empty metrics.jsonl makes the folder a run folder. */
static tutti_status make_metrics(const char *dir) {
    char path[700];
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    return tti_atomic_file_save(path, "", 0);
}

static tutti_status write_run(const tutti_session *s, const char *dir, const char *yaml) {
    char path[700], note[512];
    tti_model_copy *copy;
    snprintf(path, sizeof path, "%s/job.yaml", dir);
    TTI_TRY(tti_data_spec_save(tti_dataset_spec(s->b->train), dir));
    TTI_TRY(tti_model_file_keep(s->job, dir, note, sizeof note, &copy));
    tutti_status st = tti_model_copy_wait(copy);
    tti_model_copy_destroy(copy);
    if (st != TUTTI_OK) return st;
    TTI_TRY(tti_atomic_file_save(path, yaml, strlen(yaml)));
    return make_metrics(dir);
}

static tutti_status make_run(const tutti_session *s, const char *dir, const char *yaml) {
    char made[600];
    if (tti_run_dir_exists(dir)) return TUTTI_OK;
    TTI_TRY(tti_run_dir_create(dir, "", made, sizeof made));
    tutti_status st = write_run(s, dir, yaml);
    if (st != TUTTI_OK) tti_fail_context("%s: ", dir);
    return st;
}

static tutti_status save_run(tti_session_worker *w, const file_call *call) {
    TTI_TRY(make_run(w->session, call->path, call->yaml));
    return tti_snapshot_save(w->b, w->exec, call->path, call->yaml, &call->state);
}

static tutti_status save_worker(tti_session_worker *w, void *arg) {
    return save_on_first(w, arg, save_run);
}

static tutti_status save(tutti_session *s, const char *run_dir) {
    char *yaml;
    TTI_TRY(check_path("tutti_session_save", run_dir));
    if (strlen(run_dir) >= 500)
        return tti_fail(TUTTI_E_INVALID, "tutti_session_save: the path is longer than 499 bytes");
    TTI_TRY(check_averaged(s, "tutti_session_save"));
    TTI_TRY(tti_job_print_resolved(s->job, s->b, run_dir, &yaml));
    s->run.step = s->step;
    s->has_gradients = false;
    file_call call = {.path = run_dir, .yaml = yaml, .state = s->run};
    tutti_status st = tti_session_try(s, save_worker, &call);
    free(yaml);
    return st;
}

tutti_status tutti_session_save(tutti_session *s, const char *run_dir) {
    TTI_TRY(tti_session_enter(s, __func__));
    return tti_session_leave(s, save(s, run_dir));
}

static tutti_status load_worker(tti_session_worker *w, void *arg) {
    file_call *call = arg;
    tti_run_state state = call->state;
    TTI_TRY(tti_snapshot_restore(w->b, w->exec, call->path, &state));
    TTI_TRY(tti_exec_check_params(w->exec, (uint64_t)state.step));
    if (w == &w->session->workers[0]) w->session->run = state;
    return TUTTI_OK;
}

static tutti_status load(tutti_session *s, const char *run_dir) {
    TTI_TRY(check_path("tutti_session_load", run_dir));
    file_call call = {.path = run_dir, .state = s->run};
    s->has_gradients = false;
    TTI_TRY(tti_session_try(s, load_worker, &call));
    s->step = s->run.step;
    return TUTTI_OK;
}

tutti_status tutti_session_load(tutti_session *s, const char *run_dir) {
    TTI_TRY(tti_session_enter(s, __func__));
    return tti_session_leave(s, load(s, run_dir));
}

/* ---- weights ---- */

static tutti_status get_param(void *user, const tti_ckpt_tensor *tensor, const void **bytes) {
    const tti_session_worker *w = user;
    const float *data;
    TTI_TRY(tti_exec_fetch_whole(w->exec, TTI_STATE_PARAMS, tensor->data, &data));
    *bytes = data;
    return TUTTI_OK;
}

static tutti_status write_weights(tti_session_worker *w, const file_call *call) {
    const tti_plan *plan = w->b->plan;
    const tti_ckpt_access access = {.get = get_param, .user = w};
    tti_safetensors *file = NULL;
    tti_ckpt_tensor *tensors = calloc((size_t)plan->n_slots + 1, sizeof *tensors);
    if (!tensors) return tti_fail(TUTTI_E_NOMEM, "session: out of memory");
    for (int i = 0; i < plan->n_slots; i++) {
        tti_node *param = (tti_node *)(uintptr_t)plan->slots[i].param;
        tensors[i] = (tti_ckpt_tensor){param->name, param->out[0]->type, param};
    }
    tutti_status st = tti_exec_pull(w->exec);
    if (st == TUTTI_OK)
        st = tti_safetensors_write_by(call->path, tensors, (size_t)plan->n_slots, &access, &file);
    tti_safetensors_close(file);
    free(tensors);
    return st;
}

static tutti_status save_weights_worker(tti_session_worker *w, void *arg) {
    return save_on_first(w, arg, write_weights);
}

tutti_status tutti_session_save_weights(tutti_session *s, const char *path) {
    TTI_TRY(tti_session_enter(s, __func__));
    file_call call = {.path = path};
    tutti_status st = check_path(__func__, path);
    if (st == TUTTI_OK) st = check_averaged(s, __func__);
    if (st == TUTTI_OK) {
        s->has_gradients = false;
        st = tti_session_try(s, save_weights_worker, &call);
    }
    return tti_session_leave(s, st);
}

static tutti_status load_weights_worker(tti_session_worker *w, void *arg) {
    const file_call *call = arg;
    TTI_TRY(tti_pretrained_load(w->b, w->exec, call->path));
    return tti_exec_check_params(w->exec, (uint64_t)w->session->step);
}

tutti_status tutti_session_load_weights(tutti_session *s, const char *path) {
    TTI_TRY(tti_session_enter(s, __func__));
    file_call call = {.path = path};
    tutti_status st = check_path(__func__, path);
    if (st == TUTTI_OK) {
        s->has_gradients = false;
        st = tti_session_try(s, load_weights_worker, &call);
    }
    return tti_session_leave(s, st);
}
