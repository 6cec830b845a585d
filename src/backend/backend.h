/* backend.h - the interface between a plan and the hardware that runs it.
 *
 * A backend is a folder with the same file names as the others.  It offers, for each op, an ordered
 * list of kernels, fastest first; the first whose can_run accepts a node is used, and the reference
 * is last, so every op runs everywhere.  A kernel is prepared once per node and compute thread,
 * then run once per shard; nothing is allocated while running. */
#ifndef TTI_BACKEND_H
#define TTI_BACKEND_H

#include "backend/step_types.h"
#include "ir/graph.h"
#include "ops/draw.h"
#include "ops/weight.h"

/* The arguments of a prepared kernel for one run. */
typedef struct tti_kargs {
    const tti_node *node;
    void *const *in; /* [n_in] device pointers, in each value's dtype and layout, 64-byte aligned */
    void *const *out; /* [n_out]; out 0 == in 0 only for TTI_IN_PLACE and TTI_UPDATE ops */
    void *scratch; /* scratch_bytes(state), 64-byte aligned, undefined contents                  */
    const tti_run *run; /* in the memory of the device */
} tti_kargs;

typedef struct tti_kernel {
    const char *op;   /* name of the op it runs; "*" for the reference, which runs every op */
    const char *name; /* "onednn", "avx", "reference": shown by tutti inspect              */
    /* True if this kernel accepts the node's types, layouts and attributes.  NULL: always. */
    bool (*can_run)(const tti_node *node);
    /* Builds the state that the kernel keeps between runs.  NULL: it has none. */
    tutti_status (*prepare)(const tti_node *node, void **state);
    /* Bytes of scratch that run needs; NULL: none.  state is NULL where there is no prepare. */
    size_t (*scratch_bytes)(const tti_node *node, const void *state);
    tutti_status (*run)(void *state, const tti_kargs *args);
    void (*release)(void *state); /* NULL where there is no prepare; takes NULL */
} tti_kernel;

/* ---- devices with their own memory and clock ---- */

/* Work of one queue runs in order; different queues run concurrently. */
typedef enum tti_queue {
    TTI_QUEUE_COMPUTE,
    TTI_QUEUE_COPY,
    TTI_QUEUE_COMM,
    TTI_QUEUE_PEER, /* what peers exchange inside a step */
    TTI_N_QUEUES
} tti_queue;

/* Events in queues: those of sums, then those of messages to other stages. */
enum { TTI_SUM_EVENTS = 64, TTI_P2P_EVENTS = 32, TTI_N_GRAPH_EVENTS = 96 };

typedef struct tti_device_desc {
    int index;  /* of the device, 0 .. count-1 */
    bool tf32;  /* matrix products of f32 values in tf32 */
    bool exact; /* only kernels that always give the same bits */
} tti_device_desc;

/* The update program: clip, optimizer, averages, hash.  Pointers to device memory are borrowed. */
typedef struct tti_update_desc {
    const tti_node *node;           /* of any trained block: op and attributes; NULL: all frozen */
    const tti_update_block *blocks; /* host memory, copied */
    int n_blocks, n_slots, n_states, n_shards;
    float *params, *grads, *ema; /* device; ema NULL: none */
    void *low;             /* device: parameters of blocks that are low, padded to 4; NULL: none */
    tutti_dtype low_dtype; /* bf16, f16 */
    float *const *states;  /* [n_states] device */
    const tti_step_args *args; /* device */
    const double *sums;        /* device [n_shards][3]: loss_sum, count, correct */
    tti_step_report *report;   /* device */
    double clip_norm, clip_value, l1, ema_decay; /* 0: off */
    bool watch_gradients;
    /* If workers have partitions of the state, or parts of the model: launches in the compute queue
     * the completion of 32-bit words on the device: sums of squares in double, one or two for each
     * block, 0 for other workers' blocks.  The results, for each slot and in all, are those of the
     * whole.  NULL: all blocks are own. */
    tutti_status (*complete_words)(void *user, void *words, size_t n_words);
    void *user;
} tti_update_desc;

