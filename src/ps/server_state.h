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
 *   server_range.c      range servers, and the commands of the first process to them
 *   server_state.c      failing and waiting, messages
 *
 * Worker threads call the functions of server.h, which use the number of their executor. */
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

/* The worker that waits for a request owns it; the server owns the request of a synchronous
 * step. */
typedef struct tti_request {
    tti_request_kind kind;
    int worker;         /* PULL: the requesting worker */
    float *params;      /* PULL: [n_own] of the server, output */
    float *ema;         /* PULL: the averages, output; NULL: not wanted, or none */
    int k;              /* FETCH: state array */
    tti_range keys;     /* FETCH: range */
    float *to;          /* FETCH: [keys], output */
    int64_t *bytes;     /* TRAFFIC: [n_ranges], output */
    float *grads;       /* PUSH: the summed gradient of a batch */
    tti_step_desc step; /* PUSH, STEP: step, lr, loss_scale */
    double inv_count;
    tti_arrival arrival; /* PUSH; STEP uses its result, PULL its version */
    tutti_status status;
    char error[512];
    bool done;
    struct tti_request *next;
} tti_request;

/* The gradient that a worker pushes: whole, or as partial sums to add. */
typedef struct tti_push {
    float *partials[TTI_MAX_PARTIALS];
    int n_partials;
    tti_step_desc step;
    int64_t n_rows, n_own_rows; /* samples of the batch, and of the worker's shards of it */
    int64_t wait_ns;
    tti_step_result result;
    double (*lr)(void *user, int64_t step); /* NULL: use the server's function */
    void *user;
} tti_push;

/* The server's record of a worker and its current batch. */
typedef struct tti_served {
    float *partials[TTI_MAX_PARTIALS]; /* STEP: the pushed partial sums */
    int n_partials;                    /* 0: none pushed yet */
    bool computes;                     /* it has leased a batch */
    int64_t batch, version;
    int64_t next_replay; /* lower bound of the index of its next recorded arrival */
    bool has_left, is_dead;
    bool was_left_out; /* with backup workers: the last step did not include its gradient */
    int64_t n_dropped;
    int *n_begun; /* [n_workers]: steps that each other worker has begun since this one took its
                     batch; NULL: not counted */
} tti_served;

/* A barrier that combines the values of all live workers when the last one arrives. */
typedef struct tti_barrier {
    int64_t *values; /* [n_workers][TTI_COMBINE_VALUES], of the workers that have arrived; owned */
    bool *has_arrived; /* [n_workers], owned */
    int n_values;
    tti_combine_op op;
    int64_t n_rounds;
    int64_t result[TTI_COMBINE_VALUES]; /* of the last round */
    tti_members members;                /* of the last round */
} tti_barrier;

struct tti_server {
    const tti_server_calls *calls; /* must be the first member: exec/ sees only this table */
    tti_server_desc desc;
    tti_exec *x; /* NULL: another process has the parameters */
    tti_client *client;
    tti_listener *listener; /* NULL: workers are threads of this process */
    tti_ranges *ranges; /* sends commands to the other range servers; NULL: there are none, or this
                           is not the first process */
    tti_range_server *range_server; /* the range server of this process; NULL: none, or this is the
                                       first process */
    tti_keys *keys; /* connections of this process's worker to several range servers; NULL: there is
                       one server */
    tti_replica_group *replica_group; /* the worker's replica, which is one worker for the server;
                                         NULL: the worker has a whole model */
    size_t n_own;                     /* number of elements that the first process owns */
    int64_t n_bytes; /* sent between the first process and workers of other processes; used only by
                        the server's thread */
    tti_shard_map shard_map; /* synchronous: the shard map of the last step */
    tti_sum_order order;     /* the order in which the workers' partial sums are added */
    const void **terms;      /* [order.n_terms], owned: the partial sums in that order */
    void *scratch[TTI_MAX_COMPUTE_THREADS];
    pthread_t thread;
    bool has_thread, is_up, stop;
    tutti_status start_status; /* result of starting the thread */
    char start_error[1024];    /* error message of that start */
    pthread_mutex_t mutex;     /* guards everything below */
    pthread_cond_t work, news; /* work wakes the server's thread, news wakes the workers */
    tti_request *head, *tail;
    bool failed, stopped; /* failed: all waits end; stopped: no more batches are leased */
    char error[1024];
    tutti_status cause; /* status of the failure: TUTTI_E_PEER, or the status of a worker process
                           that does not report it itself */
    tti_served *worker; /* [n_workers], owned */
    int *
        n_begun; /* [n_workers][n_workers], owned: memory of the workers' n_begun; NULL: no limit */
    tti_request step; /* the request of a synchronous step */
    int n_arrived;
    uint64_t n_steps;     /* number of completed steps */
    tti_step_result sums; /* with backup workers: result of the partial sums that were in time */
    int64_t n_rows;       /* samples of these partial sums */
    tti_leave *left;      /* [n_workers], owned */
    int n_left, n_left_reported;
    int64_t *returned; /* [n_workers], owned: batches to lease again */
    int n_returned;
    int64_t first, last; /* the batches that may be leased */
    int64_t opened; /* value of last when the batches were opened; a stop may have lowered last */
    int64_t n_assigned,
        n_updates; /* batches leased, and updates queued, both since the beginning of the run */
    int64_t *n_to_pull; /* replay: [n_replay + 1]: pulls of each version that are still expected */
    tti_arrival *log;   /* [log_first .. n_log): arrivals not returned yet */
    size_t log_first, n_log, cap_log;
    int64_t bins[TTI_STALENESS_BINS];
    double (*lr)(void *user, int64_t step); /* for worker processes */
    void *lr_user;
    tti_barrier barrier;
};

