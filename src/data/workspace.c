/* workspace.c - growing buffers.  They grow by half, so that a data set with ever larger images
 * does not allocate for each. */
#include "data/workspace.h"

#include <stdlib.h>

#include "base/error.h"

enum { ALIGN_BYTES = 64 };

tutti_status tti_buffer_reserve(tti_buffer *buffer, size_t n_bytes) {
    if (n_bytes > SIZE_MAX / 4)
        return tti_fail(TUTTI_E_NOMEM, "data: cannot allocate %zu bytes", n_bytes);
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

void tti_buffer_free(tti_buffer *buffer) {
    free(buffer->bytes);
    *buffer = (tti_buffer){0};
}

void tti_workspace_free(tti_workspace *ws) {
    tti_buffer_free(&ws->file);
    tti_buffer_free(&ws->pixels);
    tti_buffer_free(&ws->turned);
    tti_buffer_free(&ws->rows);
    tti_buffer_free(&ws->coefs);
    tti_buffer_free(&ws->sample);
}
