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

/* Work in one queue runs in order; different queues run concurrently. */
typedef enum tti_queue {
    TTI_QUEUE_COMPUTE,
    TTI_QUEUE_COPY,
    TTI_QUEUE_COMM,
    TTI_QUEUE_PEER, /* tensor-parallel collectives, and messages between stages */
    TTI_N_QUEUES
} tti_queue;

/* Events that captured graphs may contain: for sums, then for messages to other stages. */
enum { TTI_SUM_EVENTS = 64, TTI_P2P_EVENTS = 32, TTI_N_GRAPH_EVENTS = 96 };

typedef struct tti_device_desc {
    int index;  /* device number, 0 .. count-1 */
    bool tf32;  /* matrix products of f32 values in tf32 */
    bool exact; /* use only kernels that always give the same bits */
} tti_device_desc;

/* The update program: clip, optimizer, averages, hash.  Pointers to device memory are borrowed. */
typedef struct tti_update_desc {
    const tti_node
        *node; /* optimizer op and attributes, from any trained block; NULL: all frozen */
    const tti_update_block *blocks; /* host memory, copied */
    int n_blocks, n_slots, n_states, n_shards;
    float *params, *grads, *ema; /* device; ema NULL: none */
    void *low_copies; /* device: 16-bit copies of the blocks with has_low_copy, padded to 4; NULL:
                         none */
    tutti_dtype low_dtype;     /* bf16, f16 */
    float *const *states;      /* [n_states] device */
    const tti_step_args *args; /* device */
    const double *sums;        /* device [n_shards][n_sums]: loss_sum, count, correct, ... */
    int n_sums;
    tti_step_report *report;                     /* device */
    double clip_norm, clip_value, l1, ema_decay; /* 0: off */
    bool watch_gradients;
    /* Set if workers own partitions of the state or of the model; NULL: this worker owns all
     * blocks. Launches, in the compute queue, a sum over the workers of n_words 32-bit words on the
     * device: sums of squares as doubles, one or two per block, 0 for blocks of other workers. */
    tutti_status (*complete_words)(void *user, void *words, size_t n_words);
    void *user;
    /* If this word is not 0 after the sums of a step, the step is bad (TTI_BAD_PEER): see
     * tti_device_collective_ops.failure.  NULL: not read. */
    const uint32_t *failure;
} tti_update_desc;

/* One term of a sum between devices; comm/sum_order.h defines the order of a list of terms. */
typedef struct tti_device_term {
    int rank, partial, n_adds;
} tti_device_term;

/* The algorithm of a reduction between devices. */
typedef enum tti_device_algorithm {
    TTI_DEVICE_AUTO,
    TTI_DEVICE_PEERS,  /* kernels that read the other devices' memory */
    TTI_DEVICE_HOSTS,  /* PEERS inside each host and the library between hosts; else LIBRARY */
    TTI_DEVICE_LIBRARY /* the vendor's library */
} tti_device_algorithm;

enum { TTI_MAX_SOURCES = 2 };

/* An array with this rank's partitions of all groups.  Rank r's partition of group i begins at
 * element places[i * n_ranks + r] of its array; places NULL: at its bound. */
typedef struct tti_device_partitions {
    float *data; /* device */
    const size_t *places;
} tti_device_partitions;

