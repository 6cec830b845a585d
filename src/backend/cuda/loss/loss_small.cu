/* loss_small.cu - cross entropy and its gradient where all rows fit into one block, a thread
 * each: three very short launches become one.  The results are those of loss.cu. */
#include "backend/cuda/loss/loss_small.h"
#include "backend/cuda/runtime/device.cuh"
#include "backend/cuda/runtime/early.cuh"

namespace {

enum { MOST_ROWS = 1024, MOST_CLASSES = 32 };

struct small_entropy {
    const int32_t *labels;
    int n_rows, n;
    int64_t ignore;
    float smoothing;
};

/* A row in registers; -infinity beyond its end. */
struct logits_row {
    float x[MOST_CLASSES];
};

__device__ __forceinline__ logits_row load_row(const float *logits, int n) {
    logits_row row;
#pragma unroll
    for (int i = 0; i < MOST_CLASSES; i++) row.x[i] = i < n ? logits[i] : -INFINITY;
    return row;
}

__device__ __forceinline__ void fill(float *dx, int n, float value) {
    for (int i = 0; i < n; i++) dx[i] = value;
}

/* The contribution of one row: its loss, and 1 if the label is its first maximum; and its gradient.
 */
__device__ __forceinline__ float2 one_row(const small_entropy &e, const float *logits, int label,
                                          float d, float *dx) {
    logits_row row = load_row(logits, e.n);
    float max = -INFINITY, sum = 0, total = 0, own = logits[label];
#pragma unroll
    for (int i = 0; i < MOST_CLASSES; i++) max = fmaxf(max, row.x[i]);
    float base = max == -INFINITY ? 0.0f : max;
    bool beaten = false;
#pragma unroll
    for (int i = 0; i < MOST_CLASSES; i++) {
        if (i >= e.n) continue;
        sum += expf(row.x[i] - base);
        total += row.x[i];
        beaten |= i < label ? row.x[i] >= own : row.x[i] > own;
    }
    float log_sum = logf(sum), loss = log_sum + (max - own), share = e.smoothing;
    if (share != 0) loss = (1 - share) * loss + share * (log_sum + (max - total / (float)e.n));
    float scale = d / sum, each = d * share / (float)e.n, hit = d * (1 - share);
#pragma unroll
    for (int i = 0; i < MOST_CLASSES; i++)
        if (i < e.n) dx[i] = expf(row.x[i] - max) * scale - each - (i == label ? hit : 0.0f);
    return make_float2(loss, beaten || loss != loss ? 0.0f : 1.0f);
}

__global__ void __launch_bounds__(MOST_ROWS)
    entropy_small_kernel(const float *logits, small_entropy e, const float *dloss, float *dx,
                         float *loss, float *count, float *correct) {
    __shared__ double shared[32];
    int r = threadIdx.x;
    double sum = 0, right = 0, kept = 0;
    tti_let_next_start();
    tti_wait_for_before();
    if (r < e.n_rows) {
        int32_t label = e.labels[r];
        bool ignored = label == e.ignore, good = label >= 0 && label < e.n;
        float *own = dx + (size_t)r * e.n;
        if (!ignored && good) {
            float2 f = one_row(e, logits + (size_t)r * e.n, label, *dloss, own);
            sum = f.x, right = f.y;
        } else {
            sum = ignored ? 0 : nanf("");
            fill(own, e.n, (float)sum);
        }
        kept = !ignored;
    }
    sum = tti_block_sum(sum, shared);
    right = tti_block_sum(right, shared);
    kept = tti_block_sum(kept, shared);
    if (threadIdx.x) return;
    *loss = (float)sum, *count = (float)kept, *correct = (float)right;
}

}  // namespace

extern "C" bool tti_entropy_is_small(const tti_entropy_rows *r) {
    return r->dtype == TUTTI_F32 && r->n_rows >= 1 && r->n_rows <= MOST_ROWS && r->n_classes >= 1 &&
           r->n_classes <= MOST_CLASSES;
}

extern "C" cudaError_t tti_launch_entropy_small(const tti_entropy_rows *r, const float *logits,
                                                const float *dloss, float *dx, float *const out[3],
                                                cudaStream_t stream) {
    small_entropy e = {r->labels, (int)r->n_rows, (int)r->n_classes, r->ignore,
                       (float)r->smoothing};
    unsigned n_threads = (unsigned)((r->n_rows + 31) / 32 * 32);
    return tti_launch_early(entropy_small_kernel, dim3(1), n_threads, 0, 1, stream, logits, e,
                            dloss, dx, out[0], out[1], out[2]);
}
