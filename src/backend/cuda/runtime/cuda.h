/* cuda.h - shared declarations of the CUDA backend: the open device, errors, tables.
 *
 * A family of ops is three files: NAME.cu with the kernels and their extern "C" launchers, NAME.h
 * with the launchers' declarations, NAME.c with the table of tti_kernel rows.  Rules:
 * - A launcher takes plain pointers and numbers and a stream, and returns cudaGetLastError().
 * - run() only launches work in tti_cuda_stream(): no allocation, no waiting, no host copy of
 *   device data, so that a step can be captured as one graph. prepare() may do all of that.
 * - kargs->run points into device memory: pass it to the kernel, never read it on the host.
 * - No float atomics, no order of sums that depends on timing: the same bits on every run.
 * - Sums and statistics in f32 or wider, whatever the dtype of the values.
 * - Empty values are legal: do not launch an empty grid. */
#ifndef TTI_CUDA_H
#define TTI_CUDA_H

#include <cuda_runtime_api.h>
#include <pthread.h>

#include "backend/backend.h"

/* Time in which pending work may end after a peer is lost, unless the peers say otherwise. */
enum { TTI_CUDA_GRACE_MS = 2000 };

/* A kernel of a library may wait forever for a rank that is gone.  While this thread waits for its
 * device, it calls check of every watcher; once a failure has lasted for a while, it calls end of
 * all of them, after which their kernels end, and the wait fails. */
typedef struct tti_cuda_watcher {
    struct tti_cuda_watcher *next;
    tutti_status (*check)(void *user);
    void (*end)(void *user);
    void *user;
    int64_t grace_ns; /* how long a failure must have lasted */
} tti_cuda_watcher;

/* The device that the calling thread opened. */
typedef struct tti_cuda {
    tti_device_desc desc;
    cudaStream_t streams[TTI_N_QUEUES];
    cudaEvent_t host_events[16];
    cudaEvent_t orders[TTI_N_QUEUES];
    cudaEvent_t notes[TTI_N_GRAPH_EVENTS];
    cudaEvent_t *stamps; /* [n_stamps], created on demand */
    int n_stamps;
    pthread_t loader;    /* maps libraries meanwhile */
    bool loads;          /* it was started */
    int n_sms;           /* multiprocessors */
    int capability;      /* 80, 90: major * 10 + minor */
    size_t shared_optin; /* most shared memory of a block, bytes */
    size_t n_bytes, n_peak;
    cudaError_t refused; /* of a call that could not say so */
    char name[64];
    void *blas; /* matmul.c's: handle and tuned choices, made on first use */
    void *dnn;  /* dnn.c's: handle and plans, made on first use */
    tti_cuda_watcher *watchers;
} tti_cuda;

/* NULL: this thread has opened none. */
tti_cuda *tti_cuda_device(void);

/* The number of the device that this thread has opened, how the job computes on it, and the stream
 * of a queue.  The thread must have opened one. */
int tti_cuda_index(void);
bool tti_cuda_is_exact(void);
bool tti_cuda_uses_tf32(void);
cudaStream_t tti_cuda_stream_of(tti_queue queue);

/* The stream that kernels of this thread run in. */
cudaStream_t tti_cuda_stream(void);

/* TUTTI_OK, or the failure with the name of the call: TUTTI_E_NOMEM or TUTTI_E_DEVICE. */
tutti_status tti_cuda_check(cudaError_t error, const char *what);
#define TTI_CUDA(call) TTI_TRY(tti_cuda_check((call), #call))

/* The backend itself. */
extern const tti_backend tti_backend_cuda;