/* The workers of a job, each with its own device.  Pointers are borrowed until disconnect. */
typedef struct tti_device_peers {
    int rank, n_ranks, timeout_ms;
    int grace_ms; /* how long pending work may continue once check fails; 0: the backend's default
                   */
    const int *hosts;             /* [n_ranks]: host of each rank, 0, 1, ...; NULL: one host */
    int shown;                    /* this rank among all workers of the job, for messages */
    const tti_device_term *terms; /* [n_terms]: the terms of a sum, in order */
    int n_terms;
    float *const
        *partials; /* [n_partials] device: this rank's partial sums; the first gets the sum */
    int n_partials;
    size_t n_flat;  /* least number of elements of a partial sum, a multiple of 4 */
    size_t n_most;  /* most elements of one all_reduce */
    size_t n_words; /* most words of one all_gather_words */
    /* [n_groups][n_ranks + 1]: each group is a range of the partial sums; rank r's partition of it
     * is bounds[r] .. bounds[r + 1] - 1, multiples of 4.  NULL: there are no partitions. */
    const size_t *bounds;
    size_t n_groups;
    /* [n_groups][n_partials]: where a group begins in a partial sum of this rank; NULL: at its
     * first element, on all ranks. */
    const size_t *at;
    tti_device_partitions
        sums; /* destination of reduce_scatter; data NULL: the first partial sum */
    const tti_device_partitions *sources; /* [n_sources]: arrays that all_gather reads */
    int n_sources;
    /* For tensor-parallel collectives: the first partial sum is their memory, two halves of this
     * many bytes, a multiple of 256.  connect fails with TUTTI_E_UNSUPPORTED if the devices cannot
     * read each other's memory.  0: the group has no such collectives. */
    size_t tp_half_bytes;
    /* For messages: slots 0 .. n_slots-1, each from one rank to one other, whose first partial
     * sum receives the value.  TUTTI_E_UNSUPPORTED as for tp_half_bytes.  0: no messages. */
    int n_slots;
    void *with; /* another group of this device, which disconnects later; the two fail together, and
                   every wait checks both.  NULL: none */
    bool fast;  /* allows any order of additions */
    /* f32; with fast bf16 or f16: terms and sums are rounded to it before they are sent; without
     * fast bf16: terms, and each sum of two, are rounded, so that all that is sent has 16 bits. */
    tutti_dtype wire;
    tti_device_algorithm algorithm;
    void *user;
    /* All-gather on the host; every rank makes the same calls.  dst [n_ranks][n_bytes]. */
    tutti_status (*all_gather)(void *user, const void *src, void *dst, size_t n_bytes);
    /* Fails if the host knows that a worker has failed. */
    tutti_status (*check)(void *user);
} tti_device_peers;

/* A run of words that one rank has: n_words from word at on of that rank's source, which the others
 * gather to dst; multiples of 4. */
typedef struct tti_device_piece {
    int rank, source;
    size_t at, n_words;
    uint32_t *dst;
} tti_device_piece;

/* The value of a TTI_COLLECTIVE op: the whole is [n_rows][n_ranks][part], and each rank has or
 * receives one part; a sum has one part.  Device pointers. */
typedef struct tti_tp_collective {
    tti_collective kind;
    tutti_dtype dtype;
    const void *in;
    void *out; /* may be in for a sum */
    size_t n_rows, part_bytes;
} tti_tp_collective;

/* A message to rank to: copies n_bytes from src on the device to byte place of that rank's
 * first partial sum; both multiples of 16. */
typedef struct tti_device_message {
    int slot, to;
    const void *src;
    size_t place, n_bytes;
} tti_device_message;

/* A norm between two collectives: reduce-scatter over the axis, addition of a bias and the
 * residual, norm, and all-gather; or the norm's gradient, between the sum of dy and the
 * all-gather of dx.  Rows are 16-bit and are rounded where add_layer_norm and layer_norm_grads
 * round their inputs. Byte offsets refer to the first source of every rank of the group and
 * address [n_blocks][n_ranks][n_rows][width]; pointers address [n_blocks][n_rows][width]. */
typedef struct tti_device_norm {
    const tti_node *node; /* the norm, or its gradients */
    int branch;           /* input of the norm that is the sum: 0 or 1 */
    size_t terms, whole;  /* the sum's terms; the gathered result */
    const void *bias;     /* [width]; NULL: none */
    const void *x;        /* the residual; for a gradient x */
    const void *residual;
    void *part; /* gradient: memory of input 0 of the node if nothing else reads it, else NULL */
    void *sum;  /* output 1 of the norm; for a gradient dx */
    void *y;    /* stays: output 0 of the norm */
    const float *gamma, *beta;      /* [width] */
    float *mean, *rstd;             /* [n_blocks][n_rows]; inputs of a gradient */
    float *dgamma, *dbeta;          /* [width]: outputs of a gradient */
    float *dsums;                   /* [width], the column sums of dx; NULL: not needed */
    void *scratch;                  /* gradient: scratch of the node's kernel */
    size_t n_blocks, n_rows, width; /* width a multiple of 8, at most 2048 */
    bool pushed;  /* push computed the product before the norm: the other ranks' terms .. */
    size_t inbox; /* .. are at this offset of the own first source, those of one rank after the
                     other: [n_ranks - 1][n_blocks][n_rows][width] */
    bool stays;   /* there is no gather: whole is not used */
    bool kept;    /* if pushed: gather_rows sends the rows to the other ranks .. */
    bool pulled;  /* .. and pull computes the next product */
} tti_device_norm;

