/* wgmma_plan.c - which linear layers with gelu, and heads, run on Hopper's tensor cores here, and
 * their times.
 *
 * cublasLt's epilogues with gelu take a third longer than the product alone, it has none for an
 * exact gelu, and none that also sums columns in f32.  Shapes and the kind of device alone decide
 * which products may run here, so exact mode, which does not time, can use them; otherwise matmul.c
 * uses them if they were measured to be faster than cublasLt. */
#include "backend/cuda/gemm/wgmma_plan.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/timing.h"
#include "base/files/cache.h"

/* Elements of the output: four tiles for each multiprocessor, or one. */
enum {
    LEAST_ELEMENTS = 4 * 132 * 128 * 192,
    LEAST_PUSHED = 132 * 128 * 192,
    LEAST_TABLE = 1 << 24
};

static const double least_use = 0.85; /* of the tiles' elements */

static const double steady_us = 30e3; /* of runs, before and while they are timed */

/* ---- which ---- */

static int64_t last_dim(const tutti_value *value) {
    return value->type.shape.dim[value->type.shape.n_dims - 1];
}

static bool are_plain(tutti_value *const *values, int n, tutti_dtype dtype) {
    for (int i = 0; i < n; i++)
        if (values[i]->type.dtype != dtype || values[i]->layout != TTI_PLAIN) return false;
    return true;
}

bool tti_cuda_wgmma_here(void) {
    const tti_cuda *device = tti_cuda_device();
    int index = device ? device->desc.index : 0, major = 0, minor = 0;
    bool known =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index) == cudaSuccess &&
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index) == cudaSuccess;
    if (!known) cudaGetLastError();
    return known && tti_cuda_wgmma_has(major * 10 + minor);
}

static bool has_tiles(const tti_cuda_wgmma_desc *d, int64_t least) {
    bool fits = d->n % 8 == 0 && d->k % 8 == 0 && d->n > 0 && d->k > 0 && d->m < INT32_MAX / 2 &&
                d->n < INT32_MAX / 2 && d->k < INT32_MAX / 2;
    return fits && d->m * d->n >= least && tti_cuda_wgmma_use(d->m, d->n) >= least_use;
}

/* A product x w^T or a b, whatever follows it, with at least so many elements. */
static bool describe(const tti_node *node, tti_cuda_wgmma_kind kind, int64_t least,
                     tti_cuda_wgmma_desc *out) {
    const tutti_value *made = node->out[0];
    int n_out = kind == TTI_WGMMA_GELU ? node->op->n_out : 1;
    if (made->type.shape.n_dims < 1 || node->in[1]->type.shape.n_dims != 2) return false;
    memset(out, 0, sizeof *out); /* its bytes are a key */
    out->kind = kind, out->dtype = made->type.dtype;
    out->n = last_dim(made), out->k = last_dim(node->in[0]);
    out->m = out->n > 0 ? tti_value_n_elems(made) / out->n : 0;
    bool is_16_bit = out->dtype == TUTTI_BF16 || out->dtype == TUTTI_F16;
    return is_16_bit && are_plain(node->in, node->n_in, out->dtype) &&
           are_plain(node->out, n_out, out->dtype) && has_tiles(out, least) &&
           tti_cuda_wgmma_here();
}

static bool describe_product(const tti_node *node, tti_cuda_wgmma_kind kind,
                             tti_cuda_wgmma_desc *out) {
    return describe(node, kind, LEAST_ELEMENTS, out);
}

static bool is(const tti_node *node, const char *name) { return strcmp(node->op->name, name) == 0; }

static bool lies_straight(const tti_node *matmul) {
    return !tti_attr_int(matmul, "trans_a") && !tti_attr_int(matmul, "trans_b");
}

/* If the epilogue is a large part of it: otherwise cublasLt is as fast. */
static bool has_large_end(const tti_node *linear) {
    return tti_attr_int(linear, "act") == 0 &&
           last_dim(linear->out[0]) >= 2 * last_dim(linear->in[0]);
}

/* x table^T, so wide that the table does not stay in the L2 cache. */
static bool is_head(const tti_node *matmul) {
    bool turned = !tti_attr_int(matmul, "trans_a") && tti_attr_int(matmul, "trans_b");
    return turned && tti_value_n_elems(matmul->in[1]) >= LEAST_TABLE;
}