/* A summand of a sum between devices: comm/sum_order.h says how a list of them is read. */
typedef struct tti_device_term {
    int rank, piece, n_adds;
} tti_device_term;

/* The algorithm of a reduction between devices. */
typedef enum tti_device_algorithm {
    TTI_DEVICE_AUTO,
    TTI_DEVICE_PEERS,  /* kernels that read the other devices' memory */
    TTI_DEVICE_HOSTS,  /* those inside each host, the vendor's library between hosts; else the next
                        */
    TTI_DEVICE_LIBRARY /* the vendor's library */
} tti_device_algorithm;

enum { TTI_MAX_SOURCES = 2 };

/* An array with this rank's parts of all groups: rank r's part of group i begins at element
 * places[i * n_ranks + r] of its array; NULL: at its bound. */
typedef struct tti_device_parts_of {
    float *data; /* device */
    const size_t *places;
} tti_device_parts_of;

/* The workers of a job, each with its own device.  Pointers are borrowed until they disconnect. */
typedef struct tti_device_peers {
    int rank, n_ranks, timeout_ms;
    const int *hosts;             /* [n_ranks]: of each rank, 0, 1, ...; NULL: all are of one */
    int shown;                    /* this rank as messages call it: among all workers of the job */
    const tti_device_term *terms; /* of a sum */
    int n_terms;
    float *const *pieces; /* [n_pieces] device: this rank's summands; the first one takes the sum */
    int n_pieces;
    size_t n_flat;  /* elements that a piece has at least, a multiple of 4 */
    size_t n_most;  /* elements that are summed at once, at most */
    size_t n_words; /* that are spread at once, at most */
    /* [n_groups][n_ranks + 1]: the ranges of the pieces that peers_sum takes have a part for each
     * rank, from bounds[r] up to bounds[r + 1], multiples of 4.  NULL: they have none. */
    const size_t *bounds;
    size_t n_groups;
    /* [n_groups][n_pieces]: where a group begins in a piece of this rank; NULL: at its first
     * element, in all ranks. */
    const size_t *at;
    tti_device_parts_of sums; /* destination of peers_sum_parts; data NULL: the first partial sum */
    const tti_device_parts_of *sources; /* [n_sources]: what others fetch */
    int n_sources;
    /* They exchange values in steps: the first piece is memory for that, two halves of so many
     * bytes each, a multiple of 256.  TUTTI_E_UNSUPPORTED where the devices cannot read each
     * other's memory.  0: they do not. */
    size_t tp_half_bytes;
    /* They send each other values: through slots 0 .. n_slots-1, each from one rank to one other,
     * into the first piece of the latter.  TUTTI_E_UNSUPPORTED as of tp_half_bytes.  0: they do
     * not. */
    int n_slots;
    void *with; /* another group of this device, which disconnects later: a failure of one of the
                   two is a failure of both, and waits check both */
    bool fast;  /* any order of the additions */
    /* fast: bf16, f16: terms are rounded to it before they travel, and so is the sum */
    tutti_dtype wire;
    tti_device_algorithm algorithm;
    void *user;
    /* On the host; every rank calls it equally often. dst [n_ranks][n_bytes]. */
    tutti_status (*all_gather)(void *user, const void *src, void *dst, size_t n_bytes);
    /* A failure of any worker that the host knows of. */
    tutti_status (*check)(void *user);
} tti_device_peers;

/* A value that peers exchange as a TTI_COLLECTIVE op says: the whole is [n_rows][n_ranks][part], of
 * which each rank has or gets a part; of a sum there is one part.  Pointers into the device. */
typedef struct tti_tp_collective {
    tti_collective kind;
    tutti_dtype dtype;
    const void *in;
    void *out; /* out == in: of a sum alone */
    size_t n_rows, part_bytes;
} tti_tp_collective;

/* A value for another rank: from src on the device to n_bytes from place of the first piece of rank
 * to on, a multiple of 16. */
