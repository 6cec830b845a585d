/* ckpt_dir.c - lists and removes checkpoint folders.
 *
 * A checkpoint folder holds plain files only, so nothing here descends further.  Any other entry
 * stops the removal and is kept. */
#include "ckpt/ckpt_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fault.h"

/* Removed generations get this prefix first, so that one half removed is none any more. */
#define REMOVED "removed-"

char *tti_ckpt_path(tti_arena *arena, const char *dir, const char *name) {
    return tti_arena_printf(arena, "%s/%s", dir, name);
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

int64_t tti_ckpt_name_step(const char *name) {
    enum { MAX_DIGITS = 16 };
    if (strncmp(name, "step-", 5) != 0) return -1;
    const char *digits = name + 5;
    size_t n = strspn(digits, "0123456789");
    const char *end = digits + n;
    if (n == 0 || n > MAX_DIGITS) return -1;
    if (*end && strcmp(end, ".old") != 0 && strcmp(end, ".tmp") != 0) return -1;
    int64_t step = 0;
    for (size_t i = 0; i < n; i++) step = step * 10 + (digits[i] - '0');
    return step;
}

static int newest_first(const void *a, const void *b) {
    const tti_generation *x = a, *y = b;
    if (x->step != y->step) return x->step > y->step ? -1 : 1;
    if (x->replaced != y->replaced) return x->replaced ? 1 : -1;
    return strcmp(x->name, y->name);
}

static tutti_status add_generation(const char *name, tti_generation **list, size_t *n) {
    int64_t step = tti_ckpt_name_step(name);
    if (step < 0 || ends_with(name, ".tmp")) return TUTTI_OK;
    tti_generation *grown = realloc(*list, (*n + 1) * sizeof **list);
    if (!grown) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", name);
    *list = grown;
    tti_generation *g = &grown[(*n)++];
    *g = (tti_generation){.step = step, .replaced = ends_with(name, ".old")};
    snprintf(g->name, sizeof g->name, "%s", name);
    return TUTTI_OK;
}

static tutti_status scan(const char *path, tti_generation **list, size_t *n) {
    DIR *dir = opendir(path);
    if (!dir && errno == ENOENT) return TUTTI_OK;
    if (!dir) return tti_fail(TUTTI_E_CHECKPOINT, "%s: cannot read: %s", path, strerror(errno));
    tutti_status st = TUTTI_OK;
    const struct dirent *entry;
    errno = 0;
    while (st == TUTTI_OK && (entry = readdir(dir)) != NULL)
        st = add_generation(entry->d_name, list, n);
    if (st == TUTTI_OK && errno)
        st = tti_fail(TUTTI_E_CHECKPOINT, "%s: cannot read: %s", path, strerror(errno));
    closedir(dir);
    return st;
}

tutti_status tti_ckpt_scan(const char *run_dir, tti_generation **out, size_t *n) {
    *out = NULL;
    *n = 0;
    tti_arena arena = {0};
    tti_generation *list = NULL;
    size_t n_list = 0;
    char *path = tti_ckpt_path(&arena, run_dir, TTI_CKPT_FOLDER);
    tutti_status st =
        path ? scan(path, &list, &n_list) : tti_fail(TUTTI_E_NOMEM, "%s: out of memory", run_dir);
    tti_arena_free(&arena);
    if (st != TUTTI_OK) {
        free(list);
        return st;
    }
    if (n_list) qsort(list, n_list, sizeof *list, newest_first);
    *out = list;
    *n = n_list;
    return TUTTI_OK;
}

static void remove_folder(int parent, const char *name) {
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0) close(fd);
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            !TTI_FAULT("ckpt.remove"))
            unlinkat(fd, entry->d_name, 0);
    closedir(dir);
    unlinkat(parent, name, AT_REMOVEDIR);
}

void tti_ckpt_remove(const char *dir, const char *name) {
    int parent = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (parent < 0) return;
    char temporary[64];
    snprintf(temporary, sizeof temporary, REMOVED "%.40s.tmp", name);
    if (ends_with(name, ".tmp"))
        remove_folder(parent, name);
    else if (renameat(parent, name, parent, temporary) == 0)
        remove_folder(parent, temporary);
    close(parent);
}

/* A folder that a save or a removal left unfinished, under exactly the name that it was given. */
static bool is_leftover(const char *name) {
    char saved[64], replaced[64];
    bool removed = strncmp(name, REMOVED, strlen(REMOVED)) == 0;
    if (removed) name += strlen(REMOVED);
    if (strncmp(name, "step-", 5) != 0) return false;
    long long step = strtoll(name + 5, NULL, 10);
    snprintf(saved, sizeof saved, "step-%09lld.tmp", step);
    snprintf(replaced, sizeof replaced, "step-%09lld.old.tmp", step);
    return strcmp(name, saved) == 0 || (removed && strcmp(name, replaced) == 0);
}

void tti_ckpt_remove_leftovers(const char *dir) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (!list && fd >= 0) close(fd);
    const struct dirent *entry;
    while (list && (entry = readdir(list)) != NULL)
        if (is_leftover(entry->d_name)) remove_folder(dirfd(list), entry->d_name);
    if (list) closedir(list);
}
