/* npy_place.h - where the NumPy arrays of a split lie: a folder of .npy files, or an archive. */
#ifndef TTI_DATA_NPY_PLACE_H
#define TTI_DATA_NPY_PLACE_H

#include "data/files/zip_member.h"
#include "data/formats/npy_array.h"
#include "tutti/data.h"

enum { TTI_NPY_PATH = 4096 };

typedef struct tti_npy_place {
    char path[TTI_NPY_PATH];
    bool archive; /* else a folder */
} tti_npy_place;

/* Words in the names of arrays that choose a split, each list ended by NULL. */
extern const char *const tti_npy_train_words[], *const tti_npy_test_words[];

/* The number of bytes of a file's name before .npy or .npy.gz, in any case; 0: it has
 * neither ending. */
size_t tti_npy_stem(const char *file);

/* The place of desc->dir; a folder without archives is searched for .npy and .npy.gz files, and one
 * with both is refused.  *by_name: the archive is of one split. */
tutti_status tti_npy_find_place(const tutti_dataset_desc *desc, tti_npy_place *where,
                                bool *by_name);

/* The path of the array `name`, in any case, or its member in the archive. */
tutti_status tti_npy_find(const tti_npy_place *where, const char *name, bool *found,
                          char out[TTI_NPY_PATH]);

/* Calls fn with the name of every file or member. */
tutti_status tti_npy_each(const tti_npy_place *where, tti_zip_member_fn fn, void *user);

/* Opens a file or member by its name there. */
tutti_status tti_npy_open_at(const tti_npy_place *where, const char *file, int64_t max_unpacked,
                             tti_npy_array *out);

#endif /* TTI_DATA_NPY_PLACE_H */
