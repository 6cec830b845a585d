/* image_walk.h - lists the images of a folder, at any depth below it.
 *
 * The order is that of sorted paths, so it does not depend on the file system.  Ignored names
 * (files/file_names.h) are counted; symbolic links are followed, and a link back to a folder that
 * is being walked is refused.  Only folders are opened. */
#ifndef TTI_DATA_IMAGE_WALK_H
#define TTI_DATA_IMAGE_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "tutti/status.h"

enum { TTI_WALK_PATH = 4096 };

/* Texts in one piece of memory; zero: none. */
typedef struct tti_names {
    int64_t n;
    size_t *at; /* in text */
    tti_str text;
} tti_names;

tutti_status tti_names_add(tti_names *list, const char *name);
void tti_names_free(tti_names *list);
static inline const char *tti_name_at(const tti_names *list, int64_t i) {
    return list->text.text + list->at[i];
}

/* "a/b", or b if a is ""; TUTTI_E_DATA for a path that is too long. */
tutti_status tti_walk_join(char out[TTI_WALK_PATH], const char *a, const char *b);

/* Whether a name has the ending of an image that can be read. */
bool tti_is_image_name(const char *name);

/* The names in the folder at path, sorted, without ignored ones; TUTTI_E_DATA for one that is not
 * printable UTF-8.  *n_ignored grows.  On failure *out is empty. */
tutti_status tti_list_folder(const char *path, tti_names *out, int64_t *n_ignored);

/* The folders among them; others are counted as ignored. */
tutti_status tti_list_folders(const char *path, tti_names *out, int64_t *n_ignored);

typedef struct tti_image_walk {
    const char *root;
    bool skip_bad; /* ignore images of other kinds, and links to nothing, which otherwise fail */
    int64_t n_ignored;
    /* Called with the path of each image below root. */
    tutti_status (*take)(void *user, const char *below_root);
    void *user;
} tti_image_walk;

/* Walks the folder root/below; below may be "". */
tutti_status tti_walk_images(tti_image_walk *walk, const char *below);

#endif /* TTI_DATA_IMAGE_WALK_H */
