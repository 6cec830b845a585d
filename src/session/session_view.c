/* session_view.c - parameters as the caller's memory, without a copy. */
#include <string.h>

#include "base/error.h"
#include "session/session_state.h"
#include "train/job/job.h"

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
    return s->has_views ? tti_crew_run(s, push_worker, NULL) : TUTTI_OK;
}