typedef struct tti_device_message {
    int slot, to;
    const void *src;
    size_t place, n_bytes;
} tti_device_message;

/* A norm between two collectives: the reduce-scatter over the axis, the addition of a bias and the
 * residual, the norm, and the all-gather; or its gradient, between the sum of dy and the all-gather
 * of dx.  Rows as in add_layer_norm and layer_norm_grads, in 16 bits, rounded where inputs of these
 * would be.  Values with byte offsets are at these offsets in the first source of every rank of the
 * group, and are [n_blocks][n_ranks][n_rows][width]; others [n_blocks][n_rows][width]. */
typedef struct tti_device_norm {
    const tti_node *node; /* the norm, or its gradients */
    int branch;           /* input of the norm that is the sum: 0 or 1 */
    size_t terms, whole;  /* the sum's terms; the gathered result */
    const void *bias;     /* [width]; NULL: none */
    const void *x;        /* the residual; of a gradient x, and the residual gradient, or NULL: */
    const void *residual;
    void *part; /* of a gradient: memory of input 0 of the node, if it has no other reader; else
                   NULL */
    void *sum;  /* output 1 of the norm; of a gradient dx */
    const float *gamma, *beta;      /* [width] */
    float *mean, *rstd;             /* [n_blocks][n_rows]; a gradient reads them */
    float *dgamma, *dbeta;          /* [width]: of a gradient */
    float *dsums;                   /* [width], the column sums of dx; NULL: they are not wanted */
    void *scratch;                  /* of a gradient: as the node's kernel wants it */
    size_t n_blocks, n_rows, width; /* width a multiple of 8, at most 2048 */
    bool pushed;  /* the product in front was made by peers_push: terms of the other rank .. */
    size_t inbox; /* .. lie here in this rank's first source, [n_blocks][n_rows][width] */
    bool kept;    /* of one that was pushed: the other rank gets the rows by peers_bring .. */
    bool pulled;  /* .. and the next product is computed by peers_pull */
} tti_device_norm;

/* A product before such a norm, which sends the terms of the other rank's rows to that device while
 * it computes its own; the part of its result for those rows is not written on this device. */
typedef struct tti_device_push {
    const tti_kernel *kernel; /* what would make all rows here, with its state and arguments */
    void *state;
    const tti_kargs *args;
    size_t inbox, n_blocks, n_rows, width; /* as of the norm */
} tti_device_push;

/* Lists of doubles are added on TTI_LIST_LANES lanes: lane t adds members t, t + TTI_LIST_LANES and
 * so on to 0, one after the other; then, for d = TTI_LIST_LANES / 2 and halves of it down to 1,
 * lane t < d adds lane t + d. */
enum { TTI_LIST_LANES = 512 };

/* Lists of doubles: values[member[i]] for i from begin[l] up to begin[l + 1]; their sum is stored
 * at values[home[l]].  In device memory. */
typedef struct tti_device_lists {
    const int32_t *begin, *member, *home; /* [n + 1], [begin[n]], [n] */
    int n;
} tti_device_lists;

/* The connection of the thread's device for reading from another one. */
typedef struct tti_device_link {
    bool is_direct;     /* kernels of one can read the memory of the other */
    bool is_right;      /* the data arrived unchanged */
    double bytes_per_s; /* of a long copy, one way */
    double latency_us;  /* of a short one */
} tti_device_link;

/* Values of a TTI_SYNC op [n_elems] of this rank's shards, and the destination of the joined value.
 * n_ranks runs of shards: bounds[r] .. bounds[r+1]-1 are those of rank r. */
typedef struct tti_device_join {
    const char *op;
    const float *const *in;
    float *const *out;
    size_t n_elems;
    const int *bounds;
} tti_device_join;

/* A worker's contributions to the sums of a step before they are reduced; pointers into the device.
 */
