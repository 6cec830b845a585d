/* mask_files.c - finds the pairs of image and mask in a folder, and their split. */
#include "data/formats/mask_files.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "data/files/file_names.h"
#include "data/image/image_set.h"

static const char *const image_words[] = {"images", "image", "imgs", "JPEGImages", NULL};
static const char *const mask_words[] = {
    "masks", "mask", "annotations", "labels", "segmentation", "SegmentationClass", NULL};

void tti_mask_files_free(tti_mask_files *files) {
    free(files->image_root);
    free(files->mask_root);
    tti_names_free(&files->images);
    tti_names_free(&files->masks);
    *files = (tti_mask_files){0};
}

tutti_status tti_mask_files_image(const tti_mask_files *files, int64_t index,
                                  char out[TTI_WALK_PATH]) {
    return tti_walk_join(out, files->image_root, tti_name_at(&files->images, index));
}

tutti_status tti_mask_files_mask(const tti_mask_files *files, int64_t index,
                                 char out[TTI_WALK_PATH]) {
    return tti_walk_join(out, files->mask_root, tti_name_at(&files->masks, index));
}

/* ---- folders ---- */

typedef struct found_folders {
    char images[TTI_WALK_PATH], masks[TTI_WALK_PATH];                   /* of a pair; "": none */
    char train[TTI_WALK_PATH], val[TTI_WALK_PATH], test[TTI_WALK_PATH]; /* "": none */
} found_folders;

static bool is_word(const char *name, const char *const *words) {
    for (; *words; words++)
        if (strcasecmp(name, *words) == 0) return true;
    return false;
}

bool tti_are_images_and_masks(const tti_names *folders) {
    bool images = false, masks = false;
    for (int64_t i = 0; i < folders->n; i++) {
        images |= is_word(tti_name_at(folders, i), image_words);
        masks |= is_word(tti_name_at(folders, i), mask_words);
    }
    return images && masks;
}

static tutti_status take_name(const char *dir, const char *name, char to[TTI_WALK_PATH]) {
    if (!*to) return tti_walk_join(to, "", name);
    return tti_fail(TUTTI_E_DATA,
                    "%s: the folders '%s' and '%s' have the same purpose; keep one of them", dir,
                    to, name);
}

static tutti_status find_folders(const char *dir, found_folders *out) {
    tti_names list;
    int64_t n_ignored = 0;
    *out = (found_folders){0};
    TTI_TRY(tti_list_folders(dir, &list, &n_ignored));
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < list.n; i++) {
        const char *name = tti_name_at(&list, i);
        tti_split split = tti_split_of_word(name, strlen(name));
        if (is_word(name, image_words))
            st = take_name(dir, name, out->images);
        else if (is_word(name, mask_words))
            st = take_name(dir, name, out->masks);
        else if (split == TTI_SPLIT_TRAIN)
            st = take_name(dir, name, out->train);
        else if (split == TTI_SPLIT_TEST)
            st = take_name(dir, name, strncasecmp(name, "test", 4) == 0 ? out->test : out->val);
    }
    tti_names_free(&list);
    return st;
}

/* The folder of the split of desc, "": none; *hashes: it holds both splits. */
static tutti_status choose_split(const tutti_dataset_desc *desc, const char *dir,
                                 const found_folders *f, const char **out, bool *hashes) {
    const char *test = *f->val ? f->val : f->test;
    bool for_test = desc->split == TUTTI_TEST;
    *out = (for_test && *test) || (!*f->train && desc->spec) ? test : f->train;
    *hashes = !*test && !desc->takes_all;
    if (*f->train || !*test || desc->spec) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: '%s' is for testing by its name, and there is no train/ "
                    "next to it",
                    dir, test);
}

static tutti_status fail_on_pair(const char *dir, const found_folders *f) {
    return tti_fail(TUTTI_E_DATA,
                    "%s: %s; the format masks needs folders images/ and masks/ with files of the "
                    "same names, here or in train/ and val/",
                    dir,
                    *f->images  ? "it has no folder of masks"
                    : *f->masks ? "it has no folder of images"
                                : "it has no folders of images and masks");
}

/* Sets the roots of out, and `below`, the folder of the split in both. */
static tutti_status find_roots(const tutti_dataset_desc *desc, found_folders *f,
                               tti_mask_files *out, char below[TTI_WALK_PATH], bool *hashes) {
    char dir[TTI_WALK_PATH], images[TTI_WALK_PATH], masks[TTI_WALK_PATH];
    char image_name[TTI_WALK_PATH], mask_name[TTI_WALK_PATH];
    const char *split;
    *below = '\0';
    TTI_TRY(tti_walk_join(dir, "", desc->dir));
    TTI_TRY(find_folders(dir, f));
    bool outside = !*f->images && !*f->masks && (*f->train || *f->val || *f->test);
    if (outside) {
        TTI_TRY(choose_split(desc, dir, f, &split, hashes));
        TTI_TRY(tti_walk_join(dir, desc->dir, split));
        TTI_TRY(find_folders(dir, f));
    }
    if (!*f->images || !*f->masks) return fail_on_pair(dir, f);
    TTI_TRY(tti_walk_join(image_name, "", f->images));
    TTI_TRY(tti_walk_join(mask_name, "", f->masks));
    TTI_TRY(tti_walk_join(images, dir, image_name));
    TTI_TRY(tti_walk_join(masks, dir, mask_name));
    if (!outside) {
        TTI_TRY(find_folders(images, f));
        TTI_TRY(choose_split(desc, images, f, &split, hashes));
        TTI_TRY(tti_walk_join(below, "", split));
    }
    out->image_root = strdup(images);
    out->mask_root = strdup(masks);
    return out->image_root && out->mask_root ? TUTTI_OK
                                             : tti_fail(TUTTI_E_NOMEM, "masks: out of memory");
}

