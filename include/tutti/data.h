/* data.h - data sets: numbered samples, each a tensor x and its labels y.
 *
 * A data set is opened by the name of its format.  Formats: "idx" (the files of MNIST and its kin,
 * plain or gzipped) and "digits" (drawn by the program itself: synthetic, needs no files).
 *
 * Samples: x is what a model is fed, already decoded and normalised: for images f32 [C,H,W] with
 *          (pixel/255 - mean)/std.  y is i32, a scalar class number for both formats.
 * Threads: an open data set is read-only; any number of threads may read it at once.
 * Errors:  a missing, damaged or hostile file gives TUTTI_E_DATA with its path and what was
 *          expected of it.
 */
#ifndef TUTTI_DATA_H
#define TUTTI_DATA_H

#include "tutti/types.h"

typedef struct tutti_dataset tutti_dataset;

typedef enum tutti_data_split { TUTTI_TRAIN, TUTTI_TEST, TUTTI_N_SPLITS } tutti_data_split;

/* What to open.  Zero is the default of every field except format. */
typedef struct tutti_dataset_desc {
    const char *format;     /* "idx" or "digits"                                           */
    const char *dir;        /* idx: the folder with the four files                         */
    tutti_data_split split; /* only the files of this split are touched                    */
    int64_t n_samples;      /* only the first so many; 0: all (digits: 60000 or 10000)      */
    int64_t n_classes;      /* labels must be below this; 0: the largest label + 1          */
    double mean, std;       /* x = (pixel/255 - mean) / std; std 0 stands for 1             */
    uint64_t seed;          /* digits: another seed draws other digits                     */
} tutti_dataset_desc;

typedef struct tutti_dataset_info {
    int64_t n_samples;
    int64_t n_classes;
    tutti_type x; /* of one sample, without a batch axis */
    tutti_type y; /* of one sample, i32                  */
} tutti_dataset_info;

TUTTI_EXTERN_C_BEGIN

/* Opens a data set.  On success *out is owned by the caller; on failure *out is NULL.  desc is not
 * kept.  Returns TUTTI_E_INVALID (bad desc), TUTTI_E_DATA, TUTTI_E_IO or TUTTI_E_NOMEM. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_open(const tutti_dataset_desc *desc,
                                                          tutti_dataset **out);

/* Counts and types.  Borrowed until the data set is destroyed. */
TUTTI_API const tutti_dataset_info *tutti_dataset_get_info(const tutti_dataset *ds);

/* Reads sample index, 0 .. n_samples-1, into caller memory of the types in the info: x has
 * tutti_shape_n_elems(&info->x.shape) elements of info->x.dtype, y likewise. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_get(const tutti_dataset *ds, int64_t index,
                                                         void *x, int32_t *y);

/* Closes the files and frees the memory.  NULL is a no-op.  Nobody may be reading. */
TUTTI_API void tutti_dataset_destroy(tutti_dataset *ds);

TUTTI_EXTERN_C_END

#endif /* TUTTI_DATA_H */
