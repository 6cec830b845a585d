/* npy_array.h - one NumPy array in a file, or in a member of an .npz, read row by row. */
#ifndef TTI_DATA_NPY_ARRAY_H
#define TTI_DATA_NPY_ARRAY_H

#include "tutti/data.h"

typedef struct tti_npy_array {
    char *name;     /* for messages; owned                                     */
    int fd;         /* -1: the elements are at bytes                           */
    uint8_t *bytes; /* owned                                                   */
    uint64_t offset;
    char kind;         /* 'b' bool, 'u', 'i', 'f'                                 */
    int width;         /* bytes of an element                                     */
    bool big_endian;   /* the bytes of an element are in the other order          */
    bool fortran;      /* the first index runs fastest; such arrays are kept in memory, row-major */
    tutti_shape shape; /* first: rows */
    size_t row_elems;
    const tutti_samples *samples; /* of the program, which has the array: bytes is not owned, or
                                     samples->get makes each row; NULL: of a file */
    int field;                    /* of samples */
} tti_npy_array;

/* Opens the array of a .npy file, or the member of an archive; member NULL: none.  Elements of a
 * file are not read yet; those of a member are, for their checksum, and kept if they are
 * compressed. max_unpacked: for tti_reader_allow. */
tutti_status tti_npy_open(const char *path, const char *member, int64_t max_unpacked,
                          tti_npy_array *out);

/* The array of a field of samples, which the caller keeps as long as the array. */
tutti_status tti_npy_of_samples(const tutti_samples *samples, int field, tti_npy_array *out);

/* Row `row` of arrays [n] of one samples->get, as arrays of one row in *memory, which the caller
 * frees. */
tutti_status tti_npy_get_row(const tti_npy_array *arrays, int n, int64_t row, tti_npy_array *out,
                             void **memory);

/* A row as u8 (kind 'u', 1 byte), i32 (whole numbers that fit), f32 or f64.  Any thread. */
tutti_status tti_npy_read_u8(const tti_npy_array *array, int64_t row, uint8_t *out);
tutti_status tti_npy_read_i32(const tti_npy_array *array, int64_t row, int32_t *out);
tutti_status tti_npy_read_f32(const tti_npy_array *array, int64_t row, float *out);
tutti_status tti_npy_read_f64(const tti_npy_array *array, int64_t row, double *out);

void tti_npy_close(tti_npy_array *array);

#endif /* TTI_DATA_NPY_ARRAY_H */
