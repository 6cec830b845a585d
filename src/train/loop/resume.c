/* resume.c - compares the job of a resumed run with the job in its checkpoint, key by key.
 *
 * job.yaml in the run folder may have been edited or damaged.  The checkpoint's manifest keeps the
 * job under a checksum, so every difference is found. */
#include "train/loop/resume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options/option_value.h"
#include "base/yaml.h"
#include "ckpt/ckpt.h"
#include "train/setup/run_dir.h"

/* A resumed run cannot change these keys, because optimizer state, sample order and tensors depend
 * on them. */
static const char *const fixed_keys[] = {"model.name",
                                         "model.hidden",
                                         "model.stem",
                                         "model.batch_norm",
                                         "model.width_multiplier",
                                         "model.patch",
                                         "model.depths",
                                         "model.window",
                                         "model.upsample",
                                         "model.size",
                                         "model.layers",
                                         "model.heads",
                                         "model.width",
                                         "model.context",
                                         "model.vocabulary",
                                         "model.head",
                                         "data.format",
                                         "train.batch",
                                         "train.seed",
                                         "train.loss",
                                         "optimizer.name",
                                         "parallel.shards"};

/* A resumed run may change these keys without notice, because the result does not depend on
 * them. */
static const char *const free_keys[] = {"data.threads",          "data.prefetch",
                                        "data.resident",         "parallel.workers",
                                        "parallel.place",        "parallel.min_workers",
                                        "parallel.max_workers",  "parallel.spares",
                                        "parallel.mirror",       "parallel.hostfile",
                                        "parallel.verify_every", "parallel.on_corruption",
                                        "parallel.timeout_ms",   "parallel.phase_timeout_ms",
                                        "parallel.data",         "parallel.copies"};

