/* workspace.h - the memory of one thread that reads samples of different sizes.
 *
 * Buffers grow on demand and are kept from sample to sample.  One workspace is used by one thread
 * at a time; zero to begin with. */
#ifndef TTI_DATA_WORKSPACE_H
#define TTI_DATA_WORKSPACE_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/status.h"

typedef struct tti_buffer {
    uint8_t *bytes; /* 64-byte aligned; owned; NULL until something was reserved */
    size_t n_bytes; /* in use; maintained by the caller */
    size_t capacity;
} tti_buffer;

typedef struct tti_workspace {
    tti_buffer file;   /* a sample as it lies in its file                           */
    tti_buffer pixels; /* decoded                                                   */
    tti_buffer turned; /* decoded and turned upright                                */
    tti_buffer rows;   /* of a resize, between its two passes; a decoder's own rows */
    tti_buffer coefs;  /* of a resize                                               */
    tti_buffer sample; /* an image between the steps of a chain                     */
} tti_workspace;

/* Makes at least n_bytes available at bytes; previous contents may be lost.  Sets n_bytes. */
tutti_status tti_buffer_reserve(tti_buffer *buffer, size_t n_bytes);

/* Both free all memory; the buffer or workspace is then empty and can be used again. */
void tti_buffer_free(tti_buffer *buffer);
void tti_workspace_free(tti_workspace *ws);

#endif /* TTI_DATA_WORKSPACE_H */
