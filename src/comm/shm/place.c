/* place.c - lets other code share symmetric memory between the ranks of a host, by an address that
 * is valid on all of them. */
#include "comm/shm/shm.h"

uint64_t tti_shm_address(const shm_state *s, const void *memory, size_t n_bytes) {
    if (s->one_process) return (uintptr_t)memory;
    const unsigned char *p = memory;
    for (int i = s->n_segments - 1; i >= 0; i--) {
        const shm_segment *g = &s->segments[i];
        const unsigned char *part = g->base + (size_t)s->rank * g->part_bytes;
        if (p >= part && p <= part + g->part_bytes && n_bytes <= (size_t)(part + g->part_bytes - p))
            return g->offset + (uint64_t)(p - g->base);
    }
    return 0;
}

void *tti_shm_locate(const shm_state *s, int rank, uint64_t address, size_t n_bytes) {
    if (s->one_process) return (void *)(uintptr_t)address;
    for (int i = s->n_segments - 1; i >= 0; i--) {
        const shm_segment *g = &s->segments[i];
        uint64_t part = g->offset + (uint64_t)rank * g->part_bytes;
        if (address >= part && address <= part + g->part_bytes &&
            n_bytes <= part + g->part_bytes - address)
            return g->base + (address - g->offset);
    }
    return NULL;
}
