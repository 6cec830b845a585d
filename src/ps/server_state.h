/* server_state.h - the internal state of a parameter server.
 *
 * Each file uses only those below it:
 *
 *   server.c            creates and connects servers; server_divided.c: for a divided model
 *   server_listener.c   for each worker process a thread that executes its requests here
 *   server_leave.c      workers that leave, or have ended
 *   server_async.c      batches and gradients, by the number of a worker; server_sync.c: steps
 *   server_barrier.c       synchronizes worker processes
 *   server_group.c      workers that hold a replica together
 *   server_keys.c       a worker's gradients to several range servers, parameters from them
 *   server_client.c     the process's side: a tti_server that sends requests
 *   server_queue.c      the server's thread
 *   server_ranges.c     orders to range servers, server_range.c
 *   server_state.c      failing and waiting; server_copies.c; server_wire.c: messages
 * Worker threads call the functions of server.h, which use the number of their executor; all but
 * pull and push are the same for both. */
#ifndef TTI_EXEC_SERVER_STATE_H
#define TTI_EXEC_SERVER_STATE_H

#include <pthread.h>

#include "comm/channel.h"
#include "comm/sum_order.h"
#include "comm/transport.h"
#include "exec/program/exec_program.h"
#include "exec/worker/worker.h"
#include "ps/server.h"

typedef struct tti_ranges tti_ranges;
typedef struct tti_range_server tti_range_server;
typedef struct tti_keys tti_keys;
typedef struct tti_replica_group tti_replica_group;

typedef enum tti_request_kind {
    TTI_PULL,
    TTI_PUSH,
    TTI_STEP,
    TTI_FETCH,  /* state of all ranges */
    TTI_TRAFFIC /* bytes of all ranges */
} tti_request_kind;

/* In the memory of its worker, which waits for it; that of a step in the server's. */
typedef struct tti_request {
    tti_request_kind kind;
    int worker;         /* PULL: whose */
    float *params;      /* PULL: [n_own] of the server, to be filled */
    float *ema;         /* PULL: likewise; NULL: not wanted, or there are none */
    int k;              /* FETCH: of this state */
    tti_range keys;     /* FETCH: these */
    float *to;          /* FETCH: [keys], to be filled */
    int64_t *bytes;     /* TRAFFIC: [n_ranges], to be filled */
    float *grads;       /* PUSH: the summed gradient of a batch */
    tti_step_desc step; /* else: step, lr, loss_scale */
    double inv_count;
    tti_arrival arrival; /* PUSH; its result also for STEP, its version also for PULL */
    tutti_status status;
    char error[512];
    bool done;
    struct tti_request *next;
} tti_request;

/* The gradient that a worker pushes: whole, or partial sums to be added. */
typedef struct tti_push {
    float *pieces[TTI_MAX_PIECES];
    int n_pieces;
    tti_step_desc step;
    int64_t n_rows, n_own_rows; /* of the batch, and of the worker's shards of it */
    int64_t wait_ns;
    tti_step_result result;
    double (*lr)(void *user, int64_t step); /* NULL: the server's own */
    void *user;
} tti_push;

/* A worker's current batch. */
typedef struct tti_served {
    float *pieces[TTI_MAX_PIECES]; /* STEP: it has arrived with these */
    int n_pieces;                  /* 0: not yet */
    bool computes;                 /* a batch that it has leased */
    int64_t batch, version;
    int64_t next_replay; /* index of the first of its arrivals that it has not begun, or beyond */
    bool has_left, is_dead;
    bool was_left_out; /* with backup workers: the last step that it had a part of */
    int64_t n_dropped;
    int n_begun[TTI_MAX_RANKS]; /* steps that the others have begun since it took its batch */
} tti_served;

/* Values of all live workers, combined when the last one has arrived. */
typedef struct tti_barrier {
    int64_t *values; /* [n_workers][TTI_COMBINE_VALUES], of those that have arrived; owned */
    bool has_arrived[TTI_MAX_RANKS];
    int n_values;
    tti_combine_op op;
    int64_t n_rounds;
    int64_t result[TTI_COMBINE_VALUES]; /* of the last round */
    tti_members members;                /* of the last round */
} tti_barrier;

