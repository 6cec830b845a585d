/* device_reduce.h - reductions between workers on devices, without the host.
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
 * Only if parallel.algorithm is auto, all workers are on one machine, and each has the whole state
 * and model: the table has no other sums. */

typedef struct tti_bucket_algorithms {
    tti_cache_found found; /* of rank 0; also ABSENT if none is looked for */
    tti_sum_table table;   /* GOOD */
    bool *by_library;      /* [n_buckets]: faster than over peers' memory; NULL: none is */
    int n_by_library;
} tti_bucket_algorithms;

/* Rank 0 reads the table and sends it to the others.  Collective. out is released by _forget, also
 * after a failure. */
TUTTI_NODISCARD tutti_status tti_bucket_algorithms_init(tti_exec *x, tti_bucket_algorithms *out);

/* From here on no bucket uses the library; frees the table. */
void tti_bucket_algorithms_forget(tti_bucket_algorithms *algorithms);

/* Describes the result, for the start line, after the default algorithm. */
void tti_bucket_algorithms_describe(const tti_bucket_algorithms *algorithms, int n_buckets,
                                    tti_str *str);

/* ---- gradients that are compressed on their device, in the captured step ----
 *
 * The rules are those of compress.h; the device computes the matrix products, so with PowerSGD the
 * bits are not the host's.  Messages use a separate group. */

typedef struct tti_device_compress tti_device_compress;

/* Whether such workers compress on their devices, if these reach each other: only with undivided
 * models and unsharded states.  Otherwise the host compresses. */
bool tti_device_compress_can(const tti_exec_desc *desc, int n_ranks);

/* Device memory: residuals, messages, pairs, scratch. */
size_t tti_device_compress_bytes(const tti_exec_desc *desc, int n_ranks);

/* peers: those that add everything else, borrowed for the call; with is their group, which parts
 * later.  TUTTI_E_UNSUPPORTED on all of them: as of connect.  Collective; *out is owned by
 * the caller, also after a failure, and borrows x. */
tutti_status tti_device_compress_create(tti_exec *x, const tti_device_peers *peers, void *with,
                                        tti_device_compress **out);
void tti_device_compress_destroy(tti_device_compress *compress); /* takes NULL */

/* The two halves of compressing a bucket, in TTI_QUEUE_COMM; each synchronizes with the other
 * devices once.  After the second one the gradients are the sums of what all workers sent. beside:
 * as for peers_sum. */
tutti_status tti_device_compress_begin(tti_device_compress *compress, int bucket, bool overlapped);
tutti_status tti_device_compress_end(tti_device_compress *compress, int bucket, bool overlapped);

/* To be awaited in place of the group it was made with. */
void *tti_device_compress_group(const tti_device_compress *compress);

typedef struct tti_device_reduce tti_device_reduce;

/* Whether sums of gradients over fast links should begin after the backward pass.  A sum that
 * overlaps with products costs about twice its time, since their tiles wait for its
 * multiprocessors.  Overlapped with kernels that wait for memory it costs almost nothing; but
 * reduce-scatters, which move half the bytes, are not worth even that. */
bool tti_device_sums_after(const tti_plan *plan, const tti_weights *weights, bool is_partitioned);

/* The arrays that other workers may fetch: averages only with sharded parameters, of which there
 * are no 16-bit copies. */
enum { TTI_FROM_PARAMS, TTI_FROM_AVERAGES, TTI_FROM_LOW_COPIES = TTI_FROM_AVERAGES };

/* Connects to the devices of the other workers.  *out NULL: the devices cannot access each other,
 * and sums go through the host. transport: describes the method.  Collective.  Otherwise *out is
 * owned by the caller, and borrows x. */
tutti_status tti_device_reduce_create(tti_exec *x, tti_device_reduce **out, tti_str *transport);
void tti_device_reduce_destroy(tti_device_reduce *reduce); /* takes NULL */

/* As tti_device_collective_ops.failure. */
const uint32_t *tti_device_reduce_failure(const tti_device_reduce *reduce);

/* Begins a step. overlapped: buckets are summed while shards compute, which capturing requires. */
void tti_device_reduce_begin(tti_device_reduce *reduce, bool overlapped);

/* True if the shards of micro-batch group w are merged bucket by bucket. */
bool tti_device_reduce_merges(const tti_device_reduce *reduce, int w);

/* The last shard has launched a step of its program.  A failure is returned by finish. */
void tti_device_reduce_after(tti_device_reduce *reduce, int step);

/* Number of buckets whose sum was launched in this step. */
int tti_device_reduce_n_summed(const tti_device_reduce *reduce);

/* Sums the remaining buckets, and sums [tti_device_n_reported] over all workers. */
tutti_status tti_device_reduce_finish(tti_device_reduce *reduce, const tti_step_args *args,
                                      tti_step_report *report, double *sums);

/* For small models: lets the update of captured steps also compute the sums of gradients and of
 * the step, if the device supports it; then adds this to transport.  Collective. */
