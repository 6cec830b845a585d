/* arena.c - a list of blocks, the newest one filled from its start. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16, BLOCK_BYTES = 16 * 1024 };

struct tti_arena_block {
    struct tti_arena_block *next;
    size_t n_bytes;
    _Alignas(ALIGN) unsigned char data[];
};

static bool add_block(tti_arena *arena, size_t n_bytes) {
    size_t room = n_bytes > BLOCK_BYTES ? n_bytes : BLOCK_BYTES;
    struct tti_arena_block *block =
        room < SIZE_MAX - sizeof *block ? calloc(1, sizeof *block + room) : NULL;
    if (!block) {
        arena->failed = true;
        return false;
    }
    block->next = arena->head;
    block->n_bytes = room;
    arena->head = block;
    arena->used = 0;
    return true;
}

void *tti_arena_alloc(tti_arena *arena, size_t n_bytes) {
    if (arena->failed || n_bytes > SIZE_MAX - ALIGN) {
        arena->failed = true;
        return NULL;
    }
    n_bytes = (n_bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    bool fits = arena->head && n_bytes <= arena->head->n_bytes - arena->used;
    if (!fits && !add_block(arena, n_bytes)) return NULL;
    void *block = arena->head->data + arena->used;
    arena->used += n_bytes;
    return block;
}

void *tti_arena_copy(tti_arena *arena, const void *src, size_t n_bytes) {
    void *copy = tti_arena_alloc(arena, n_bytes);
    if (copy && n_bytes > 0) memcpy(copy, src, n_bytes);
    return copy;
}

char *tti_arena_strdup(tti_arena *arena, const char *text) {
    return tti_arena_copy(arena, text, strlen(text) + 1);
}

char *tti_arena_printf(tti_arena *arena, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    char *text = n < 0 ? NULL : tti_arena_alloc(arena, (size_t)n + 1);
    if (text) vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}

bool tti_arena_failed(const tti_arena *arena) { return arena->failed; }

void tti_arena_free(tti_arena *arena) {
    while (arena->head) {
        struct tti_arena_block *next = arena->head->next;
        free(arena->head);
        arena->head = next;
    }
    *arena = (tti_arena){0};
}