bool tti_cuda_wgmma_describe(const tti_node *node, tti_cuda_wgmma_desc *out) {
    bool gelu = is(node, "linear_gelu"), sums = is(node, "matmul_gelu_grad_sums");
    bool grad = sums || is(node, "matmul_gelu_grad");
    if (is(node, "linear"))
        return has_large_end(node) && describe_product(node, TTI_WGMMA_BIAS, out);
    if (is(node, "matmul")) return is_head(node) && describe_product(node, TTI_WGMMA_BIAS, out);
    if ((!gelu && !grad) || (grad && !lies_straight(node))) return false;
    if (!describe_product(node, gelu ? TTI_WGMMA_GELU : TTI_WGMMA_GELU_GRAD, out)) return false;
    out->exact = tti_attr_int(node, "approximate") == 0;
    out->summed = sums;
    return true;
}

bool tti_cuda_wgmma_describe_head(const tti_node *node, tti_cuda_wgmma_desc *out) {
    const tutti_type *x = &node->in[0]->type, *w = &node->in[1]->type;
    memset(out, 0, sizeof *out);
    out->kind = TTI_WGMMA_EXPS, out->dtype = TUTTI_BF16;
    out->m = x->shape.dim[0], out->n = w->shape.dim[0], out->k = x->shape.dim[1];
    return has_tiles(out, LEAST_PUSHED) && tti_cuda_wgmma_here();
}

/* A product alone, of at least a tile for each multiprocessor: what travels meanwhile pays for a
 * product that is a little slower than cublasLt's. */
bool tti_cuda_wgmma_describe_push(const tti_node *node, int64_t part_rows,
                                  tti_cuda_wgmma_desc *out) {
    bool forward = is(node, "linear") && node->n_in == 2 && tti_attr_int(node, "act") == 0;
    bool back = is(node, "matmul") && lies_straight(node);
    if ((!forward && !back) || part_rows <= 0 || part_rows % TTI_WGMMA_UNIT != 0) return false;
    if (!describe(node, forward ? TTI_WGMMA_PUSH : TTI_WGMMA_PUSH_BACK, LEAST_PUSHED, out))
        return false;
    out->part_rows = part_rows;
    return out->m % (2 * part_rows) == 0;
}

bool tti_cuda_wgmma_describe_pull(const tti_node *node, int64_t part_rows,
                                  tti_cuda_wgmma_desc *out) {
    bool gelu = is(node, "linear_gelu"), plain = is(node, "linear");
    if ((!gelu && !plain) || part_rows <= 0 || part_rows % TTI_WGMMA_UNIT != 0) return false;
    if (plain && tti_attr_int(node, "act") != 0) return false;
    int64_t least = gelu ? LEAST_ELEMENTS : LEAST_PUSHED;
    if (!describe(node, gelu ? TTI_WGMMA_GELU : TTI_WGMMA_BIAS, least, out)) return false;
    out->exact = gelu && tti_attr_int(node, "approximate") == 0;
    out->part_rows = part_rows;
    return out->m % (2 * part_rows) == 0;
}

bool tti_cuda_wgmma_joins(const tti_node *product) {
    tti_cuda_wgmma_desc d;
    if (is(product, "linear")) return describe_product(product, TTI_WGMMA_GELU, &d);
    return is(product, "matmul") && lies_straight(product) &&
           describe_product(product, TTI_WGMMA_GELU_GRAD, &d);
}

bool tti_cuda_wgmma_joins_head(const tti_node *logits) {
    tti_cuda_wgmma_desc d;
    return is_head(logits) && logits->out[0]->type.dtype == TUTTI_BF16 &&
           describe_product(logits, TTI_WGMMA_BIAS, &d);
}

/* ---- how long ---- */

typedef struct timing {
    tti_cuda_wgmma_desc desc; /* without pointers */
    double us;
} timing;

/* The times known to this process, and their file. */
static struct {
    pthread_mutex_t lock; /* held while timing, so that workers wait for the first one's answer */
    bool loaded;
    char key[160];
    timing all[64];
    size_t n;
} timings = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char timings_file[] = "wgmma-times";

static double find_timing(const tti_cuda_wgmma_desc *desc) {
    for (size_t i = 0; i < timings.n; i++)
        if (memcmp(&timings.all[i].desc, desc, sizeof *desc) == 0) return timings.all[i].us;
    return -1;
}

