/* memory_room.h - how much memory this process has used at most, and how much it can still allocate
 * before the system kills it.
 *
 * Linux promises more memory than there is and kills a process when it uses too much of it.
 * Code that is about to allocate a lot checks here first. */
#ifndef TTI_BASE_MEMORY_ROOM_H
#define TTI_BASE_MEMORY_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tti_memory_room {
    uint64_t n_bytes; /* that all processes here can still take together */
    uint64_t own;     /* that this process can, by its address space (ulimit -v) */
    char limit[160];  /* what n_bytes comes from: "the memory of this machine", "memory.max of
                         the cgroup /x" */
} tti_memory_room;

/* By free memory and swap, and by the limits of the control groups (v1 and v2) of this process.
 * UINT64_MAX if unknown. root: prefix of /proc and /sys, "" except in tests. */
void tti_memory_find_room(const char *root, tti_memory_room *out);

/* Whether n_bytes of address space can be had at this moment.  Always true without ulimit -v. */
bool tti_memory_can_map(size_t n_bytes);

/* The most bytes that this process has had in memory since its program started; 0 if unknown.
 * (ru_maxrss of getrusage also counts the process that started it, before exec: a large Python.) */
uint64_t tti_memory_peak(void);

#endif /* TTI_BASE_MEMORY_ROOM_H */