/* ---- server_state.c ---- */

/* True if an update with a non-finite loss or gradient is skipped instead of ending the run. */
bool tti_server_skips_nonfinite(const tti_server *s);

/* The noun for a worker of the queue in error messages, which its number follows. */
const char *tti_server_worker_noun(const tti_server *s);

/* The number of ranges (desc.n_ranges, at least 1), and the elements of range r. */
int tti_server_n_ranges(const tti_server_desc *desc);
tti_range tti_server_range(const tti_server_desc *desc, int r);

/* Sets the size in bytes of each area of a channel to the server of range r, from TTI_WIRE_PARAMS
 * on. */
enum { TTI_N_KEY_AREAS = 3 };
void tti_server_area_bytes(const tti_server_desc *desc, int r, size_t bytes[TTI_N_KEY_AREAS]);

/* Call the following functions with the mutex held. */

typedef bool (*tti_server_ready)(const tti_server *s, int w, int64_t arg);

/* Waits until ready(s, w, arg) is true. TUTTI_E_TIMEOUT: the time is over; any other error: the
 * server has failed. */
tutti_status tti_server_wait(tti_server *s, int w, tti_server_ready ready, int64_t arg);
/* Waits until the step for which w has pushed its partial sums is complete.  The server does not
 * read them afterwards, even if this call fails. */
tutti_status tti_server_wait_step(tti_server *s, int w);
/* Put appends a request to the queue; wait_served waits until it is served. */
void tti_server_put(tti_server *s, tti_request *r);
tutti_status tti_server_wait_served(tti_server *s, const tti_request *r);
/* Records a failure for all workers, unless one is recorded; waits in this process return
 * status. */
void tti_server_fail(tti_server *s, tutti_status status, const char *text);

/* Adds a wait of x's worker to its profile, from start_ns to end_ns; the server worked for it
 * during the last served_ns of that time, 0 if unknown. */
void tti_server_profile(tti_exec *x, const char *name, int64_t start_ns, int64_t end_ns,
                        int64_t served_ns);

/* ---- server_state.c: messages between worker processes and their server ----
 *
 * A worker sends one request at a time and waits for the answer. A message may include areas of the
 * channel (comm/channel.h): parameters for the worker, or its gradient for the server. The
 * communicator has checked that both sides are the same build; received values are checked
 * again. */

