/* workspace.c - growing buffers.  They grow by half, so that a data set with ever larger images
 * does not allocate for each. */
#include "data/workspace.h"

#include <stdlib.h>

#include "base/error.h"

enum { ALIGN_BYTES = 64 };

tutti_status tti_buffer_reserve(tti_buffer *buffer, size_t n_bytes) {
    if (n_bytes > SIZE_MAX / 4)
        return tti_fail(TUTTI_E_NOMEM, "data: %zu bytes are too many", n_bytes);
    if (n_bytes > buffer->capacity) {
        size_t n = TTI_MAX(n_bytes, buffer->capacity + buffer->capacity / 2);
        n = (n + ALIGN_BYTES - 1) & ~(size_t)(ALIGN_BYTES - 1);
        free(buffer->bytes);
        *buffer = (tti_buffer){.bytes = aligned_alloc(ALIGN_BYTES, n)};
        if (!buffer->bytes)
            return tti_fail(TUTTI_E_NOMEM, "data: out of memory for a sample of %zu bytes",
                            n_bytes);
        buffer->capacity = n;
    }
    buffer->n_bytes = n_bytes;
    return TUTTI_OK;
}

void tti_workspace_free(tti_workspace *ws) {
    free(ws->file.bytes);
    free(ws->pixels.bytes);
    free(ws->turned.bytes);
    free(ws->rows.bytes);
    free(ws->coefs.bytes);
    free(ws->sample.bytes);
    *ws = (tti_workspace){0};
}