/* A product before such a norm.  It sends the terms of the other ranks' rows to their devices
 * while it computes its own rows; the result for the sent rows is not written on this device. */
typedef struct tti_device_push {
    const tti_kernel
        *kernel; /* the kernel that would compute all rows here, with its state and arguments */
    void *state;
    const tti_kargs *args;
    size_t inbox, n_blocks, n_rows, width; /* as in tti_device_norm */
} tti_device_push;

/* The order in which a list of doubles is added: lane t of TTI_LIST_LANES adds members t, t +
 * TTI_LIST_LANES, ... to 0, in order; then, for d = TTI_LIST_LANES / 2, d / 2, ... 1, lane t <
 * d adds lane t + d. */
enum { TTI_LIST_LANES = 512 };

/* Lists of doubles: values[member[i]] for i from begin[l] up to begin[l + 1]; their sum is stored
 * at values[home[l]].  In device memory. */
typedef struct tti_device_lists {
    const int32_t *begin, *member, *home; /* [n + 1], [begin[n]], [n] */
    int n;
} tti_device_lists;

/* Reads of this thread's device from another device. */
typedef struct tti_device_link {
    bool is_direct;     /* kernels can read the other device's memory */
    bool is_right;      /* the data arrived unchanged */
    double bytes_per_s; /* of a long copy, in one direction */
    double latency_us;  /* of a short one */
} tti_device_link;

/* A TTI_SYNC op over all shards: in has the value [n_elems] of each shard of this rank, and out
 * receives the joined value for each.  bounds [n_ranks + 1]: shards of rank r. */
typedef struct tti_device_join {
    const char *op;
    const float *const *in;
    float *const *out;
    size_t n_elems;
    const int *bounds;
} tti_device_join;

/* A worker's contributions to the sums of a step, before they are reduced.  Device pointers. */
typedef struct tti_device_step_sums {
    double *sums; /* [n_shards][n_sums], hashes [n_ranks][2], votes [n_ranks]; others' entries
                     become 0 */
    const tti_step_args *args;
    tti_step_report *report; /* of the previous step; reported_ns is set for this one */
    int n_sums, n_shards, first_shard, last_shard, rank, n_ranks;
} tti_device_step_sums;

/* PowerSGD: gradients are sent as low-rank products.  Slots of bucket b are first[b] .. first[b
 * + 1] - 1.  Host memory is copied, device memory borrowed. */
typedef struct tti_powersgd_desc {
    const tti_powersgd_slot *slots;
    const int *first; /* [n_buckets + 1] */
    int n_buckets;
    float *grads;    /* device: the worker's gradients; replaced by the sums */
    float *residual; /* device, as grads: the part of the mean that has not been sent */
    float *message;  /* device [n_message]: summed between the steps below */
    float *own;      /* device [n_message]: this worker's contribution to Q */
    float *scratch;  /* device: for all slots of one bucket at a time */
    size_t n_message;
    const tti_step_args *args; /* device */
} tti_powersgd_desc;

/* Top-k: the largest elements of gradients are sent as pairs.  Fields as in tti_powersgd_desc. */
typedef struct tti_topk_desc {
    const tti_topk_slot *slots;
    const int *first;    /* [n_buckets + 1] */
    const size_t *pairs; /* [n_buckets + 1]: the first pair of each bucket, multiples of 2 */
    int n_buckets, n_ranks;
    float *grads, *residual;   /* device, as in tti_powersgd_desc */
    tti_topk_pair *own;        /* device [pairs[n_buckets]] */
    tti_topk_pair *all;        /* device [n_ranks][pairs of a bucket] */
    const tti_step_args *args; /* device */
} tti_topk_desc;