/* Kernels by family, each list ended by .op == NULL, fastest first inside a list. */
extern const tti_kernel tti_cuda_elementwise_kernels[];  /* elementwise.c */
extern const tti_kernel tti_cuda_reduce_kernels[];       /* reduce.c      */
extern const tti_kernel tti_cuda_random_kernels[];       /* random.c      */
extern const tti_kernel tti_cuda_shape_kernels[];        /* shape.c       */
extern const tti_kernel tti_cuda_embed_kernels[];        /* embed.c       */
extern const tti_kernel tti_cuda_along_kernels[];        /* along.c       */
extern const tti_kernel tti_cuda_grouped_kernels[];      /* grouped.c     */
extern const tti_kernel tti_cuda_pool_kernels[];         /* pool.c        */
extern const tti_kernel tti_cuda_resample_kernels[];     /* resample.c    */
extern const tti_kernel tti_cuda_softmax_kernels[];      /* softmax.c     */
extern const tti_kernel tti_cuda_loss_kernels[];         /* loss.c        */
extern const tti_kernel tti_cuda_head_kernels[];         /* head.c        */
extern const tti_kernel tti_cuda_counts_kernels[];       /* counts.c      */
extern const tti_kernel tti_cuda_norm_kernels[];         /* norm.c        */
extern const tti_kernel tti_cuda_batch_norm_kernels[];   /* batch_norm.c  */
extern const tti_kernel tti_cuda_small_gemm_kernels[];   /* gemm_small.c  */
extern const tti_kernel tti_cuda_matmul_kernels[];       /* matmul.c      */
extern const tti_kernel tti_cuda_recurrent_kernels[];    /* recurrent.c   */
extern const tti_kernel tti_cuda_tensor_shard_kernels[]; /* tensor_shard.c       */
extern const tti_kernel tti_cuda_vocabulary_kernels[];   /* vocabulary.c  */
extern const tti_kernel tti_cuda_small_conv_kernels[];   /* conv_small.c  */
extern const tti_kernel tti_cuda_conv_kernels[];         /* conv.c        */
extern const tti_kernel tti_cuda_depthwise_kernels[];    /* depthwise.c   */
extern const tti_kernel tti_cuda_point_kernels[];        /* conv_point.c  */
extern const tti_kernel tti_cuda_attention_kernels[];    /* attention.c   */
extern const tti_kernel tti_cuda_sdpa_kernels[];         /* sdpa.c        */
extern const tti_kernel tti_cuda_optim_kernels[];        /* optim.c       */

/* conv_small.c: as in tti_backend. */
bool tti_cuda_fuses_pool(const tti_node *conv, bool tf32);

/* joins_gradient of the backend. */
bool tti_cuda_point_joins(const tti_node *grad_x, bool keeps);

/* batch_norm.c: join of the ops with TTI_SYNC, as in tti_device_ops. */
tutti_status tti_cuda_join(const char *op, const float *parts, size_t n_parts, size_t n_elems,
                           float *out);

/* update.c: the update program, as in tti_device_ops. */
tutti_status tti_cuda_update_create(const tti_update_desc *desc, void **update);
tutti_status tti_cuda_update_run(void *update);
tutti_status tti_cuda_update_complete(void *update, int first, int n);
tutti_status tti_cuda_update_hash(void *update, uint64_t *hash);
tutti_status tti_cuda_update_low_copies(void *update);
void tti_cuda_update_destroy(void *update);

/* matmul.c, dnn.c: release their state in the device. */
void tti_cuda_blas_release(void *blas);
void tti_cuda_dnn_release(void *dnn);
/* dnn.c: after collect_begin kernels that look for a plan only note its graph, unless the plan is
 * known or its engine is timed, and go without.  collect_end compiles these plans in several
 * threads; one for which that fails is left to prepare.  False: there is no cuDNN. */
bool tti_cuda_dnn_collect_begin(void);
void tti_cuda_dnn_collect_end(void);
/* One part of the line for doctor each, such as "cublasLt 13.1"; "no cuDNN (why)". */
void tti_cuda_blas_describe(tti_str *str);
void tti_cuda_dnn_describe(tti_str *str);

#endif /* TTI_CUDA_H */
