/* server_state.h - the internal state of a parameter server.
 *
 * Each file uses only those below it:
 *
 *   server.c            creates, connects and destroys servers, also for workers of divided models
 *   server_listener.c   for each worker process a thread that executes its requests here
 *   server_async.c      batches and gradients, by the number of a worker
 *   server_members.c    replica groups, workers that leave, barriers of worker processes
 *   server_client.c     the worker's side: requests to another process and to range servers
 *   server_queue.c      the server's thread; synchronous steps
 *   server_range.c      range servers, and the orders of the first process to them
 *   server_state.c      failing and waiting, messages
 *
 * Worker threads call the functions of server.h, which use the number of their executor; all but
 * pull and push are the same for both. */
#ifndef TTI_EXEC_SERVER_STATE_H
#define TTI_EXEC_SERVER_STATE_H

#include <pthread.h>

#include "comm/channel.h"
#include "comm/mesh.h"
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
    float *partials[TTI_MAX_PARTIALS];
    int n_partials;
    tti_step_desc step;
    int64_t n_rows, n_own_rows; /* of the batch, and of the worker's shards of it */
    int64_t wait_ns;
    tti_step_result result;
    double (*lr)(void *user, int64_t step); /* NULL: the server's own */
    void *user;
} tti_push;

/* A worker's current batch. */
typedef struct tti_served {
    float *partials[TTI_MAX_PARTIALS]; /* STEP: it has arrived with these */
    int n_partials;                    /* 0: not yet */
    bool computes;                     /* a batch that it has leased */
    int64_t batch, version;
    int64_t next_replay; /* index of the first of its arrivals that it has not begun, or beyond */
    bool has_left, is_dead;
    bool was_left_out; /* with backup workers: the last step that it had a part of */
    int64_t n_dropped;
    int *n_begun; /* [n_workers]: steps that the others have begun since it took its batch; NULL:
                     not counted */
} tti_served;