typedef struct tti_device_step_sums {
    double *sums; /* [n_shards][3], hashes [n_ranks][2], votes [n_ranks]: all but its own turn 0 */
    const tti_step_args *args;
    tti_step_report *report; /* of the step before; reported_ns is of this one from now on */
    int n_shards, first_shard, last_shard, rank, n_ranks;
} tti_device_step_sums;

/* Gradients that are sent as low-rank products: PowerSGD. Slots of bucket b are first[b] .. first[b
 * + 1] - 1.  Host memory is copied, that of the device is borrowed. */
typedef struct tti_powersgd_desc {
    const tti_powersgd_slot *slots;
    const int *first; /* [n_buckets + 1] */
    int n_buckets;
    float *grads;    /* device: a worker's own gradients, which become the sums */
    float *residual; /* device: as gradients, what of their mean was not sent so far */
    float *message;  /* device [n_message]: summed between the steps below */
    float *own;      /* device [n_message]: of Q what this worker has put into the message */
    float *scratch;  /* device: for all slots of one bucket at a time */
    size_t n_message;
    const tti_step_args *args; /* device */
} tti_powersgd_desc;

/* Gradients of which the largest elements are sent, as pairs: top-k.  Fields as in
 * tti_powersgd_desc.
 */
typedef struct tti_topk_desc {
    const tti_topk_slot *slots;
    const int *first;    /* [n_buckets + 1] */
    const size_t *pairs; /* [n_buckets + 1]: the first pair of each bucket, multiples of 2 */
    int n_buckets, n_ranks;
    float *grads, *residual;   /* device, as of tti_powersgd_desc */
    tti_topk_pair *own;        /* device [pairs[n_buckets]] */
    tti_topk_pair *all;        /* device [n_ranks] of as many as the bucket has */
    const tti_step_args *args; /* device */
} tti_topk_desc;

/* The calling thread has one open device; the tables below act on it.  Functions only put work into
 * a queue, except those that say "waits".  A NULL entry that says "optional" is not offered. */

/* Host memory that copies can read and write while the host goes on. */
typedef struct tti_device_memory_ops {
    void *(*alloc_host)(size_t n_bytes); /* NULL: out of memory */
    void (*release_host)(void *memory);
    /* Makes existing memory, such as a loader's, usable likewise.  Unpin it before it is freed. */
    tutti_status (*pin)(void *memory, size_t n_bytes);
    void (*unpin)(void *memory);
    /* Bytes of the device: allocated now, allocated at most so far, and free. */
    void (*get_usage)(size_t *n_now, size_t *n_peak, size_t *n_free);
} tti_device_memory_ops;

typedef struct tti_device_queue_ops {
    tutti_status (*copy)(tti_queue queue, void *dst, const void *src,
                         size_t n_bytes); /* between any two memories */
    tutti_status (*order)(
        tti_queue after,
        tti_queue before); /* later work of queue waits for earlier work of before */
    /* Also in a captured graph: records event place, 0 .. TTI_N_GRAPH_EVENTS-1, in a queue; and
     * makes later work of a queue wait for the last recorded event, which must be in the same
     * graph. */
    tutti_status (*record_event)(tti_queue queue, int place);
    tutti_status (*wait_event)(tti_queue after, int place);
    /* Records event mark, 0 .. 15; in a captured graph, each time it is replayed.  And waits on the
     * host for the last recorded event: that of a graph counts from its launch. */
    tutti_status (*record_host_event)(tti_queue queue, int event);
    tutti_status (*await_host_event)(int event);
    tutti_status (*sync)(void); /* waits for everything */
    /* Optional: names what is put into the queues until the range ends, for tools that watch
     * (NVTX); NULL ends the innermost range.  Costs nothing when no tool watches. */
    void (*range)(const char *name);
    /* A moment of a queue, numbered from 0 up, also inside a captured graph; and when each of n
     * came, in microseconds since moment 0 (waits). */
    tutti_status (*record_timestamp)(tti_queue queue, int index);
    tutti_status (*read_timestamps)(int n, double *us);
    /* Captures the launches in the compute queue between the two calls into a graph; nothing runs.
     */
    tutti_status (*capture_begin)(void);
    tutti_status (*capture_end)(void **captured_graph);
    tutti_status (*replay)(void *captured_graph);
    void (*release_captured_graph)(void *captured_graph); /* takes NULL */
} tti_device_queue_ops;