/* ---- pairs ---- */

static tutti_status take_path(void *user, const char *below_root) {
    return tti_names_add(user, below_root);
}

static size_t stem_length(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? (size_t)(dot - path) : strlen(path);
}

static int compare_stems(const char *a, const char *b) {
    size_t n_a = stem_length(a), n_b = stem_length(b);
    int order = memcmp(a, b, TTI_MIN(n_a, n_b));
    return order ? order : (n_a > n_b) - (n_a < n_b);
}

static int by_stem(const void *a, const void *b, void *text) {
    return compare_stems((const char *)text + *(const size_t *)a,
                         (const char *)text + *(const size_t *)b);
}

/* The images below root/below, sorted by their paths without endings. */
static tutti_status list_images(const tutti_dataset_desc *desc, const char *root, const char *below,
                                tti_names *out, int64_t *n_ignored) {
    tti_image_walk walk = {
        .root = root, .skip_bad = desc->skip_bad, .take = take_path, .user = out};
    tutti_status st = tti_walk_images(&walk, below);
    *n_ignored += walk.n_ignored;
    TTI_TRY(st);
    if (out->n > 1) qsort_r(out->at, (size_t)out->n, sizeof *out->at, by_stem, out->text.text);
    for (int64_t i = 1; i < out->n; i++)
        if (compare_stems(tti_name_at(out, i - 1), tti_name_at(out, i)) == 0)
            return tti_fail(TUTTI_E_DATA, "%s: %s and %s differ only in their extension", root,
                            tti_name_at(out, i - 1), tti_name_at(out, i));
    return TUTTI_OK;
}

static tutti_status leave_out(const tutti_dataset_desc *desc, tti_mask_files *out, bool is_image,
                              const char *path) {
    if (desc->skip_bad) {
        out->n_ignored++;
        return TUTTI_OK;
    }
    return tti_fail(TUTTI_E_DATA,
                    "%s/%s: there is no %s of that name in %s; data.on_error=skip leaves such "
                    "files out",
                    is_image ? out->image_root : out->mask_root, path, is_image ? "mask" : "image",
                    is_image ? out->mask_root : out->image_root);
}

/* Keeps the pairs of the split. */
static tutti_status join_lists(const tutti_dataset_desc *desc, bool hashes, const tti_names *images,
                               const tti_names *masks, tti_mask_files *out) {
    for (int64_t i = 0, k = 0; i < images->n || k < masks->n;) {
        const char *image = i < images->n ? tti_name_at(images, i) : NULL;
        const char *mask = k < masks->n ? tti_name_at(masks, k) : NULL;
        int order = !image ? 1 : !mask ? -1 : compare_stems(image, mask);
        if (order != 0) {
            TTI_TRY(leave_out(desc, out, order < 0, order < 0 ? image : mask));
            *(order < 0 ? &i : &k) += 1;
            continue;
        }
        i++, k++;
        if (hashes && !tti_hash_splits(desc, image)) continue;
        TTI_TRY(tti_names_add(&out->images, image));
        TTI_TRY(tti_names_add(&out->masks, mask));
        out->n++;
    }
    if (out->n > 0) return TUTTI_OK;
    return tti_image_no_split(desc, out->image_root, hashes);
}

tutti_status tti_mask_files_find(const tutti_dataset_desc *desc, tti_mask_files *out) {
    char below[TTI_WALK_PATH];
    tti_names images = {0}, masks = {0};
    bool hashes = false;
    *out = (tti_mask_files){0};
    found_folders *f = malloc(sizeof *f);
    if (!f) return tti_fail(TUTTI_E_NOMEM, "masks: out of memory");
    tutti_status st;
    TTI_TRY_GOTO(find_roots(desc, f, out, below, &hashes), cleanup);
    TTI_TRY_GOTO(list_images(desc, out->image_root, below, &images, &out->n_ignored), cleanup);
    TTI_TRY_GOTO(list_images(desc, out->mask_root, below, &masks, &out->n_ignored), cleanup);
    TTI_TRY_GOTO(join_lists(desc, hashes, &images, &masks, out), cleanup);
cleanup:
    free(f);
    tti_names_free(&images);
    tti_names_free(&masks);
    if (st != TUTTI_OK) tti_mask_files_free(out);
    return st;
}
