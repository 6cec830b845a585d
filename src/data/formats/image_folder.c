/* image_folder.c - the format "images": a folder per class, JPEG and PNG at any depth below it.
 *
 * Classes are the sorted names of the folders, samples their sorted paths: the numbering does not
 * depend on the file system.  With DIR/train there may be DIR/val or DIR/test (file_names.h has the
 * other spellings); without a folder for testing, a hash of the path decides which split a file is
 * in.  Only folders are opened.  Symbolic links are followed; a link back to a folder that is being
 * walked is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/str.h"
#include "data/files/file_names.h"
#include "data/formats/image_walk.h"
#include "data/formats/mask_files.h"
#include "data/image/image_set.h"

enum { MAX_CLASSES = 1 << 20 };

typedef struct sample {
    size_t path_at; /* in paths, below root */
    int32_t label;
} sample;

typedef struct folder {
    tti_image_set set; /* first */
    char *root;        /* of the split: DIR, DIR/train, DIR/val */
    tti_names classes;
    tti_str paths;
    sample *samples;
    int64_t n_samples, capacity;
    int64_t n_ignored; /* files and folders that are neither samples nor classes */
    bool skip_bad;
} folder;

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

/* The folders in path, as classes. */
static tutti_status list_classes(const char *path, tti_names *out, int64_t *n_ignored) {
    TTI_TRY(tti_list_folders(path, out, n_ignored));
    if (out->n > 0 && out->n <= MAX_CLASSES) return TUTTI_OK;
    tutti_status st =
        tti_fail(TUTTI_E_DATA,
                 "%s: %lld folders; the format images needs one folder per class, with "
                 "JPEG and PNG files in it, here or in train/ and val/",
                 path, (long long)out->n);
    tti_names_free(out);
    return st;
}

/* The images of one class. */
typedef struct class_walk {
    folder *folder;
    const tutti_dataset_desc *split; /* NULL, or the desc whose hash decides */
    int32_t label;
    int64_t n_seen;
} class_walk;

static tutti_status take_image(void *user, const char *below_root) {
    class_walk *w = user;
    w->n_seen++;
    if (w->split && !tti_hash_splits(w->split, below_root)) return TUTTI_OK;
    return add_sample(w->folder, below_root, w->label);
}

static tutti_status walk_class(folder *f, const tutti_dataset_desc *split, int64_t label) {
    const char *name = tti_name_at(&f->classes, label);
    class_walk w = {.folder = f, .split = split, .label = (int32_t)label};
    tti_image_walk walk = {
        .root = f->root, .skip_bad = f->skip_bad, .take = take_image, .user = &w};
    tutti_status st = tti_walk_images(&walk, name);
    f->n_ignored += walk.n_ignored;
    TTI_TRY(st);
    if (w.n_seen == 0)
        return tti_fail(TUTTI_E_DATA, "%s/%s: the class folder holds no .jpg, .jpeg or .png",
                        f->root, name);
    return TUTTI_OK;
}

static int64_t find_class(const tti_names *classes, const char *name) {
    for (int64_t i = 0; i < classes->n; i++)
        if (strcmp(tti_name_at(classes, i), name) == 0) return i;
    return -1;
}

/* The classes of a trained model, in its order. */
static tutti_status take_classes(const tti_data_spec *spec, tti_names *out) {
    *out = (tti_names){0};
    if (!spec->class_names)
        return tti_fail(TUTTI_E_DATA,
                        "images: the model knows its classes by number only (it was trained on "
                        "data.format=%s), so folders with names cannot be matched to them",
                        spec->format);
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < spec->n_classes; i++)
        st = tti_names_add(out, spec->class_names[i]);
    if (st != TUTTI_OK) tti_names_free(out);
    return st;
}

/* Images and their masks, which would be two classes. */
static tutti_status check_not_masks(const char *root, const tti_names *classes) {
    if (classes->n != 2 || !tti_are_images_and_masks(classes)) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: the folders '%s' and '%s' are images and masks, not two classes; give "
                    "data.format=masks",
                    root, tti_name_at(classes, 0), tti_name_at(classes, 1));
}