/* Kernels of a step that are no ops of the graph. */
typedef struct tti_device_step_ops {
    /* runs[i] = the tti_run of shard first_shard + i. */
    tutti_status (*begin)(const tti_step_args *args, const tti_run *fixed, tti_run *runs,
                          int n_runs);
    /* A step over samples on the device: args, runs as begin makes them, and the batch. */
    tutti_status (*gather)(const tti_gather *gather, const tti_run *fixed, tti_run *runs);
    /* Converts bytes to floats, in that queue. */
    tutti_status (*unpack)(tti_queue queue, const tti_unpack *unpack);
    /* Draws initial parameters, the bits of tti_draw; waits. */
    tutti_status (*draw)(const tti_draws *draws, int n, float *params);
    /* sums[3] from the three results of a shard, f32 scalars each. */
    tutti_status (*collect)(const float *loss_sum, const float *count, const float *correct,
                            double *sums);
    /* A TTI_SYNC op over parts [n_parts][n_elems]. */
    tutti_status (*join)(const char *op, const float *parts, size_t n_parts, size_t n_elems,
                         float *out);
    /* Copies the report and then n_sums sums of a step into pinned host memory. */
    tutti_status (*report)(const tti_step_report *report, const double *sums, int n_sums,
                           void *host_report);
    /* sums[l] = the values of list l, added on TTI_LIST_LANES lanes; and back: of all n_values
     * those at home become the sums, the others 0.  Into the compute queue. */
    tutti_status (*fold)(const double *values, const tti_device_lists *lists, double *sums);
    tutti_status (*unfold)(double *values, size_t n_values, const tti_device_lists *lists,
                           const double *sums);
} tti_device_step_ops;

typedef struct tti_device_update_ops {
    tutti_status (*create)(const tti_update_desc *desc, void **update);
    tutti_status (*run)(void *update);
    /* Optional, for devices that take blocks of others.  The parameters of those of n blocks from
     * first on that are not own have come: they are added to the report's hash, which was of own
     * blocks alone, and narrowed into desc.low; of a bad step the hash stays 0.  Where those of
     * others are not here it is made again of the own ones, of all blocks at once. */
    tutti_status (*complete)(void *update, int first, int n);
    tutti_status (*hash)(void *update, uint64_t *hash); /* of the parameters; waits */
    /* Optional, for devices that keep desc.low: computes it from parameters that something else
     * than the update has written. */
    tutti_status (*narrow)(void *update);
    void (*destroy)(void *update); /* takes NULL */
    /* The host may mark and await the copy queue, and write parameters by TTI_QUEUE_COMM, while the
     * kernels of a step go on (exec/device/offload.c).  False: not known to work there. */
    bool is_overlapped;
} tti_device_update_ops;

