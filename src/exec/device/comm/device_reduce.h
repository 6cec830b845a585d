/* device_reduce.h - reductions between workers on devices that do not use the host.
 *
 * Buckets of gradients are summed in a separate queue as soon as the last shard has completed them,
 * or over fast links when it has ended (tti_device_sums_after); loss sums, hashes and votes are
 * sent in one small vector.  All of it is part of the captured step.  The first step of a worker is
 * not captured: it sums after all shards, because a kernel that waits for a peer must not run while
 * another one is being loaded. */
#ifndef TTI_EXEC_DEVICE_REDUCE_H
#define TTI_EXEC_DEVICE_REDUCE_H

#include "backend/backend.h"
#include "comm/sum_order.h"
#include "exec/device/bench/sum_table.h"
#include "exec/worker/desc.h"
#include "exec/worker/worker.h"

/* ---- the algorithm of each bucket, from the table of `tutti doctor` ----
 *
 * The table is used only if parallel.algorithm is auto, all workers are on one machine, and each
 * has the whole state and model. */

typedef struct tti_bucket_algorithms {
    tti_cache_found found; /* state of rank 0's table; also ABSENT if the table is not read */
    tti_sum_table table;   /* with state GOOD */
    bool *by_library; /* [n_buckets]: the library sums the bucket faster than kernels over peers'
                         memory; NULL: none */
    int n_by_library;
} tti_bucket_algorithms;

/* Rank 0 reads the table and sends it to the other ranks.  Collective.  Release out with _forget,
 * also after a failure. */
TUTTI_NODISCARD tutti_status tti_bucket_algorithms_init(tti_exec *x, tti_bucket_algorithms *out);

/* Frees the table.  From here on no bucket uses the library. */
void tti_bucket_algorithms_forget(tti_bucket_algorithms *algorithms);

/* Appends the choice to the start line, after the default algorithm. */
void tti_bucket_algorithms_describe(const tti_bucket_algorithms *algorithms, int n_buckets,
                                    tti_str *str);

/* ---- gradient compression on the device, in the captured step ----
 *
 * The rules are those of compress.h. The device computes the matrix products, so PowerSGD does not
 * give the same bits as on the host. Messages use a separate group. */

typedef struct tti_device_compress tti_device_compress;

/* True if such workers compress on their devices when the devices reach each other.  The model must
 * be undivided and the state unsharded.  Otherwise the host compresses. */
bool tti_device_compress_can(const tti_exec_desc *desc, int n_ranks);

/* Bytes of device memory: residuals, messages, pairs, scratch. */
size_t tti_device_compress_bytes(const tti_exec_desc *desc, int n_ranks);

/* others: the group that adds everything else, borrowed for the call; with: that group, which is
 * disconnected later.  TUTTI_E_UNSUPPORTED on all workers: see connect.  Collective.  *out is owned
 * by the caller, also after a failure, and borrows x. */
tutti_status tti_device_compress_create(tti_exec *x, const tti_device_peers *peers, void *with,
                                        tti_device_compress **out);
void tti_device_compress_destroy(tti_device_compress *compress); /* takes NULL */

/* The two halves of compressing a bucket, in TTI_QUEUE_COMM. Each synchronizes with the other
 * devices once.  After the second half the gradients are the sums of what all workers sent.
 * overlapped: as for peers_sum. */
tutti_status tti_device_compress_begin(tti_device_compress *compress, int bucket, bool overlapped);
tutti_status tti_device_compress_end(tti_device_compress *compress, int bucket, bool overlapped);

/* Await this group instead of the one that it was created with. */
void *tti_device_compress_group(const tti_device_compress *compress);

typedef struct tti_device_reduce tti_device_reduce;

/* True if sums of gradients over fast links should begin after the backward pass.  A sum that
 * overlaps with matrix products costs about twice its own time, because it takes multiprocessors
 * from their tiles.  Overlapped with memory-bound kernels it costs almost nothing, but
 * reduce-scatters move only half the bytes, so that overlap is not worth it. */
bool tti_device_sums_after(const tti_plan *plan, const tti_weights *weights, bool is_partitioned);

/* Number of arrays that other workers may fetch.  Averages are fetched only with sharded
 * parameters, which have no 16-bit copies. */
enum { TTI_FROM_PARAMS, TTI_FROM_AVERAGES, TTI_FROM_LOW_COPIES = TTI_FROM_AVERAGES };

/* Connects to the devices of the other workers. transport: describes the connection.  *out NULL:
 * the devices cannot access each other, and sums go through the host.  Otherwise *out is owned by
 * the caller and borrows x. Collective. */
tutti_status tti_device_reduce_create(tti_exec *x, tti_device_reduce **out, tti_str *transport);
void tti_device_reduce_destroy(tti_device_reduce *reduce); /* takes NULL */

/* See tti_device_collective_ops.failure. */
const uint32_t *tti_device_reduce_failure(const tti_device_reduce *reduce);

/* Begins a step. overlapped: buckets are summed while shards compute, which capturing requires. */
void tti_device_reduce_begin(tti_device_reduce *reduce, bool overlapped);

/* True if the shards of micro-batch group w are merged bucket by bucket. */
bool tti_device_reduce_merges(const tti_device_reduce *reduce, int w);

/* Call when the last shard has launched a step of its program. finish returns a failure. */
void tti_device_reduce_after(tti_device_reduce *reduce, int step);

/* Number of buckets whose sum was launched in this step. */
int tti_device_reduce_n_summed(const tti_device_reduce *reduce);