/* Known classes are matched by name: folders may lack some but have no others. */
static tutti_status walk_classes(folder *f, const tutti_dataset_desc *split, bool are_known) {
    if (!are_known) {
        for (int64_t i = 0; i < f->classes.n; i++) TTI_TRY(walk_class(f, split, i));
        return TUTTI_OK;
    }
    tti_names here;
    TTI_TRY(list_classes(f->root, &here, &f->n_ignored));
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < here.n; i++) {
        int64_t label = find_class(&f->classes, tti_name_at(&here, i));
        st = label >= 0 ? walk_class(f, split, label)
                        : tti_fail(TUTTI_E_DATA,
                                   "%s/%s: there is no such class in the training data; rename or "
                                   "remove the folder",
                                   f->root, tti_name_at(&here, i));
    }
    tti_names_free(&here);
    return st;
}

/* ---- the data set ---- */

/* The folders of data.dir that divide the set; "": none. */
typedef struct division {
    char train[TTI_WALK_PATH], val[TTI_WALK_PATH], test[TTI_WALK_PATH]; /* as they are spelled */
} division;

static bool is_test_word(const char *name) { return strncasecmp(name, "test", 4) == 0; }

static tutti_status take_split_folder(const char *dir, const char *name, tti_split split,
                                      division *out) {
    char *to = split == TTI_SPLIT_TRAIN ? out->train : is_test_word(name) ? out->test : out->val;
    if (*to)
        return tti_fail(TUTTI_E_DATA,
                        "%s: the folders '%s' and '%s' are both for %s; keep one of them", dir, to,
                        name, split == TTI_SPLIT_TRAIN ? "training" : "testing");
    return tti_walk_join(to, "", name);
}

/* Whether a folder holds images, like the folder of a class. */
static tutti_status holds_images(const char *dir, const char *name, bool *out) {
    char path[TTI_WALK_PATH];
    tti_names list;
    int64_t n_ignored = 0;
    *out = false;
    TTI_TRY(tti_walk_join(path, dir, name));
    TTI_TRY(tti_list_folder(path, &list, &n_ignored));
    for (int64_t i = 0; i < list.n; i++) *out |= tti_is_image_name(tti_name_at(&list, i));
    tti_names_free(&list);
    return TUTTI_OK;
}

/* Images next to train/ or val/ are an error, because one of the two must be a mistake. */
static tutti_status check_division(const tutti_dataset_desc *desc, const tti_names *list,
                                   const division *d, int64_t *n_ignored) {
    const char *dir = desc->dir;
    const char *split = *d->train ? d->train : *d->val ? d->val : d->test;
    for (int64_t i = 0; *split && i < list->n; i++) {
        const char *name = tti_name_at(list, i);
        bool images = false;
        if (tti_split_of_word(name, strlen(name)) != TTI_SPLIT_NONE) continue;
        TTI_TRY(holds_images(dir, name, &images));
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
    tti_names list;
    int64_t n_others = 0;
    *out = (division){0};
    TTI_TRY(tti_list_folders(dir, &list, &n_others));
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < list.n; i++) {
        const char *name = tti_name_at(&list, i);
        tti_split split = tti_split_of_word(name, strlen(name));
        if (split != TTI_SPLIT_NONE) st = take_split_folder(dir, name, split, out);
    }
    if (st == TUTTI_OK) st = check_division(desc, &list, out, n_ignored);
    tti_names_free(&list);
    bool unused = *out->val && *out->test; /* then val/ is used */
    if (*out->train || *out->val || *out->test) *n_ignored += n_others + unused;
    return st;
}

