/* file_list.c - finds the files of a split by their names.
 *
 * The one idea: the order is that of the sorted names, never of the directory, so every machine
 * sees the same data set. */
#include "data/file_list.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/problem.h"
#include "base/str.h"
#include "base/utf8.h"

enum { MAX_FILES = 1 << 16 };
typedef enum part { PART_NONE, PART_TRAIN, PART_TEST } part;

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* What the first telling word of the file's own name says. */
static part part_of(const char *path) {
    static const char *const words[] = {"train", "training", "val", "valid", "validation", "test"};
    const char *p = strrchr(path, '/');
    for (p = p ? p + 1 : path; *p;) {
        size_t n = 0;
        while (is_letter(p[n])) n++;
        for (size_t i = 0; i < TTI_COUNT(words); i++)
            if (n == strlen(words[i]) && strncmp(p, words[i], n) == 0)
                return i < 2 ? PART_TRAIN : PART_TEST;
        p += n ? n : 1;
    }
    return PART_NONE;
}

static bool ends_in(const char *name, const char *suffix) {
    size_t n = strlen(name), n_gz = strlen(".gz"), n_suffix = strlen(suffix);
    if (n > n_gz && strcmp(name + n - n_gz, ".gz") == 0) n -= n_gz;
    return name[0] != '.' && n > n_suffix && strncmp(name + n - n_suffix, suffix, n_suffix) == 0;
}

/* Takes path over, also on failure. */
static tutti_status add(tti_file_list *list, char *path) {
    char clipped[TTI_CLIP];
    size_t n_bytes = path ? strlen(path) : 0;
    bool printable = path && tti_utf8_check(path, n_bytes) == n_bytes;
    for (size_t i = 0; printable && i < n_bytes; i++) printable = (unsigned char)path[i] >= 32;
    char **more =
        printable && list->n < MAX_FILES ? realloc(list->path, (list->n + 1) * sizeof *more) : NULL;
    tutti_status st = TUTTI_OK;
    if (path && !printable)
        st = tti_fail(TUTTI_E_DATA, "data: a file's name is not printable UTF-8: %s",
                      tti_clip(clipped, path));
    else if (list->n >= MAX_FILES)
        st = tti_fail(TUTTI_E_DATA, "data: more than %d files", MAX_FILES);
    else if (!more)
        st = tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    if (st != TUTTI_OK) {
        free(path);
        return st;
    }
    list->path = more;
    list->path[list->n++] = path;
    return TUTTI_OK;
}

static tutti_status list_folder(const char *dir, const char *suffix, tti_file_list *list) {
    DIR *folder = opendir(dir);
    if (!folder)
        return tti_fail(TUTTI_E_IO, "%s: cannot open the folder: %s", dir, strerror(errno));
    tutti_status st = TUTTI_OK;
    for (struct dirent *entry; st == TUTTI_OK && (entry = readdir(folder));) {
        if (!ends_in(entry->d_name, suffix)) continue;
        tti_str path = {0};
        tti_str_printf(&path, "%s/%s", dir, entry->d_name);
        st = add(list, path.failed ? NULL : path.text);
    }
    closedir(folder);
    return st;
}

static tutti_status list_pattern(const char *pattern, tti_file_list *list) {
    glob_t found = {0};
    int code = glob(pattern, GLOB_NOSORT, NULL, &found);
    tutti_status st = TUTTI_OK;
    if (code == GLOB_NOSPACE) st = tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    for (size_t i = 0; code == 0 && st == TUTTI_OK && i < found.gl_pathc; i++)
        st = add(list, strdup(found.gl_pathv[i]));
    globfree(&found);
    return st;
}

static tutti_status list_all(const char *dir, const char *suffix, tti_file_list *list) {
    struct stat info;
    if (stat(dir, &info) == 0)
        return S_ISDIR(info.st_mode) ? list_folder(dir, suffix, list) : add(list, strdup(dir));
    return strpbrk(dir, "*?[") ? list_pattern(dir, list) : TUTTI_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Keeps the files of one part. */
static void keep(tti_file_list *list, part wanted) {
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        if (part_of(list->path[i]) == wanted)
            list->path[n++] = list->path[i];
        else
            free(list->path[i]);
    list->n = n;
}

tutti_status tti_file_list_choose(const tutti_dataset_desc *desc, const char *format,
                                  tti_file_list *list) {
    size_t n[3] = {0};
    for (size_t i = 0; i < list->n; i++) n[part_of(list->path[i])]++;
    if (n[PART_TEST] > 0 && n[PART_TRAIN] == 0 && n[PART_NONE] == 0)
        return tti_fail(TUTTI_E_DATA,
                        "%s: %s: every file is for testing by its name (%s); one with 'train' in "
                        "its name is missing",
                        desc->dir, format, list->path[0]);
    list->both = n[PART_TEST] == 0;
    if (list->both && n[PART_TRAIN] > 0) keep(list, PART_TRAIN);
    if (!list->both) {
        part others = n[PART_TRAIN] > 0 ? PART_TRAIN : PART_NONE;
        keep(list, desc->split == TUTTI_TRAIN ? others : PART_TEST);
    }
    return TUTTI_OK;
}

tutti_status tti_file_list_make(const tutti_dataset_desc *desc, const char *format,
                                const char *suffix, tti_file_list *out) {
    tti_file_list list = {0};
    if (!desc->dir || !desc->dir[0])
        return tti_fail(TUTTI_E_INVALID, "%s: data.dir is missing: a file, a pattern or a folder",
                        format);
    tutti_status st;
    TTI_TRY_GOTO(list_all(desc->dir, suffix, &list), cleanup);
    if (list.n == 0) {
        st = tti_fail(TUTTI_E_DATA,
                      "%s: %s: no file is there; data.dir is a file, a pattern with * or ?, or a "
                      "folder of files whose names end in %s or %s.gz",
                      desc->dir, format, suffix, suffix);
        goto cleanup;
    }
    qsort(list.path, list.n, sizeof *list.path, by_name);
    TTI_TRY_GOTO(tti_file_list_choose(desc, format, &list), cleanup);
    *out = list;
cleanup:
    if (st != TUTTI_OK) tti_file_list_free(&list);
    return st;
}

void tti_file_list_free(tti_file_list *list) {
    for (size_t i = 0; i < list->n; i++) free(list->path[i]);
    free(list->path);
    *list = (tti_file_list){0};
}

int64_t tti_split_at(const tutti_dataset_desc *desc, int64_t n) {
    double share = desc->val_fraction > 0 ? desc->val_fraction : 0.1;
    int64_t n_test = (int64_t)((double)n * share);
    if (n > 1) n_test = TTI_MIN(TTI_MAX(n_test, 1), n - 1);
    return n - n_test;
}
