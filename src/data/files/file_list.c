/* file_list.c - finds the files of a split by their names.
 *
 * The order is that of the sorted names, never of the directory, so every machine sees the same
 * data set. */
#include "data/files/file_list.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/problem.h"
#include "base/str.h"
#include "base/utf8.h"
#include "data/files/file_names.h"

enum { MAX_FILES = 1 << 16 };

/* Returns where in a path the names that select a split begin: below the folder data.dir, or in a
 * pattern at the first part that varies ("{train,val}/a.txt" is selected by its folders). */
static size_t names_offset(const char *dir) {
    struct stat info;
    if (stat(dir, &info) == 0 && S_ISDIR(info.st_mode)) return strlen(dir);
    size_t n = strcspn(dir, "*?[{");
    while (n > 0 && dir[n - 1] != '/') n--;
    return n;
}

static bool ends_in(const char *name, const char *suffix) {
    size_t n = strlen(name), n_gz = strlen(".gz"), n_suffix = strlen(suffix);
    if (n > n_gz && strcmp(name + n - n_gz, ".gz") == 0) n -= n_gz;
    return n > n_suffix && strncmp(name + n - n_suffix, suffix, n_suffix) == 0;
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

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The folders of one level that divide the set: "train", "Testing". */
typedef struct split_folders {
    char *of[TTI_SPLIT_TEST + 1]; /* the first of each split; owned */
} split_folders;

/* Two folders for training, or two spellings of one name, are a mistake somewhere. */
static tutti_status note_folder(split_folders *seen, const char *dir, const char *name) {
    tti_split split = tti_split_of_word(name, strlen(name));
    char **first = &seen->of[split];
    if (*first && (split == TTI_SPLIT_TRAIN || strcasecmp(*first, name) == 0))
        return tti_fail(TUTTI_E_DATA,
                        "%s: the folders '%s' and '%s' are both for %s; keep one of them", dir,
                        *first, name, split == TTI_SPLIT_TRAIN ? "training" : "testing");
    if (!*first && !(*first = strdup(name))) return tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    return TUTTI_OK;
}

static tutti_status list_folder(const char *dir, const char *suffix, bool below,
                                tti_file_list *list);

static tutti_status add_entry(const char *dir, const char *name, const char *suffix, bool below,
                              split_folders *seen, tti_file_list *list) {
    bool wanted = ends_in(name, suffix), is_split = tti_split_of_word(name, strlen(name));
    if (tti_is_ignored_name(name) || (!wanted && (below || !is_split))) {
        list->n_ignored++;
        return TUTTI_OK;
    }
    tti_str path = {0};
    tti_str_printf(&path, "%s/%s", dir, name);
    if (wanted || path.failed) return add(list, path.failed ? NULL : path.text);
    tutti_status st = TUTTI_OK;
    if (!is_folder(path.text)) {
        list->n_ignored++;
    } else {
        st = note_folder(seen, dir, name);
        if (st == TUTTI_OK) st = list_folder(path.text, suffix, true, list);
    }
    tti_str_free(&path);
    return st;
}

/* The files of a folder, and of its folders train/, val/ and the like. */
static tutti_status list_folder(const char *dir, const char *suffix, bool below,
                                tti_file_list *list) {
    DIR *folder = opendir(dir);
    if (!folder)
        return tti_fail(TUTTI_E_IO, "%s: cannot open the folder: %s", dir, strerror(errno));
    tutti_status st = TUTTI_OK;
    split_folders seen = {0};
    for (struct dirent *e; st == TUTTI_OK && (e = readdir(folder));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            st = add_entry(dir, e->d_name, suffix, below, &seen, list);
    closedir(folder);
    for (size_t i = 0; i < TTI_COUNT(seen.of); i++) free(seen.of[i]);
    return st;
}

static tutti_status list_pattern(const char *pattern, tti_file_list *list) {
    glob_t found = {0};
    int code = glob(pattern, GLOB_NOSORT, NULL, &found);
    tutti_status st = TUTTI_OK;
    if (code == GLOB_NOSPACE) st = tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    for (size_t i = 0; code == 0 && st == TUTTI_OK && i < found.gl_pathc; i++)
        st = add(list, strdup(found.gl_pathv[i])); /* glob leaves hidden names out */
    globfree(&found);
    return st;
}

static tutti_status list_all(const char *dir, const char *suffix, tti_file_list *list) {
    struct stat info;
    if (is_folder(dir)) return list_folder(dir, suffix, false, list);
    if (lstat(dir, &info) == 0) return add(list, strdup(dir)); /* reading reports the error */
    return strpbrk(dir, "*?[") ? list_pattern(dir, list) : TUTTI_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Keeps the files of one split. */
static void keep(tti_file_list *list, size_t from, tti_split wanted) {
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        tti_split split = tti_split_of_path(list->path[i] + from);
        if (split == wanted) {
            list->path[n++] = list->path[i];
            continue;
        }
        list->n_ignored += split == TTI_SPLIT_NONE;
        free(list->path[i]);
    }
    list->n = n;
}

tutti_status tti_file_list_choose(const tutti_dataset_desc *desc, const char *format,
                                  tti_file_list *list) {
    size_t n[TTI_SPLIT_TEST + 1] = {0}, from = names_offset(desc->dir);
    for (size_t i = 0; i < list->n; i++) n[tti_split_of_path(list->path[i] + from)]++;
    bool needs_train = !desc->spec || desc->split == TUTTI_TRAIN; /* a trained model does not */
    if (needs_train && n[TTI_SPLIT_TEST] > 0 && n[TTI_SPLIT_TRAIN] == 0 && n[TTI_SPLIT_NONE] == 0)
        return tti_fail(TUTTI_E_DATA,
                        "%s: %s: the names mark every file as test data (such as %s), and no file "
                        "has 'train' in its name",
                        desc->dir, format, list->path[0]);
    bool has_test_names = n[TTI_SPLIT_TEST] > 0;
    list->both = !has_test_names && !desc->takes_all;
    tti_split training = n[TTI_SPLIT_TRAIN] > 0 ? TTI_SPLIT_TRAIN : TTI_SPLIT_NONE;
    bool is_test = has_test_names && desc->split == TUTTI_TEST;
    keep(list, from, is_test ? TTI_SPLIT_TEST : training);
    return TUTTI_OK;
}

tutti_status tti_file_list_make(const tutti_dataset_desc *desc, const char *format,
                                const char *suffix, tti_file_list *out) {
    tti_file_list list = {0};
    if (!desc->dir || !desc->dir[0])
        return tti_fail(TUTTI_E_INVALID,
                        "%s: data.dir is missing; give a file, a pattern or a folder", format);
    tutti_status st;
    TTI_TRY_GOTO(list_all(desc->dir, suffix, &list), cleanup);
    if (list.n == 0) {
        st = tti_fail(TUTTI_E_DATA,
                      "%s: %s: no file was found; data.dir is a file, a pattern with * or ?, or a "
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

double tti_test_share(const tutti_dataset_desc *desc) {
    return desc->val_fraction == 0 ? 0.1 : fmax(desc->val_fraction, 0);
}

int64_t tti_split_at(const tutti_dataset_desc *desc, int64_t n) {
    double share = tti_test_share(desc);
    int64_t n_test = (int64_t)((double)n * share);
    if (n > 1 && share > 0) n_test = TTI_MIN(TTI_MAX(n_test, 1), n - 1);
    return n - n_test;
}
