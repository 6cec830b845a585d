/* peers.h - launchers of peers.cu: sums and small vectors between devices that access each other's
 * memory, and the kernels for reductions through the library.
 *
 * Blocks of one kernel synchronize with the blocks of the same number on the other devices, by
 * flags in their memory.  All ranks launch the same sequence of calls with the same sizes in each
 * channel. */
#ifndef TTI_CUDA_PEERS_H
#define TTI_CUDA_PEERS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/chunk.h"

#ifdef __cplusplus
extern "C" {
#endif

/* TTI_PEERS_MAX: ranks of a group.  Its GPUs access each other's memory, and one host, or one
 * switch of links, has at most 16.  Larger groups are refused with TUTTI_E_UNSUPPORTED and sum
 * through the memory of the hosts. */
enum {
    TTI_PEERS_MAX = 16,
    TTI_PEERS_TERMS = 64,
    TTI_PEERS_PARTIALS = 12,  /* of a rank, that can be opened from outside */
    TTI_PEERS_BLOCKS = 128,   /* of a channel, at most */
    TTI_TP_BLOCKS = 132,      /* of a collective inside a step, at most */
    TTI_PEERS_SEGMENT = 1024, /* words that a block gathers at once */
    TTI_PEERS_SLOTS = 2048,
    TTI_PEERS_NUMBERS = 256, /* most numbers that ranks exchange with an update */
};

/* Sums and gathers may overlap: each has its own flags. */
typedef enum tti_channel { TTI_CHANNEL_SUM, TTI_CHANNEL_GATHER, TTI_N_CHANNELS } tti_channel;

/* Slots of p2p.cu: how often this rank has filled one and the other rank has emptied it, of those
 * that it fills; how often the other one has filled and this one has emptied it, of the others. */
typedef struct tti_peers_p2p {
    uint64_t sent[TTI_PEERS_SLOTS], emptied[TTI_PEERS_SLOTS];
    uint64_t filled[TTI_PEERS_SLOTS], taken[TTI_PEERS_SLOTS];
    uint32_t arrived[TTI_PEERS_SLOTS]; /* blocks of a put that have written */
} tti_peers_p2p;

/* The memory that every rank shares with the others: one allocation, zero in the beginning. */
typedef struct tti_peers_arena {
    uint32_t flags[TTI_N_CHANNELS][TTI_PEERS_BLOCKS][TTI_PEERS_MAX]; /* [from]: written by it */
    uint32_t epochs[TTI_N_CHANNELS][TTI_PEERS_BLOCKS];               /* its own: barriers so far */
    uint32_t staging[TTI_PEERS_BLOCKS][2][TTI_PEERS_SEGMENT];
    uint32_t numbers[TTI_PEERS_BLOCKS][TTI_PEERS_NUMBERS]
                    [4];                             /* numbers, halves followed by epochs */
    uint64_t tp_flags[TTI_TP_BLOCKS][TTI_PEERS_MAX]; /* as flags, of tp.cu */
    uint64_t tp_epochs[TTI_TP_BLOCKS];
    uint64_t rows_arrived; /* barriers of the other of two when its rows had come, copied there */
    tti_peers_p2p p2p;
    uint64_t waited_ns[TTI_N_CHANNELS]; /* its own, so far: of the first block, for the others */
} tti_peers_arena;

/* The order of a sum, and where its terms begin. */
typedef struct tti_peers_terms {
    const float *data[TTI_PEERS_TERMS];
    uint8_t n_adds[TTI_PEERS_TERMS];
    int n;
    int balanced; /* 2, 4 or 8: as many terms in a complete tree; 0: read it as a stack machine */
    bool rounds;  /* each float stands for two values of bf16, and each sum of two is rounded */
} tti_peers_terms;

typedef struct tti_peers_view {
    int rank, n_ranks;
    tti_peers_arena *arena[TTI_PEERS_MAX];
    tti_peers_terms terms;
    float *sum[TTI_PEERS_MAX]; /* where each rank wants it */
    uint32_t *state;           /* memory of the host; not 0: the group has failed */
    uint64_t timeout_ns;
} tti_peers_view;

/* Values of state. */
enum { TTI_PEERS_LATE = 1, TTI_PEERS_ENDED = 2 };

/* Loads the kernels: that may wait for the device, which a kernel that waits for a peer must not
 * see. */
cudaError_t tti_launch_peers_load(void);

/* sum[r][first + i] of every rank r = the sum over the terms; first and n_elems multiples of 4, and
 * where the terms are rounded in floats of two values each, as in all calls with these terms.
 * overlapped: on few multiprocessors, while other kernels run. */
cudaError_t tti_launch_peers_sum(const tti_peers_view *view, size_t first, size_t n_elems,
                                 bool overlapped, cudaStream_t stream);

/* The same of 16-bit values, with the 16-bit memory of all ranks in the view's place of f32, added
 * in f32 in order of rank; first and n_elems multiples of 8.  dtype: bf16 or f16. */
cudaError_t tti_launch_peers_sum_16bit(tutti_dtype dtype, const tti_peers_view *view, size_t first,
                                       size_t n_elems, bool overlapped, cudaStream_t stream);

/* To 16 bits, nearest even, and back; multiples of 8, aligned to 16 bytes. */
cudaError_t tti_launch_round(tutti_dtype dtype, const float *src, void *dst, size_t n_elems,
                             cudaStream_t stream);
cudaError_t tti_launch_unround(tutti_dtype dtype, const void *src, float *dst, size_t n_elems,
                               cudaStream_t stream);
/* The same of elements first .. last-1 for this rank alone; no rank has more than longest. */
cudaError_t tti_launch_peers_sum_partition(const tti_peers_view *view, size_t first, size_t last,
                                           size_t longest, bool overlapped, cudaStream_t stream);

/* The partitions that a rank fetches from the others: n_elems from their memory to its own,
 * multiples of 4. */
typedef struct tti_peers_partitions {
    struct {
        const float *from;
        float *to;
        size_t n_elems;
    } partition[TTI_PEERS_MAX]; /* n_elems 0: nothing */
    int n, first;               /* that partition comes first, and those before it last */
} tti_peers_partitions;

/* longest: elements of the longest partition of all ranks, the same on all of them. */
cudaError_t tti_launch_peers_fetch(const tti_peers_view *view,
                                   const tti_peers_partitions *partitions, size_t longest,
                                   bool overlapped, cudaStream_t stream);

/* The sums that a rank computes from the terms of its host: over each of its partitions the sum of
 * each leaf, a run of the view's terms, to partition.to and following, one leaf after the other;
 * multiples of 4. */
typedef struct tti_peers_leaves {
    struct {
        size_t first, n_elems; /* of the terms' data */
        float *to;
    } partition[TTI_PEERS_MAX];
    int n_partitions;
    uint8_t first[TTI_PEERS_TERMS], n_terms[TTI_PEERS_TERMS]; /* of leaves */
    int n_leaves;
    int balanced; /* all leaves are complete trees of so many terms, 1, 2, 4 or 8; 0: any */
} tti_peers_leaves;

/* n_elems: about as many as a rank adds at most, the same on all of them. */
cudaError_t tti_launch_peers_leaves(const tti_peers_view *view, const tti_peers_leaves *leaves,
                                    size_t n_elems, bool overlapped, cudaStream_t stream);

/* words[i] of every rank = words[i] of the rank whose first .. last-1 holds i, or of the one where
 * it is not 0. */
cudaError_t tti_launch_peers_all_gather(const tti_peers_view *view, uint32_t *words, size_t n_words,
                                        size_t first, size_t last, cudaStream_t stream);

enum { TTI_PEERS_JOINED = 32 }; /* shards of a rank, at most, that are joined in one go */

/* As tti_device_join. */
typedef struct tti_peers_join {
    const float *in[TTI_PEERS_JOINED];
    float *out[TTI_PEERS_JOINED];
    int bounds[TTI_PEERS_MAX + 1];
    size_t n_elems;
    bool of_moments;
} tti_peers_join;

/* False: too many shards or elements for tti_launch_peers_join. */
bool tti_peers_can_join(const tti_peers_join *join, int n_ranks);
cudaError_t tti_launch_peers_join(const tti_peers_view *view, const tti_peers_join *join,
                                  cudaStream_t stream);

/* dst[i] = the sum over the terms, at offset i of each; multiples of 4. */
cudaError_t tti_launch_terms_sum(const tti_peers_terms *terms, float *dst, size_t n_elems,
                                 cudaStream_t stream);

/* words first .. last-1 stay, the others turn 0; then words[i] |= all[r][i] for every rank. */
cudaError_t tti_launch_words_keep(uint32_t *words, size_t n_words, size_t first, size_t last,
                                  cudaStream_t stream);
cudaError_t tti_launch_words_or(uint32_t *words, const uint32_t *all, size_t n_words, int n_ranks,
                                cudaStream_t stream);

cudaError_t tti_launch_report_sums(const tti_device_step_sums *step_sums, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_PEERS_H */
