/* image_walk.c - lists the images of a folder, in an order that does not depend on the file system.
 */
#include "data/formats/image_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/problem.h"
#include "base/utf8.h"
#include "data/files/byte_reader.h"
#include "data/files/file_names.h"

enum { MAX_DEPTH = 64 };

static tutti_status check_name(const char *folder_path, const char *name) {
    char shown[TTI_CLIP];
    size_t n = strlen(name), at = 0;
    while (at < n) {
        uint32_t character;
        size_t step = tti_utf8_decode(name + at, n - at, &character);
        if (step == 0 || !tti_utf8_printable(character))
            return tti_fail(TUTTI_E_DATA, "%s: the name '%s' is not printable UTF-8", folder_path,
                            tti_clip(shown, name));
        at += step;
    }
    return TUTTI_OK;
}

tutti_status tti_walk_join(char out[TTI_WALK_PATH], const char *a, const char *b) {
    int n = snprintf(out, TTI_WALK_PATH, *a ? "%s/%s" : "%s%s", a, b);
    if (n < 0 || n >= TTI_WALK_PATH)
        return tti_fail(TUTTI_E_DATA, "%s: a path of more than %d bytes", a, TTI_WALK_PATH);
    return TUTTI_OK;
}

static bool has_ending(const char *name, const char *const *endings, size_t n_endings) {
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < n_endings; i++)
        if (strcasecmp(dot, endings[i]) == 0) return true;
    return false;
}

bool tti_is_image_name(const char *name) {
    static const char *const endings[] = {".jpg", ".jpeg", ".jpe", ".jfif", ".png"};
    return has_ending(name, endings, TTI_COUNT(endings));
}

/* An image that cannot be read: to leave it out without a word would be a smaller data set. */
static bool is_foreign_image(const char *name) {
    static const char *const endings[] = {".webp", ".gif", ".bmp",  ".tif", ".tiff", ".heic",
                                          ".heif", ".jp2", ".avif", ".ppm", ".pgm",  ".jxl"};
    return has_ending(name, endings, TTI_COUNT(endings));
}

typedef enum kind { KIND_OTHER, KIND_FILE, KIND_FOLDER, KIND_BROKEN_LINK } kind;

/* Finds what kind of file a path leads to; follows links. */
static tutti_status find_kind(const char *path, struct stat *info, kind *out) {
    if (stat(path, info) == 0) {
        *out = S_ISREG(info->st_mode)   ? KIND_FILE
               : S_ISDIR(info->st_mode) ? KIND_FOLDER
                                        : KIND_OTHER;
        return TUTTI_OK;
    }
    int error = errno;
    *out = KIND_BROKEN_LINK;
    if (error == ENOENT || error == ELOOP) return TUTTI_OK;
    return tti_fail(TUTTI_E_IO, "%s: cannot be examined: %s", path, strerror(error));
}

static int by_text(const void *a, const void *b, void *text) {
    return strcmp((const char *)text + *(const size_t *)a, (const char *)text + *(const size_t *)b);
}

void tti_names_free(tti_names *list) {
    free(list->at);
    tti_str_free(&list->text);
    *list = (tti_names){0};
}

tutti_status tti_names_add(tti_names *list, const char *name) {
    if ((list->n & (list->n - 1)) == 0) { /* full at every power of two */
        size_t *at = realloc(list->at, (size_t)TTI_MAX(2 * list->n, 1) * sizeof *at);
        if (!at) return tti_fail(TUTTI_E_NOMEM, "images: out of memory");
        list->at = at;
    }
    list->at[list->n++] = list->text.n_bytes;
    tti_str_add_bytes(&list->text, name, strlen(name) + 1);
    return list->text.failed ? tti_fail(TUTTI_E_NOMEM, "images: out of memory") : TUTTI_OK;
}

/* Opening it says whether it is a loop or where the link leads. */
static tutti_status fail_broken_link(const char *path) {
    int fd;
    uint64_t n_bytes;
    TTI_TRY(tti_open_regular(path, &fd, &n_bytes));
    close(fd);
    return tti_fail(TUTTI_E_DATA, "%s: changed while the folder was read", path);
}

