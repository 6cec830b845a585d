/* update.h - launchers of update.cu: the optimizers, over single tensors and over all parameters.
 */
#ifndef TTI_CUDA_UPDATE_H
#define TTI_CUDA_UPDATE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/step_types.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tti_rule_kind {
    TTI_RULE_SGD,
    TTI_RULE_ADAM,
    TTI_RULE_ADAMW,
    TTI_RULE_RMSPROP,
    TTI_RULE_ADAGRAD,
    TTI_RULE_LION,
    TTI_RULE_LARS,
    TTI_RULE_LAMB,
    TTI_N_RULES
} tti_rule_kind;

/* An optimizer with its attributes; rest1 = 1 - beta1 (rmsprop: 1 - alpha), rest2 = 1 - beta2. */
typedef struct tti_rule {
    int kind, n_states, nesterov;
    float beta1, beta2, rest1, rest2, eps, momentum, alpha, trust, lr_decay;
} tti_rule;

/* The input hyper of the optimizer ops, made on the device. */
typedef struct tti_hyper {
    float lr, inv_count, clip, step, bias1, bias2, inv_rows, unused;
} tti_hyper;

enum { TTI_HASH_LANES = 64 };

/* Elements first .. last-1 of a block, multiples of TTI_HASH_LANES but for the end of it. */
typedef struct tti_update_item {
    int32_t block;
    uint32_t first, last;
} tti_update_item;

/* Every pointer but failure is device memory. */
typedef struct tti_update_view {
    tti_rule rule;
    const tti_update_block *blocks; /* [n_blocks] */
    int n_blocks, n_slots, n_shards, n_sums;
    float *params, *grads, *ema; /* flat; ema NULL: none */
    void *low_copies;            /* 16-bit copies of the blocks with has_low_copy; NULL: none */
    tutti_dtype low_dtype;
    float *states[2];
    const tti_step_args *args;
    const double *sums; /* [n_shards][n_sums] */
    tti_step_report *report;
    const uint32_t *failure; /* memory of the host, as in tti_update_desc; NULL: not read */
    tti_hyper *hyper;
    double *partials;      /* [n_blocks][2] */
    float *norms;          /* [n_slots][2] */
    const int *slot_first; /* [n_slots + 1] the first block of each slot */
    uint32_t *hash_lanes;  /* [n_blocks][TTI_HASH_LANES], all 0 between kernels */
    uint32_t *arrived;     /* [n_blocks], 0 between kernels */
    uint32_t *n_done;      /* blocks of threads that are done, of peers_update.cu: likewise */
    const tti_update_item *items; /* [n_items]: how these share the blocks */
    int n_items;
    double clip_norm;
    float clip_value, l1, ema_decay, ema_rest; /* rest: 1 - decay */
    int watch;
} tti_update_view;

/* hyper and report from the sums; a loss that is not finite marks the step as bad. */
cudaError_t tti_launch_update_hyper(const tti_update_view *view, cudaStream_t stream);
/* L1 and clipping by value, in place in the gradients. */
cudaError_t tti_launch_update_prepare(const tti_update_view *view, cudaStream_t stream);
/* Sums of squares of own blocks of gradients, 0 for others, into partials [n_blocks]; and from all
 * of them the norm of the mean gradient, and what to clip by. */
cudaError_t tti_launch_update_squares(const tti_update_view *view, cudaStream_t stream);
cudaError_t tti_launch_update_clip(const tti_update_view *view, cudaStream_t stream);
/* The same for lars and lamb: partials [n_blocks][2], and the norms of slots. */
cudaError_t tti_launch_update_tensor_squares(const tti_update_view *view, cudaStream_t stream);
cudaError_t tti_launch_update_norms(const tti_update_view *view, cudaStream_t stream);
/* Optimizer, buffers, averages and hash in one pass over the parameters; nothing on a bad step. */
cudaError_t tti_launch_update_step(const tti_update_view *view, cudaStream_t stream);
/* Fills low_copies from the blocks with has_low_copy, without an update. */
cudaError_t tti_launch_update_low_copies(const tti_update_view *view, cudaStream_t stream);
/* Adds to *hash the hash of parameters by blocks: of all of them, of those of other workers unless
 * the step was bad, of all of them unless it was; of n blocks from first on.  Other workers'
 * parameters have just arrived, so their 16-bit copies are made in low_copies, too. */
typedef enum tti_hash_of { TTI_HASH_ALL, TTI_HASH_OTHERS, TTI_HASH_GOOD } tti_hash_of;
typedef struct tti_hash_job {
    tti_hash_of which;
    int first, n;
} tti_hash_job;
cudaError_t tti_launch_update_hash(const tti_update_view *view, uint64_t *hash, tti_hash_job job,
                                   cudaStream_t stream);

/* One tensor of n elements: the optimizer ops. state[k] and w are replaced. norms: of lars and
 * lamb. direction: the only output (lamb_direction); NULL otherwise. */
typedef struct tti_update_tensor {
    tti_rule rule;
    float *w, *states[2];
    const float *g, *norms;
    const tti_hyper *hyper;
    float *direction;
    float decay;
    size_t n_elems;
} tti_update_tensor;
cudaError_t tti_launch_update_tensor(const tti_update_tensor *t, cudaStream_t stream);

/* w = (1 - momentum) w + momentum g inv_rows; a = decay a + (1 - decay) w. */
cudaError_t tti_launch_buffer_update(float *w, const float *g, const tti_hyper *hyper,
                                     float momentum, size_t n_elems, cudaStream_t stream);
cudaError_t tti_launch_average(float *a, const float *w, double decay, size_t n_elems,
                               cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_UPDATE_H */