/* Each comment lists fields of the request -> fields of the answer, beginning with number[0..3]. */
typedef enum tti_wire_kind {
    TTI_WIRE_NONE,
    TTI_WIRE_OPEN,       /* first, last -> */
    TTI_WIRE_STOP,       /* -> */
    TTI_WIRE_LEASE,      /* -> any, batch, version, loss scale; parameters */
    TTI_WIRE_GRADIENT,   /* own rows; arrival: n_rows, wait_ns, result; gradient -> arrival */
    TTI_WIRE_PULL,       /* -> updates; parameters, averages */
    TTI_WIRE_LEAVE,      /* text: reason -> 1 if the worker may leave */
    TTI_WIRE_WATCH,      /* updates -> updates, over */
    TTI_WIRE_COMBINE,    /* n, op; values -> n, words of a set; values, all, live */
    TTI_WIRE_REPORT,     /* text: a local failure -> FAIL, with the cause that ends the run */
    TTI_WIRE_FAIL,       /* status; text -> nothing; also as an answer to anything */
    TTI_WIRE_DISCONNECT, /* -> nothing */
    /* From a worker to a range server (below); LEASE, GRADIENT and PULL then have no areas. */
    TTI_WIRE_PUSH, /* gradient -> nothing, sent when it has arrived */
    TTI_WIRE_KEYS, /* version -> version; parameters, averages */
    /* From the first process's thread to a range server. */
    TTI_WIRE_COPY,   /* worker, version, 1 to copy averages -> nothing */
    TTI_WIRE_UPDATE, /* number[1]: rows, [2]: words of a set; update, workers -> [0]: hash */
    TTI_WIRE_JOIN,   /* n_each; values of the range -> values of all ranges */
    TTI_WIRE_FETCH,  /* array, first, n -> bytes so far; values */
    TTI_N_WIRE_KINDS
} tti_wire_kind;

enum { TTI_WIRE_TEXT = 1024, TTI_WIRE_PARAMS = 0, TTI_WIRE_GRADS = 1, TTI_WIRE_EMA = 2 };
/* Areas between range servers: values of all blocks (doubles), and fetched state, at most
 * TTI_FETCH_ELEMS elements at a time. */
enum { TTI_WIRE_JOINED = 0, TTI_WIRE_FETCHED = 1, TTI_FETCH_ELEMS = 1 << 18 };

/* The settings of an update that all range servers need. */
typedef struct tti_wire_update {
    uint64_t step;
    double lr, loss_scale, inv_count;
    uint64_t
        workers[TTI_SET_WORDS]; /* a message contains only the number of words that it states */
} tti_wire_update;

typedef struct tti_wire_message {
    int64_t kind;
    int64_t number[4];
    union {
        tti_arrival arrival;
        tti_wire_update update;
        int64_t
            values[TTI_COMBINE_VALUES + 2 * TTI_SET_WORDS]; /* followed by the words of two sets */
        char text[TTI_WIRE_TEXT];
    } more;
} tti_wire_message;

/* Appends the sets of a COMBINE answer to its values, and reads them. */
void tti_wire_put_members(tti_wire_message *m, const tti_members *members, int n_workers);
void tti_wire_get_members(const tti_wire_message *m, tti_members *members);

/* Bytes of a message to send, by its kind and contents. */
size_t tti_wire_bytes(const tti_wire_message *m);

/* Checks that the n_bytes of m are a complete message of a known kind with valid numbers, and
 * terminates its text. TUTTI_E_MISMATCH: they are not. */
TUTTI_NODISCARD tutti_status tti_wire_check(tti_wire_message *m, size_t n_bytes);

/* Send sends a message with the areas of a bit mask. Recv receives and checks the next message,
 * which may have the areas allowed_areas. See comm/channel.h for errors. watch: NULL with
 * TTI_NO_TIMEOUT. */
TUTTI_NODISCARD tutti_status tti_wire_send(tti_channel *channel, const tti_wire_message *m,
                                           unsigned areas);
TUTTI_NODISCARD tutti_status tti_wire_recv(tti_channel *channel, tti_wire_message *m,
                                           unsigned allowed_areas, int timeout_ms,
                                           const tti_phase_watch *watch);

/* The time limit of an answer. It is longer than the server's timeout_ms, so that the server
 * reports a timeout first. */
int tti_wire_answer_timeout_ms(const tti_server_desc *desc);

/* Fail makes m a failure message. Status returns the status of a received failure message. */
void tti_wire_fail(tti_wire_message *m, tutti_status status, const char *text);
tutti_status tti_wire_status(const tti_wire_message *m);

/* ---- server_range.c ----
 *
 * The process of worker r owns range r of the parameters, their state and averages, r < n_ranges.
 * The first process has the queue: its thread sends each request to the other range servers before
 * it executes its own part. So all range servers execute the same requests in the same order. An
 * update is applied by all of them or by none, and pulled parameters never mix two versions. A
 * worker exchanges gradients and parameters with all range servers directly and concurrently. The
 * command to apply a gradient is sent after every range server has received its part. */

/* Commands of the first process. The server's thread sends them, without the mutex. With ranges
 * NULL all return TUTTI_OK. Create takes ownership of channels [n], all but the first. n is
 * n_ranges of desc, or the number of parts of a divided model. NULL: out of memory. */