/* Sums the remaining buckets, and sums [tti_device_n_reported] over all workers. */
tutti_status tti_device_reduce_finish(tti_device_reduce *reduce, const tti_step_args *args,
                                      tti_step_report *report, double *sums);

/* For small models: captured steps sum the gradients and the step's sums in the update kernel, if
 * the device supports it.  Appends this to transport.  Collective. */
tutti_status tti_device_reduce_join_update(tti_device_reduce *reduce, void *update,
                                           tti_str *transport);

/* True if the current step does so.  Then finish does nothing, and reduce_update runs the
 * update. */
bool tti_device_reduce_updates(const tti_device_reduce *reduce);
tutti_status tti_device_reduce_update(tti_device_reduce *reduce, const tti_step_args *args,
                                      tti_step_report *report, double *sums);

/* Bytes of device memory for compression, and bytes that a step of this worker sends. 0: gradients
 * are not compressed. */
size_t tti_device_reduce_compress_bytes(const tti_device_reduce *reduce);
double tti_device_reduce_sent(const tti_device_reduce *reduce, uint64_t step);

/* Bytes of device memory for the 16-bit copies of partial sums that workers send (desc.wire): of a
 * connected worker, and for one that does not exist yet. sharded: NULL, or tells which buffers are
 * short. */
size_t tti_device_reduce_rounded_bytes(const tti_device_reduce *reduce);
size_t tti_device_rounded_bytes(const tti_exec_desc *desc, int n_ranks, const tti_accumulation *acc,
                                const tti_sharded *sharded);

/* True if compression starts with this step.  Captured graphs are then outdated. */
bool tti_device_reduce_turns(const tti_device_reduce *reduce, uint64_t step);
void tti_device_reduce_turn(tti_device_reduce *reduce);

/* Nanoseconds that kernels of this worker have waited for other devices so far; below 0:
 * unknown. */
tutti_status tti_device_reduce_waited(const tti_device_reduce *reduce, int64_t *t_ns);

/* Runs a TTI_SYNC op over the shards of all workers in one kernel; in and out [shards of this
 * worker].  *done false: not possible, use tti_device_reduce_joins. */
tutti_status tti_device_reduce_join(tti_device_reduce *reduce, const tti_node *node,
                                    const float *const *in, float *const *out, bool *done);

/* All-gathers the values [V][n] of a TTI_SYNC op.  This worker has those of its shards. */
tutti_status tti_device_reduce_joins(tti_device_reduce *reduce, float *parts, size_t n);

/* For workers with partitions of the state: completes n 32-bit words, which are 0 for other
 * workers' blocks.  Outside a captured step the worker waits for the result. */
tutti_status tti_device_reduce_words(tti_device_reduce *reduce, void *words, size_t n);

/* Fetches a bucket of parameters from the owners of its partitions to dst. begin: call once in a
 * captured graph, before the step's first fetch. fetched: later kernels of the compute queue find
 * the parameters there; if not overlapped, the host waits for them. */
tutti_status tti_device_reduce_fetch_begin(tti_device_reduce *reduce);
tutti_status tti_device_reduce_fetch(tti_device_reduce *reduce, int bucket, int source, float *dst,
                                     bool overlapped);
/* The first function returns true if pieces can be fetched instead (equal on all workers).  The
 * second fetches n pieces, which are listed in device memory and have n_words words. */
bool tti_device_reduce_gathers_pieces(const tti_device_reduce *reduce);
tutti_status tti_device_reduce_fetch_pieces(tti_device_reduce *reduce,
                                            const tti_device_piece *pieces, int n, size_t n_words,
                                            bool overlapped);
tutti_status tti_device_reduce_fetched(tti_device_reduce *reduce, bool overlapped);

/* In a captured graph: records an event in the communication queue for later waits
 * (tti_device_queue_ops.follow); makes the compute queue wait for a bucket's sum. */
tutti_status tti_device_reduce_record(tti_device_reduce *reduce, int *place);
tutti_status tti_device_reduce_wait_for(tti_device_reduce *reduce, int bucket);

/* With tti_exec_state_device: broadcasts array [n_flat] of rank source to all workers and waits.
 * Overwrites the first partial sum. */
tutti_status tti_device_reduce_broadcast(tti_device_reduce *reduce, float *array, int source);

/* Sends the hash of this worker's blocks, in report, to all workers. */
tutti_status tti_device_reduce_hash(tti_device_reduce *reduce, const tti_step_report *report,
                                    double *sums);

/* A barrier of the workers.  Call it before a step that follows a pause: calls during a pause, such
 * as freeing memory, may wait for devices, and must not do so while a device waits for a peer. */
tutti_status tti_device_reduce_barrier(tti_device_reduce *reduce);

/* The same, once the device is idle. */
tutti_status tti_device_reduce_sync_and_barrier(tti_device_reduce *reduce);

/* Waits for an event, or for the failure of a worker. */
tutti_status tti_device_reduce_await(tti_device_reduce *reduce, int event);

/* Waits for the sums and for the kernels that read them.  If a worker is lost, aborts them and
 * fails.  Call before the group is destroyed. */
tutti_status tti_device_reduce_settle(tti_device_reduce *reduce);

/* Waits for all queues, or for the failure of a worker. */
tutti_status tti_device_reduce_rest(tti_device_reduce *reduce);

#endif /* TTI_EXEC_DEVICE_REDUCE_H */
