/* image_folder.c - the format "images": a folder per class, JPEG and PNG in any depth below it.
 *
 * Classes are the sorted names of the folders, samples their sorted paths: the numbering does not
 * depend on the file system.  With DIR/train there is DIR/val (or valid, validation, test) too;
 * without it, a hash of the path decides which split a file is in.  Nothing is opened but folders;
 * links are refused, for what they point to is outside of what was named. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/problem.h"
#include "base/str.h"
#include "base/utf8.h"
#include "data/image_set.h"

enum { MAX_DEPTH = 64, MAX_PATH = 4096, MAX_CLASSES = 1 << 20 };

typedef struct sample {
    size_t path_at; /* in paths, below root */
    int32_t label;
} sample;

typedef struct names {
    int64_t n;
    size_t *at; /* in text */
    tti_str text;
} names;

typedef struct folder {
    tti_image_set set; /* first */
    char *root;        /* of the split: DIR, DIR/train, DIR/val */
    names classes;
    tti_str paths;
    sample *samples;
    int64_t n_samples, capacity;
} folder;

/* ---- listing ---- */

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

static tutti_status join(char out[MAX_PATH], const char *a, const char *b) {
    int n = snprintf(out, MAX_PATH, *a ? "%s/%s" : "%s%s", a, b);
    if (n < 0 || n >= MAX_PATH)
        return tti_fail(TUTTI_E_DATA, "%s: a path of more than %d bytes", a, MAX_PATH);
    return TUTTI_OK;
}

static bool is_picture(const char *name) {
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    size_t n = strlen(name);
    for (size_t i = 0; i < TTI_COUNT(endings); i++) {
        size_t m = strlen(endings[i]);
        if (n > m && strcasecmp(name + n - m, endings[i]) == 0) return true;
    }
    return false;
}

typedef enum kind { KIND_OTHER, KIND_FILE, KIND_FOLDER } kind;

static tutti_status find_kind(const char *path, kind *out) {
    struct stat info;
    if (lstat(path, &info) != 0)
        return tti_fail(TUTTI_E_IO, "%s: cannot look: %s", path, strerror(errno));
    if (S_ISLNK(info.st_mode))
        return tti_fail(TUTTI_E_DATA, "%s: is a symbolic link; a file or folder is expected", path);
    *out = S_ISREG(info.st_mode) ? KIND_FILE : S_ISDIR(info.st_mode) ? KIND_FOLDER : KIND_OTHER;
    return TUTTI_OK;
}

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static int by_text(const void *a, const void *b, void *text) {
    return strcmp((const char *)text + *(const size_t *)a, (const char *)text + *(const size_t *)b);
}

static void names_free(names *list) {
    free(list->at);
    tti_str_free(&list->text);
    *list = (names){0};
}

static const char *name_at(const names *list, int64_t i) { return list->text.text + list->at[i]; }

static tutti_status names_add(names *list, const char *name) {
    if ((list->n & (list->n - 1)) == 0) { /* full at every power of two */
        size_t *at = realloc(list->at, (size_t)TTI_MAX(2 * list->n, 1) * sizeof *at);
        if (!at) return tti_fail(TUTTI_E_NOMEM, "images: out of memory");
        list->at = at;
    }
    list->at[list->n++] = list->text.n_bytes;
    tti_str_add_bytes(&list->text, name, strlen(name) + 1);
    return list->text.failed ? tti_fail(TUTTI_E_NOMEM, "images: out of memory") : TUTTI_OK;
}

/* What the folder at path holds but hidden names, sorted. */
static tutti_status list_folder(const char *path, names *out) {
    *out = (names){0};
    DIR *dir = opendir(path);
    if (!dir)
        return tti_fail(errno == ENOENT || errno == ENOTDIR ? TUTTI_E_DATA : TUTTI_E_IO,
                        "%s: cannot open the folder: %s", path, strerror(errno));
    tutti_status st = TUTTI_OK;
    for (struct dirent *e; st == TUTTI_OK && (e = readdir(dir));)
        if (e->d_name[0] != '.') {
            st = check_name(path, e->d_name);
            if (st == TUTTI_OK) st = names_add(out, e->d_name);
        }
    closedir(dir);
    if (st != TUTTI_OK)
        names_free(out);
    else if (out->n > 0)
        qsort_r(out->at, (size_t)out->n, sizeof *out->at, by_text, out->text.text);
    return st;
}

/* ---- walking ---- */

static tutti_status add_sample(folder *f, const char *path, int32_t label) {
    if (f->n_samples == f->capacity) {
        int64_t capacity = TTI_MAX(1024, f->capacity * 2);
        sample *samples = realloc(f->samples, (size_t)capacity * sizeof *samples);
        if (!samples) return tti_fail(TUTTI_E_NOMEM, "images: out of memory");
        f->samples = samples;
        f->capacity = capacity;
    }
    f->samples[f->n_samples++] = (sample){f->paths.n_bytes, label};
    tti_str_add_bytes(&f->paths, path, strlen(path) + 1);
    return f->paths.failed ? tti_fail(TUTTI_E_NOMEM, "images: out of memory") : TUTTI_OK;
}