/* Adds what the file has; other workers of this host write it too. */
static void load_timings(void) {
    int driver = 0;
    size_t n_bytes = 0;
    cudaDriverGetVersion(&driver);
    snprintf(timings.key, sizeof timings.key, "1 %zu %d %s %s", sizeof(timing), driver,
             TUTTI_VERSION, tti_cuda_device()->name);
    char *data = tti_cache_read(timings_file, timings.key, &n_bytes);
    size_t n = data && n_bytes % sizeof(timing) == 0 ? n_bytes / sizeof(timing) : 0;
    for (size_t i = 0; i < n && timings.n < TTI_COUNT(timings.all); i++) {
        timing read;
        memcpy(&read, data + i * sizeof read, sizeof read);
        if (find_timing(&read.desc) < 0 && read.us > 0) timings.all[timings.n++] = read;
    }
    free(data);
    timings.loaded = true;
}

static void keep_timing(const tti_cuda_wgmma_desc *desc, double us) {
    if (timings.n == TTI_COUNT(timings.all)) return;
    timing *made = &timings.all[timings.n++];
    memset(made, 0, sizeof *made);
    memcpy(&made->desc, desc, sizeof *desc);
    made->us = us;
    tti_cache_write(timings_file, timings.key, timings.all, timings.n * sizeof(timing));
}

/* a, b, d, aux, bias, sums, partials. */
static bool trial_init(tti_trial *t, tti_cuda_wgmma_desc *d) {
    const struct {
        tutti_dtype dtype;
        int64_t n_elems;
    } takes[] = {{d->dtype, d->m * d->k},
                 {d->dtype, d->n * d->k},
                 {d->dtype, d->m * d->n},
                 {d->dtype, d->kind == TTI_WGMMA_BIAS ? 0 : d->m * d->n},
                 {d->dtype, d->n},
                 {TUTTI_F32, d->summed ? d->n : 0},
                 {TUTTI_F32, d->summed ? tti_cuda_wgmma_parts(d->m) * d->n : 0}};
    if (!tti_trial_open(t)) return false;
    for (int i = 0; i < (int)TTI_COUNT(takes); i++)
        if (takes[i].n_elems && !tti_trial_fill(t, i, takes[i].dtype, (size_t)takes[i].n_elems))
            return false;
    d->a = t->memory[0], d->b = t->memory[1], d->d = t->memory[2], d->aux = t->memory[3];
    d->bias = d->kind == TTI_WGMMA_GELU_GRAD ? NULL : t->memory[4];
    d->sums = t->memory[5], d->partials = t->memory[6];
    return true;
}

static bool run_product(const void *user) {
    return tti_cuda_wgmma(user, tti_cuda_stream()) == cudaSuccess;
}

/* With the same warm-up as blas.c for large products, because the times are compared. 0: it does
 * not run. */
static double measure(const tti_cuda_wgmma_desc *desc) {
    tti_trial t;
    tti_cuda_wgmma_desc d = *desc;
    double us = trial_init(&t, &d) ? tti_trial_us(&t, 3, run_product, &d) : 0;
    int n = us > 0 ? (int)(steady_us / us) + 1 : 0;
    for (int i = 0; i < 2 && n > 0 && us > 0; i++) us = tti_trial_us(&t, n, run_product, &d);
    tti_trial_close(&t);
    return TTI_MAX(us, 0);
}

/* With the lock held.  One worker of the host measures, the others wait for its result. */
static double measure_once(const tti_cuda_wgmma_desc *desc) {
    enum { TIMEOUT_MS = 60000 };
    int lock = tti_cache_lock(timings_file, 0, TIMEOUT_MS);
    load_timings();
    double us = find_timing(desc);
    if (us < 0) {
        us = measure(desc);
        if (us > 0) keep_timing(desc, us);
    }
    tti_cache_unlock(lock);
    return us;
}

double tti_cuda_wgmma_us(const tti_cuda_wgmma_desc *desc) {
    pthread_mutex_lock(&timings.lock);
    if (!timings.loaded) load_timings();
    double us = find_timing(desc);
    if (us < 0) us = measure_once(desc);
    pthread_mutex_unlock(&timings.lock);
    return us;
}
