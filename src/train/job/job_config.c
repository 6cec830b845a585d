/* job_config.c - predicates and derived values of a job's keys. */
#include <string.h>

#include "train/job/job.h"
#include "tutti/models.h"

bool tti_job_has_server(const tti_job_config *c) {
    return strcmp(c->parallel.sync, "parameter-server") == 0;
}

bool tti_job_is_local(const tti_job_config *c) { return strcmp(c->parallel.sync, "local") == 0; }

bool tti_job_is_async(const tti_job_config *c) {
    return tti_job_has_server(c) && c->parallel.staleness != 0;
}

bool tti_job_is_exact(const tti_job_config *c) { return strcmp(c->parallel.mode, "exact") == 0; }

static bool is_left_open(const char *text) {
    return strcmp(text, "auto") == 0 || strcmp(text, "none") == 0;
}

const tutti_model *tti_job_model(const tti_job_config *c) {
    return *c->model.plugin || *c->model.file ? NULL : tutti_model_find(c->model.name);
}

bool tti_job_names_size(const tti_job_config *c) { return !is_left_open(c->model.size); }

bool tti_job_names_backend(const tti_job_config *c) {
    return strcmp(c->parallel.backend, "auto") != 0 && strcmp(c->parallel.backend, "fastest") != 0;
}
