/* read_ahead.h - threads read a list of items, while the calling thread uses them in order. */
#ifndef TTI_BASE_READ_AHEAD_H
#define TTI_BASE_READ_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/affinity.h"

/* Elements of an item that is part of a tensor: a multiple of the blocks in which they are updated
 * and hashed. */
enum { TTI_PART_ELEMS = 1 << 19 };

/* Takes elements first .. first + n_elems - 1 of a tensor; first is a multiple of TTI_PART_ELEMS.
 * The calling thread, tensor by tensor and in the order of the elements. */
typedef tutti_status (*tti_take_part_fn)(void *user, int tensor, size_t first, size_t n_elems,
                                         const float *data);

/* The threads that read, and the memory that they read into. */
typedef struct tti_readers {
    int n_threads;   /* 0: the calling thread reads */
    tti_cores cores; /* of the threads; n 0: those of the calling thread */
    /* Called by the calling thread alone; NULL: malloc and free. */
    void *(*alloc)(size_t n_bytes);
    void (*release)(void *memory);
} tti_readers;

typedef struct tti_read_ahead_desc {
    const tti_readers *readers; /* NULL: the calling thread reads */
    int64_t n_items;
    size_t item_bytes; /* memory of an item, aligned to 64 bytes; two for each thread exist */
    /* Reads an item.  Any thread, in any order. */
    tutti_status (*read)(void *user, int64_t item, void *memory);
    /* Uses an item that has been read.  The calling thread, in the order of the items. */
    tutti_status (*use)(void *user, int64_t item, void *memory);
    void *user;
} tti_read_ahead_desc;

/* Reads and uses all items.  The first failure in the order of the items ends it and is returned,
 * with its text; earlier items have been used.  TUTTI_E_NOMEM. */
TUTTI_NODISCARD tutti_status tti_read_ahead(const tti_read_ahead_desc *desc);

/* A part of a tensor: at most TTI_PART_ELEMS elements, or all of them if it cannot be divided. */
typedef struct tti_part {
    int tensor;
    bool is_whole; /* use reads it */
    size_t first, n_elems;
    uint32_t crc; /* of its bytes, for use; read sets it if there is a checksum to compare */
} tti_part;

/* The elements of a tensor; sets *is_whole (false before) if it cannot be divided. */
typedef size_t (*tti_part_size_fn)(const void *user, int tensor, bool *is_whole);
/* Reads a part as f32 into memory.  Any thread, in any order. */
typedef tutti_status (*tti_part_read_fn)(void *user, tti_part *part, float *memory);
/* Uses a part.  The calling thread, tensor by tensor, in the order of the elements. */
typedef tutti_status (*tti_part_use_fn)(void *user, const tti_part *part, const float *memory);

/* Divides n tensors into parts, then reads and uses these as tti_read_ahead does with items. */
TUTTI_NODISCARD tutti_status tti_read_parts(const tti_readers *readers, int n,
                                            tti_part_size_fn size, tti_part_read_fn read,
                                            tti_part_use_fn use, void *user);

#endif /* TTI_BASE_READ_AHEAD_H */
