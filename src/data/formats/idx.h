/* idx.h - the IDX file format of MNIST, read from any reader.
 *
 *   byte 0, 1   0
 *   byte 2      element type: 08 = u8
 *   byte 3      number of dimensions D
 *   4 + 4i ..   dimension i, 32 bits, big endian, i < D
 *   ..          the elements, row-major, to the end of the file
 */
#ifndef TTI_DATA_IDX_H
#define TTI_DATA_IDX_H

#include "data/files/byte_reader.h"

typedef struct tti_idx_header {
    tutti_shape shape; /* outermost: samples */
    size_t n_bytes;    /* of the elements    */
    uint64_t offset;   /* of the elements in the (uncompressed) file */
} tti_idx_header;

/* Reads and checks a header of u8 elements with n_dims dimensions, each >= 1, and that as many
 * elements can follow. */
tutti_status tti_idx_read_header(tti_reader *reader, int n_dims, tti_idx_header *out);

/* Reads the elements into new memory and checks that nothing follows.  *out is freed with free().
 */
tutti_status tti_idx_read_elems(tti_reader *reader, const tti_idx_header *header, uint8_t **out);

#endif /* TTI_DATA_IDX_H */
