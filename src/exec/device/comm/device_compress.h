/* device_compress.h - gradients that are compressed on their device and sent from there, in the
 * captured step.
 *
 * The rules are those of compress.h; the device computes the matrix products, so with PowerSGD the
 * bits are not the host's.  Messages use a separate group from that of device_reduce.h. */
#ifndef TTI_EXEC_DEVICE_COMPRESS_H
#define TTI_EXEC_DEVICE_COMPRESS_H

#include "backend/backend.h"
#include "exec/worker/desc.h"

typedef struct tti_device_compress tti_device_compress;

/* Whether such workers compress on their devices, if these reach each other: only with undivided
 * models and unsharded states.  Otherwise the host compresses. */
bool tti_device_compress_can(const tti_exec_desc *desc, int n_ranks);

/* Device memory: residuals, messages, pairs, scratch. */
size_t tti_device_compress_bytes(const tti_exec_desc *desc, int n_ranks);

/* peers: those that add everything else, borrowed for the call; with is their group, which parts
 * later.  TUTTI_E_UNSUPPORTED on all of them: as of connect.  Collective; on success *out is
 * owned by the caller, and borrows x. */
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

#endif /* TTI_EXEC_DEVICE_COMPRESS_H */
