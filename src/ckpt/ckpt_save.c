/* ckpt_save.c - writes a checkpoint, verifies it, publishes it, and removes old ones.
 *
 * No existing file is changed until the new folder has been read back from the disk against its
 * checksums.  The rename of the folder is the commit. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/files/atomic_file.h"
#include "base/files/plain_file.h"
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_dir.h"
#include "ckpt/manifest.h"

typedef struct saving {
    const tti_ckpt_save_desc *desc;
    tti_arena arena;                          /* of the paths */
    const char *dir;                          /* RUN/checkpoints */
    int lock;                                 /* descriptor of dir with a lock on it; -1: none */
    const char *temporary, *final, *replaced; /* paths of the folder */
    char name[40], temporary_name[40], replaced_name[40]; /* the same without dir */
} saving;

static tutti_status fail_errno(const char *path, const char *what) {
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: %s: %s", path, what, strerror(errno));
}

static tutti_status check_desc(const tti_ckpt_save_desc *desc) {
    if (!desc->run_dir || !desc->run_dir[0])
        return tti_fail(TUTTI_E_INVALID, "checkpoint: the run folder is not given");
    if (desc->meta.step < 0 || desc->meta.step > 1000000000000000)
        return tti_fail(TUTTI_E_INVALID, "checkpoint: step %lld", (long long)desc->meta.step);
    if (desc->meta.epoch < 0 || desc->meta.position < 0 || desc->meta.n_shards < 0)
        return tti_fail(TUTTI_E_INVALID, "checkpoint: negative epoch, position or n_shards");
    if (desc->keep != 0 && desc->keep < 2)
        return tti_fail(TUTTI_E_INVALID, "checkpoint: keep %d: at least 2 generations are kept",
                        desc->keep);
    if (desc->n_texts > TTI_MANIFEST_MAX_TEXTS)
        return tti_fail(TUTTI_E_INVALID, "checkpoint: %zu texts, at most %d", desc->n_texts,
                        TTI_MANIFEST_MAX_TEXTS);
    for (size_t i = 0; i < desc->n_texts; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(desc->texts[i].key, desc->texts[k].key) == 0)
                return tti_fail(TUTTI_E_INVALID, "checkpoint: two texts named '%s'",
                                desc->texts[i].key);
    return TUTTI_OK;
}

static tutti_status make_paths(saving *s) {
    long long step = s->desc->meta.step;
    snprintf(s->name, sizeof s->name, "step-%09lld", step);
    snprintf(s->temporary_name, sizeof s->temporary_name, "step-%09lld.tmp", step);
    snprintf(s->replaced_name, sizeof s->replaced_name, "step-%09lld.old", step);
    s->dir = tti_ckpt_path(&s->arena, s->desc->run_dir, TTI_CKPT_FOLDER);
    if (s->dir) {
        s->final = tti_ckpt_path(&s->arena, s->dir, s->name);
        s->temporary = tti_ckpt_path(&s->arena, s->dir, s->temporary_name);
        s->replaced = tti_ckpt_path(&s->arena, s->dir, s->replaced_name);
    }
    if (!tti_arena_failed(&s->arena)) return TUTTI_OK;
    return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", s->desc->run_dir);
}

