/* flight.h - the flight recorder: what each rank of a run does, in shared memory.
 *
 * A rank appends a record for every operation of a step to a ring of the last 256, and says which
 * long phase it is in.  The memory is a memfd without a name: a supervisor or `tutti ps` maps it,
 * it survives the rank, and it disappears with the last process that has it.
 *
 * Each thread of a rank has a number (TTI_THREAD_...) and at most one open operation.  All calls of
 * the writing side accept NULL and then do nothing.  A record costs about 50 ns; the layer of an
 * operation is one store per kernel. */
#ifndef TTI_BASE_FLIGHT_H
#define TTI_BASE_FLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tutti/status.h"

enum {
    TTI_FLIGHT_RECORDS = 256,
    TTI_FLIGHT_THREADS =
        80, /* the rank's own thread, the communication, compute and loader threads */
    TTI_FLIGHT_LAYERS = 4096, /* names that a rank can publish; later ones are not shown */
    TTI_FLIGHT_STEPS = 16,    /* durations of the last steps */
    TTI_FLIGHT_FRAMES = 48,
    TTI_FLIGHT_NAME = 16,
    TTI_FLIGHT_LAYER_NAME = 48
};

/* Numbers of threads.  Compute threads count from TTI_THREAD_COMPUTE, the loader's threads from
 * TTI_THREAD_LOAD. */
enum {
    TTI_THREAD_MAIN,
    TTI_THREAD_COMM,
    TTI_THREAD_COMPUTE,
    TTI_THREAD_LOAD = TTI_FLIGHT_THREADS - 14
};

typedef struct tti_flight_memory tti_flight_memory;
typedef struct tti_flight tti_flight; /* a rank's part of the memory */

/* An operation, as given to tti_flight_begin.  Zero is the default of every field except name. */
typedef struct tti_flight_op {
    const char *name; /* cut at 15 bytes */
    uint64_t step, n_bytes;
    int n_peers;          /* other ranks that take part */
    bool waits_for_peers; /* the operation ends only when other ranks take part */
    bool may_wait;        /* it waits for other ranks while tti_flight_in_call says so */
    bool waits_for_loads; /* it ends only when threads of the loader end theirs */
} tti_flight_op;

/* Creates the memory of n_ranks ranks.  On success *out is owned by the caller. */
TUTTI_NODISCARD tutti_status tti_flight_create(int n_ranks, tti_flight_memory **out);

/* Maps memory made by another process; fd stays the caller's.  TUTTI_E_INVALID: fd is something
 * else. */
TUTTI_NODISCARD tutti_status tti_flight_open(int fd, tti_flight_memory **out);
void tti_flight_close(tti_flight_memory *memory); /* takes NULL */

/* -1: no other program can map it, because files of this process are limited (ulimit -f). */
int tti_flight_fd(const tti_flight_memory *memory);
int tti_flight_n_ranks(const tti_flight_memory *memory);
/* NULL: there is no such rank, or memory is NULL. */
tti_flight *tti_flight_of(tti_flight_memory *memory, int rank);

/* How many workers an elastic run may have, set by its supervisor, and how many a user asks for;
 * 0: not set.  members: in the current group, of which n_here record in this memory; 0: the group
 * changes, or members on other hosts do not train yet. */
typedef struct tti_flight_workers {
    int least, most, wanted, members, n_here;
    int n_per_replica; /* their numbers are multiples of it */
} tti_flight_workers;

void tti_flight_set_range(tti_flight_memory *memory, int least, int most, int n_per_replica);
void tti_flight_set_members(tti_flight_memory *memory, int n_here, int n_members);
void tti_flight_want(tti_flight_memory *memory, int n_workers);
/* Returns the last number asked for, and forgets it. */
int tti_flight_take_wanted(tti_flight_memory *memory);
tti_flight_workers tti_flight_get_workers(const tti_flight_memory *memory);

/* ---- the writing side ---- */