/* The tables below act on the device that the calling thread has opened; use it from that
 * thread only.  Functions only enqueue work, except those that say "waits".  An entry that says
 * "optional" is NULL if the device does not offer it. */

typedef struct tti_device_memory_ops {
    /* Pinned host memory, which asynchronous copies can access. */
    void *(*alloc_host)(size_t n_bytes); /* NULL: out of memory */
    void (*release_host)(void *memory);
    /* Pins existing memory, such as a loader's.  Unpin it before it is freed. */
    tutti_status (*pin)(void *memory, size_t n_bytes);
    void (*unpin)(void *memory);
    /* Memory of the open device that may outlive it: any thread releases it.  NULL: out of memory.
     */
    void *(*alloc_lasting)(size_t n_bytes);
    void (*release_lasting)(void *memory);
    /* Device memory in bytes: allocated now, peak so far, free. */
    void (*get_usage)(size_t *n_now, size_t *n_peak, size_t *n_free);
} tti_device_memory_ops;

typedef struct tti_device_queue_ops {
    tutti_status (*copy)(tti_queue queue, void *dst, const void *src,
                         size_t n_bytes); /* between any two memories */
    tutti_status (*order)(
        tti_queue after,
        tti_queue before); /* later work in after waits for earlier work in before */
    /* Records event place, 0 .. TTI_N_GRAPH_EVENTS-1, in a queue; makes later work in a queue
     * wait for its last record.  Both may be captured, but then in the same graph. */
    tutti_status (*record_event)(tti_queue queue, int place);
    tutti_status (*wait_event)(tti_queue after, int place);
    /* Records event 0 .. 15 for the host, in a captured graph at each replay; waits on the host
     * for its last record.  A graph's record counts from the launch of the graph. */
    tutti_status (*record_host_event)(tti_queue queue, int event);
    tutti_status (*await_host_event)(int event);
    tutti_status (*sync)(void); /* waits for everything */
    /* Optional: opens a named range for profilers (NVTX); NULL ends the innermost range.  Free
     * of cost without a profiler. */
    void (*range)(const char *name);
    /* Records timestamp index in a queue, also in a captured graph; reads the first n
     * timestamps, in microseconds since timestamp 0 (waits). */
    tutti_status (*record_timestamp)(tti_queue queue, int index);
    tutti_status (*read_timestamps)(int n, double *us);
    /* Captures the launches between the two calls into a graph; nothing runs. */
    tutti_status (*capture_begin)(void);
    tutti_status (*capture_end)(void **captured_graph);
    tutti_status (*replay)(void *captured_graph);
    void (*release_captured_graph)(void *captured_graph); /* takes NULL */
} tti_device_queue_ops;

/* Kernels of a step that are not ops of the graph. */
typedef struct tti_device_step_ops {
    /* runs[i] = the tti_run of shard first_shard + i. */
    tutti_status (*begin)(const tti_step_args *args, const tti_run *fixed, tti_run *runs,
                          int n_runs);
    /* begin for a step over samples on the device: also gathers the batch. */
    tutti_status (*gather)(const tti_gather *gather, const tti_run *fixed, tti_run *runs);
    /* Converts bytes to floats. */
    tutti_status (*unpack)(tti_queue queue, const tti_unpack *unpack);
    /* Draws initial parameters with the bits of tti_draw; waits. */
    tutti_status (*draw)(const tti_draws *draws, int n, float *params);
    /* Copies results of a shard into sums [collected->n] on the device. */
    tutti_status (*collect)(const tti_collected *collected, double *sums);
    /* A TTI_SYNC op over parts [n_parts][n_elems]. */
    tutti_status (*join)(const char *op, const float *parts, size_t n_parts, size_t n_elems,
                         float *out);
    /* Copies the report and then n_sums sums of a step into pinned host memory. */
    tutti_status (*report)(const tti_step_report *report, const double *sums, int n_sums,
                           void *host_report);
    /* fold: sums[l] = the sum of list l, added on TTI_LIST_LANES lanes.  unfold: values at home
     * become the sums, all other values 0.  In the compute queue. */
    tutti_status (*fold)(const double *values, const tti_device_lists *lists, double *sums);
    tutti_status (*unfold)(double *values, size_t n_values, const tti_device_lists *lists,
                           const double *sums);
} tti_device_step_ops;

