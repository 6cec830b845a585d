/* idx_fuzz.c - IDX files from anywhere: the input is read as images and as labels, as it is (plain
 * or gzip, as its first bytes say) and wrapped in gzip by us, so that both parsers see every
 * header. An accepted file must be exactly as its header declares. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/formats/idx.h"
#include "data/gzip_stored.h"

enum { MAX_BYTES = 1 << 16 };

/* plain: what the file holds once it is not gzipped, or NULL if that is not known. */
static void read_as(const uint8_t *file, size_t n_file, int n_dims, const uint8_t *plain,
                    size_t n_plain) {
    tti_reader *reader;
    if (tti_reader_open_memory(file, n_file, "fuzz", &reader) != TUTTI_OK) return;
    tti_idx_header header;
    uint8_t *elems = NULL;
    if (tti_idx_read_header(reader, n_dims, &header) == TUTTI_OK &&
        tti_idx_read_elems(reader, &header, &elems) == TUTTI_OK) {
        TTI_ASSERT(header.n_bytes == (size_t)tutti_shape_n_elems(&header.shape));
        TTI_ASSERT(!plain || header.offset + header.n_bytes == n_plain);
        TTI_ASSERT(!plain || memcmp(elems, plain + header.offset, header.n_bytes) == 0);
    }
    free(elems);
    tti_reader_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t packed[MAX_BYTES * 2];
    if (size > MAX_BYTES) return 0;
    bool is_gzip = size >= 2 && data[0] == 0x1F && data[1] == 0x8B;
    size_t n_packed = t_gzip(data, size, packed);
    for (int n_dims = 1; n_dims <= 3; n_dims += 2) {
        read_as(data, size, n_dims, is_gzip ? NULL : data, size);
        read_as(packed, n_packed, n_dims, data, size);
    }
    return 0;
}
