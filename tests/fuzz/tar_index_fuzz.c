/* tar_index_fuzz.c - tar archives from anywhere, as they are and with the checksums of their
 * headers put right, so that changes reach what is after them.  Accepted members lie inside the
 * archive. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/formats/tar_index.h"
#include "data/tar_files.h"

static void read_as(const uint8_t *bytes, size_t n_bytes) {
    tti_tar_source source = tti_tar_from_memory(bytes, "fuzz", n_bytes);
    tti_tar_index index = {0};
    char name[64];
    tutti_status st = tti_tar_index_add(&index, &source, 0);
    TTI_ASSERT(st == TUTTI_OK || index.n == 0);
    for (int64_t i = 0; i < index.n; i++) {
        const tti_tar_sample *s = &index.samples[i];
        TTI_ASSERT(s->offset >= 512 && s->n_bytes > 0 && s->label >= 0);
        TTI_ASSERT(s->offset <= n_bytes && s->n_bytes <= n_bytes - s->offset);
        tti_tar_member_name(&source, s->offset, name, sizeof name);
    }
    tti_tar_index_free(&index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_as(data, size);
    uint8_t *copy = malloc(size + 1);
    if (!copy) return 0;
    memcpy(copy, data, size);
    for (size_t at = 0; at + 512 <= size; at += 512)
        if (memcmp(copy + at + 257, "ustar", 5) == 0) t_tar_sum(copy + at);
    read_as(copy, size);
    free(copy);
    return 0;
}