typedef struct tti_device_update_ops {
    tutti_status (*create)(const tti_update_desc *desc, void **update);
    tutti_status (*run)(void *update);
    /* Optional, for workers that own partitions.  Called when the parameters of blocks first ..
     * first + n - 1 have arrived from their owners: adds their hash to the report and writes
     * their copies in desc.low_copies; after a bad step the hash stays 0.  If parameters of other
     * workers are not kept here, hashes the own blocks again; then all blocks are passed in one
     * call. */
    tutti_status (*complete)(void *update, int first, int n);
    /* Optional: as complete, but blocks with is_sent_low have arrived in 16 bits, and count by the
     * hash of these, widened, on all workers: so that of own ones is exchanged. */
    tutti_status (*complete_low)(void *update, int first, int n);
    tutti_status (*hash)(void *update, uint64_t *hash); /* hashes the parameters; waits */
    /* Optional: writes desc.low_copies from parameters that were not written by the update. */
    tutti_status (*low_copies)(void *update);
    void (*destroy)(void *update); /* takes NULL */
    /* True if the host may record and await events of the copy queue, and write parameters
     * through TTI_QUEUE_COMM, while kernels of a step run (exec/device/params/offload.c). */
    bool is_overlapped;
} tti_device_update_ops;

/* Groups of devices.  All ranks make the same calls in the same order. */
typedef struct tti_device_collective_ops {
    /* TUTTI_E_UNSUPPORTED, on all ranks: two ranks share a device, or nothing connects them.
     * Overwrites the partial sums in a trial. */
    tutti_status (*connect)(const tti_device_peers *peers, void **group);
    void (*disconnect)(void *group); /* takes NULL; waits */
    bool
        mixes_algorithms; /* groups of different algorithms may add in one step, bucket by bucket */
    void (*describe)(const void *group, tti_str *str);
    /* Optional: for tutti doctor, the name and version of the library that reduces where
     * kernels cannot, or why there is none.  Needs no open device. */
    void (*describe_library)(tti_str *str);
    /* Optional: whether all ranks read each other's memory over fast links such as NVLink. */
    bool (*are_linked)(const void *group);
    /* Sums elements first .. first + n_elems - 1 of the partial sums into the first partial sum
     * of every rank; multiples of 4.  In TTI_QUEUE_COMM.  overlapped: uses few multiprocessors,
     * because other kernels run concurrently. */
    tutti_status (*all_reduce)(void *group, size_t first, size_t n_elems, bool overlapped);
    /* Sums group which of bounds; each rank receives its partition, in peers.sums.  In
     * TTI_QUEUE_COMM. */
    tutti_status (*reduce_scatter)(void *group, size_t which, bool overlapped);
    /* Gathers the partitions of group which from the given source of their ranks to dst, which
     * receives the group's first element.  In TTI_QUEUE_COMM. */
    tutti_status (*all_gather)(void *group, size_t which, int source, float *dst, bool overlapped);
    /* Optional, both: whether a group gathers pieces, the same on all ranks; and gathers those of
     * other ranks.  pieces [n]: in device memory, the same on all ranks but for dst, of n_words
     * words in all.  In TTI_QUEUE_COMM. */
    bool (*gathers_pieces)(const void *group);
    tutti_status (*all_gather_pieces)(void *group, const tti_device_piece *pieces, int n,
                                      size_t n_words, bool overlapped);
    /* Gathers 32-bit words: words first .. last-1 are this rank's; in this range a word that
     * belongs to another rank is 0. */
    tutti_status (*all_gather_words)(void *group, void *words, size_t n_words, size_t first,
                                     size_t last);
    /* Optional: a TTI_SYNC op over the shards of all ranks in one kernel; all_gather_words must
     * follow before the group is disconnected.  *done false, on all ranks: the value is too
     * large, or the ranks cannot read each other's memory. */
    tutti_status (*join)(void *group, const tti_device_join *join, bool *done);
    /* Writes a worker's contributions to the sums of a step. */
    tutti_status (*report_sums)(const tti_device_step_sums *step_sums);
    /* A tensor-parallel collective of a group with tp_half_bytes, in TTI_QUEUE_PEER.  Adds in
     * the order of the group's terms; f16 and bf16 are added as f32 and rounded at the end.
     * overlapped: as for all_reduce. */
    tutti_status (*tp_collective)(void *group, const tti_tp_collective *tp, bool overlapped);
    /* As await_host_event, but fails if a peer is lost or late.  Work that waits for the peer is
     * then ended; its results are not valid, and the device can still be used. */
    tutti_status (*await)(void *group, int event);
    /* A word that the device can read: not 0 from before the first invalid result of a group that
     * has failed.  Valid until disconnect. */
    const uint32_t *(*failure)(const void *group);
    /* Optional: nanoseconds that kernels of TTI_QUEUE_COMPUTE have waited for other devices so
     * far; approximate while steps are in flight, below 0 if unknown.  Waits for one copy. */
    tutti_status (*get_waited_ns)(void *group, int64_t *t_ns);
} tti_device_collective_ops;