struct tti_server {
    const tti_server_calls *calls; /* first: what exec/ sees of it */
    tti_server_desc desc;
    tti_exec *x; /* NULL: in another process */
    tti_client *client;
    tti_listener *listener; /* workers are processes; NULL: threads */
    tti_ranges *ranges;     /* sends orders to the other range servers; NULL: this is not the first
                               process, or there are none */
    tti_range_server *range_server; /* of a range in this process, not the first; NULL: none */
    tti_keys *keys; /* this process's worker asks several range servers; NULL: there is one */
    tti_replica_group
        *replica_group; /* its worker is one of several that are one to the server; NULL: alone */
    size_t n_own;       /* elements that the first process holds: the first ones */
    int64_t n_bytes;    /* between it and workers of other processes; of the server's thread */
    tti_shard_map shard_map; /* synchronous: the shard map of the last step */
    tti_sum_order order;     /* of the pieces over the workers that follows from it */
    void *scratch[TTI_MAX_COMPUTE_THREADS];
    pthread_t thread;
    bool has_thread, is_up, stop;
    tutti_status up;           /* how that went */
    char up_error[1024];       /* and why not */
    pthread_mutex_t mutex;     /* guards all below */
    pthread_cond_t work, news; /* for the thread; for the workers */
    tti_request *head, *tail;
    bool failed, stopped; /* all waits end; no more batches are leased */
    char error[1024];
    tutti_status
        cause; /* TUTTI_E_PEER, or the failure of a worker in a process that does not report it */
    tti_served worker[TTI_MAX_RANKS];
    tti_request step; /* synchronous */
    int n_arrived;
    uint64_t n_steps;     /* that were served */
    tti_step_result sums; /* with backup workers: of the pieces that came */
    int64_t n_rows;       /* likewise */
    tti_leave left[TTI_MAX_RANKS];
    int n_left, n_left_reported;
    int64_t returned[TTI_MAX_RANKS]; /* batches to be leased again */
    int n_returned;
    int64_t first, last;           /* batches of this stretch */
    int64_t opened;                /* last as it was opened: a stop may have lowered it */
    int64_t n_assigned, n_updates; /* batches leased; updates put into the queue; both of the run */
    int64_t *n_to_pull;            /* replay: [n_replay + 1], pulls still expected, by version */
    tti_arrival *log;              /* [log_first .. n_log): not asked for yet */
    size_t log_first, n_log, cap_log;
    int64_t bins[TTI_STALENESS_BINS];
    double (*lr)(void *user, int64_t step); /* for workers that are processes */
    void *lr_user;
    tti_barrier barrier;
};

/* ---- server.c ---- */

/* Without threads and memory of parameters; NULL: out of memory. */
tti_server *tti_server_new(const tti_server_desc *desc);

/* ---- server_queue.c ---- */

/* Starts the threads; desc.exec is that of the update. */
tutti_status tti_server_start(tti_server *s);

/* ---- server_state.c ---- */

/* Fields for files that need no other ones. */
bool tti_server_is_client(const tti_server *s);
tti_keys *tti_server_keys(const tti_server *s);
tti_range_server *tti_server_own_range(const tti_server *s);
tti_replica_group *tti_server_group(const tti_server *s);
tutti_dtype tti_server_wire(const tti_server *s); /* of gradients in messages */

/* An update with a loss or a gradient that is not finite is left out, and no failure. */
bool tti_server_leaves_out(const tti_server *s);

/* The kind of a worker of the queue in messages, followed by its number. */
const char *tti_server_kind(const tti_server *s);

/* n_ranges of desc, 1 if it is 0; and the elements of range r. */
int tti_server_n_ranges(const tti_server_desc *desc);
tti_range tti_server_range(const tti_server_desc *desc, int r);

/* Bytes of the areas of a channel to the server of range r: TTI_WIRE_PARAMS and the following ones.
 */
enum { TTI_N_KEY_AREAS = 3 };
void tti_server_area_bytes(const tti_server_desc *desc, int r, size_t bytes[TTI_N_KEY_AREAS]);

/* Call the following functions with the mutex held. */

typedef bool (*tti_server_ready)(const tti_server *s, int w, int64_t arg);

/* Until ready(w, arg); the server's failure, or the time is over. */
tutti_status tti_server_wait(tti_server *s, int w, tti_server_ready ready, int64_t arg);
/* Waits until the step for which w has pushed its partial sums is served.  They are not read
 * afterwards, even if this fails. */
tutti_status tti_server_wait_step(tti_server *s, int w);
/* Puts a request at the end of the queue; waits until it is served. */
void tti_server_put(tti_server *s, tti_request *r);
tutti_status tti_server_wait_served(tti_server *s, const tti_request *r);
/* The first failure, for all; status: of waits here. */
void tti_server_fail(tti_server *s, tutti_status status, const char *text);