tti_ranges *tti_ranges_create(const tti_server_desc *desc, int n, tti_channel *const *channels);
void tti_ranges_close(tti_ranges *ranges); /* ends the range servers; takes NULL */

/* Sends the current parameters to worker r->worker. */
tutti_status tti_ranges_copy(tti_ranges *ranges, const tti_request *r);

/* Update starts the update of r from the gradients of these workers. End_update waits until all
 * range servers have applied it, even if this process's own part failed, and sets *hash to the sum
 * of all hashes. */
tutti_status tti_ranges_update(tti_ranges *ranges, const tti_request *r,
                               const tti_worker_set *workers);
tutti_status tti_ranges_end_update(tti_ranges *ranges, uint64_t *hash);

/* Implements join of tti_exec_desc, over all ranges. */
tutti_status tti_ranges_join(tti_ranges *ranges, double *values, size_t n_each);

/* Fetch copies the elements of keys that are in ranges other than 0, of state k, to `to` [keys].
 * Traffic sets bytes [n_ranges] from index 1 on: bytes sent between each range server and workers
 * of other processes. */
tutti_status tti_ranges_fetch(tti_ranges *ranges, int k, tti_range keys, float *to);
tutti_status tti_ranges_traffic(tti_ranges *ranges, int64_t *bytes);

/* True if a range server no longer answers; no command can be executed then. */
bool tti_ranges_is_lost(const tti_ranges *ranges);

/* Serves a part or a range of the server of desc. kind: noun for a worker in messages
 * (tti_server_worker_noun); control: the channel from the first process; channels [n_workers]: from
 * the workers of other processes, NULL for rank itself. Takes ownership of all channels, also after
 * a failure. The caller closes *out. */
tutti_status tti_range_server_create(const tti_server_desc *desc, const char *kind, int rank,
                                     tti_channel *control, tti_channel *const *channels,
                                     tti_range_server **out);

/* Waits until the first process ends this range server or ends itself, at most timeout_ms
 * (TTI_NO_TIMEOUT: no limit), then frees it. Accepts NULL. */
void tti_range_server_close(tti_range_server *range_server, int timeout_ms);

/* For the worker of this process. Grads: the memory of its gradient [range]. Push: marks it as
 * complete. Pull: waits for parameters of that version; *params and *ema [range] are borrowed and
 * valid until the next request for parameters; *ema NULL: no averages. */
float *tti_range_server_grads(tti_range_server *range_server);
void tti_range_server_push(tti_range_server *range_server);
tutti_status tti_range_server_pull(tti_range_server *range_server, int64_t version,
                                   const float **params, const float **ema);

/* Call while no command runs. Store writes the elements of keys that are in this range to state k;
 * data begins with element keys.first. Fetch copies state k of keys, which must be within this
 * range, to `to` [keys]. */
void tti_range_server_store(tti_range_server *range_server, int k, tti_range keys,
                            const float *data);
void tti_range_server_fetch(tti_range_server *range_server, int k, tti_range keys, float *to);

/* Stores the elements of keys that x owns in state k. data begins with element keys.first. */
void tti_exec_store_range(tti_exec *x, int k, tti_range keys, const float *data);

/* ---- server_queue.c ---- */

/* Starts the threads; desc.exec describes the update. */
tutti_status tti_server_start(tti_server *s);

/* ---- server_client.c: the calls of server.h if s->client is set ---- */

/* Makes s a client over channel, of which it takes ownership, also after a failure. */
tutti_status tti_client_begin(tti_server *s, tti_channel *channel);
tutti_status tti_client_open(tti_server *s, int64_t first, int64_t last);
tutti_status tti_client_stop(tti_server *s);
/* Lease and pull receive parameters and averages in these areas of the channel; with several ranges
 * tti_keys_pull copies them instead. */
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
/* Reports that the worker of this process cannot continue for the reason text, which ends the run.
 * Returns the original cause, if another failure came first. */
tutti_status tti_server_report_error(tti_server *s, const char *text);
void tti_client_abort(tti_server *s, tutti_status status, const char *text);
/* Closes the connection; false: the connection or this process failed. Accepts a server without a
 * client. */
bool tti_client_close(tti_server *s);

/* All compute threads call these functions together. Round: if gradients are sent in 16 bits,
 * replaces the partial sums by their rounded sum. Copy: copies n elements. */
void tti_server_round(tti_exec *x, float *const *partials, int *n_partials);
/* Rounds each partial sum of a synchronous worker, if gradients are sent in 16 bits. All compute
 * threads call it together. */