/* Optional: messages in a group with n_slots; each end of a slot makes its calls. */
typedef struct tti_device_p2p_ops {
    /* In TTI_QUEUE_PEER: waits until the slot is empty, copies, and marks it full. overlapped:
     * as for all_reduce. */
    tutti_status (*send)(void *group, const tti_device_message *message, bool overlapped);
    /* Makes later work in the compute queue wait until the slot is full; the value is in this
     * rank's first partial sum. */
    tutti_status (*recv)(void *group, int slot);
    /* Marks the slot empty after earlier work in the compute queue; rank from can send again. */
    tutti_status (*release)(void *group, int slot, int from);
} tti_device_p2p_ops;

/* Each entry is optional: several operations in one kernel, with the bits of the single ones. */
typedef struct tti_device_fusion_ops {
    /* For small models: whether fusions.update supports this group and update, and the sum of the
     * elements from first on; the group's first partial sum must hold the gradients.  Loads the
     * kernels. */
    tutti_status (*can_update)(const void *group, const void *update, size_t first, bool *can);
    /* report_sums, all_gather_words of step_sums.sums, all_reduce of the elements from first on and
     * the update of all, in the compute queue; the elements before first must have their sums.
     * The partial sums are not valid afterwards.  step_sums: the sums, args and report of the
     * update. */
    tutti_status (*update)(void *group, void *update, const tti_device_step_sums *step_sums,
                           size_t first);
    /* Norms and the products beside them are for groups of 2, 4, .. up to so many ranks. */
    int most_norm_ranks;
    /* In the compute queue, for a group with tp_half_bytes and a source.  The caller orders it with
     * respect to all collectives of the group. */
    tutti_status (*norm)(void *group, const tti_device_norm *norm);
    /* The norm's gradient, for rows of at least least_norm_grad elements. */
    tutti_status (*norm_grad)(void *group, const tti_device_norm *norm);
    int least_norm_grad;
    /* Whether push supports this product with n_rows of each of n_ranks; equal for all devices of
     * a kind. */
    bool (*can_push)(const tti_node *product, size_t n_rows, int n_ranks);
    /* In the compute queue.  The other ranks' inboxes must have been read: since the norm that
     * read them, this rank has received rows of theirs or run another collective. */
    tutti_status (*push)(void *group, const tti_device_push *push);
    /* In the compute queue, in place of a norm with kept: copies the own rows x to the whole when
     * every rank has called it.  Ordered as a norm.  NULL: no norms with one collective. */
    tutti_status (*open_rows)(void *group, const tti_device_norm *rows);
    /* In TTI_QUEUE_PEER, ordered after a norm with kept, or open_rows: sends the norm's rows to the
     * other ranks. Ends when the other ranks' rows have arrived or, if the norm is pulled, when the
     * own rows have been sent.  NULL: kept is not supported. */
    tutti_status (*gather_rows)(void *group, const tti_device_norm *norm);
    /* Whether pull supports this product, as can_push. */
    bool (*can_pull)(const tti_node *product, size_t n_rows, int n_ranks);
    /* In the compute queue, after gather_rows: the product of the norm's rows.  Starts with the own
     * rows and waits in the kernel for those of one rank after the other. */
    tutti_status (*pull)(void *group, const tti_device_push *pull);
} tti_device_fusion_ops;