/* Values of all live workers, combined when the last one has arrived. */
typedef struct tti_barrier {
    int64_t *values;   /* [n_workers][TTI_COMBINE_VALUES], of those that have arrived; owned */
    bool *has_arrived; /* [n_workers], owned */
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
    tti_sum_order order;     /* of the partials over the workers that follows from it */
    const void **terms;      /* [order.n_terms], owned: the partials in that order */
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
    tti_served *worker; /* [n_workers], owned */
    int *n_begun;       /* [n_workers][n_workers], owned: of the workers; NULL: no limit */
    tti_request step;   /* synchronous */
    int n_arrived;
    uint64_t n_steps;     /* that were served */
    tti_step_result sums; /* with backup workers: of the partials that came */
    int64_t n_rows;       /* likewise */
    tti_leave *left;      /* [n_workers], owned */
    int n_left, n_left_reported;
    int64_t *returned; /* [n_workers], owned: batches to be leased again */
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

/* ---- server_state.c ---- */

/* Whether an update with a non-finite loss or gradient is skipped instead of ending the run. */
bool tti_server_leaves_out(const tti_server *s);

/* The kind of a worker of the queue in messages, followed by its number. */
const char *tti_server_kind(const tti_server *s);

/* n_ranges of desc, 1 if it is 0; and the elements of range r. */
int tti_server_n_ranges(const tti_server_desc *desc);
tti_range tti_server_range(const tti_server_desc *desc, int r);

/* Bytes of the areas of a channel to the server of range r: TTI_WIRE_PARAMS and the following. */
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

/* ---- server_state.c: messages between worker processes and their server ----
 *
 * A worker asks, the server answers, one request at a time.  A message may carry areas of the
 * channel (comm/channel.h): the parameters to the worker, its gradient to the server.  Both sides
 * are the same build, which the communicator has checked; received values are checked anyway. */

/* number[0..3] and the other fields of the request -> of the answer */
typedef enum tti_wire_kind {
    TTI_WIRE_NONE,
    TTI_WIRE_OPEN,     /* first, last -> */
    TTI_WIRE_STOP,     /* -> */
    TTI_WIRE_LEASE,    /* -> any, batch, version, loss scale; parameters */
    TTI_WIRE_GRADIENT, /* own rows; arrival: n_rows, wait_ns, result; gradient -> arrival */
    TTI_WIRE_PULL,     /* -> updates; parameters, averages */
    TTI_WIRE_LEAVE,    /* text: why -> whether it may */
    TTI_WIRE_WATCH,    /* updates -> updates, over */
    TTI_WIRE_COMBINE,  /* n, op; values -> n, words of a set; values, all, able */
    TTI_WIRE_WHY,      /* text: a local failure -> FAIL, with the cause that ends the run */
    TTI_WIRE_FAIL,     /* status; text -> nothing; also as an answer to anything */
    TTI_WIRE_BYE,      /* -> nothing */
    /* A worker to the range server of a range (below); then LEASE, GRADIENT and
       PULL carry none. */
    TTI_WIRE_PUSH, /* gradient -> when it is there */
    TTI_WIRE_KEYS, /* version -> version; parameters, averages */
    /* The thread that orders all to the range server of a range. */
    TTI_WIRE_COPY,   /* worker, version, whether averages -> nothing */
    TTI_WIRE_UPDATE, /* number[1]: rows, [2]: words of a set; update, workers -> [0]: hash */
    TTI_WIRE_JOIN,   /* n_each; values, of the range -> of all ranges */
    TTI_WIRE_FETCH,  /* array, first, n -> bytes so far; values */
    TTI_N_WIRE_KINDS
} tti_wire_kind;

enum { TTI_WIRE_TEXT = 1024, TTI_WIRE_PARAMS = 0, TTI_WIRE_GRADS = 1, TTI_WIRE_EMA = 2 };
/* Areas between the range servers of ranges: doubles of all blocks, twice; at most so many
 * elements. */
enum { TTI_WIRE_JOINED = 0, TTI_WIRE_FETCHED = 1, TTI_FETCH_ELEMS = 1 << 18 };

/* The part of an update that all range servers need. */
typedef struct tti_wire_update {
    uint64_t step;
    double lr, loss_scale, inv_count;
    uint64_t workers[TTI_SET_WORDS]; /* only as many as the message says */
} tti_wire_update;

typedef struct tti_wire_message {
    int64_t kind;
    int64_t number[4];
    union {
        tti_arrival arrival;
        tti_wire_update update;
        int64_t values[TTI_COMBINE_VALUES + 2 * TTI_SET_WORDS]; /* then the words of two sets */
        char text[TTI_WIRE_TEXT];
    } more;
} tti_wire_message;

/* Puts the sets of a COMBINE answer after its values, and takes them out. */
void tti_wire_put_members(tti_wire_message *m, const tti_members *members, int n_workers);
void tti_wire_get_members(const tti_wire_message *m, tti_members *members);

/* Bytes of a message to be sent, by its kind and contents. */
size_t tti_wire_bytes(const tti_wire_message *m);

/* Whether n_bytes of m are a whole message of a known kind with numbers that can be; of text the
 * end is seen to.  TUTTI_E_MISMATCH: they are not. */
TUTTI_NODISCARD tutti_status tti_wire_check(tti_wire_message *m, size_t n_bytes);

/* A message with areas by bits, and the next one that arrives, checked; as comm/channel.h says.
 * watch: NULL with TTI_NO_TIMEOUT. */
TUTTI_NODISCARD tutti_status tti_wire_send(tti_channel *channel, const tti_wire_message *m,
                                           unsigned areas);
TUTTI_NODISCARD tutti_status tti_wire_recv(tti_channel *channel, tti_wire_message *m,
                                           unsigned may_carry, int timeout_ms,
                                           const tti_phase_watch *watch);

/* The time limit of an answer: the server waits timeout_ms for others, and then reports. */
int tti_wire_patience_ms(const tti_server_desc *desc);

/* Makes m a failure message; and the status of a received one. */
void tti_wire_fail(tti_wire_message *m, tutti_status status, const char *text);
tutti_status tti_wire_status(const tti_wire_message *m);

/* ---- server_range.c ----
 *
 * Worker r's process owns range r of the parameters, their state and averages, r < n_ranges.  The
 * first one, which has the queue, orders all actions: its thread sends each request to the others
 * before it executes its own part.  So all ranges see the same requests in the same order, an
 * update is made in all of them or in none, and parameters are never a mixture of two versions.
 * Gradients and parameters are sent directly between a worker and the range servers, concurrently;
 * the order to apply a gradient is given when every range server has its part. */

/* Orders of the first process; called by the server's thread, without the mutex.  With ranges NULL
 * all return TUTTI_OK.  channels [n]; takes ownership of all but the first.  n is n_ranges of desc,
 * or the number of parts of a divided model.  NULL: out of memory. */
tti_ranges *tti_ranges_create(const tti_server_desc *desc, int n, tti_channel *const *channels);
void tti_ranges_close(tti_ranges *ranges); /* range servers end with it; takes NULL */

/* The parameters as they are now go to worker r->worker. */
tutti_status tti_ranges_copy(tti_ranges *ranges, const tti_request *r);

/* Begins the update of r from the gradients of these workers.  end waits until all range servers
 * have made it, whether or not this range's own part succeeded, and makes *hash that of all. */
tutti_status tti_ranges_update(tti_ranges *ranges, const tti_request *r,
                               const tti_worker_set *workers);
tutti_status tti_ranges_end_update(tti_ranges *ranges, uint64_t *hash);

/* Does what join of tti_exec_desc must do. */
tutti_status tti_ranges_join(tti_ranges *ranges, double *values, size_t n_each);

/* State k of keys, in other ranges than 0, to `to`, which begins with keys.first; and the bytes
 * [n_ranges] that went between range servers 1 .. n_ranges-1 and workers of other processes. */
tutti_status tti_ranges_fetch(tti_ranges *ranges, int k, tti_range keys, float *to);
tutti_status tti_ranges_traffic(tti_ranges *ranges, int64_t *bytes);

/* A range server does not answer: nothing more can be done. */
bool tti_ranges_is_lost(const tti_ranges *ranges);

/* Serves a part or a range of the server of desc.  kind: of its workers, as from tti_server_kind;
 * control: from the first process; channels [n_workers]: from the workers of other processes, NULL
 * for rank itself.  Takes ownership of them, also on failure. */
tutti_status tti_range_server_create(const tti_server_desc *desc, const char *kind, int rank,
                                     tti_channel *control, tti_channel *const *channels,
                                     tti_range_server **out);

/* Waits until the first process ends it or itself, at most timeout_ms or TTI_NO_TIMEOUT; takes
 * NULL. */
void tti_range_server_close(tti_range_server *range_server, int timeout_ms);

/* The worker of this process: memory for its gradient [range]; and the parameters of that version,
 * when they are there, with averages (NULL: none). */
float *tti_range_server_grads(tti_range_server *range_server);
void tti_range_server_push(tti_range_server *range_server);
tutti_status tti_range_server_pull(tti_range_server *range_server, int64_t version,
                                   const float **params, const float **ema);

/* While there is no order: stores the elements of state k that belong to its range; and copies
 * keys, which must all belong to it, to `to`, which begins with keys.first. */
void tti_range_server_store(tti_range_server *range_server, int k, tti_range keys,
                            const float *data);
void tti_range_server_fetch(tti_range_server *range_server, int k, tti_range keys, float *to);

/* The elements of keys that are x's, from data, which begins with keys.first. */
void tti_exec_store_range(tti_exec *x, int k, tti_range keys, const float *data);

/* ---- server_queue.c ---- */

/* Starts the threads; desc.exec is that of the update. */
tutti_status tti_server_start(tti_server *s);

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
/* Reports that the worker of this process cannot continue for the reason text, which ends the run;
 * returns the original cause, if another failure came first. */
tutti_status tti_server_why(tti_server *s, const char *text);
void tti_client_abort(tti_server *s, tutti_status status, const char *text);
/* Takes a server without one; false: here something failed. */
bool tti_client_close(tti_server *s);

/* By all compute threads: if gradients are sent in 16 bits, replaces the partial sums by their
 * rounded sum; and copies n elements. */
void tti_server_round(tti_exec *x, float *const *partials, int *n_partials);
/* By all compute threads: rounds each partial sum of a synchronous worker, where they are rounded.
 */
void tti_server_round_partials(tti_exec *x);
void tti_server_copy(tti_exec *x, float *dst, const float *from, size_t n);

/* A worker's connections to range servers; without keys all return TUTTI_OK.  channels [n_ranges]:
 * to each range server, NULL to the first and to one in this process.  They become the keys'.
 * NULL: out of memory. */
tti_keys *tti_keys_create(const tti_server_desc *desc, tti_channel *const *channels);

/* For a part of a divided model, whose one owner is worker model_rank of the first replica; channel
 * NULL: it is this process. */
tti_keys *tti_keys_create_for_model_rank(const tti_server_desc *desc, int model_rank,
                                         tti_channel *channel);
void tti_keys_close(tti_keys *keys); /* takes NULL */

/* The sum of n_partials [n_flat] to the range servers: of other ranges than 0, or of the part. */
tutti_status tti_keys_push(tti_server *s, tti_exec *x, float *const *partials, int n_partials);

/* Their parameters of that version, and averages, to memory of the host [n_flat]; ema NULL: not
 * wanted. */
tutti_status tti_keys_pull(tti_server *s, tti_exec *x, int64_t version, float *params, float *ema);

/* ---- server_members.c ----
 *
 * Workers that hold a replica together are one worker to the server:
 *
 *              part 0                     part 1
 *   replica 0  the queue; owns part 0     owns part 1      an owner of each part, ordered by the
 *   replica 1  worker                     worker           queue: the server, and owners of all
 *   replica 2  worker                     worker           elements of a plan (server_range.c)
 *
 * The worker with part 0 sends the requests of its replica, and distributes the answers.  The
 * workers push gradients to the owner of their part, and pull parameters from it, as with several
 * range servers.  A gradient is complete when all workers of the replica have pushed theirs.  So a
 * replica never computes with parameters of two versions, and the queue's versions, order and
 * staleness hold for all parts.  The updates of the owners are connected like those of workers of
 * one replica: over a separate communicator they add the norms of whole models.  NULL stands for a
 * worker with a whole model, in every function. */
struct tti_replica_group {
    tti_mesh mesh;
    int model_rank, n_model_ranks;
    uint64_t *n_keys;         /* [n_model_ranks], owned */
    tutti_comm *state_owners; /* in replica 0: of the threads that update; NULL: in others */
    tti_mesh updates;         /* theirs, of one replica */
    bool wants_stop;
    bool has_disconnected, has_left; /* separated from the others of the replica; left with them */
    bool stays;                      /* its failure ends the run */
};

void tti_replica_group_destroy(tti_replica_group *replica_group);

/* Whether a worker of the replica has set wants_stop; asked by all of them. */
tutti_status tti_replica_group_ask_stop(tti_replica_group *replica_group, bool *stops);

/* Broadcasts data of the requesting worker to the others of the replica. */
tutti_status tti_replica_group_broadcast(tti_replica_group *replica_group, void *data,
                                         size_t n_bytes);

/* For worker w, without the mutex: it leaves; its process has ended, NULL: as it should. */
bool tti_server_leave_for(tti_server *s, int w, const char *why);
void tti_server_remove_worker(tti_server *s, int w, const char *why);
tutti_status tti_server_combine_for(tti_server *s, int w, tti_combine_op op, int64_t *values, int n,
                                    tti_members *members);

/* ---- server_async.c: for worker w, without the mutex ---- */

tutti_status tti_server_lease_for(tti_server *s, int w, float *params, tti_lease *lease);
tutti_status tti_server_push_for(tti_server *s, int w, const tti_push *push, tti_arrival *out);
/* ema NULL: not wanted. */
tutti_status tti_server_pull_for(tti_server *s, int w, float *params, float *ema,
                                 int64_t *n_updates);
tutti_status tti_server_watch_for(tti_server *s, int w, int64_t *n_updates, bool *over);

/* ---- server_listener.c ---- */

/* Lets the workers of other processes in, channels [n_workers] to each but the first, which become
 * the server's, also on failure. */
tutti_status tti_listener_open(tti_server *s, tti_channel *const *channels);
void tti_listener_close(tti_listener *listener);

#endif /* TTI_EXEC_SERVER_STATE_H */
