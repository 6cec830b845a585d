/* channel_ends.h - the parts of a channel, shared by the code that connects and the code that
 * sends. */
#ifndef TTI_COMM_CHANNEL_ENDS_H
#define TTI_COMM_CHANNEL_ENDS_H

#include "comm/channel.h"

typedef struct tti_channel_ends {
    int fd; /* connected and non-blocking; tti_channel_make takes ownership, also on failure */
    int memory_fd; /* memory of the areas, mapped by both ends, owned by the caller; -1: each end
                      has its own areas */
    int peer, timeout_ms;
} tti_channel_ends;

TUTTI_NODISCARD tutti_status tti_channel_make(const tti_channel_ends *ends,
                                              const size_t *area_bytes, int n_areas,
                                              tti_channel **out);

/* Bytes of the memory that holds the areas; 0: they exceed the largest possible size. */
size_t tti_channel_memory_bytes(const size_t *area_bytes, int n_areas);

#endif /* TTI_COMM_CHANNEL_ENDS_H */
