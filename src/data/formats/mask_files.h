/* mask_files.h - the pairs of image and mask in a folder.
 *
 * DIR/images and DIR/masks, divided by the folders train/ and val/ in both or by a hash of the
 * path; or the same pair in DIR/train and in DIR/val.  A mask has the path of its image, except
 * for the ending. */
#ifndef TTI_DATA_MASK_FILES_H
#define TTI_DATA_MASK_FILES_H

#include "data/formats/image_walk.h"
#include "tutti/data.h"

typedef struct tti_mask_files {
    char *image_root, *mask_root;
    tti_names images, masks; /* paths below the roots, of each sample */
    int64_t n, n_ignored;
} tti_mask_files;

/* The pairs of desc->split, sorted by path; freed by the caller.  An image without a mask and a
 * mask without an image are TUTTI_E_DATA, or ignored with desc->skip_bad. */
tutti_status tti_mask_files_find(const tutti_dataset_desc *desc, tti_mask_files *out);
void tti_mask_files_free(tti_mask_files *files);

/* Whether one of two folders is called as images are, and the other as masks. */
bool tti_are_images_and_masks(const tti_names *folders);

/* The paths of a sample. */
tutti_status tti_mask_files_image(const tti_mask_files *files, int64_t index,
                                  char out[TTI_WALK_PATH]);
tutti_status tti_mask_files_mask(const tti_mask_files *files, int64_t index,
                                 char out[TTI_WALK_PATH]);

#endif /* TTI_DATA_MASK_FILES_H */