/* One class, or a folder below it.  split: NULL, or the desc whose hash decides. */
typedef struct walk {
    folder *folder;
    const tutti_dataset_desc *split;
    int32_t label;
    int64_t n_seen;
} walk;

static tutti_status walk_folder(walk *w, const char *below_root, int depth);

static tutti_status visit(walk *w, const char *below_root, int depth) {
    char path[MAX_PATH];
    kind k = KIND_OTHER;
    TTI_TRY(join(path, w->folder->root, below_root));
    TTI_TRY(find_kind(path, &k));
    if (k == KIND_FOLDER) return walk_folder(w, below_root, depth + 1);
    if (k != KIND_FILE || !is_picture(below_root)) return TUTTI_OK;
    w->n_seen++;
    if (w->split && !tti_hash_splits(w->split, below_root)) return TUTTI_OK;
    return add_sample(w->folder, below_root, w->label);
}

static tutti_status walk_folder(walk *w, const char *below_root, int depth) {
    char path[MAX_PATH];
    TTI_TRY(join(path, w->folder->root, below_root));
    if (depth > MAX_DEPTH)
        return tti_fail(TUTTI_E_DATA, "%s: folders more than %d deep", path, MAX_DEPTH);
    names list;
    TTI_TRY(list_folder(path, &list));
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < list.n; i++) {
        st = join(path, below_root, name_at(&list, i));
        if (st == TUTTI_OK) st = visit(w, path, depth);
    }
    names_free(&list);
    return st;
}

/* The folders in path, as classes. */
static tutti_status list_classes(const char *path, names *out) {
    names all;
    *out = (names){0};
    TTI_TRY(list_folder(path, &all));
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < all.n; i++) {
        char below[MAX_PATH];
        kind k = KIND_OTHER;
        st = join(below, path, name_at(&all, i));
        if (st == TUTTI_OK) st = find_kind(below, &k);
        if (st == TUTTI_OK && k == KIND_FOLDER) st = names_add(out, name_at(&all, i));
    }
    names_free(&all);
    if (st == TUTTI_OK && (out->n == 0 || out->n > MAX_CLASSES))
        st = tti_fail(TUTTI_E_DATA,
                      "%s: %lld folders; the format images wants a folder per class, with JPEG and "
                      "PNG files in it, here or in train/ and val/",
                      path, (long long)out->n);
    if (st != TUTTI_OK) names_free(out);
    return st;
}

static tutti_status walk_class(folder *f, const tutti_dataset_desc *split, int64_t label) {
    const char *name = name_at(&f->classes, label);
    walk w = {.folder = f, .split = split, .label = (int32_t)label};
    TTI_TRY(walk_folder(&w, name, 0));
    if (w.n_seen == 0)
        return tti_fail(TUTTI_E_DATA, "%s/%s: the class folder holds no .jpg, .jpeg or .png",
                        f->root, name);
    return TUTTI_OK;
}

static int64_t find_class(const names *classes, const char *name) {
    for (int64_t i = 0; i < classes->n; i++)
        if (strcmp(name_at(classes, i), name) == 0) return i;
    return -1;
}

/* The classes of a trained model, in its order. */
static tutti_status take_classes(const tti_data_spec *spec, names *out) {
    *out = (names){0};
    if (!spec->class_names)
        return tti_fail(TUTTI_E_DATA,
                        "images: the model knows its classes by number only (it was trained on "
                        "data.format=%s), so folders with names cannot be matched to them",
                        spec->format);
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < spec->n_classes; i++)
        st = names_add(out, spec->class_names[i]);
    if (st != TUTTI_OK) names_free(out);
    return st;
}

/* Classes that are known already are matched by name: folders may lack some but have no others. */
static tutti_status walk_classes(folder *f, const tutti_dataset_desc *split, bool are_known) {
    if (!are_known) {
        for (int64_t i = 0; i < f->classes.n; i++) TTI_TRY(walk_class(f, split, i));
        return TUTTI_OK;
    }
    names here;
    TTI_TRY(list_classes(f->root, &here));
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < here.n; i++) {
        int64_t label = find_class(&f->classes, name_at(&here, i));
        st = label >= 0 ? walk_class(f, split, label)
                        : tti_fail(TUTTI_E_DATA,
                                   "%s/%s: there is no such class in the training data; rename or "
                                   "remove the folder",
                                   f->root, name_at(&here, i));
    }
    names_free(&here);
    return st;
}

/* ---- the data set ---- */