/* Optional: PowerSGD, bucket by bucket in TTI_QUEUE_COMM.  Equal messages give equal bits. */
typedef struct tti_device_powersgd_ops {
    /* Sets the message to 0 and loads the kernels; waits. */
    tutti_status (*create)(const tti_powersgd_desc *desc, void **powersgd);
    /* Adds residuals to the gradients, redraws directions of Q that are 0, and writes P = M Q
     * and the uncompressed gradients to the message, which the caller sums. */
    tutti_status (*left)(void *powersgd, int bucket);
    /* Orthonormalizes P and writes Q = M^T P to the message, which the caller sums. */
    tutti_status (*right)(void *powersgd, int bucket);
    /* Stores M minus P times the own Q as the residual; writes P Q^T to the gradients. */
    tutti_status (*end)(void *powersgd, int bucket);
    void (*destroy)(void *powersgd); /* takes NULL */
} tti_device_powersgd_ops;

/* Optional: top-k of gradients, in TTI_QUEUE_COMM. */
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
    /* Optional: a process that has opened the device keeps all others out until it ends.  NULL: no
     * device is like that. */
    bool (*is_exclusive)(int index);
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

/* Whether devices compute norms between collectives of so many ranks with them. */
static inline bool tti_device_joins_norms(const tti_device_ops *ops, int n_ranks) {
    bool is_tree = n_ranks > 1 && (n_ranks & (n_ranks - 1)) == 0;
    return ops->fusions.norm && is_tree && n_ranks <= ops->fusions.most_norm_ranks;
}

typedef struct tti_backend {
    const char *name; /* "cpu" */
    /* NULL: kernels run at once, in the calling thread, on host memory. */
    const tti_device_ops *device;
    /* The kernel for a node.  reference_only: the plain-C meaning, whatever is faster. */
    const tti_kernel *(*select)(const tti_node *node, bool reference_only);
    /* Compiles what the kernels of these nodes need, several at a time; prepare would compile it
     * one by one, so a failure is left to prepare.  Called by the thread that prepares them.  NULL:
     * nothing takes long. */
    void (*precompile)(tti_node *const *nodes, int n);
    /* True if the backend prefers N,H,W,C bytes for the 4-D values around this node. */
    bool (*prefers_channels_last)(const tti_node *node);
    /* Broadcasts and the ops with TTI_EITHER_LAYOUT or TTI_READS_STRIDED are fast in either layout.
     */
    bool strided;
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
    /* The same of values that are rounded to bf16, nearest even, and whose sum is rounded again;
     * src NULL: only rounds dst.  NaN stays NaN. */
    void (*accumulate_rounded)(float *dst, const float *src, size_t n_elems);
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

/* The same without computation: every float of a node is 1, every integer 0.  Updates are made. */
extern const tti_backend tti_backend_null;

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
    TTI_MODULE_ABI = (3 << 24) + (int)(sizeof(tti_backend) << 12) + (int)sizeof(tti_device_ops)
};

/* The one symbol that a module exports, "tutti_backend_module".  NULL, after host->fail, when it
 * cannot be used. */
typedef const tti_backend *(*tti_backend_module)(const tti_module_host *host);

/* The backend of a name: "cpu", or that of module tutti-NAME.so, looked for in $TUTTI_MODULE_PATH
 * only if that is set, else next to the program or library and in the installation folder.
 * TUTTI_E_UNSUPPORTED says what was tried and why it failed.  TUTTI_E_INVALID: the process is a
 * fork of one that has found the backend, whose driver cannot be used after a fork.  A module stays
 * loaded.  Any thread may call it. */
tutti_status tti_backend_find(const char *name, const tti_backend **out);

#endif /* TTI_BACKEND_H */
