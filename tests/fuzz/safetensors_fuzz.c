/* safetensors_fuzz.c - any bytes as a safetensors file: refused, or accepted with tensors that
 * cover the file exactly and a header that, printed and read again, says the same. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ckpt/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void check_cover(const tti_safetensors *file) {
    uint64_t end = file->n_header_bytes;
    for (size_t i = 0; i < file->n_entries; i++) {
        TTI_ASSERT(file->entries[i].offset == end);
        end += file->entries[i].n_bytes;
    }
    TTI_ASSERT(end == file->n_bytes);
}

static void check_same(const tti_safetensors *a, const tti_safetensors *b) {
    TTI_ASSERT(a->n_entries == b->n_entries);
    for (size_t i = 0; i < a->n_entries; i++) {
        const tti_safetensors_entry *x = &a->entries[i], *y = &b->entries[i];
        TTI_ASSERT(x->n_bytes == y->n_bytes && x->type.dtype == y->type.dtype);
        TTI_ASSERT(x->foreign == y->foreign);
        TTI_ASSERT(x->type.shape.n_dims == y->type.shape.n_dims);
        for (int d = 0; d < x->type.shape.n_dims; d++)
            TTI_ASSERT(x->type.shape.dim[d] == y->type.shape.dim[d]);
        TTI_ASSERT(x->n_bytes == 0 || strcmp(x->name, y->name) == 0); /* empty ones may swap */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    tti_safetensors *file, *again;
    if (tti_safetensors_parse("fuzz", data, n_bytes, n_bytes, &file) != TUTTI_OK) return 0;
    check_cover(file);
    tti_str head = {0};
    tti_safetensors_header(file->entries, file->n_entries, &head);
    TTI_ASSERT(!head.failed);
    uint64_t n_data = file->n_bytes - file->n_header_bytes;
    tutti_status st =
        tti_safetensors_parse("again", head.text, head.n_bytes, head.n_bytes + n_data, &again);
    TTI_ASSERT(st == TUTTI_OK);
    check_cover(again);
    check_same(file, again);
    tti_str_free(&head);
    tti_safetensors_close(again);
    tti_safetensors_close(file);
    return 0;
}
