/* peers_group.h - the connected devices: peers_connect.c makes a group and peers.c uses it. */
#ifndef TTI_CUDA_PEERS_GROUP_H
#define TTI_CUDA_PEERS_GROUP_H

#include "backend/cuda/comm/nccl.h"
#include "backend/cuda/comm/peers.h"
#include "backend/cuda/runtime/device.h"
#include "backend/peer_hosts.h"

enum {
    /* The arena, then the partial sums, the sources, and staging where there is some. */
    TTI_PEERS_SHARED = 2 + TTI_PEERS_PARTIALS + TTI_MAX_SOURCES,
};

/* The first message of a rank. */
typedef struct tti_peers_hello {
    uint64_t process[2]; /* the same for threads of one process only */
    unsigned char uuid[16];
    int32_t device, n_shared;
    int32_t is_open; /* its memory can be shared */
    int32_t has_nccl;
    void *memory[TTI_PEERS_SHARED];
    cudaIpcMemHandle_t handles[TTI_PEERS_SHARED];
    tti_nccl_id id; /* of rank 0 */
} tti_peers_hello;

typedef struct tti_peers_group {
    tti_device_peers peers;
    struct tti_peers_group *with; /* has the state that both look at; NULL: this one has */
    tti_device_term terms[TTI_PEERS_TERMS];
    float *partials[TTI_PEERS_PARTIALS];
    /* Device, one for each partial sum, as long as it: what travels where it is rounded; NULL: the
     * partial sums do. */
    uint16_t *rounded[TTI_PEERS_PARTIALS];
    /* Memory that the others read, and that receives a sum: partial sums or their rounded copies.
     * Where the sums of exact mode are rounded a float of these stands for two elements. */
    float *sent[TTI_PEERS_PARTIALS];
    bool is_paired;
    tti_peers_view view;
    float *sources[TTI_PEERS_MAX][TTI_MAX_SOURCES]; /* of all ranks, as they are seen here */
    tti_peers_hello *all;                           /* [n_ranks] */
    void *opened[TTI_PEERS_MAX]
                [TTI_PEERS_SHARED]; /* by handle: to be closed; NULL: not ours to close */
    tti_peers_arena *arena;
    bool direct; /* the memory of all ranks is there */
    /* Sums inside hosts first, then between them, if not direct. */
    bool hierarchical;
    tti_peer_hosts *hosts;              /* NULL: not possible */
    float *staging;                     /* device, as it says */
    float *near_staging[TTI_PEERS_MAX]; /* of the ranks of this host, as they are seen here */
    tti_peers_view near;                /* among them, with their terms */
    double hosts_ms, library_ms;        /* of a sum so, and by NCCL alone; 0: not timed */
    tti_nccl *nccl;
    tti_cuda_watcher watcher; /* of what NCCL does */
    float *chunks;            /* device [terms of others][longest chunk] */
    size_t chunk;             /* elements */
    uint32_t *words;
    uint64_t *waited; /* pinned [TTI_N_CHANNELS]: of the arena, to be read by the host */
    size_t *at; /* [n_ranks][n_groups][TTI_PEERS_PARTIALS]: where groups begin in partial sums */
    size_t chunks_bytes, words_bytes, staging_bytes, rounded_bytes[TTI_PEERS_PARTIALS];
} tti_peers_group;

/* Functions of a watcher: whether all ranks are there; ends what waits on the device for one that
 * is not. */
tutti_status tti_peers_check(void *group);
void tti_peers_end(void *group);

/* The partition of a rank of group which, and the length of the longest. */
tti_chunk tti_peers_partition_of(const tti_peers_group *g, size_t which, int rank);
size_t tti_peers_longest_partition(const tti_peers_group *g, size_t which);

/* The length of the longest partition over all groups and sums of the whole. */
size_t tti_peers_longest(const tti_peers_group *g);

/* 2, 4 or 8: as many terms as the complete tree has leaves, added the way a complete tree is; 0. */
int tti_peers_balanced(const uint8_t *n_adds, int n);

/* How many floats later a group begins in what is sent of a partial sum than in the flat range;
 * WHOLE: no group. */
enum { TTI_PEERS_WHOLE = -1 };
ptrdiff_t tti_peers_shift_of(const tti_peers_group *g, int64_t which, int rank, int partial);

/* The destination of the sum of this rank's partition, in floats as they are sent. */
float *tti_peers_sum_of(const tti_peers_group *g, int64_t which, tti_chunk mine);

/* The terms of others that a rank receives to sum a chunk. */
size_t tti_peers_n_foreign_terms(const tti_peers_group *g);

/* The offset of a rank's partition of a group in its source. */
size_t tti_peers_place_of(const tti_peers_group *g, size_t which, int source, int rank);

/* A sum inside hosts first, then between them: tti_cuda_peers_sum calls it. */
tutti_status tti_peers_sum_hierarchical(tti_peers_group *g, size_t first, size_t n_elems,
                                        bool overlapped, cudaStream_t stream);

/* Inside hosts first (peers_hosts.c): this rank's partition of a sum, to where it wants it; all of
 * partitions [n_ranks], on all ranks; and the partitions of a group to dst. */
tutti_status tti_peers_hosts_sum_own(tti_peers_group *g, int64_t which, const tti_chunk *partitions,
                                     bool overlapped, cudaStream_t stream);
tutti_status tti_peers_hosts_sum(tti_peers_group *g, const tti_chunk *partitions, bool overlapped,
                                 cudaStream_t stream);
tutti_status tti_peers_hosts_fetch(tti_peers_group *g, size_t which, int source, float *dst,
                                   bool overlapped, cudaStream_t stream);

/* Elements first .. of the sum by kernels over the peers' memory. */
cudaError_t tti_peers_sum_direct(tti_peers_group *g, size_t first, size_t n_elems, bool overlapped,
                                 cudaStream_t stream);

#endif /* TTI_CUDA_PEERS_GROUP_H */
