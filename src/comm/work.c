/* work.c - code that all algorithms use: partitions of a vector, scratch memory, and message
 * arrays. */
#include <stdlib.h>

#include "comm/algorithm.h"

size_t tti_partition_first(size_t n_elems, int i, int n_partitions) {
    size_t n = (size_t)n_partitions, k = (size_t)i;
    size_t first = n_elems / n * k + n_elems % n * k / n;
    first = (first + 63) & ~(size_t)63;
    return i == n_partitions || first > n_elems ? n_elems : first;
}

void *tti_comm_scratch(tutti_comm *comm, size_t n_bytes) {
    if (n_bytes <= comm->scratch_bytes) return comm->scratch;
    size_t rounded = (n_bytes + 4095) & ~(size_t)4095;
    free(comm->scratch);
    comm->scratch_bytes = 0;
    comm->scratch = aligned_alloc(64, rounded);
    if (!comm->scratch) {
        (void)tti_fail(TUTTI_E_NOMEM, "comm: out of memory for %zu bytes of scratch", n_bytes);
        return NULL;
    }
    comm->scratch_bytes = rounded;
    return comm->scratch;
}

tti_message *tti_message_list_room(tti_message_list *list, int n) {
    if (n <= list->capacity) return list->of;
    tti_message_list_free(list);
    list->of = calloc((size_t)n, sizeof *list->of);
    if (!list->of) {
        (void)tti_fail(TUTTI_E_NOMEM, "comm: out of memory for %d messages", n);
        return NULL;
    }
    list->capacity = n;
    return list->of;
}

void tti_message_list_free(tti_message_list *list) {
    free(list->of);
    *list = (tti_message_list){0};
}