void tti_server_round_partials(tti_exec *x);
void tti_server_copy(tti_exec *x, float *dst, const float *from, size_t n);

/* A worker's connections to range servers; if s->keys is NULL all functions return TUTTI_OK. Create
 * takes ownership of channels [n_ranges], one to each range server, NULL for the first one and for
 * the one in this process. NULL: out of memory. */
tti_keys *tti_keys_create(const tti_server_desc *desc, tti_channel *const *channels);

/* The same for a part of a divided model, which worker model_rank of the first replica owns;
 * channel NULL: this process owns it. */
tti_keys *tti_keys_create_for_model_rank(const tti_server_desc *desc, int model_rank,
                                         tti_channel *channel);
void tti_keys_close(tti_keys *keys); /* takes NULL */

/* Pushes the sum of the partial sums [n_flat] to the range servers other than the first, or to the
 * owner of the part. */
tutti_status tti_keys_push(tti_server *s, tti_exec *x, float *const *partials, int n_partials);

/* Pulls parameters and averages of that version to host memory params and ema [n_flat]; ema NULL:
 * not wanted. */
tutti_status tti_keys_pull(tti_server *s, tti_exec *x, int64_t version, float *params, float *ema);

/* ---- server_members.c ----
 *
 * The workers of a replica are one worker for the server:
 *
 *              part 0                     part 1
 *   replica 0  the queue; owns part 0     owns part 1      an owner of each part, ordered by the
 *   replica 1  worker                     worker           queue: the server, and owners of all
 *   replica 2  worker                     worker           elements of a plan (server_range.c)
 *
 * The worker with part 0 sends the requests of its replica and broadcasts the answers. Each worker
 * pushes gradients to the owner of its part and pulls parameters from it, as with several range
 * servers. The gradient of a replica is complete when all its workers have pushed. So a replica
 * never computes with parameters of two versions, and the queue's versions, order and staleness
 * apply to all parts. The owners all-reduce the norms of whole models over a separate communicator.
 * Every function accepts NULL for a worker with a whole model. */
struct tti_replica_group {
    tti_mesh mesh;
    int model_rank, n_model_ranks;
    uint64_t *n_keys; /* [n_model_ranks], owned */
    tutti_comm
        *state_owners; /* in replica 0: communicator of the threads that update; NULL: in others */
    tti_mesh updates;  /* mesh of these threads, with one replica */
    bool wants_stop;
    bool has_disconnected,
        has_left; /* disconnected from the other workers of the replica; left together with them */
    bool is_required; /* its failure ends the run */
};

void tti_replica_group_destroy(tti_replica_group *replica_group);

/* Sets *stop if any worker of the replica has set wants_stop. Collective over the replica. */
tutti_status tti_replica_group_ask_stop(tti_replica_group *replica_group, bool *stops);

/* Broadcasts data [n_bytes] from the worker with part 0 to the others. Collective over the
 * replica. */
tutti_status tti_replica_group_broadcast(tti_replica_group *replica_group, void *data,
                                         size_t n_bytes);

/* Leave_for lets worker w leave. Remove_worker removes worker w, whose process ended; why NULL: it
 * had finished. Combine_for is tti_server_combine for worker w. Call all without the mutex. */
bool tti_server_leave_for(tti_server *s, int w, const char *why);
void tti_server_remove_worker(tti_server *s, int w, const char *why);
tutti_status tti_server_combine_for(tti_server *s, int w, tti_combine_op op, int64_t *values, int n,
                                    tti_members *members);

/* ---- server_async.c: the calls of server.h for worker w, without the mutex ---- */

tutti_status tti_server_lease_for(tti_server *s, int w, float *params, tti_lease *lease);
tutti_status tti_server_push_for(tti_server *s, int w, const tti_push *push, tti_arrival *out);
/* ema NULL: not wanted. */
tutti_status tti_server_pull_for(tti_server *s, int w, float *params, float *ema,
                                 int64_t *n_updates);
tutti_status tti_server_watch_for(tti_server *s, int w, int64_t *n_updates, bool *over);

/* ---- server_listener.c ---- */

/* Starts a thread for each worker of another process. Takes ownership of channels [n_workers],
 * which has NULL for the first worker, also after a failure. */
tutti_status tti_listener_open(tti_server *s, tti_channel *const *channels);
void tti_listener_close(tti_listener *listener);

#endif /* TTI_EXEC_SERVER_STATE_H */
