/* image_folder.c - the format "images": a folder per class, JPEG and PNG at any depth below it.
 *
 * Classes are the sorted names of the folders, samples their sorted paths: the numbering does not
 * depend on the file system.  With DIR/train there may be DIR/val or DIR/test (file_names.h has the
 * other spellings); without a folder for testing, a hash of the path decides which split a file is
 * in.  Only folders are opened.  Symbolic links are followed; a link back to a folder that is being
 * walked is refused. */
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
#include "data/files/byte_reader.h"
#include "data/files/file_names.h"
#include "data/image/image_set.h"

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
    int64_t n_ignored; /* files and folders that are neither samples nor classes */
    bool skip_bad;
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

static bool has_ending(const char *name, const char *const *endings, size_t n_endings) {
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < n_endings; i++)
        if (strcasecmp(dot, endings[i]) == 0) return true;
    return false;
}

static bool is_picture(const char *name) {
    static const char *const endings[] = {".jpg", ".jpeg", ".jpe", ".jfif", ".png"};
    return has_ending(name, endings, TTI_COUNT(endings));
}

/* An image that cannot be read: to leave it out without a word would be a smaller data set. */
static bool is_foreign_picture(const char *name) {
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
    return tti_fail(TUTTI_E_IO, "%s: cannot look: %s", path, strerror(error));
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

/* Lists the names in the folder at path, sorted, without ignored ones. */
static tutti_status list_folder(const char *path, names *out, int64_t *n_ignored) {
    *out = (names){0};
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

typedef struct place {
    dev_t device;
    ino_t number;
} place;

/* One class, or a folder below it. split: NULL, or the desc whose hash decides. */
typedef struct walk {
    folder *folder;
    const tutti_dataset_desc *split;
    int32_t label;
    int64_t n_seen;
    place above[MAX_DEPTH + 1]; /* the folders that are being walked */
} walk;

static tutti_status walk_folder(walk *w, const char *below_root, int depth,
                                const struct stat *info);

/* Skips or refuses an entry that is neither an image nor a folder. */
static tutti_status pass_over(walk *w, const char *path, kind k) {
    if (!w->folder->skip_bad && k == KIND_BROKEN_LINK) return fail_broken_link(path);
    if (!w->folder->skip_bad && k == KIND_OTHER && is_picture(path))
        return tti_fail(TUTTI_E_DATA, "%s: is not a regular file", path);
    if (!w->folder->skip_bad && k == KIND_FILE && is_foreign_picture(path))
        return tti_fail(TUTTI_E_DATA,
                        "%s: only JPEG and PNG can be read; convert it, or leave such files out "
                        "with data.on_error=skip",
                        path);
    w->folder->n_ignored++;
    return TUTTI_OK;
}

static tutti_status visit(walk *w, const char *below_root, int depth) {
    char path[MAX_PATH];
    kind k = KIND_OTHER;
    struct stat info;
    TTI_TRY(join(path, w->folder->root, below_root));
    TTI_TRY(find_kind(path, &info, &k));
    if (k == KIND_FOLDER) return walk_folder(w, below_root, depth + 1, &info);
    if (k != KIND_FILE || !is_picture(below_root)) return pass_over(w, path, k);
    w->n_seen++;
    if (w->split && !tti_hash_splits(w->split, below_root)) return TUTTI_OK;
    return add_sample(w->folder, below_root, w->label);
}

static tutti_status walk_folder(walk *w, const char *below_root, int depth,
                                const struct stat *info) {
    char path[MAX_PATH];
    TTI_TRY(join(path, w->folder->root, below_root));
    if (depth > MAX_DEPTH)
        return tti_fail(TUTTI_E_DATA, "%s: folders more than %d deep", path, MAX_DEPTH);
    for (int i = 0; i < depth; i++)
        if (w->above[i].device == info->st_dev && w->above[i].number == info->st_ino)
            return tti_fail(TUTTI_E_DATA, "%s: is a symbolic link to a folder above it, a loop",
                            path);
    w->above[depth] = (place){info->st_dev, info->st_ino};
    names list;
    TTI_TRY(list_folder(path, &list, &w->folder->n_ignored));
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < list.n; i++) {
        st = join(path, below_root, name_at(&list, i));
        if (st == TUTTI_OK) st = visit(w, path, depth);
    }
    names_free(&list);
    return st;
}

/* The folders in path, sorted; what else is there is counted. */
static tutti_status list_folders(const char *path, names *out, int64_t *n_ignored) {
    names all;
    *out = (names){0};
    TTI_TRY(list_folder(path, &all, n_ignored));
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < all.n; i++) {
        char below[MAX_PATH];
        kind k = KIND_OTHER;
        struct stat info;
        st = join(below, path, name_at(&all, i));
        if (st == TUTTI_OK) st = find_kind(below, &info, &k);
        if (st == TUTTI_OK && k == KIND_BROKEN_LINK) st = fail_broken_link(below);
        if (st == TUTTI_OK && k == KIND_FOLDER) st = names_add(out, name_at(&all, i));
        *n_ignored += k != KIND_FOLDER;
    }
    names_free(&all);
    if (st != TUTTI_OK) names_free(out);
    return st;
}