/* Groups of devices; all ranks make the same calls in the same order. */
typedef struct tti_device_collective_ops {
    /* TUTTI_E_UNSUPPORTED, on all ranks: two of them share a device, or nothing connects them.
     * Overwrites the pieces in a trial. */
    tutti_status (*connect)(const tti_device_peers *peers, void **group);
    void (*disconnect)(void *group); /* takes NULL; waits */
    bool
        mixes_algorithms; /* groups of different algorithms may add in one step, bucket by bucket */
    void (*describe)(const void *group, tti_str *str);
    /* Optional: describes, for doctor, the library that adds where kernels cannot, with its
     * version, or says why there is none.  No device need be open. */
    void (*describe_library)(tti_str *str);
    /* Optional: whether all ranks read each other's memory over links that are fast next to what
     * kernels do beside them, such as NVLink. */
    bool (*are_linked)(const void *group);
    /* The sum of elements first .. of the partial sums into the first partial sum of every rank;
     * multiples of 4.  In TTI_QUEUE_COMM. overlapped: other kernels run concurrently, and leave few
     * resources. */
    tutti_status (*all_reduce)(void *group, size_t first, size_t n_elems, bool overlapped);
    /* The sum of a group of bounds, to each rank its part alone, into peers.sums.  Into
     * TTI_QUEUE_COMM. */
    tutti_status (*reduce_scatter)(void *group, size_t which, bool overlapped);
    /* The parts of a group, from that source of their ranks to dst on, the place of the group's
     * first element.  Into TTI_QUEUE_COMM. */
    tutti_status (*all_gather)(void *group, size_t which, int source, float *dst, bool overlapped);
    /* Words of 32 bits: first .. last-1 are this rank's, or 0 where they are another's. */
    tutti_status (*all_gather_words)(void *group, void *words, size_t n_words, size_t first,
                                     size_t last);
    /* Optional: a TTI_SYNC op over the shards of all ranks at once; all_gather_words must follow
     * before the group is disconnected.  *done false, on all ranks: too much for one go, or nothing
     * reaches the others' memory. */
    tutti_status (*join)(void *group, const tti_device_join *join, bool *done);
    /* What a worker adds to the sums of a step. */
    tutti_status (*report_sums)(const tti_device_step_sums *step_sums);
    /* An exchange of a group with tp_half_bytes, into TTI_QUEUE_PEER.  Added in the order of the
     * group's terms: f16 and bf16 as f32, rounded at the end.  overlapped: as of all_reduce. */
    tutti_status (*tp_collective)(void *group, const tti_tp_collective *tp, bool overlapped);
    /* As await of the queues; ends also when a peer is lost or does not come in time. */
    tutti_status (*await)(void *group, int event);
    /* Optional: how long the kernels of TTI_QUEUE_COMPUTE have waited for those of other devices so
     * far, and fetches before them, in nanoseconds: about as of now, while steps are at work.
     * Below 0: not known.  Waits for a copy alone. */
    tutti_status (*get_waited_ns)(void *group, int64_t *t_ns);
} tti_device_collective_ops;

/* Optional: values between the devices of a group with n_slots.  Both ends of a slot call theirs.
 * All NULL also where a kind of device was not seen to do it right. */
typedef struct tti_device_p2p_ops {
    /* Into TTI_QUEUE_PEER: waits there until the slot is empty, copies, and fills it.  overlapped: as
     * of all_reduce. */
    tutti_status (*send)(void *group, const tti_device_message *message, bool overlapped);
    /* What comes into the compute queue waits until the slot is full; its value is in this rank's
     * first piece. */
    tutti_status (*recv)(void *group, int slot);
    /* Empties the slot behind what is in the compute queue, so that rank from can send again. */
    tutti_status (*release)(void *group, int slot, int from);
} tti_device_p2p_ops;

/* Optional, each of them: several operations in one, with the bits of the single ones. */
typedef struct tti_device_fusion_ops {
    /* For small models: whether update can make this update with the sums of the group, whose first
     * piece has its gradients; nothing loads any more what that needs. */
    tutti_status (*can_update)(const void *group, const void *update, bool *can);
    /* report_sums, all_gather_words of step_sums.sums, all_reduce of everything and the update's
     * run, in the compute queue.  The pieces keep their terms, and may be written to behind it.
     * step_sums: the sums, args and report of the update. */
    tutti_status (*update)(void *group, void *update, const tti_device_step_sums *step_sums);
    /* Of a group of two with tp_half_bytes and a source, into the compute queue, one after the
     * other with exchanges, each of which the caller has ordered before it or behind it. */
    tutti_status (*norm)(void *group, const tti_device_norm *norm);
    /* The same of its gradient, for rows of at least least_norm_grad elements. */
    tutti_status (*norm_grad)(void *group, const tti_device_norm *norm);
    int least_norm_grad;
    /* Whether push takes this product, with parts of n_rows: the same for all devices of a kind. */
    bool (*can_push)(const tti_node *product, size_t n_rows);
    /* Into the compute queue.  The inbox of the other rank must have been read: since the norm that
     * read it this rank has made that norm, or another exchange, too. */
    tutti_status (*push)(void *group, const tti_device_push *push);
    /* In TTI_QUEUE_PEER, ordered after a norm with kept: sends its rows to the other rank, and
     * ends when the other's have arrived, or, if the norm is pulled, when its own have been sent.
     * Only kernels that are ordered after it wait for it.  NULL: no norm is kept. */
    tutti_status (*bring)(void *group, const tti_device_norm *norm);
    /* Whether pull takes this product, as can_push. */
    bool (*can_pull)(const tti_node *product, size_t n_rows);
    /* The product of what a norm was kept and brought for, behind bring, into the compute queue:
     * begins with the own rows, and waits by itself for the others. */
    tutti_status (*pull)(void *group, const tti_device_push *pull);
} tti_device_fusion_ops;

