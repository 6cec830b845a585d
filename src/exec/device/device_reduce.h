/* device_reduce.h - what workers on devices add between each other, without the host.
 *
 * Buckets of gradients are summed in a queue of their own as soon as the last shard has completed
 * them, or over fast links when it has ended (tti_device_sums_behind); loss sums, hashes and votes
 * travel in one small vector.  All of it is part of the recorded step.  The first step of a worker
 * is not recorded: it sums after all shards, since a kernel that waits for a peer must not meet one
 * that is still being loaded. */
#ifndef TTI_EXEC_DEVICE_REDUCE_H
#define TTI_EXEC_DEVICE_REDUCE_H

#include "backend/backend.h"
#include "comm/sum_order.h"
#include "exec/exec.h"

typedef struct tti_device_reduce tti_device_reduce;

/* Whether sums of gradients over fast links had better begin when the backward pass has ended.  A
 * sum beside products costs about twice its time, since their tiles wait for the multiprocessors
 * that it has.  Beside kernels that wait for memory it costs next to nothing; but sums in parts,
 * which are half the bytes, are not worth even that. */
bool tti_device_sums_behind(const tti_plan *plan, const tti_weights *weights, bool in_parts);

/* What others may fetch. */
enum { TTI_FROM_PARAMS, TTI_FROM_AVERAGES };

/* The order of a sum as devices take it: terms [order->n_terms]. */
void tti_device_terms(const tti_sum_order *order, tti_device_term *terms);

/* Meets the devices of the other workers.  *out NULL: they do not reach each other, and sums go by
 * way of the host.  way: how, in words.  Collective.  Else *out is owned by the caller, and borrows
 * x. */
tutti_status tti_device_reduce_create(tti_exec *x, tti_device_reduce **out, tti_str *way);
void tti_device_reduce_destroy(tti_device_reduce *reduce); /* takes NULL */

/* A new step.  beside: buckets are summed while shards compute, which the recording needs. */
void tti_device_reduce_begin(tti_device_reduce *reduce, bool beside);

/* True if the shards of wave w are merged bucket by bucket. */
bool tti_device_reduce_merges(const tti_device_reduce *reduce, int w);

/* The last shard has got a step of its program to do.  A failure comes out of finish. */
void tti_device_reduce_after(tti_device_reduce *reduce, int step);

/* Buckets that it has put into the queue to be summed, in this step. */
int tti_device_reduce_n_summed(const tti_device_reduce *reduce);

/* The other buckets; and the sums [tti_device_reduce_n_told] of all workers. */
tutti_status tti_device_reduce_finish(tti_device_reduce *reduce, const tti_step_args *args,
                                      tti_step_report *report, double *sums);

/* Small models: steps that are recorded leave the sums, of gradients and of the step, to an update
 * of tti_device_ops, where it can make them; way: says so.  Collective. */
tutti_status tti_device_reduce_join_update(tti_device_reduce *reduce, void *update, tti_str *way);

/* Whether the step at hand does; then finish does nothing, and this is the update. */
bool tti_device_reduce_updates(const tti_device_reduce *reduce);
tutti_status tti_device_reduce_update(tti_device_reduce *reduce, const tti_step_args *args,
                                      tti_step_report *report, double *sums);

/* Memory of the device that gradients are compressed in; bytes that a step of this worker sends of
 * them.  0: they are not. */
size_t tti_device_reduce_compress_bytes(const tti_device_reduce *reduce);
double tti_device_reduce_sent(const tti_device_reduce *reduce, uint64_t step);

/* Whether gradients of this step are to be compressed and those before were not; and from now on
 * they are.  What was recorded is of the steps before. */
bool tti_device_reduce_turns(const tti_device_reduce *reduce, uint64_t step);
void tti_device_reduce_turn(tti_device_reduce *reduce);

/* How long the kernels of this worker have waited for other devices so far; below 0: not known. */
tutti_status tti_device_reduce_waited(const tti_device_reduce *reduce, int64_t *t_ns);

/* Sums of shards, halves of hashes and votes. */
int tti_device_reduce_n_told(const tti_exec *x);

/* What came of it, into x->sums; hashes are those of the step before.  TUTTI_E_MISMATCH names the
 * worker whose parameters differ. */
tutti_status tti_device_reduce_take(tti_exec *x, const double *told, uint64_t step);

/* A TTI_SYNC op over the shards of all workers in one go, from and to their places in the programs:
 * in and out [shards of this worker].  *done false: it must be made of what follows. */
tutti_status tti_device_reduce_join(tti_device_reduce *reduce, const tti_node *node,
                                    const float *const *in, float *const *out, bool *done);

/* Values [V][n] of a TTI_SYNC op, of which this worker has those of its shards. */
tutti_status tti_device_reduce_parts(tti_device_reduce *reduce, float *parts, size_t n);

/* Where workers have parts of the state: n words of 32 bits, 0 where they are another's, made
 * whole.  A step of a worker that is not recorded waits for it. */
tutti_status tti_device_reduce_words(tti_device_reduce *reduce, void *words, size_t n);

/* Likewise: a bucket of parameters as their owners have them, to dst on.  begin: in a recording,
 * before the first one of a step; fetched: what comes into the compute queue finds them there, not
 * beside waits for it. */
tutti_status tti_device_reduce_fetch_begin(tti_device_reduce *reduce);
tutti_status tti_device_reduce_fetch(tti_device_reduce *reduce, int bucket, int source, float *dst,
                                     bool beside);
tutti_status tti_device_reduce_fetched(tti_device_reduce *reduce, bool beside);

/* Within a recording: a place behind what is in the queue between devices, for what then waits for
 * it (tti_device_ops.follow); and the compute queue waits for the sum of a bucket. */
tutti_status tti_device_reduce_note(tti_device_reduce *reduce, int *place);
tutti_status tti_device_reduce_follow(tti_device_reduce *reduce, int bucket);

/* And the hash of own blocks that the report has, to all workers; what they come to, of the sums
 * that a step has told. */
tutti_status tti_device_reduce_hash(tti_device_reduce *reduce, const tti_step_report *report,
                                    double *sums);
uint64_t tti_device_reduce_told_hash(const tti_exec *x, const double *told);

/* Returns when all workers are here.  Before a step that follows a pause: what is done in one, such
 * as to free memory, may wait for devices, and would do so while one waits for a peer. */
tutti_status tti_device_reduce_arrive(tti_device_reduce *reduce);

/* The same, with their devices at rest. */
tutti_status tti_device_reduce_meet(tti_device_reduce *reduce);

/* Waits for a mark, or for the failure of a worker. */
tutti_status tti_device_reduce_await(tti_device_reduce *reduce, int mark);

/* At the end: what is at work may wait for a worker that is lost, and a device at rest would be
 * waited for as long; then it is ended.  Takes NULL. */
void tti_device_reduce_settle(tti_device_reduce *reduce);

/* The same for everything that was put into queues. */
tutti_status tti_device_reduce_rest(tti_device_reduce *reduce);

#endif /* TTI_EXEC_DEVICE_REDUCE_H */