static bool is_one_of(const char *key, const char *const *keys, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

static bool is_fixed(const char *key) { return is_one_of(key, fixed_keys, TTI_COUNT(fixed_keys)); }

static bool is_free(const char *key) {
    return strncmp(key, "run.", 4) == 0 || is_one_of(key, free_keys, TTI_COUNT(free_keys));
}

/* True if the value was set on the command line or by the caller, not in a file. */
static bool was_asked_for(const tti_option_state *state) {
    return state->place.source && state->place.line == 0 && !state->is_own;
}

static void add_difference(const tti_option *row, const char *here, const char *there,
                           const tti_option_state *state, tti_str *out) {
    tti_str_printf(out, "\n  %s: %s here (", row->key, here);
    if (!state->place.source)
        tti_str_add(out, "the default");
    else if (state->place.line > 0)
        tti_str_printf(out, "%s:%d", state->place.source, state->place.line);
    else
        tti_str_add(out, state->place.source);
    tti_str_printf(out, "), %s in the checkpoint", there);
}

/* Lists keys with different values: in `refused` those that must not differ, and separately those
 * that the user did not set. */
static tutti_status list_differences(const tutti_job *job, const tutti_job *saved, tti_str *refused,
                                     tti_str *notice) {
    tti_str here = {0}, there = {0};
    for (size_t i = 0; i < tti_job_table.n_rows; i++) {
        const tti_option *row = &tti_job_table.rows[i];
        const tti_option_state *state = tti_job_option_state(job, row->key);
        if (is_free(row->key)) continue;
        tti_str_clear(&here);
        tti_str_clear(&there);
        tti_option_format(row, tti_job_config_of(job), true, &here);
        tti_option_format(row, &saved->config, true, &there);
        if (strcmp(tti_str_text(&here), tti_str_text(&there)) == 0) continue;
        /* A job file of an older version still has auto here; its checkpoint has the value. */
        if (strcmp(tti_str_text(&here), "auto") == 0 && !was_asked_for(state)) continue;
        tti_str *list = is_fixed(row->key) ? refused : was_asked_for(state) ? NULL : notice;
        if (list) add_difference(row, tti_str_text(&here), tti_str_text(&there), state, list);
    }
    bool failed = here.failed || there.failed || refused->failed || notice->failed;
    tti_str_free(&here);
    tti_str_free(&there);
    return failed ? tti_fail(TUTTI_E_NOMEM, "resume: out of memory") : TUTTI_OK;
}

/* A job that can no longer be parsed, such as one of an older version, is not compared. */
static tutti_status load_saved(const char *yaml, size_t n_bytes, tutti_job **out) {
    TTI_TRY(tutti_job_create(out));
    tutti_status st = tti_job_load_text(*out, yaml, n_bytes, "checkpoint");
    if (st == TUTTI_OK) st = tutti_job_check(*out);
    if (st == TUTTI_OK) return st;
    tutti_job_destroy(*out);
    *out = NULL;
    return st;
}

static tutti_status compare(const tutti_job *job, const tutti_job *saved, const char *run_dir,
                            const tti_ckpt *ckpt, tti_str *notice) {
    tti_str refused = {0};
    tutti_status st = list_differences(job, saved, &refused, notice);
    if (st == TUTTI_OK && refused.n_bytes > 0)
        st = tti_fail(TUTTI_E_CONFIG,
                      "--resume %s: its checkpoint cannot be continued with other values of these "
                      "keys:%s\nLeave them as they were to resume.  To train with other values, "
                      "start a new run from these weights: tutti train %s/job.yaml run.dir=auto "
                      "KEY=VALUE model.init=%s",
                      run_dir, tti_str_text(&refused), run_dir, tti_ckpt_dir(ckpt));
    tti_str_free(&refused);
    return st;
}

tutti_status tti_resume_check(const tutti_job *job, const char *run_dir, tti_str *notice) {
    tti_ckpt *ckpt;
    tutti_job *saved = NULL;
    if (tti_ckpt_open_newest(run_dir, &ckpt) != TUTTI_OK) {
        tti_clear_error(); /* loading the checkpoint reports it */
        return TUTTI_OK;
    }
    const char *yaml = tti_ckpt_get_text(ckpt, "job");
    tutti_status st = TUTTI_OK;
    if (yaml && load_saved(yaml, strlen(yaml), &saved) != TUTTI_OK) tti_clear_error();
    if (saved) st = compare(job, saved, run_dir, ckpt, notice);
    tutti_job_destroy(saved);
    tti_ckpt_close(ckpt);
    return st;
}

/* True if each key that `asked` sets has the same value in `found`. */
static bool is_answer_to(const tutti_job *found, const tutti_job *asked) {
    tti_str a = {0}, b = {0};
    bool same = true;
    for (size_t i = 0; i < tti_job_table.n_rows && same; i++) {
        tti_str_clear(&a);
        tti_str_clear(&b);
        tti_option_format(&tti_job_table.rows[i], &found->config, true, &a);
        tti_option_format(&tti_job_table.rows[i], &asked->config, true, &b);
        same = !a.failed && !b.failed &&
               (strcmp(tti_str_text(&a), tti_str_text(&b)) == 0 ||
                strcmp(tti_str_text(&b), "auto") == 0);
    }
    tti_str_free(&a);
    tti_str_free(&b);
    return same;
}

bool tti_resume_is_own(const char *dir, const char *yaml) {
    char path[700];
    tutti_job *found = NULL, *asked = NULL;
    tti_arena arena = {0};
    const char *text;
    size_t n_bytes;
    snprintf(path, sizeof path, "%s/job.yaml", dir);
    bool own = tti_run_dir_exists(dir) &&
               tti_yaml_read_file(path, &arena, &text, &n_bytes) == TUTTI_OK &&
               load_saved(text, n_bytes, &found) == TUTTI_OK &&
               load_saved(yaml, strlen(yaml), &asked) == TUTTI_OK && is_answer_to(found, asked);
    tutti_job_destroy(found);
    tutti_job_destroy(asked);
    tti_arena_free(&arena);
    tti_clear_error();
    return own;
}