static tutti_status open_folder(saving *s) {
    bool made = !TTI_FAULT("ckpt.mkdir") && mkdir(s->dir, 0777) == 0;
    if (!made && errno != EEXIST) return fail_errno(s->dir, "cannot make the folder");
    if (made) TTI_TRY(tti_dir_sync(s->desc->run_dir));
    TTI_TRY(tti_plain_folder_open(s->dir, &s->lock));
    if (flock(s->lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) /* else: no locks there */
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: another process is saving into it", s->dir);
    tti_ckpt_remove_leftovers(s->dir);
    return TUTTI_OK;
}

static void describe_file(const tti_safetensors *file, tti_manifest_file *out) {
    *out = (tti_manifest_file){.n_bytes = file->n_bytes,
                               .n_header_bytes = file->n_header_bytes,
                               .crc = file->crc,
                               .header_crc = file->header_crc,
                               .n_entries = file->n_entries,
                               .entries = file->entries};
}

static tutti_status write_file(const saving *s, tti_ckpt_file which, tti_safetensors **out) {
    bool model = which == TTI_CKPT_MODEL;
    tti_arena arena = {0};
    const char *path = tti_ckpt_path(&arena, s->temporary, tti_ckpt_file_name(which));
    tutti_status st;
    if (!path)
        st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", s->temporary);
    else if (TTI_FAULT("ckpt.write"))
        st = fail_errno(path, "write");
    else
        st = tti_safetensors_write_by(path, model ? s->desc->params : s->desc->optimizer,
                                      model ? s->desc->n_params : s->desc->n_optimizer,
                                      model ? s->desc->params_access : s->desc->access, out);
    tti_arena_free(&arena);
    return st;
}

static tutti_status write_manifest(const saving *s, const tti_manifest *manifest) {
    tti_arena arena = {0};
    tti_str text = {0};
    const char *path = tti_ckpt_path(&arena, s->temporary, TTI_MANIFEST_NAME);
    tutti_status st = path ? tti_manifest_print(manifest, &text)
                           : tti_fail(TUTTI_E_NOMEM, "%s: out of memory", s->temporary);
    if (st == TUTTI_OK) st = tti_atomic_file_save(path, text.text, text.n_bytes);
    tti_str_free(&text);
    tti_arena_free(&arena);
    return st;
}

static tutti_status write_all(const saving *s) {
    if (TTI_FAULT("ckpt.mkdir") || mkdir(s->temporary, 0777))
        return fail_errno(s->temporary, "cannot make the folder");
    tti_manifest manifest = {.meta = s->desc->meta, .n_texts = s->desc->n_texts};
    manifest.texts = (tti_ckpt_text *)(uintptr_t)s->desc->texts; /* printed only */
    tti_safetensors *files[TTI_CKPT_N_FILES] = {NULL};
    tutti_status st = TUTTI_OK;
    for (int p = 0; p < TTI_CKPT_N_FILES; p++) {
        TTI_TRY_GOTO(write_file(s, (tti_ckpt_file)p, &files[p]), cleanup);
        describe_file(files[p], &manifest.files[p]);
    }
    TTI_TRY_GOTO(write_manifest(s, &manifest), cleanup);
cleanup:
    for (int p = 0; p < TTI_CKPT_N_FILES; p++) tti_safetensors_close(files[p]);
    return st;
}

/* After fsync the pages are clean and can be dropped, so the next read comes from the disk. */
static void drop_cache(const char *dir, const char *name) {
    tti_arena arena = {0};
    const char *path = tti_ckpt_path(&arena, dir, name);
    int fd = path ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (fd >= 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    tti_arena_free(&arena);
}

static tutti_status verify(const char *dir) {
    tti_ckpt *ckpt;
    TTI_TRY(tti_ckpt_open_dir(dir, true, &ckpt));
    tti_ckpt_close(ckpt);
    return TUTTI_OK;
}

static tutti_status verify_new(const saving *s) {
    for (int p = 0; p < TTI_CKPT_N_FILES; p++)
        drop_cache(s->temporary, tti_ckpt_file_name((tti_ckpt_file)p));
    drop_cache(s->temporary, TTI_MANIFEST_NAME);
    tutti_status st =
        TTI_FAULT("ckpt.verify") ? fail_errno(s->temporary, "read back") : verify(s->temporary);
    if (st != TUTTI_OK) tti_fail_context("a file that was just written cannot be read back: ");
    return st;
}

static bool exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

/* Renames a folder of the same step to step-N.old, which counts as a generation until the new one
 * has its name.  If both exist already, from a crash at this point, a good one is kept. */
static tutti_status put_aside(const saving *s) {
    if (!exists(s->final)) return TUTTI_OK;
    if (exists(s->replaced)) {
        bool good = verify(s->final) == TUTTI_OK;
        tti_ckpt_remove(s->dir, good ? s->replaced_name : s->name);
        if (!good) return TUTTI_OK;
    }
    return rename(s->final, s->replaced) ? fail_errno(s->final, "put aside") : TUTTI_OK;
}

static tutti_status publish(const saving *s) {
    TTI_TRY(put_aside(s));
    if (TTI_FAULT("ckpt.rename") || rename(s->temporary, s->final)) {
        tutti_status st = fail_errno(s->temporary, "rename");
        if (exists(s->replaced) && rename(s->replaced, s->final))
            tti_fail_context("(the previous one is now %s) ", s->replaced_name);
        return st;
    }
    return tti_dir_sync(s->dir);
}

static bool is_good(const saving *s, const tti_generation *g) {
    tti_arena arena = {0};
    const char *path = tti_ckpt_path(&arena, s->dir, g->name);
    bool good = path && verify(path) == TUTTI_OK;
    tti_arena_free(&arena);
    return good;
}

/* Lets go what `keep` newer good generations make superfluous, and what stands before the new one
 * without being good.  Never a failure: the new generation is there, the next save tries again. */
static void prune(const saving *s) {
    tti_generation *list;
    size_t n, n_older = 0;
    if (tti_ckpt_scan(s->desc->run_dir, &list, &n) != TUTTI_OK) return;
    size_t keep = s->desc->keep ? (size_t)s->desc->keep : 2, n_good = 1;
    int64_t step = s->desc->meta.step;
    for (size_t i = 0; i < n; i++) n_older += list[i].step < step;
    for (size_t i = 0; i < n; i++) {
        const tti_generation *g = &list[i];
        if (g->step == step && !g->replaced) continue;
        bool remove = g->step == step || (g->step < step && n_good >= keep);
        if (!remove && g->step > step)
            remove = !is_good(s, g);
        else if (!remove &&
                 n_older >= keep) /* something will be removed: count the good generations */
            n_good += is_good(s, g);
        if (remove) tti_ckpt_remove(s->dir, g->name);
    }
    free(list);
}

tutti_status tti_ckpt_save(const tti_ckpt_save_desc *desc) {
    TTI_TRY(check_desc(desc));
    saving s = {.desc = desc, .lock = -1};
    tutti_status st;
    bool written = false;
    TTI_TRY_GOTO(make_paths(&s), cleanup);
    TTI_TRY_GOTO(open_folder(&s), cleanup);
    written = true;
    TTI_TRY_GOTO(write_all(&s), cleanup);
    TTI_TRY_GOTO(verify_new(&s), cleanup);
    TTI_TRY_GOTO(publish(&s), cleanup);
    prune(&s);
cleanup:
    if (st != TUTTI_OK && written) tti_ckpt_remove(s.dir, s.temporary_name);
    if (s.lock >= 0) close(s.lock);
    tti_arena_free(&s.arena);
    if (st == TUTTI_E_IO) st = TUTTI_E_CHECKPOINT;
    return st;
}
