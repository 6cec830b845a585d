/* model_file.c - finds, opens and keeps the file of model.file. */
#include "train/model/model_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "data/files/byte_reader.h"
#include "tutti/models.h"

/* The job's own text names the file; the command line or a program may name another one. */
static bool is_named_by_run(const tutti_job *job) {
    const char *source = tti_options_state(&job->options, "model.file")->place.source;
    return job->is_of_run && job->path && source && strcmp(source, job->path) == 0;
}

tutti_status tti_model_file_path(const tutti_job *job, char out[TTI_TEXT_MAX]) {
    const char *file = job->config.model.file;
    snprintf(out, TTI_TEXT_MAX, "%s", job->model_fn ? "" : file);
    if (!out[0] || !is_named_by_run(job)) return TUTTI_OK;
    const char *slash = strrchr(job->path, '/');
    int n_dir = slash ? (int)(slash - job->path) + 1 : 0;
    char kept[TTI_TEXT_MAX];
    int n = snprintf(kept, sizeof kept, "%.*s%s", n_dir, job->path, TTI_MODEL_FILE_KEPT);
    if (n >= (int)sizeof kept)
        return tti_fail(TUTTI_E_CONFIG, "model.file: the path of the run folder is too long");
    if (access(kept, F_OK) == 0) memcpy(out, kept, (size_t)n + 1);
    return TUTTI_OK;
}

tutti_status tti_model_file_open(const tutti_job *job, tti_import **out) {
    char path[TTI_TEXT_MAX];
    *out = NULL;
    TTI_TRY(tti_model_file_path(job, path));
    if (!path[0]) return TUTTI_OK;
    tutti_status st = tti_import_open(path, out);
    if (st == TUTTI_OK) st = tti_import_check(*out);
    if (st == TUTTI_OK) return TUTTI_OK;
    tti_fail_context("model.file: ");
    tti_import_close(*out);
    *out = NULL;
    return st;
}

/* ---- the copy ---- */

static tutti_status copy_bytes(int from, const char *path, uint64_t n_bytes, tti_atomic_file *to) {
    enum { PIECE = 1 << 20 };
    char *piece = malloc(PIECE);
    tutti_status st = piece ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "model.file: out of memory");
    for (uint64_t at = 0; st == TUTTI_OK && at < n_bytes;) {
        size_t n = (size_t)TTI_MIN(n_bytes - at, (uint64_t)PIECE);
        st = tti_pread_all(from, path, piece, n, at);
        if (st == TUTTI_OK) st = tti_atomic_file_write(to, piece, n);
        at += n;
    }
    free(piece);
    return st;
}

tutti_status tti_model_file_keep(const tutti_job *job, const char *run_dir) {
    char path[TTI_TEXT_MAX], kept[TTI_TEXT_MAX + 32];
    int from = -1;
    uint64_t n_bytes = 0;
    tti_atomic_file *to;
    TTI_TRY(tti_model_file_path(job, path));
    if (!path[0]) return TUTTI_OK;
    snprintf(kept, sizeof kept, "%s/%s", run_dir, TTI_MODEL_FILE_KEPT);
    TTI_TRY(tti_open_regular(path, &from, &n_bytes));
    tutti_status st = tti_atomic_file_create(kept, n_bytes, &to);
    if (st == TUTTI_OK) st = copy_bytes(from, path, n_bytes, to);
    if (st == TUTTI_OK) st = tti_atomic_file_commit(to);
    tti_atomic_file_destroy(to);
    close(from);
    if (st != TUTTI_OK) tti_fail_context("model.file: ");
    return st;
}

/* ---- the graph ---- */

tutti_status tti_model_file_build(const tti_import *import, tutti_graph *g, tutti_value *x,
                                  tutti_value **logits) {
    int n_inputs = tti_import_n_inputs(import), n_outputs = tti_import_n_outputs(import);
    if (n_inputs != 1 || n_outputs != 1)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "model.file: the model has %d inputs and %d outputs; only models with one "
                        "input, the samples, and one output, the logits, can be trained",
                        n_inputs, n_outputs);
    tutti_status st = tti_import_build(import, g, &x, logits);
    if (st != TUTTI_OK) tti_fail_context("model.file: ");
    return st;
}

tutti_status tutti_model_describe(const char *path, char **text) {
    tti_import *import;
    tti_str str = {0};
    *text = NULL;
    TTI_TRY(tti_import_open(path, &import));
    tti_import_describe(import, &str);
    tti_import_close(import);
    if (str.failed) {
        tti_str_free(&str);
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    }
    *text = str.text;
    return TUTTI_OK;
}
