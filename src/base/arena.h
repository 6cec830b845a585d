/* arena.h - memory that is allocated block by block and freed all at once.
 *
 * Graph nodes, attributes and names live in one arena and are freed with it.  One thread at a time.
 * Running out of memory is reported by NULL, permanently: a failed arena keeps returning NULL, so a
 * builder may check once at its end. */
#ifndef TTI_BASE_ARENA_H
#define TTI_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tti_arena {
    struct tti_arena_block *head; /* newest block first; NULL: empty */
    size_t used;                  /* bytes taken from head           */
    bool failed;                  /* an allocation returned NULL     */
} tti_arena;

/* An empty arena is all zero: (tti_arena){0}. */

/* n_bytes of zeroed memory, aligned for any type; NULL when out of memory. */
void *tti_arena_alloc(tti_arena *arena, size_t n_bytes);

/* A copy of n_bytes at src, or of a string. */
void *tti_arena_copy(tti_arena *arena, const void *src, size_t n_bytes);
char *tti_arena_strdup(tti_arena *arena, const char *text);
char *tti_arena_printf(tti_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Whether an allocation has returned NULL since the arena was empty. */
bool tti_arena_failed(const tti_arena *arena);

/* Frees every block; the arena is empty again. */
void tti_arena_free(tti_arena *arena);

#endif /* TTI_BASE_ARENA_H */
