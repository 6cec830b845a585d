/* traffic.h - a thread that moves buckets between workers while lanes compute: parameters come
 * before the steps that use them, gradients go behind those that make them, and values that are
 * joined over all shards are so where the program says.
 *
 * The order of the moves follows from the plan, so every worker makes the same ones in the same
 * order.  A move begins when all shards in flight have come to a certain step, and a shard waits
 * before a step until the moves are done that it needs.  Waits have no timeout of their own: a move
 * is a collective, which has. */
#ifndef TTI_EXEC_TRAFFIC_H
#define TTI_EXEC_TRAFFIC_H

#include "exec/window.h"

typedef struct tti_traffic tti_traffic;

typedef enum tti_move_kind { TTI_MOVE_FETCH, TTI_MOVE_JOIN, TTI_MOVE_REDUCE } tti_move_kind;

/* Moves the bucket of a use, or joins the values of step use->first, which no shard then does;
 * called on the thread, which alone may use the communicator then. */
typedef tutti_status (*tti_move_fn)(tti_move_kind kind, const tti_use *use, void *user);

typedef struct tti_traffic_desc {
    const tti_window *params; /* to fetch; NULL: none */
    const tti_window *grads;  /* to reduce; NULL: none */
    int n_steps;              /* of the program */
    const int *joins;         /* [n_joins]: steps of it, rising; copied */
    int n_joins;
    const int *part_first; /* [n_parts + 1]: parts that may be run by themselves; copied.  No use of
                              params is in two of them. */
    int n_parts;           /* 0: the whole program alone */
    int core;              /* pinned there, -1: not */
    tti_move_fn fn;
    void *user;
} tti_traffic_desc;

/* On success *out is owned by the caller and borrows what desc names. */
tutti_status tti_traffic_create(const tti_traffic_desc *desc, tti_traffic **out);
void tti_traffic_destroy(tti_traffic *traffic); /* takes NULL */

/* A new run of the program by so many shards at a time; none: the moves alone. */
void tti_traffic_begin(tti_traffic *traffic, int n_shards);

/* A new run of one part: steps are its first .. the first of the next part.  Sums of gradients are
 * asked for in every one; whoever makes the moves knows in which they are wanted. */
void tti_traffic_begin_part(tti_traffic *traffic, int part, int n_shards);

/* A shard has done the steps before this one, 0 .. n_steps, each number once and in order. */
void tti_traffic_arrive(tti_traffic *traffic, int step);
/* Returns when a shard may do the step, or the moves have failed. */
void tti_traffic_await(tti_traffic *traffic, int step);
/* Both. */
void tti_traffic_reach(tti_traffic *traffic, int step);

/* The failure of a move of this run, if one failed: what waited for it has nothing to go on with.
 */
tutti_status tti_traffic_check(tti_traffic *traffic);

/* The next step behind this one at which shards wait for moves, or that is a join: whoever runs
 * several shards on one thread lets all of them arrive there before one of them waits. */
int tti_traffic_next_stop(const tti_traffic *traffic, int step);

/* It will not come to step and those behind it. */
void tti_traffic_leave(tti_traffic *traffic, int step);

/* Waits until all moves are made, or one failed. */
tutti_status tti_traffic_finish(tti_traffic *traffic);

#endif /* TTI_EXEC_TRAFFIC_H */
