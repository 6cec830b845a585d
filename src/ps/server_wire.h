/* server_wire.h - the messages between worker processes and their server.
 *
 * A worker asks, the server answers, one request at a time.  A message may carry areas of the
 * channel (comm/channel.h): the parameters to the worker, its gradient to the server.  Both sides
 * are the same build, which the communicator has checked; received values are checked anyway. */
#ifndef TTI_EXEC_SERVER_WIRE_H
#define TTI_EXEC_SERVER_WIRE_H

#include "comm/channel.h"
#include "ps/server.h"

/* number[0..3] and the other fields of the request -> of the answer */
typedef enum tti_wire_kind {
    TTI_WIRE_NONE,
    TTI_WIRE_OPEN,     /* first, last ->                                                        */
    TTI_WIRE_STOP,     /* ->                                                                    */
    TTI_WIRE_LEASE,    /* -> any, batch, version, loss scale; parameters                        */
    TTI_WIRE_GRADIENT, /* own rows; arrival: n_rows, wait_ns, result; gradient -> arrival       */
    TTI_WIRE_PULL,     /* -> updates; parameters, averages                                      */
    TTI_WIRE_LEAVE,    /* text: why -> whether it may                                           */
    TTI_WIRE_WATCH,    /* updates -> updates, over                                              */
    TTI_WIRE_COMBINE,  /* n, op; values -> n, all, able; values                                 */
    TTI_WIRE_WHY,      /* text: a local failure -> FAIL, with the cause that ends the run */
    TTI_WIRE_FAIL,     /* status; text -> nothing; also as an answer to anything                */
    TTI_WIRE_BYE,      /* -> nothing                                                            */
    /* A worker to the range server of a range (server_ranges.h); then LEASE, GRADIENT and
       PULL carry none. */
    TTI_WIRE_PUSH, /* gradient -> when it is there                                           */
    TTI_WIRE_KEYS, /* version -> version; parameters, averages                               */
    /* The thread that orders all to the range server of a range. */
    TTI_WIRE_COPY,   /* worker, version, whether averages -> nothing                         */
    TTI_WIRE_UPDATE, /* workers, by bits, rows; update -> hash                               */
    TTI_WIRE_JOIN,   /* n_each; values, of the range -> of all ranges                        */
    TTI_WIRE_FETCH,  /* array, first, n -> bytes so far; values                              */
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
} tti_wire_update;

typedef struct tti_wire_message {
    int64_t kind;
    int64_t number[4];
    union {
        tti_arrival arrival;
        tti_wire_update update;
        int64_t values[TTI_COMBINE_VALUES];
        char text[TTI_WIRE_TEXT];
    } more;
} tti_wire_message;

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

#endif /* TTI_EXEC_SERVER_WIRE_H */