/* The phase of a process that waits for a place among the ranks, for as long as it takes. */
#define TTI_FLIGHT_SPARE "waiting as a spare"

/* Begins the record of this process as the given rank, without open operations; the ring stays. */
void tti_flight_enter(tti_flight *f, const char *phase);
void tti_flight_leave(tti_flight *f);
/* The process of a rank has ended without tti_flight_leave; called by the process that waited for
 * it. */
void tti_flight_forget(tti_flight *f);

/* Publishes the name of layer i, as tti_flight_layer will give it.  waits_for_peers: it exchanges
 * values with other ranks. */
void tti_flight_name_layer(tti_flight *f, int i, const char *op, const char *name,
                           bool waits_for_peers);

/* Begins and ends an operation of the calling thread, which is number thread of its rank. */
void tti_flight_begin(tti_flight *f, int thread, const tti_flight_op *op);
void tti_flight_end(tti_flight *f, int thread);

/* Where the open operation of a thread stores its current layer with tti_flight_layer; NULL if f is
 * NULL or no operation is open. */
_Atomic int32_t *tti_flight_layer_place(tti_flight *f, int thread);

static inline void tti_flight_layer(_Atomic int32_t *place, int layer) {
    atomic_store_explicit(place, layer, memory_order_relaxed);
}

/* A thread of the rank begins or ends a call that waits for other ranks. */
void tti_flight_in_call(tti_flight *f, bool begins);

/* Declares a long phase, such as "evaluating", until the call with NULL. */
void tti_flight_phase(tti_flight *f, const char *phase);

/* Records that a step was committed, which took t_ns; steps: the number of committed steps. */
void tti_flight_commit(tti_flight *f, uint64_t steps, int64_t t_ns);

/* ---- the reading side: any process, at any time ---- */

typedef struct tti_flight_view {
    uint64_t seq; /* number of the operation, from 1 */
    char name[TTI_FLIGHT_NAME];
    char layer[TTI_FLIGHT_LAYER_NAME]; /* "" : none */
    uint64_t step, n_bytes;
    int thread, n_peers;
    bool waits_for_peers, waits_for_loads;
    int64_t start_ns, end_ns; /* CLOCK_MONOTONIC; end 0: it runs */
} tti_flight_view;

typedef struct tti_flight_state {
    int pid;                           /* 0: the rank has not begun */
    char phase[TTI_FLIGHT_LAYER_NAME]; /* the declared phase; "": none */
    int64_t phase_ns;                  /* when it was declared */
    uint64_t steps;                    /* committed */
    int64_t median_ns;                 /* of the last steps; 0: none was measured */
    uint64_t progress;                 /* changes with every operation, layer, phase and step */
    int64_t last_ns; /* when the last operation began or ended; 0: there was none */
    int n_calls;     /* of its threads that wait for other ranks now, as tti_flight_in_call says */
} tti_flight_state;

void tti_flight_read(const tti_flight *f, tti_flight_state *out);

/* The open operation of a thread; false: there is none.  *tid: its thread id. */
bool tti_flight_open_op(const tti_flight *f, int thread, tti_flight_view *out, int *tid);

/* Copies up to n of the last operations, oldest first; returns how many. */
int tti_flight_last(const tti_flight *f, tti_flight_view *out, int n);

/* ---- stacks ---- */

/* Installs the handler of the signal by which a thread writes its stack into the memory of rank f;
 * one rank of a process is enough.  Safe to repeat. */
void tti_flight_serve_stacks(tti_flight *f);

/* Asks thread tid of the process of a rank for its stack, and waits up to wait_ms.  Returns the
 * number of program counters written to pc [TTI_FLIGHT_FRAMES]; 0: the thread did not answer, or
 * has recorded no operation: only threads that record have a signal stack.  One caller at a time.
 */
int tti_flight_stack(tti_flight_memory *memory, int rank, int tid, int wait_ms, uint64_t *pc);

#endif /* TTI_BASE_FLIGHT_H */