tutti_status tti_device_reduce_join_update(tti_device_reduce *reduce, void *update,
                                           tti_str *transport);

/* True if the current step does; then finish does nothing, and reduce_update is the update. */
bool tti_device_reduce_updates(const tti_device_reduce *reduce);
tutti_status tti_device_reduce_update(tti_device_reduce *reduce, const tti_step_args *args,
                                      tti_step_report *report, double *sums);

/* Device memory for compression, in bytes; and bytes that a step of this worker sends.  0:
 * gradients are not compressed. */
size_t tti_device_reduce_compress_bytes(const tti_device_reduce *reduce);
double tti_device_reduce_sent(const tti_device_reduce *reduce, uint64_t step);

/* Device memory for the 16-bit copies of partial sums that workers send (desc.wire), in bytes: of a
 * connected worker; and before there is one.  sharded: NULL, or which of its buffers are short. */
size_t tti_device_reduce_rounded_bytes(const tti_device_reduce *reduce);
size_t tti_device_rounded_bytes(const tti_exec_desc *desc, int n_ranks, const tti_accumulation *acc,
                                const tti_sharded *sharded);

/* Whether compression starts with this step; captured graphs are then outdated. */
bool tti_device_reduce_turns(const tti_device_reduce *reduce, uint64_t step);
void tti_device_reduce_turn(tti_device_reduce *reduce);

/* How long the kernels of this worker have waited for other devices so far; below 0: not known. */
tutti_status tti_device_reduce_waited(const tti_device_reduce *reduce, int64_t *t_ns);

/* A TTI_SYNC op over the shards of all workers in one kernel; in and out [shards of this
 * worker]. *done false: not possible, use tti_device_reduce_joins. */
tutti_status tti_device_reduce_join(tti_device_reduce *reduce, const tti_node *node,
                                    const float *const *in, float *const *out, bool *done);

/* Gathers the values [V][n] of a TTI_SYNC op; this worker provides those of its shards. */
tutti_status tti_device_reduce_joins(tti_device_reduce *reduce, float *parts, size_t n);

/* If workers have partitions of the state: completes n 32-bit words, 0 for other workers' blocks.
 * A worker waits for it in a step that is not captured. */
tutti_status tti_device_reduce_words(tti_device_reduce *reduce, void *words, size_t n);

/* Likewise: fetches a bucket of parameters from their owners to dst. begin: in a captured graph,
 * before the first fetch of a step; fetched: later kernels of the compute queue find them there,
 * without overlapped the host waits for it. */
tutti_status tti_device_reduce_fetch_begin(tti_device_reduce *reduce);
tutti_status tti_device_reduce_fetch(tti_device_reduce *reduce, int bucket, int source, float *dst,
                                     bool overlapped);
/* Whether pieces can be fetched instead; the same on all workers.  And fetches n of them, which are
 * in device memory and have n_words words. */
bool tti_device_reduce_gathers_pieces(const tti_device_reduce *reduce);
tutti_status tti_device_reduce_fetch_pieces(tti_device_reduce *reduce,
                                            const tti_device_piece *pieces, int n, size_t n_words,
                                            bool overlapped);
tutti_status tti_device_reduce_fetched(tti_device_reduce *reduce, bool overlapped);

/* In a captured graph: an event in the communication queue, for later waits
 * (tti_device_queue_ops.follow); and the compute queue waits for the sum of a bucket. */
tutti_status tti_device_reduce_record(tti_device_reduce *reduce, int *place);
tutti_status tti_device_reduce_wait_for(tti_device_reduce *reduce, int bucket);

/* With tti_exec_state_device: array [n_flat] of rank source becomes that of all workers; waits.
 * Overwrites the first partial sum. */
tutti_status tti_device_reduce_broadcast(tti_device_reduce *reduce, float *array, int source);

/* Sends the hash of own blocks in the report to all workers. */
tutti_status tti_device_reduce_hash(tti_device_reduce *reduce, const tti_step_report *report,
                                    double *sums);

/* A barrier of the workers.  Call before a step that follows a pause: actions in a pause,
 * such as freeing memory, may wait for devices, and must not do so while a device waits for a peer.
 */
tutti_status tti_device_reduce_barrier(tti_device_reduce *reduce);

/* The same, after the device is idle. */
tutti_status tti_device_reduce_sync_and_barrier(tti_device_reduce *reduce);

/* Waits for an event, or for the failure of a worker. */
tutti_status tti_device_reduce_await(tti_device_reduce *reduce, int event);

/* Waits for the sums and for what the compute queue does with them; if a worker is lost, aborts
 * them and fails.  To be called before the group is destroyed. */
tutti_status tti_device_reduce_settle(tti_device_reduce *reduce);

/* Waits for all queues, or for the failure of a worker. */
tutti_status tti_device_reduce_rest(tti_device_reduce *reduce);

#endif /* TTI_EXEC_DEVICE_REDUCE_H */