static bool is_own_or_parent(const char *name) {
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

tutti_status tti_list_folder(const char *path, tti_names *out, int64_t *n_ignored) {
    *out = (tti_names){0};
    DIR *dir = opendir(path);
    if (!dir)
        return tti_fail(errno == ENOENT || errno == ENOTDIR ? TUTTI_E_DATA : TUTTI_E_IO,
                        "%s: cannot open the folder: %s", path, strerror(errno));
    tutti_status st = TUTTI_OK;
    for (struct dirent *e; st == TUTTI_OK && (e = readdir(dir));) {
        if (is_own_or_parent(e->d_name)) continue;
        if (tti_is_ignored_name(e->d_name)) {
            ++*n_ignored;
            continue;
        }
        st = check_name(path, e->d_name);
        if (st == TUTTI_OK) st = tti_names_add(out, e->d_name);
    }
    closedir(dir);
    if (st != TUTTI_OK)
        tti_names_free(out);
    else if (out->n > 0)
        qsort_r(out->at, (size_t)out->n, sizeof *out->at, by_text, out->text.text);
    return st;
}

tutti_status tti_list_folders(const char *path, tti_names *out, int64_t *n_ignored) {
    tti_names all;
    *out = (tti_names){0};
    TTI_TRY(tti_list_folder(path, &all, n_ignored));
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < all.n; i++) {
        char below[TTI_WALK_PATH];
        kind k = KIND_OTHER;
        struct stat info;
        st = tti_walk_join(below, path, tti_name_at(&all, i));
        if (st == TUTTI_OK) st = find_kind(below, &info, &k);
        if (st == TUTTI_OK && k == KIND_BROKEN_LINK) st = fail_broken_link(below);
        if (st == TUTTI_OK && k == KIND_FOLDER) st = tti_names_add(out, tti_name_at(&all, i));
        *n_ignored += k != KIND_FOLDER;
    }
    tti_names_free(&all);
    if (st != TUTTI_OK) tti_names_free(out);
    return st;
}

/* ---- walking ---- */

typedef struct place {
    dev_t device;
    ino_t number;
} place;

typedef struct walker {
    tti_image_walk *walk;
    place above[MAX_DEPTH + 1]; /* the folders that are being walked */
} walker;

static tutti_status walk_folder(walker *w, const char *below_root, int depth,
                                const struct stat *info);

/* Skips or refuses an entry that is neither an image nor a folder. */
static tutti_status pass_over(tti_image_walk *w, const char *path, kind k) {
    if (!w->skip_bad && k == KIND_BROKEN_LINK) return fail_broken_link(path);
    if (!w->skip_bad && k == KIND_OTHER && tti_is_image_name(path))
        return tti_fail(TUTTI_E_DATA, "%s: is not a regular file", path);
    if (!w->skip_bad && k == KIND_FILE && is_foreign_image(path))
        return tti_fail(TUTTI_E_DATA,
                        "%s: only JPEG and PNG can be read; convert it, or leave such files out "
                        "with data.on_error=skip",
                        path);
    w->n_ignored++;
    return TUTTI_OK;
}

static tutti_status visit(walker *w, const char *below_root, int depth) {
    char path[TTI_WALK_PATH];
    kind k = KIND_OTHER;
    struct stat info;
    TTI_TRY(tti_walk_join(path, w->walk->root, below_root));
    TTI_TRY(find_kind(path, &info, &k));
    if (k == KIND_FOLDER) return walk_folder(w, below_root, depth + 1, &info);
    if (k != KIND_FILE || !tti_is_image_name(below_root)) return pass_over(w->walk, path, k);
    return w->walk->take(w->walk->user, below_root);
}

static tutti_status walk_folder(walker *w, const char *below_root, int depth,
                                const struct stat *info) {
    char path[TTI_WALK_PATH];
    TTI_TRY(tti_walk_join(path, w->walk->root, below_root));
    if (depth > MAX_DEPTH)
        return tti_fail(TUTTI_E_DATA, "%s: folders more than %d deep", path, MAX_DEPTH);
    for (int i = 0; i < depth; i++)
        if (w->above[i].device == info->st_dev && w->above[i].number == info->st_ino)
            return tti_fail(TUTTI_E_DATA, "%s: is a symbolic link to a folder above it, a loop",
                            path);
    w->above[depth] = (place){info->st_dev, info->st_ino};
    tti_names list;
    TTI_TRY(tti_list_folder(path, &list, &w->walk->n_ignored));
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < list.n; i++) {
        st = tti_walk_join(path, below_root, tti_name_at(&list, i));
        if (st == TUTTI_OK) st = visit(w, path, depth);
    }
    tti_names_free(&list);
    return st;
}

tutti_status tti_walk_images(tti_image_walk *walk, const char *below) {
    walker w = {.walk = walk};
    char path[TTI_WALK_PATH];
    kind k = KIND_OTHER;
    struct stat info;
    TTI_TRY(tti_walk_join(path, walk->root, below));
    TTI_TRY(find_kind(path, &info, &k));
    if (k == KIND_BROKEN_LINK) return fail_broken_link(path);
    if (k != KIND_FOLDER) return tti_fail(TUTTI_E_DATA, "%s: is not a folder", path);
    return walk_folder(&w, below, 0, &info);
}
