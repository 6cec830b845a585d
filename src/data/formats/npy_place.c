/* npy_place.c - finds .npy files in a folder, or the members of an archive. */
#include "data/formats/npy_place.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/error.h"
#include "data/files/file_list.h"
#include "data/files/zip_member.h"

const char *const tti_npy_train_words[] = {"train", "training", NULL};
const char *const tti_npy_test_words[] = {"test",    "val",   "validation", "dev",
                                          "testing", "valid", NULL};

static tutti_status fail_length(void) {
    return tti_fail(TUTTI_E_INVALID, "npy: the name of the folder is too long");
}

size_t tti_npy_stem(const char *file) {
    static const char *const endings[] = {".npy", ".npy.gz"};
    size_t n = strlen(file);
    for (size_t i = 0; i < TTI_COUNT(endings); i++) {
        size_t n_ending = strlen(endings[i]);
        if (n > n_ending && strcasecmp(file + n - n_ending, endings[i]) == 0) return n - n_ending;
    }
    return 0;
}

/* The file of a folder with the array `name`, in any case: X_train.npy is usual. */
static tutti_status find_file(const char *folder, const char *name, bool *found,
                              char out[TTI_NPY_PATH]) {
    DIR *dir = opendir(folder);
    if (!dir)
        return tti_fail(TUTTI_E_IO, "%s: cannot open the folder: %s", folder, strerror(errno));
    tutti_status st = TUTTI_OK;
    for (struct dirent *e; st == TUTTI_OK && (e = readdir(dir));) {
        size_t n = tti_npy_stem(e->d_name);
        if (n != strlen(name) || strncasecmp(e->d_name, name, n) != 0) continue;
        if (*found)
            st = tti_fail(TUTTI_E_DATA,
                          "%s: two files are called %s.npy, in upper or lower case or with .gz",
                          folder, name);
        else if (snprintf(out, TTI_NPY_PATH, "%s/%s", folder, e->d_name) >= TTI_NPY_PATH)
            st = fail_length();
        *found = true;
    }
    closedir(dir);
    return st;
}

/* The path of an array, or its name in the archive. */
tutti_status tti_npy_find(const tti_npy_place *where, const char *name, bool *found,
                          char out[TTI_NPY_PATH]) {
    char file[64];
    tti_file_part part;
    snprintf(file, sizeof file, "%s.npy", name);
    *found = false;
    if (!where->archive) return find_file(where->path, name, found, out);
    snprintf(out, TTI_NPY_PATH, "%s", file);
    return tti_zip_find(where->path, file, found, &part);
}

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static tutti_status set_path(tti_npy_place *where, const char *path, bool archive) {
    where->archive = archive;
    return snprintf(where->path, TTI_NPY_PATH, "%s", path) < TTI_NPY_PATH ? TUTTI_OK
                                                                          : fail_length();
}

/* Arrays beside archives would be left out. */
static tutti_status refuse_array(void *user, const char *file) {
    const tti_npy_place *folder = user;
    if (tti_npy_stem(file) == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: has archives (.npz) and arrays (%s); move one kind elsewhere, or give "
                    "data.dir='%s/*.npz'",
                    folder->path, file, folder->path);
}

tutti_status tti_npy_find_place(const tutti_dataset_desc *desc, tti_npy_place *where,
                                bool *by_name) {
    tti_file_list list = {0};
    *by_name = false;
    bool folder = desc->dir && is_folder(desc->dir);
    tutti_status st = tti_file_list_make(desc, "npy", ".npz", &list);
    if (st == TUTTI_E_DATA && folder) return set_path(where, desc->dir, false);
    TTI_TRY(st);
    *by_name = !list.both;
    if (folder) st = set_path(where, desc->dir, false);
    if (folder && st == TUTTI_OK) st = tti_npy_each(where, refuse_array, where);
    if (st == TUTTI_OK)
        st = list.n == 1 ? set_path(where, list.path[0], true)
                         : tti_fail(TUTTI_E_DATA, "%s: npy: %zu archives for a split, expected one",
                                    desc->dir, list.n);
    tti_file_list_free(&list);
    return st;
}

tutti_status tti_npy_each(const tti_npy_place *where, tti_zip_member_fn fn, void *user) {
    if (where->archive) return tti_zip_each(where->path, fn, user);
    DIR *dir = opendir(where->path);
    if (!dir)
        return tti_fail(TUTTI_E_IO, "%s: cannot open the folder: %s", where->path, strerror(errno));
    tutti_status st = TUTTI_OK;
    for (struct dirent *e; st == TUTTI_OK && (e = readdir(dir));)
        if (e->d_name[0] != '.') st = fn(user, e->d_name);
    closedir(dir);
    return st;
}

tutti_status tti_npy_open_at(const tti_npy_place *where, const char *file, int64_t max_unpacked,
                             tti_npy_array *out) {
    char path[TTI_NPY_PATH];
    if (where->archive) return tti_npy_open(where->path, file, max_unpacked, out);
    if (snprintf(path, sizeof path, "%s/%s", where->path, file) >= (int)sizeof path)
        return fail_length();
    return tti_npy_open(path, NULL, max_unpacked, out);
}
