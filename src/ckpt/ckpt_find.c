/* ckpt_find.c - finds the newest valid checkpoint of a run. */
#include <stdlib.h>

#include "base/error.h"
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_dir.h"

tutti_status tti_ckpt_list(const char *run_dir, int64_t **out, size_t *n_steps) {
    *out = NULL;
    *n_steps = 0;
    tti_generation *list;
    size_t n;
    TTI_TRY(tti_ckpt_scan(run_dir, &list, &n));
    int64_t *steps = n ? malloc(n * sizeof *steps) : NULL;
    tutti_status st = TUTTI_OK;
    if (n && !steps) st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", run_dir);
    for (size_t i = 0; i < n && steps; i++) steps[i] = list[i].step;
    free(list);
    if (st != TUTTI_OK) return st;
    *out = steps;
    *n_steps = n;
    return TUTTI_OK;
}

/* Tells of a generation that cannot be used; keeps the text of the newest one. */
static void pass_over(tti_ckpt_warn_fn warn, void *user, tti_str *newest) {
    tti_str text = {0};
    tti_str_printf(&text, "checkpoint skipped: %s", tutti_last_error());
    if (newest->n_bytes == 0) tti_str_add(newest, tutti_last_error());
    if (warn) warn(user, tti_str_text(text.failed ? newest : &text));
    tti_str_free(&text);
}

static tutti_status open_newest(const char *run_dir, const tti_generation *list, size_t n,
                                const tti_readers *readers, tti_ckpt_warn_fn warn, void *user,
                                tti_ckpt **out) {
    tti_str newest = {0};
    tti_arena arena = {0};
    tutti_status st = TUTTI_E_CHECKPOINT;
    for (size_t i = 0; i < n; i++) {
        const char *dir =
            tti_arena_printf(&arena, "%s/" TTI_CKPT_FOLDER "/%s", run_dir, list[i].name);
        st = dir ? tti_ckpt_open_dir_by(dir, readers, out)
                 : tti_fail(TUTTI_E_NOMEM, "%s: out of memory", run_dir);
        if (st != TUTTI_E_CHECKPOINT) break;
        pass_over(warn, user, &newest);
    }
    if (st == TUTTI_E_CHECKPOINT)
        st = tti_fail(st, "%s: none of its %zu checkpoints is good; the newest: %s", run_dir, n,
                      tti_str_text(&newest));
    tti_arena_free(&arena);
    tti_str_free(&newest);
    return st;
}

tutti_status tti_ckpt_open(const char *run_dir, tti_ckpt_warn_fn warn, void *user, tti_ckpt **out) {
    return tti_ckpt_open_by(run_dir, NULL, warn, user, out);
}

tutti_status tti_ckpt_open_by(const char *run_dir, const tti_readers *readers,
                              tti_ckpt_warn_fn warn, void *user, tti_ckpt **out) {
    *out = NULL;
    tti_generation *list;
    size_t n;
    TTI_TRY(tti_ckpt_scan(run_dir, &list, &n));
    if (n == 0)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: no checkpoint in " TTI_CKPT_FOLDER "/", run_dir);
    tutti_status st = open_newest(run_dir, list, n, readers, warn, user, out);
    free(list);
    return st;
}

tutti_status tti_ckpt_open_newest(const char *run_dir, tti_ckpt **out) {
    tti_generation *list;
    tti_arena arena = {0};
    size_t n;
    *out = NULL;
    TTI_TRY(tti_ckpt_scan(run_dir, &list, &n));
    tutti_status st = tti_fail(TUTTI_E_CHECKPOINT, "%s: no checkpoint that can be read", run_dir);
    for (size_t i = 0; i < n && st != TUTTI_OK; i++) {
        const char *dir =
            tti_arena_printf(&arena, "%s/" TTI_CKPT_FOLDER "/%s", run_dir, list[i].name);
        if (dir) st = tti_ckpt_open_dir(dir, false, out);
    }
    tti_arena_free(&arena);
    free(list);
    return st;
}