/* Adds to a profile of x: its worker waited from start to end; for the last served_ns of it the
 * server worked for it; 0: unknown. */
void tti_server_profile(tti_exec *x, const char *name, int64_t start_ns, int64_t end_ns,
                        int64_t served_ns);

/* ---- server_async.c: for worker w, without the mutex ---- */

tutti_status tti_server_lease_for(tti_server *s, int w, float *params, tti_lease *lease);
tutti_status tti_server_push_for(tti_server *s, int w, const tti_push *push, tti_arrival *out);
/* ema NULL: not wanted. */
tutti_status tti_server_pull_for(tti_server *s, int w, float *params, float *ema,
                                 int64_t *n_updates);
tutti_status tti_server_watch_for(tti_server *s, int w, int64_t *n_updates, bool *over);

/* ---- server_leave.c ---- */

bool tti_server_leave_for(tti_server *s, int w, const char *why);
bool tti_server_has_left_for(tti_server *s, int w);
/* The process of w has ended, NULL: as it should: the others go on, or all end. */
void tti_server_remove_worker(tti_server *s, int w, const char *why);

/* ---- server_barrier.c ---- */

tutti_status tti_server_combine_for(tti_server *s, int w, tti_combine_op op, int64_t *values, int n,
                                    tti_members *members);
/* With the mutex held: ends the round if all live workers have arrived.  Its result is valid until
 * the next one, which needs all workers. */
void tti_server_end_round(tti_server *s);

/* ---- server_listener.c ---- */

/* Lets the workers of other processes in, channels [n_workers] to each but the first, which become
 * the server's, also on failure. */
tutti_status tti_listener_open(tti_server *s, tti_channel *const *channels);
void tti_listener_close(tti_listener *listener);

/* ---- server_copies.c: by all compute threads ---- */

/* If gradients are sent in 16 bits: replaces the partial sums by their rounded sum. */
void tti_server_round(tti_exec *x, float *const *pieces, int *n_pieces);
/* The sum of elements range of the pieces, as f32 or as it travels; and n elements. */
void tti_server_copy_sum(tti_exec *x, float *dst, float *const *pieces, int n_pieces,
                         tti_range range);
void tti_server_pack(tti_exec *x, void *area, float *const *pieces, int n_pieces, tti_range range);
void tti_server_copy(tti_exec *x, float *dst, const float *from, size_t n);

/* ---- server_client.c: the calls of server.h where s->client ---- */

/* Makes s one that asks over channel, which becomes its own, also on failure. */
tutti_status tti_client_begin(tti_server *s, tti_channel *channel);
tutti_status tti_client_open(tti_server *s, int64_t first, int64_t last);
tutti_status tti_client_stop(tti_server *s);
/* lease and pull are answered with parameters and averages in these areas of the channel; with
 * several ranges tti_keys_pull copies them. */
float *tti_client_area(tti_server *s, int area);
tutti_status tti_client_lease(tti_server *s, tti_lease *lease);
tutti_status tti_client_pull(tti_server *s, int64_t *n_updates);
tutti_status tti_client_push_gradient(tti_server *s, tti_exec *x, const tti_push *push,
                                      tti_arrival *out);
bool tti_client_leave(tti_server *s, const char *why);
bool tti_client_has_left(const tti_server *s);
tutti_status tti_client_watch(tti_server *s, int64_t *n_updates, bool *over);
tutti_status tti_client_combine(tti_server *s, tti_combine_op op, int64_t *values, int n,
                                tti_members *members);
/* Reports that the worker of this process cannot continue for the reason text,
 * which ends the run; returns the original cause, if another failure came first. */
tutti_status tti_server_why(tti_server *s, const char *text);
void tti_client_abort(tti_server *s, tutti_status status, const char *text);
/* Takes a server without one; false: here something failed. */
bool tti_client_close(tti_server *s);

/* Range 0, as one of several: requests are sent before answers are awaited. */
tutti_status tti_client_push(tti_server *s, tti_exec *x, float *const *pieces, int n_pieces);
tutti_status tti_client_pushed(tti_server *s);
tutti_status tti_client_ask_keys(tti_server *s, bool with_ema);
tutti_status tti_client_hear_keys(tti_server *s, tti_exec *x, float *params, float *ema);

#endif /* TTI_EXEC_SERVER_STATE_H */