/* Optional: PowerSGD of gradients, bucket by bucket into TTI_QUEUE_COMM.  Workers with the same
 * message compute the same bits. */
typedef struct tti_device_powersgd_ops {
    /* Sets the message to 0 and loads everything that the others need; waits. */
    tutti_status (*create)(const tti_powersgd_desc *desc, void **powersgd);
    /* Adds residuals to the gradients, and draws directions of Q that are 0 anew; then P = M Q is
     * to be summed, together with what travels whole. */
    tutti_status (*left)(void *powersgd, int bucket);
    /* Makes P orthonormal; then Q = M^T P is to be summed. */
    tutti_status (*right)(void *powersgd, int bucket);
    /* Keeps what P and the own Q leave of M as the residual; P Q^T are the gradients. */
    tutti_status (*end)(void *powersgd, int bucket);
    void (*destroy)(void *powersgd); /* takes NULL */
} tti_device_powersgd_ops;

/* Optional: top-k of gradients, as PowerSGD above. */
typedef struct tti_device_topk_ops {
    tutti_status (*create)(const tti_topk_desc *desc, void **topk);
    /* Adds residuals to the gradients.  The k elements of each slot that are largest without their
     * signs become its pairs with rising indices: of equal ones the first, and NaN is larger than
     * any number.  The rest is its residual. */
    tutti_status (*choose)(void *topk, int bucket);
    /* Leaves of gradients only the pairs of all workers, added in the order of the ranks. */
    tutti_status (*add)(void *topk, int bucket);
    void (*destroy)(void *topk); /* takes NULL */
} tti_device_topk_ops;

typedef struct tti_device_ops {
    int (*count)(void);
    void (*describe)(int index, tti_str *str); /* one line: name, memory */
    uint64_t (*identity)(int index); /* the same in every process that sees it; 0: not known */
    /* Optional: the same text for devices that are equally fast, such as its name and its
     * multiprocessors.  NULL: all are taken to be equal. */
    void (*kind)(int index, tti_str *str);
    tutti_status (*open)(const tti_device_desc *desc);
    void (*close)(void); /* waits */
    /* Measures reading from another device of this machine; waits. */
    tutti_status (*link)(int other, tti_device_link *out);
    tti_device_memory_ops memory;
    tti_device_queue_ops queues;
    tti_device_step_ops step;
    tti_device_update_ops update;
    tti_device_collective_ops collectives;
    tti_device_p2p_ops p2p;
    tti_device_fusion_ops fusions;
    tti_device_powersgd_ops powersgd;
    tti_device_topk_ops topk;
} tti_device_ops;