/* The folders in path, as classes. */
static tutti_status list_classes(const char *path, names *out, int64_t *n_ignored) {
    TTI_TRY(list_folders(path, out, n_ignored));
    if (out->n > 0 && out->n <= MAX_CLASSES) return TUTTI_OK;
    tutti_status st = tti_fail(TUTTI_E_DATA,
                               "%s: %lld folders; the format images wants a folder per class, with "
                               "JPEG and PNG files in it, here or in train/ and val/",
                               path, (long long)out->n);
    names_free(out);
    return st;
}

static tutti_status walk_class(folder *f, const tutti_dataset_desc *split, int64_t label) {
    const char *name = name_at(&f->classes, label);
    walk w = {.folder = f, .split = split, .label = (int32_t)label};
    char path[MAX_PATH];
    kind k = KIND_OTHER;
    struct stat info;
    TTI_TRY(join(path, f->root, name));
    TTI_TRY(find_kind(path, &info, &k));
    if (k != KIND_FOLDER) return tti_fail(TUTTI_E_DATA, "%s: is no folder any more", path);
    TTI_TRY(walk_folder(&w, name, 0, &info));
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

/* Known classes are matched by name: folders may lack some but have no others. */
static tutti_status walk_classes(folder *f, const tutti_dataset_desc *split, bool are_known) {
    if (!are_known) {
        for (int64_t i = 0; i < f->classes.n; i++) TTI_TRY(walk_class(f, split, i));
        return TUTTI_OK;
    }
    names here;
    TTI_TRY(list_classes(f->root, &here, &f->n_ignored));
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

/* The folders of data.dir that divide the set; "": none. */
typedef struct division {
    char train[MAX_PATH], val[MAX_PATH], test[MAX_PATH]; /* as they are spelled */
} division;

static bool is_test_word(const char *name) { return strncasecmp(name, "test", 4) == 0; }

static tutti_status take_split_folder(const char *dir, const char *name, tti_part part,
                                      division *out) {
    char *to = part == TTI_PART_TRAIN ? out->train : is_test_word(name) ? out->test : out->val;
    if (*to)
        return tti_fail(TUTTI_E_DATA,
                        "%s: the folders '%s' and '%s' are both for %s; keep one of them", dir, to,
                        name, part == TTI_PART_TRAIN ? "training" : "testing");
    return join(to, "", name);
}

/* Whether a folder holds images, like the folder of a class. */
static tutti_status holds_pictures(const char *dir, const char *name, bool *out) {
    char path[MAX_PATH];
    names list;
    int64_t n_ignored = 0;
    *out = false;
    TTI_TRY(join(path, dir, name));
    TTI_TRY(list_folder(path, &list, &n_ignored));
    for (int64_t i = 0; i < list.n; i++) *out |= is_picture(name_at(&list, i));
    names_free(&list);
    return TUTTI_OK;
}

/* Images next to train/ or val/ are an error, because one of the two must be a mistake. */
static tutti_status check_division(const tutti_dataset_desc *desc, const names *list,
                                   const division *d, int64_t *n_ignored) {
    const char *dir = desc->dir;
    const char *split = *d->train ? d->train : *d->val ? d->val : d->test;
    for (int64_t i = 0; *split && i < list->n; i++) {
        const char *name = name_at(list, i);
        bool images = false;
        if (tti_part_of_word(name, strlen(name)) != TTI_PART_NONE) continue;
        TTI_TRY(holds_pictures(dir, name, &images));
        if (images)
            return tti_fail(TUTTI_E_DATA,
                            "%s: '%s' divides the set, and '%s' next to it has images of a class; "
                            "put the folders of all classes into %s/train",
                            dir, split, name, dir);
        ++*n_ignored;
    }
    if (!*d->train && *split && !desc->spec) /* a trained model needs no training files */
        return tti_fail(TUTTI_E_DATA,
                        "%s: '%s' is for testing by its name, and there is no train/ next to it; "
                        "if it is a class, put the folders of all classes into %s/train",
                        dir, split, dir);
    return TUTTI_OK;
}

static tutti_status find_division(const tutti_dataset_desc *desc, division *out,
                                  int64_t *n_ignored) {
    const char *dir = desc->dir;
    names list;
    int64_t n_others = 0;
    *out = (division){0};
    TTI_TRY(list_folders(dir, &list, &n_others));
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < list.n; i++) {
        const char *name = name_at(&list, i);
        tti_part part = tti_part_of_word(name, strlen(name));
        if (part != TTI_PART_NONE) st = take_split_folder(dir, name, part, out);
    }
    if (st == TUTTI_OK) st = check_division(desc, &list, out, n_ignored);
    names_free(&list);
    bool unused = *out->val && *out->test; /* then val/ is used */
    if (*out->train || *out->val || *out->test) *n_ignored += n_others + unused;
    return st;
}

static tutti_status find_samples(const tutti_dataset_desc *desc, folder *f) {
    char train[MAX_PATH], test[MAX_PATH];
    division *d = malloc(sizeof *d);
    if (!d) return tti_fail(TUTTI_E_NOMEM, "images: out of memory");
    tutti_status st;
    TTI_TRY_GOTO(find_division(desc, d, &f->n_ignored), cleanup);
    TTI_TRY_GOTO(join(train, desc->dir, d->train), cleanup);
    TTI_TRY_GOTO(join(test, desc->dir, *d->val ? d->val : d->test), cleanup);
    bool has_test = *d->val || *d->test, own_folder = has_test && desc->split == TUTTI_TEST;
    const char *root = *d->train ? train : desc->dir;
    int64_t n_elsewhere = 0; /* files in other folders than the training classes */
    TTI_TRY_GOTO(desc->spec
                     ? take_classes(desc->spec, &f->classes)
                     : list_classes(root, &f->classes, own_folder ? &n_elsewhere : &f->n_ignored),
                 cleanup);
    f->root = strdup(own_folder ? test : root);
    if (!f->root) TTI_TRY_GOTO(tti_fail(TUTTI_E_NOMEM, "images: out of memory"), cleanup);
    TTI_TRY_GOTO(
        walk_classes(f, has_test || desc->takes_all ? NULL : desc, own_folder || desc->spec),
        cleanup);
    if (f->n_samples == 0)
        st = tti_fail(TUTTI_E_DATA, "%s: no image falls to the %s split", f->root,
                      desc->split == TUTTI_TEST ? "test" : "training");
cleanup:
    free(d);
    return st;
}

/* Keeps n_samples of all, evenly spaced, because they are sorted by class. */
static tutti_status keep_some(const tutti_dataset_desc *desc, folder *f) {
    if (desc->n_samples > f->n_samples)
        return tti_fail(TUTTI_E_DATA, "%s: %lld samples are requested, there are %lld", f->root,
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

static tutti_status folder_label(const tutti_dataset *ds, int64_t index, int32_t *y) {
    *y = ((const folder *)ds->state)->samples[index].label;
    return TUTTI_OK;
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
    f->skip_bad = desc->skip_bad;
    tutti_status st;
    TTI_TRY_GOTO(find_samples(desc, f), cleanup);
    TTI_TRY_GOTO(keep_some(desc, f), cleanup);
    if (desc->n_classes > 0 && desc->n_classes != f->classes.n) {
        st = tti_fail(TUTTI_E_DATA, "%s: %lld classes, %lld are expected", f->root,
                      (long long)f->classes.n, (long long)desc->n_classes);
        goto cleanup;
    }
    TTI_TRY_GOTO(tti_image_set_init(desc, &tti_usual_photos, ds, &f->set), cleanup);
    ds->listing = tti_crc32c(0, tti_str_text(&f->paths), f->paths.n_bytes);
    ds->info.n_samples = f->n_samples;
    ds->info.n_classes = f->classes.n;
    ds->info.n_ignored = f->n_ignored;
    ds->label = folder_label;
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
    .packs_images = true,
};