/* DIR/val and the like; false if there is none. */
static bool find_test_folder(const char *dir, char out[MAX_PATH]) {
    static const char *const usual[] = {"val", "valid", "validation", "test"};
    for (size_t i = 0; i < TTI_COUNT(usual); i++)
        if (join(out, dir, usual[i]) == TUTTI_OK && is_folder(out)) return true;
    return false;
}

static tutti_status find_samples(const tutti_dataset_desc *desc, folder *f) {
    char train[MAX_PATH], test[MAX_PATH];
    TTI_TRY(join(train, desc->dir, "train"));
    bool has_train = is_folder(train), has_test = find_test_folder(desc->dir, test);
    has_test &= has_train || desc->spec; /* a trained model needs no training files */
    const char *root = has_train ? train : desc->dir;
    bool own_folder = has_test && desc->split == TUTTI_TEST;
    TTI_TRY(desc->spec ? take_classes(desc->spec, &f->classes) : list_classes(root, &f->classes));
    f->root = strdup(own_folder ? test : root);
    if (!f->root) return tti_fail(TUTTI_E_NOMEM, "images: out of memory");
    TTI_TRY(walk_classes(f, has_test ? NULL : desc, own_folder || desc->spec));
    if (f->n_samples == 0)
        return tti_fail(TUTTI_E_DATA, "%s: no picture falls to the %s split", f->root,
                        desc->split == TUTTI_TEST ? "test" : "training");
    return TUTTI_OK;
}

/* n_samples of all, evenly spread, for they are sorted by class. */
static tutti_status thin_out(const tutti_dataset_desc *desc, folder *f) {
    if (desc->n_samples > f->n_samples)
        return tti_fail(TUTTI_E_DATA, "%s: %lld samples are asked for, there are %lld", f->root,
                        (long long)desc->n_samples, (long long)f->n_samples);
    if (desc->n_samples == 0) return TUTTI_OK;
    for (int64_t i = 0; i < desc->n_samples; i++)
        f->samples[i] = f->samples[(int64_t)((__int128)i * f->n_samples / desc->n_samples)];
    f->n_samples = desc->n_samples;
    return TUTTI_OK;
}

static tutti_status sample_path(const folder *f, int64_t index, char out[MAX_PATH]) {
    return join(out, f->root, f->paths.text + f->samples[index].path_at);
}

static tutti_status folder_fetch(const tutti_dataset *ds, int64_t index, tti_workspace *ws,
                                 int32_t *y) {
    const folder *f = ds->state;
    char path[MAX_PATH];
    TTI_TRY(sample_path(f, index, path));
    *y = f->samples[index].label;
    return tti_fetch_bytes(path, 0, 0, ws);
}

static tutti_status folder_unpack(const tutti_dataset *ds, const tti_sample_key *key,
                                  tti_workspace *ws, void *x) {
    const folder *f = ds->state;
    char path[MAX_PATH];
    TTI_TRY(sample_path(f, (int64_t)key->index, path));
    return tti_image_set_unpack(&f->set, key, path, ws, x);
}

static const char *folder_class_name(const tutti_dataset *ds, int64_t label) {
    return name_at(&((const folder *)ds->state)->classes, label);
}

static void folder_close(tutti_dataset *ds) {
    folder *f = ds->state;
    names_free(&f->classes);
    tti_str_free(&f->paths);
    free(f->samples);
    free(f->root);
    free(f);
}

static tutti_status images_open(const tutti_dataset_desc *desc, tutti_dataset *ds) {
    if (!desc->dir || !desc->dir[0])
        return tti_fail(TUTTI_E_INVALID, "images: data.dir is missing: the folder of the classes");
    folder *f = calloc(1, sizeof *f);
    if (!f) return tti_fail(TUTTI_E_NOMEM, "images: out of memory");
    ds->state = f;
    tutti_status st;
    TTI_TRY_GOTO(find_samples(desc, f), cleanup);
    TTI_TRY_GOTO(thin_out(desc, f), cleanup);
    if (desc->n_classes > 0 && desc->n_classes != f->classes.n) {
        st = tti_fail(TUTTI_E_DATA, "%s: %lld classes, %lld are expected", f->root,
                      (long long)f->classes.n, (long long)desc->n_classes);
        goto cleanup;
    }
    TTI_TRY_GOTO(tti_image_set_init(desc, &tti_usual_photos, ds, &f->set), cleanup);
    ds->listing = tti_crc32c(0, tti_str_text(&f->paths), f->paths.n_bytes);
    ds->info.n_samples = f->n_samples;
    ds->info.n_classes = f->classes.n;
    ds->fetch = folder_fetch;
    ds->unpack = folder_unpack;
    ds->class_name = folder_class_name;
    ds->close = folder_close;
cleanup:
    if (st != TUTTI_OK) folder_close(ds);
    return st;
}

const tti_format tti_format_images = {
    .name = "images",
    .doc = "a folder per class with JPEG and PNG files, in train/ and val/ or split by hash",
    .open = images_open,
    .pack = tti_pack_images,
};
