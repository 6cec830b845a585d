/* window.h - the memory of buckets of a flat array that exist only while steps use them.
 *
 * A use is a bucket from the first to the last step of a program that accesses it; between two uses
 * others have its memory.  Everything is known from the plan. */
#ifndef TTI_EXEC_WINDOW_H
#define TTI_EXEC_WINDOW_H

#include "passes/plan.h"

typedef struct tti_use {
    int bucket;
    int first, last;     /* steps of the program */
    int taken, released; /* its memory is reserved in steps taken .. released */
    size_t offset;       /* of its place, elements, a multiple of 16 */
} tti_use;

typedef struct tti_window {
    const tti_plan *plan; /* borrowed */
    tti_use *uses;        /* [n_uses] by first step, then bucket */
    int n_uses;
    size_t n_elems; /* of all places */
} tti_window;

/* Buckets that a program reads in TTI_SPACE_PARAM: the memory of one is reserved while the previous
 * one is in use, so that it can be filled meanwhile.  A bucket with two others between its uses is
 * released and fetched again, and so is each at the end of a part of the program, because parts of
 * other shards may run in between.  Or those it writes in TTI_SPACE_GRAD: memory is released one
 * bucket later, so that it can be reduced meanwhile.  Freed by fini, also after a failure. */
tutti_status tti_window_init(const tti_plan *plan, const tti_program *program, tti_space space,
                             tti_window *out);
void tti_window_fini(tti_window *window);

/* The location of element at of the flat array, in the use that step belongs to; -1: in the only
 * one. */
size_t tti_window_at(const tti_window *window, int step, size_t at);

/* The next step after this one, at most last, at which memory is reserved or first used. */
int tti_window_next_change(const tti_window *window, int step, int last);

/* True if two uses have bytes in common. */
bool tti_window_shares(const tti_window *window, const tti_use *a, const tti_use *b);

#endif /* TTI_EXEC_WINDOW_H */