static tutti_status find_samples(const tutti_dataset_desc *desc, folder *f) {
    char train[TTI_WALK_PATH], test[TTI_WALK_PATH];
    division *d = malloc(sizeof *d);
    if (!d) return tti_fail(TUTTI_E_NOMEM, "images: out of memory");
    tutti_status st;
    TTI_TRY_GOTO(find_division(desc, d, &f->n_ignored), cleanup);
    TTI_TRY_GOTO(tti_walk_join(train, desc->dir, d->train), cleanup);
    TTI_TRY_GOTO(tti_walk_join(test, desc->dir, *d->val ? d->val : d->test), cleanup);
    bool has_test = *d->val || *d->test, own_folder = has_test && desc->split == TUTTI_TEST;
    const char *root = *d->train ? train : desc->dir;
    int64_t n_elsewhere = 0; /* files in other folders than the training classes */
    TTI_TRY_GOTO(desc->spec
                     ? take_classes(desc->spec, &f->classes)
                     : list_classes(root, &f->classes, own_folder ? &n_elsewhere : &f->n_ignored),
                 cleanup);
    TTI_TRY_GOTO(check_not_masks(root, &f->classes), cleanup);
    f->root = strdup(own_folder ? test : root);
    if (!f->root) TTI_TRY_GOTO(tti_fail(TUTTI_E_NOMEM, "images: out of memory"), cleanup);
    TTI_TRY_GOTO(
        walk_classes(f, has_test || desc->takes_all ? NULL : desc, own_folder || desc->spec),
        cleanup);
    if (f->n_samples == 0) st = tti_image_no_split(desc, f->root, !has_test && !desc->takes_all);
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

static tutti_status sample_path(const folder *f, int64_t index, char out[TTI_WALK_PATH]) {
    return tti_walk_join(out, f->root, f->paths.text + f->samples[index].path_at);
}

static tutti_status folder_fetch(const tti_source *source, int64_t index, tti_workspace *ws,
                                 int32_t *y) {
    const folder *f = source->state;
    char path[TTI_WALK_PATH];
    TTI_TRY(sample_path(f, index, path));
    *y = f->samples[index].label;
    return tti_fetch_bytes(path, 0, 0, ws);
}

static tutti_status folder_unpack(const tti_source *source, const tti_sample_key *key,
                                  tti_workspace *ws, void *x) {
    const folder *f = source->state;
    char path[TTI_WALK_PATH];
    TTI_TRY(sample_path(f, (int64_t)key->index, path));
    return tti_image_set_unpack(&f->set, key, path, ws, x);
}

static tutti_status folder_label(const tti_source *source, int64_t index, int32_t *y) {
    *y = ((const folder *)source->state)->samples[index].label;
    return TUTTI_OK;
}

static const char *folder_class_name(const tti_source *source, int64_t label) {
    return tti_name_at(&((const folder *)source->state)->classes, label);
}

static void folder_close(tti_source *source) {
    folder *f = source->state;
    tti_names_free(&f->classes);
    tti_str_free(&f->paths);
    free(f->samples);
    free(f->root);
    free(f);
}

static tutti_status images_open(const tutti_dataset_desc *desc, tti_source *source) {
    if (!desc->dir || !desc->dir[0])
        return tti_fail(TUTTI_E_INVALID,
                        "images: data.dir is missing; give the folder of the classes");
    folder *f = calloc(1, sizeof *f);
    if (!f) return tti_fail(TUTTI_E_NOMEM, "images: out of memory");
    source->state = f;
    f->skip_bad = desc->skip_bad;
    tutti_status st;
    TTI_TRY_GOTO(find_samples(desc, f), cleanup);
    TTI_TRY_GOTO(keep_some(desc, f), cleanup);
    if (desc->n_classes > 0 && desc->n_classes != f->classes.n) {
        st = tti_fail(TUTTI_E_DATA, "%s: %lld classes, %lld are expected", f->root,
                      (long long)f->classes.n, (long long)desc->n_classes);
        goto cleanup;
    }
    TTI_TRY_GOTO(tti_image_set_init(desc, &tti_usual_photos, source, &f->set), cleanup);
    source->listing = tti_crc32c(0, tti_str_text(&f->paths), f->paths.n_bytes);
    source->info.n_samples = f->n_samples;
    source->info.n_classes = f->classes.n;
    source->info.n_ignored = f->n_ignored;
    source->label = folder_label;
    source->fetch = folder_fetch;
    source->unpack = folder_unpack;
    source->class_name = folder_class_name;
    source->close = folder_close;
cleanup:
    if (st != TUTTI_OK) folder_close(source);
    return st;
}

const tti_format tti_format_images = {
    .name = "images",
    .doc = "a folder per class with JPEG and PNG files, in train/ and val/ or split by hash",
    .open = images_open,
    .packs_images = true,
};
