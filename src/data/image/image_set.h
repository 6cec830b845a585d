/* image_set.h - the common part of the image formats: from an encoded or raw image to the sample u8
 * [S,S,3], and the chain from there to f32 [3,S,S].
 *
 * Training uses the random crop, if there is one, otherwise the crop of evaluation.  Evaluation:
 * photographs as with torchvision's Resize(256), CenterCrop(224), small images whole. */
#ifndef TTI_DATA_IMAGE_SET_H
#define TTI_DATA_IMAGE_SET_H

#include "data/format.h"
#include "data/image/augment.h"

enum { TTI_MAX_IMAGE_SIZE = 4096, TTI_MAX_IMAGE_FILE = 1 << 28 };

/* The first member of a format's state. */
typedef struct tti_image_set {
    int64_t size;       /* S */
    int64_t max_pixels; /* of an image in a file; 0: TTI_MAX_IMAGE_PIXELS */
    tti_fit fit;
    tti_augment augment;
    tti_chain chain;    /* where the image is a field: to f32 [3,S,S]; owned by the format */
    size_t chain_bytes; /* of a sample on the way */
} tti_image_set;

/* The values of a format for "auto". */
typedef struct tti_image_usual {
    int64_t size;
    tti_fit fit;
    tti_augment augment; /* of the training split */
    double mean[3], std[3];
} tti_image_usual;

extern const tti_image_usual tti_usual_photos; /* ImageNet's */

/* Reads the image keys in desc, checks them and sets source->stored, source->decode and
 * source->info.y, and source->spec->pixels if the desc has no specification; if it has one, its
 * values are used.  On failure source->decode is empty. */
tutti_status tti_image_set_init(const tutti_dataset_desc *desc, const tti_image_usual *usual,
                                tti_source *source, tti_image_set *out);

/* For samples with fields: moves the chain of the data set, which has none then, to the set. */
tutti_status tti_image_set_keep_chain(tti_source *source, tti_image_set *set);

/* An image u8 [S,S,3] through that chain to x, f32 [3,S,S].  tti_image_set_pixels: where in ws it
 * must be, for the next call. */
tutti_status tti_image_set_pixels(const tti_image_set *set, tti_workspace *ws, uint8_t **pixels);
void tti_image_set_finish(const tti_image_set *set, const tti_sample_key *key, tti_workspace *ws,
                          void *x);

/* The encoded image in ws->file as the sample x; name for messages. */
tutti_status tti_image_set_unpack(const tti_image_set *set, const tti_sample_key *key,
                                  const char *name, tti_workspace *ws, uint8_t *x);

/* The same of an encoded image anywhere in memory; *how: what was cut and resized, NULL: not
 * asked. */
tutti_status tti_image_set_unpack_blob(const tti_image_set *set, const tti_sample_key *key,
                                       const tti_blob *blob, tti_workspace *ws, uint8_t *x,
                                       tti_resize *how);

/* The same of an image that is pixels already. */
tutti_status tti_image_set_place(const tti_image_set *set, const tti_sample_key *key,
                                 const tti_image *image, tti_workspace *ws, uint8_t *x);

/* n_bytes at offset of the regular file at path into ws->file, opened for this only; n_bytes 0: all
 * of it, at most TTI_MAX_IMAGE_FILE. */
tutti_status tti_fetch_bytes(const char *path, uint64_t offset, size_t n_bytes, tti_workspace *ws);

/* The same for a data set without files: as source->spec has it. */
tutti_status tti_image_set_init_from_spec(tti_source *source, tti_image_set *out);

/* Whether a name falls to a split, where hashes decide: val_fraction (0: 0.1, -1: none) goes to
 * TUTTI_TEST.
 */
bool tti_hash_splits(const tutti_dataset_desc *desc, const char *name);

/* TUTTI_E_DATA: the split of root has no images; divided: by tti_hash_splits. */
tutti_status tti_image_no_split(const tutti_dataset_desc *desc, const char *root, bool divided);

#endif /* TTI_DATA_IMAGE_SET_H */
