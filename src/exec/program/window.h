/* window.h - where buckets of a flat array lie that are in memory only while steps use them.
 *
 * A use is a bucket from the first step of a program to the last one that look at it; between two
 * uses its place is others'.  All of it is known from the plan. */
#ifndef TTI_EXEC_WINDOW_H
#define TTI_EXEC_WINDOW_H

#include "passes/plan.h"

typedef struct tti_use {
    int bucket;
    int first, last;     /* steps of the program */
    int taken, released; /* its place is nobody else's in steps taken .. released */
    size_t offset;       /* of its place, elements, a multiple of 16 */
} tti_use;

typedef struct tti_window {
    const tti_plan *plan; /* borrowed */
    tti_use *uses;        /* [n_uses] by first step, then bucket */
    int n_uses;
    size_t n_elems; /* of all places */
} tti_window;

/* Buckets that a program reads in TTI_SPACE_PARAM: the place of one is taken while the one before
 * it is in use, so that it can be filled meanwhile.  A bucket that two other ones come between is
 * released and comes again, and so is each at the end of a part of the program, whose parts other
 * shards may run in between.  Or those it writes in TTI_SPACE_GRAD: a place is released a bucket
 * later, so that it can be emptied meanwhile.  Freed by fini, also after a failure. */
tutti_status tti_window_init(const tti_plan *plan, const tti_program *program, tti_space space,
                             tti_window *out);
void tti_window_fini(tti_window *window);

/* Where element at of the flat array lies, in the use that step belongs to; -1: in the only one. */
size_t tti_window_at(const tti_window *window, int step, size_t at);

/* The next step behind this one, at most last, that a place is taken or looked at from. */
int tti_window_next_change(const tti_window *window, int step, int last);

/* True if two uses have bytes in common. */
bool tti_window_shares(const tti_window *window, const tti_use *a, const tti_use *b);

#endif /* TTI_EXEC_WINDOW_H */