typedef struct tti_backend {
    const char *name; /* "cpu" */
    /* NULL: kernels run at once, in the calling thread, on host memory. */
    const tti_device_ops *device;
    /* The kernel for a node.  reference_only: the plain-C meaning, whatever is faster. */
    const tti_kernel *(*select)(const tti_node *node, bool reference_only);
    /* True if the backend prefers N,H,W,C bytes for the 4-D values around this node. */
    bool (*prefers_channels_last)(const tti_node *node);
    /* True if conv2d_pool and its gradients are fast in the place of this conv2d and a pooling by
     * 2x2; tf32: products of f32 may be rounded to that.  NULL: never. */
    bool (*fuses_pool)(const tti_node *conv, bool tf32);
    /* Device memory, 64-byte aligned, zeroed.  NULL when out of memory.  release takes NULL. */
    void *(*alloc)(size_t n_bytes);
    void (*release)(void *memory, size_t n_bytes);
    /* Called once by every thread that runs kernels (denormals off, one OpenMP thread). */
    void (*thread_init)(void);
    /* A 64-bit hash of n_elems floats at flat index first: of their bits, order and position, the
     * same on every machine.  Hashes of blocks are added mod 2^64, so the order of the blocks does
     * not matter, but their boundaries do. */
    uint64_t (*hash)(const float *w, size_t n_elems, uint64_t first);
    /* The sum of squares in double, with a fixed order of additions. */
    double (*sum_squares)(const float *x, size_t n_elems);
    /* dst[i] += src[i]. */
    void (*accumulate)(float *dst, const float *src, size_t n_elems);
    /* Has kernels for elementwise chains of 16-bit values, and for the ops of fuse_norm.c and
     * fuse_linear.c. */
    bool fuses_training;
    /* If fuse_linear_grad is false: true if the ops of fuse_linear.c in place of this product would
     * be faster.  NULL: never. */
    bool (*joins_products)(const tti_node *product);
    /* True if this product and a following exact gelu, or its gradient, are faster as one op; tanh
     * gelus are always merged.  The same answer before and after a device is open.  NULL: never. */
    bool (*joins_exact_gelu)(const tti_node *product);
    /* True if conv2d_grad_join is faster than this conv2d_grad_x of a 1x1 convolution followed by
     * bn_grad_join; keeps: conv2d_grad_sums instead of it and bn_grad_sums.  The same answer before
     * and after a device is open.  NULL: never. */
    bool (*joins_gradient)(const tti_node *grad_x, bool keeps);
    /* True if cross_entropy_head is faster than this product, the matmul of a head in bf16,
     * followed by the loss.  The same answer before and after a device is open.  NULL: never. */
    bool (*joins_head)(const tti_node *logits);
    /* Relative costs of nodes, to divide a model into stages; NULL: those of a host core. */
    const tti_weights *weights;
    /* One line for doctor and the manifest: libraries, versions, instruction set; nothing that does
     * not affect bits, such as the number of devices. */
    void (*describe)(tti_str *str);
} tti_backend;

/* The CPU backend, always present. */
extern const tti_backend tti_backend_cpu;

/* ---- modules: backends in shared objects, loaded on demand (module.c) ---- */

/* The program's functions for a module. */
typedef struct tti_module_host {
    int abi;             /* TTI_MODULE_ABI */
    const char *version; /* of the library: must be the module's own */
    void (*fail)(tutti_status code, const char *text); /* tti_fail of the program */
} tti_module_host;

/* The version of the interface between program and module: increase it for every change of the
 * structs above.  Their sizes detect most changes. */
enum {
    TTI_MODULE_ABI = (2 << 24) + (int)(sizeof(tti_backend) << 12) + (int)sizeof(tti_device_ops)
};

/* The one symbol that a module exports, "tutti_backend_module".  NULL, after host->fail, when it
 * cannot be used. */
typedef const tti_backend *(*tti_backend_module)(const tti_module_host *host);

/* The backend of a name: "cpu", or that of module tutti-NAME.so, looked for in $TUTTI_MODULE_PATH
 * only if that is set, else next to the program or library and in the installation folder.
 * TUTTI_E_UNSUPPORTED says what was tried and why it failed.  A module stays loaded. */
tutti_status tti_backend_find(const char *name, const tti_backend **out);

#endif /* TTI_BACKEND_H */
