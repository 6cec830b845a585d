/* blas.c - the only file that knows cublasLt.
 *
 * cublasLt is column-major.  A row-major d[m][n] is a column-major n x m matrix with the same
 * bytes, so instead of d = op(a) op(b) it computes d^T = op(b)^T op(a)^T: its A is our b, its B is
 * our a, its m is our n.  Our b stored [k][n] is column-major n x k, which is op N; stored [n][k]
 * it is op T; the same holds for a.  A bias along its rows is one along our columns, and BGRADB,
 * which sums its B over k, sums the rows of our op(a).
 *
 * Large products are timed on the device: cublasLt's first algorithm is often 5 % slower than the
 * best of the others, and large products run at the power limit, where the fastest one cold need
 * not be the fastest.  The choice is kept for the process and, as its 64 bytes, on disk: one worker
 * of a host times a product, the others wait for its choice.  Exact mode always uses the first one:
 * a choice by the clock, or by a file, would let the bits of two machines differ.  Algorithms that
 * add parts of k in the output are never allowed; those that add them from the workspace do so in a
 * fixed order. */
#include "backend/cuda/gemm/blas.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/gemm/gemm.h"
#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/library.h"
#include "backend/cuda/runtime/timing.h"
#include "base/files/cache.h"
#include "base/philox.h"

#define FUNCTIONS(X)                        \
    X(cublasLtCreate)                       \
    X(cublasLtDestroy)                      \
    X(cublasLtGetVersion)                   \
    X(cublasLtGetStatusString)              \
    X(cublasLtMatmul)                       \
    X(cublasLtMatmulAlgoCheck)              \
    X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)          \
    X(cublasLtMatrixLayoutSetAttribute)

enum {
    MAX_CANDIDATES = 32,
    N_FINALISTS = 4,
    ALIGNMENT = 64, /* of every pointer, bytes */
    LARGE_WORKSPACE = 32 << 20,
    SMALL_WORKSPACE = 4 << 20,
    N_SAMPLES = 5, /* of the clock, for each candidate; odd */
};

/* Flops from which a product is timed, and has the large workspace: some microseconds. */
static const double large_flops = 2e9;

/* Flops from which a step spends its time here: there the last few run for long enough that the
 * device is as warm, and its clock as low, as in training. */
static const double hot_flops = 2e10;
static const double steady_us = 30e3;

/* ---- the library, one for the process ---- */

typedef struct library {
#define MEMBER(name) __typeof__(name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
    bool there;
    char why[512]; /* not there */
} library;

static library lt;

static bool load_functions(void *handle) {
#define LOAD(name)                                                                   \
    *(void **)(&lt.name) = dlsym(handle, #name);                                     \
    if (!lt.name) {                                                                  \
        snprintf(lt.why, sizeof lt.why, "cublasLt has no %s: it is too old", #name); \
        return false;                                                                \
    }
    FUNCTIONS(LOAD)
#undef LOAD
    return true;
}

static void load_library(void) {
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
    tti_str why = {0};
    void *handle = tti_cuda_library(names, &why);
    snprintf(lt.why, sizeof lt.why, "%s", tti_str_text(&why));
    tti_str_free(&why);
    if (!handle || !load_functions(handle)) return;
    size_t major = lt.cublasLtGetVersion() / 10000;
    lt.there = major == 12 || major == 13;
    if (!lt.there)
        snprintf(lt.why, sizeof lt.why, "cublasLt is of version %zu, 12 or 13 is needed", major);
}

static bool have_library(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_library);
    return lt.there;
}

static tutti_status check(cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return TUTTI_OK;
    tutti_status code = status == CUBLAS_STATUS_ALLOC_FAILED ? TUTTI_E_NOMEM : TUTTI_E_DEVICE;
    return tti_fail(code, "cublasLt: %s: %s", what, lt.cublasLtGetStatusString(status));
}
#define TRY_LT(name, ...) TTI_TRY(check(lt.name(__VA_ARGS__), #name))

void tti_cuda_blas_describe(tti_str *str) {
    if (!have_library()) {
        tti_str_printf(str, "no cublasLt (%s)", lt.why);
        return;
    }
    size_t v = lt.cublasLtGetVersion();
    tti_str_printf(str, "cublasLt %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

/* The handle of the open device, made on first use. */
static tutti_status get_handle(cublasLtHandle_t *out) {
    tti_cuda *device = tti_cuda_device();
    TTI_ASSERT(device);
    if (!have_library())
        return tti_fail(TUTTI_E_UNSUPPORTED, "matrix products need cublasLt: %s", lt.why);
    if (!device->blas) {
        cublasLtHandle_t made;
        TRY_LT(cublasLtCreate, &made);
        device->blas = made;
    }
    *out = device->blas;
    return TUTTI_OK;
}

void tti_cuda_blas_release(void *blas) {
    if (blas) lt.cublasLtDestroy(blas);
}

/* ---- choices: one list for the process, and a file for each kind of device and library ---- */

typedef struct choice {
    tti_blas_problem problem;
    cublasLtMatmulAlgo_t algo;
    double us;
} choice;

static struct {
    pthread_mutex_t lock;   /* of the list */
    pthread_mutex_t timing; /* held while timing where the cache has no locks */
    bool has_key;
    char key[256], file[40];
    choice *all; /* [n], grows */
    size_t n, capacity;
} choices = {.lock = PTHREAD_MUTEX_INITIALIZER, .timing = PTHREAD_MUTEX_INITIALIZER};

/* A worker that another one waits for times for some seconds. */
enum { LOCK_TIMEOUT_MS = 60000 };

static bool grow(size_t n) {
    if (n <= choices.capacity) return true;
    size_t capacity = TTI_MAX(n, 2 * choices.capacity + 64);
    choice *all = realloc(choices.all, capacity * sizeof *all);
    if (!all) return false;
    choices.all = all;
    choices.capacity = capacity;
    return true;
}

/* With the lock held, as the functions below. */
static choice *find_choice(const tti_blas_problem *problem) {
    for (size_t i = 0; i < choices.n; i++)
        if (memcmp(&choices.all[i].problem, problem, sizeof *problem) == 0) return &choices.all[i];
    return NULL;
}

static void make_key(void) {
    int driver = 0;
    if (choices.has_key) return;
    cudaDriverGetVersion(&driver);
    snprintf(choices.key, sizeof choices.key, "3 %zu %d %zu %s", sizeof(choice), driver,
             lt.cublasLtGetVersion(), tti_cuda_device()->name);
    snprintf(choices.file, sizeof choices.file, "cublaslt-%016llx",
             (unsigned long long)tti_hash_name(choices.key));
    choices.has_key = true;
}

/* Adds what the file has; other workers of this host write it too. */
static void load_choices(void) {
    size_t n_bytes = 0;
    char *data = tti_cache_read(choices.file, choices.key, &n_bytes);
    size_t n = data && n_bytes % sizeof(choice) == 0 ? n_bytes / sizeof(choice) : 0;
    for (size_t i = 0; i < n && grow(choices.n + 1); i++) {
        choice read;
        memcpy(&read, data + i * sizeof read, sizeof read);
        if (!find_choice(&read.problem)) choices.all[choices.n++] = read;
    }
    free(data);
}

/* A second choice for a problem replaces the first. */
static void keep_choice(const choice *chosen) {
    int lock = tti_cache_lock(choices.file, 0, LOCK_TIMEOUT_MS);
    load_choices();
    choice *old = find_choice(&chosen->problem);
    if (!old && grow(choices.n + 1)) old = &choices.all[choices.n++];
    if (old) *old = *chosen;
    tti_cache_write(choices.file, choices.key, choices.all, choices.n * sizeof(choice));
    tti_cache_unlock(lock);
}

/* ---- plans ---- */

struct tti_blas_plan {
    tti_blas_problem problem;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d; /* of our a, b and d, c */
    cublasLtMatmulAlgo_t algo;
    size_t n_workspace;
    double us;
    bool own; /* no algorithm of cublasLt: by gemm.cu */
};

static cudaDataType_t data_type(int32_t dtype) {
    switch (dtype) {
        case TUTTI_F64:
            return CUDA_R_64F;
        case TUTTI_BF16:
            return CUDA_R_16BF;
        case TUTTI_F16:
            return CUDA_R_16F;
        default:
            return CUDA_R_32F;
    }
}

static cublasComputeType_t compute_type(const tti_blas_problem *p) {
    if (p->in == TUTTI_F64) return CUBLAS_COMPUTE_64F;
    return p->in == TUTTI_F32 && p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

static double flops_of(const tti_blas_problem *p) {
    return 2.0 * (double)p->m * (double)p->n * (double)p->k * (double)p->n_batch;
}

static tutti_status set_layout(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t what,
                               const void *value, size_t n_bytes) {
    TRY_LT(cublasLtMatrixLayoutSetAttribute, layout, what, value, n_bytes);
    return TUTTI_OK;
}

/* A matrix that we store in rows of n elements, ld apart. */
static tutti_status make_layout(const tti_blas_problem *p, int32_t dtype, int64_t rows, int64_t n,
                                int64_t ld, int64_t step, cublasLtMatrixLayout_t *out) {
    int32_t n_batch = (int32_t)p->n_batch;
    TRY_LT(cublasLtMatrixLayoutCreate, out, data_type(dtype), (uint64_t)n, (uint64_t)rows, ld);
    if (n_batch == 1) return TUTTI_OK;
    TTI_TRY(set_layout(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n_batch, sizeof n_batch));
    return set_layout(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step);
}

static tutti_status set_desc(tti_blas_plan *plan, cublasLtMatmulDescAttributes_t what,
                             const void *value, size_t n_bytes) {
    TRY_LT(cublasLtMatmulDescSetAttribute, plan->desc, what, value, n_bytes);
    return TUTTI_OK;
}

static bool has_aux(const tti_blas_problem *p) {
    return p->epilogue == TTI_BLAS_GELU_AUX || p->epilogue == TTI_BLAS_GELU_AUX_BIAS ||
           p->epilogue == TTI_BLAS_DGELU;
}

static bool has_bias(const tti_blas_problem *p) {
    return p->epilogue == TTI_BLAS_BIAS || p->epilogue == TTI_BLAS_GELU_AUX_BIAS ||
           p->epilogue == TTI_BLAS_ROW_SUMS;
}

static tutti_status set_pointers(tti_blas_plan *plan, const void *bias, const void *aux) {
    const tti_blas_problem *p = &plan->problem;
    if (has_bias(p)) TTI_TRY(set_desc(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    if (has_aux(p))
        TTI_TRY(set_desc(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
    return TUTTI_OK;
}

static tutti_status set_epilogue(tti_blas_plan *plan) {
    static const cublasLtEpilogue_t epilogues[] = {
        [TTI_BLAS_PLAIN] = CUBLASLT_EPILOGUE_DEFAULT,
        [TTI_BLAS_BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [TTI_BLAS_GELU_AUX] = CUBLASLT_EPILOGUE_GELU_AUX,
        [TTI_BLAS_GELU_AUX_BIAS] = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        [TTI_BLAS_DGELU] = CUBLASLT_EPILOGUE_DGELU,
        [TTI_BLAS_ROW_SUMS] = CUBLASLT_EPILOGUE_BGRADB,
    };
    const tti_blas_problem *p = &plan->problem;
    uint32_t epilogue = epilogues[p->epilogue];
    TTI_TRY(set_desc(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (has_aux(p))
        TTI_TRY(set_desc(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->ldd, sizeof p->ldd));
    /* The choice looks at how the pointers are aligned; the true ones come with each run. */
    void *aligned = (void *)(uintptr_t)ALIGNMENT;
    return set_pointers(plan, aligned, aligned);
}

static tutti_status make_descriptors(tti_blas_plan *plan) {
    const tti_blas_problem *p = &plan->problem;
    cudaDataType_t scale = p->in == TUTTI_F64 ? CUDA_R_64F : CUDA_R_32F;
    int32_t op_a = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N; /* its A is our b */
    int32_t op_b = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    TRY_LT(cublasLtMatmulDescCreate, &plan->desc, compute_type(p), scale);
    TTI_TRY(set_desc(plan, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a));
    TTI_TRY(set_desc(plan, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b));
    TTI_TRY(set_epilogue(plan));
    TTI_TRY(make_layout(p, p->in, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->lda,
                        p->a_step, &plan->a));
    TTI_TRY(make_layout(p, p->in, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->ldb,
                        p->b_step, &plan->b));
    return make_layout(p, p->out, p->m, p->n, p->ldd, p->d_step, &plan->d);
}

/* ---- algorithms ---- */

typedef struct candidates {
    cublasLtMatmulHeuristicResult_t all[MAX_CANDIDATES];
    int n;
} candidates;

static tutti_status set_preference(cublasLtMatmulPreference_t preference,
                                   cublasLtMatmulPreferenceAttributes_t what, const void *value,
                                   size_t n_bytes) {
    TRY_LT(cublasLtMatmulPreferenceSetAttribute, preference, what, value, n_bytes);
    return TUTTI_OK;
}

static tutti_status set_preferences(const tti_blas_problem *p,
                                    cublasLtMatmulPreference_t preference) {
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint64_t n_bytes = flops_of(p) < large_flops ? SMALL_WORKSPACE : LARGE_WORKSPACE;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t alignment = ALIGNMENT;
    TTI_TRY(set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &n_bytes,
                           sizeof n_bytes));
    TTI_TRY(set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                           sizeof schemes));
    for (size_t i = 0; i < TTI_COUNT(alignments); i++)
        TTI_TRY(set_preference(preference, alignments[i], &alignment, sizeof alignment));
    return TUTTI_OK;
}

/* cublasLt's algorithms for a plan, best guess first; an empty list is not a failure. */
static tutti_status ask(cublasLtHandle_t handle, const tti_blas_plan *plan, candidates *found) {
    cublasLtMatmulPreference_t preference;
    int n = 0;
    found->n = 0;
    TRY_LT(cublasLtMatmulPreferenceCreate, &preference);
    tutti_status st = set_preferences(&plan->problem, preference);
    cublasStatus_t answer =
        st == TUTTI_OK
            ? lt.cublasLtMatmulAlgoGetHeuristic(handle, plan->desc, plan->b, plan->a, plan->d,
                                                plan->d, preference, MAX_CANDIDATES, found->all, &n)
            : CUBLAS_STATUS_NOT_SUPPORTED;
    lt.cublasLtMatmulPreferenceDestroy(preference);
    TTI_TRY(st);
    if (answer != CUBLAS_STATUS_SUCCESS) return TUTTI_OK; /* not supported, in its many words */
    for (int i = 0; i < n; i++)
        if (found->all[i].state == CUBLAS_STATUS_SUCCESS) found->all[found->n++] = found->all[i];
    return TUTTI_OK;
}

static cublasStatus_t launch(cublasLtHandle_t handle, const tti_blas_plan *plan,
                             const cublasLtMatmulAlgo_t *algo, size_t n_workspace,
                             const tti_blas_args *args) {
    static const float one = 1, zero = 0;
    static const double one_f64 = 1, zero_f64 = 0;
    const tti_blas_problem *p = &plan->problem;
    bool f64 = p->in == TUTTI_F64;
    const void *alpha = f64 ? (const void *)&one_f64 : &one;
    const void *none = f64 ? (const void *)&zero_f64 : &zero;
    return lt.cublasLtMatmul(handle, plan->desc, alpha, args->b, plan->b, args->a, plan->a,
                             p->add ? alpha : none, p->add ? args->c : args->d, plan->d, args->d,
                             plan->d, algo, n_workspace ? args->workspace : NULL, n_workspace,
                             tti_cuda_stream());
}

static void free_descriptors(tti_blas_plan *plan) {
    if (plan->desc) lt.cublasLtMatmulDescDestroy(plan->desc);
    if (plan->a) lt.cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b) lt.cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->d) lt.cublasLtMatrixLayoutDestroy(plan->d);
}

/* ---- timing ---- */

/* A problem with separate memory; run: one candidate. */
typedef struct trial {
    tti_trial on;
    cublasLtHandle_t handle;
    const tti_blas_plan *plan;
    tti_blas_args args;
    const cublasLtMatmulHeuristicResult_t *candidate;
} trial;

static bool take_elems(trial *t, int i, int32_t dtype, int64_t n_elems) {
    return tti_trial_fill(&t->on, i, (tutti_dtype)dtype, (size_t)n_elems);
}

/* a, b, d, bias, aux, workspace. */
static bool trial_open(trial *t, cublasLtHandle_t handle, const tti_blas_plan *plan) {
    const tti_blas_problem *p = &plan->problem;
    int64_t last = p->n_batch - 1;
    *t = (trial){.handle = handle, .plan = plan};
    if (!tti_trial_open(&t->on) ||
        !take_elems(t, 0, p->in, last * p->a_step + (p->trans_a ? p->k : p->m) * p->lda) ||
        !take_elems(t, 1, p->in, last * p->b_step + (p->trans_b ? p->n : p->k) * p->ldb) ||
        !take_elems(t, 2, p->out, last * p->d_step + p->m * p->ldd))
        return false;
    if (has_bias(p) && !take_elems(t, 3, p->out, TTI_MAX(p->m, p->n))) return false;
    if (has_aux(p) && !take_elems(t, 4, p->out, p->m * p->ldd)) return false;
    if (!tti_trial_alloc(&t->on, 5, LARGE_WORKSPACE)) return false;
    void *const *memory = t->on.memory;
    t->args = (tti_blas_args){memory[0], memory[1], memory[2], memory[2],
                              memory[3], memory[4], memory[5]};
    return true;
}

static bool run_candidate(const void *user) {
    const trial *t = user;
    return launch(t->handle, t->plan, &t->candidate->algo, t->candidate->workspaceSize, &t->args) ==
           CUBLAS_STATUS_SUCCESS;
}

/* Microseconds of one of n runs; a negative number: it does not run. */
static double run_timed(trial *t, const cublasLtMatmulHeuristicResult_t *candidate, int n) {
    t->candidate = candidate;
    return tti_trial_us(&t->on, n, run_candidate, t);
}

static int compare_times(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median time of a candidate; given up early where it is far from the best so far. */
static double candidate_us(trial *t, const cublasLtMatmulHeuristicResult_t *candidate,
                           double best) {
    double us[N_SAMPLES], first = run_timed(t, candidate, 1); /* loads the kernel */
    if (first >= 0) first = run_timed(t, candidate, 1);
    if (first < 0 || (best > 0 && first > 1.2 * best + 10)) return -1;
    int n = first > 100 ? 1 : (int)(100 / TTI_MAX(first, 5.0)) + 1; /* the clock ticks in 0.5 us */
    for (int i = 0; i < N_SAMPLES; i++)
        if ((us[i] = run_timed(t, candidate, n)) < 0) return -1;
    qsort(us, N_SAMPLES, sizeof us[0], compare_times);
    return us[N_SAMPLES / 2];
}

/* The fastest of the candidates in short runs; -1: none could be timed. */
static int fastest_cold(trial *t, const candidates *found, double *times) {
    int best = -1;
    for (int i = 0; i < found->n; i++) {
        double best_us = best >= 0 ? times[best] : 0;
        times[i] = candidate_us(t, &found->all[i], best_us);
        if (times[i] > 0 && (best < 0 || times[i] < best_us)) best = i;
    }
    return best;
}

/* The candidate that is fastest in a long run, among those within a few per cent of the best;
 * best if there is none. */
static int fastest_for_long(trial *t, const candidates *found, double *times, int best) {
    double limit = 1.06 * times[best], best_us = 0;
    int winner = best;
    for (int round = 0; round < N_FINALISTS; round++) {
        int next = -1;
        for (int i = 0; i < found->n; i++)
            if (times[i] > 0 && times[i] < limit && (next < 0 || times[i] < times[next])) next = i;
        if (next < 0) break;
        int n = (int)(steady_us / times[next]) + 1;
        run_timed(t, &found->all[next], n);
        double us = run_timed(t, &found->all[next], n);
        times[next] = -1; /* had its turn */
        if (us > 0 && (best_us <= 0 || us < best_us)) best_us = us, winner = next;
    }
    times[winner] = best_us;
    return winner;
}

/* The fastest candidate and its time; the first, without time, where none could be timed. */
static int fastest(cublasLtHandle_t handle, tti_blas_plan *plan, const candidates *found,
                   double *us) {
    double times[MAX_CANDIDATES];
    bool hot = flops_of(&plan->problem) >= hot_flops;
    int best = -1;
    trial t;
    if (trial_open(&t, handle, plan) && set_pointers(plan, t.args.bias, t.args.aux) == TUTTI_OK)
        best = fastest_cold(&t, found, times);
    if (best >= 0 && hot) best = fastest_for_long(&t, found, times, best);
    tti_trial_close(&t.on);
    *us = best >= 0 ? TTI_MAX(times[best], 0) : 0;
    return TTI_MAX(best, 0);
}

static void take(tti_blas_plan *plan, const cublasLtMatmulHeuristicResult_t *found, double us) {
    plan->algo = found->algo;
    plan->n_workspace = found->workspaceSize;
    plan->us = us;
}

/* Uses a previous choice, of this process or another one.  With the lock held. */
static bool take_known(cublasLtHandle_t handle, tti_blas_plan *plan) {
    const choice *known = find_choice(&plan->problem);
    cublasLtMatmulHeuristicResult_t found = {0};
    if (!known || lt.cublasLtMatmulAlgoCheck(handle, plan->desc, plan->b, plan->a, plan->d, plan->d,
                                             &known->algo, &found) != CUBLAS_STATUS_SUCCESS)
        return false;
    if (found.workspaceSize > LARGE_WORKSPACE) return false;
    found.algo = known->algo;
    take(plan, &found, known->us);
    return true;
}

/* Usually there is one kind of device; others in the same process do not use the file. */
static bool same_device(void) {
    const char *name = tti_cuda_device()->name;
    size_t n = strlen(choices.key), n_name = strlen(name);
    return n > n_name && strcmp(choices.key + n - n_name, name) == 0 &&
           choices.key[n - n_name - 1] == ' ';
}

/* *shared: whether choices for this device are shared. */
static bool look_up(cublasLtHandle_t handle, tti_blas_plan *plan, bool reload, bool *shared) {
    pthread_mutex_lock(&choices.lock);
    make_key();
    *shared = same_device();
    if (*shared && reload) load_choices();
    bool known = *shared && take_known(handle, plan);
    pthread_mutex_unlock(&choices.lock);
    return known;
}

/* Asks and times.  *found: whether there is an algorithm. */
static tutti_status choose_anew(cublasLtHandle_t handle, tti_blas_plan *plan, bool timed,
                                bool shared, bool *found) {
    candidates *all = malloc(sizeof *all);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "matrix product: out of memory for its candidates");
    tutti_status st = ask(handle, plan, all);
    *found = st == TUTTI_OK && all->n > 0;
    double us = 0;
    if (*found) take(plan, &all->all[timed ? fastest(handle, plan, all, &us) : 0], 0);
    plan->us = us;
    choice chosen = {.problem = plan->problem, .algo = plan->algo, .us = us};
    free(all);
    if (!shared || us <= 0) return st;
    pthread_mutex_lock(&choices.lock);
    keep_choice(&chosen);
    pthread_mutex_unlock(&choices.lock);
    return st;
}

static uint64_t hash_problem(const tti_blas_problem *problem) {
    uint64_t hash = 14695981039346656037u;
    const unsigned char *bytes = (const unsigned char *)problem;
    for (size_t i = 0; i < sizeof *problem; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash | 4; /* 0 is the lock of the file */
}

/* The first worker of the host that wants a product times it; the others wait for its choice. */
static tutti_status choose_timed(cublasLtHandle_t handle, tti_blas_plan *plan, bool *found) {
    bool shared;
    *found = true;
    if (look_up(handle, plan, false, &shared)) return TUTTI_OK;
    int lock =
        shared ? tti_cache_lock(choices.file, hash_problem(&plan->problem), LOCK_TIMEOUT_MS) : -1;
    if (lock < 0) pthread_mutex_lock(&choices.timing);
    tutti_status st = TUTTI_OK;
    if (!look_up(handle, plan, true, &shared)) st = choose_anew(handle, plan, true, shared, found);
    if (lock < 0) pthread_mutex_unlock(&choices.timing);
    tti_cache_unlock(lock);
    return st;
}

/* *found: whether there is an algorithm. */
static tutti_status choose(cublasLtHandle_t handle, tti_blas_plan *plan, bool *found) {
    bool timed = !plan->problem.exact && flops_of(&plan->problem) >= large_flops;
    return timed ? choose_timed(handle, plan, found)
                 : choose_anew(handle, plan, false, false, found);
}

/* cublasLt counts rows and columns in 32 bits, batches in 16, and wants room for 8 in a row of aux.
 */
static bool is_askable(const tti_blas_problem *p) {
    int64_t most = TTI_MAX(TTI_MAX(p->m, p->n), TTI_MAX(p->k, p->n_batch));
    return most <= INT32_MAX && p->n_batch <= UINT16_MAX &&
           !(has_aux(p) && (p->n % 8 || p->ldd % 8));
}

static tutti_status plan_fill(tti_blas_plan *plan, bool *found) {
    cublasLtHandle_t handle;
    TTI_TRY(get_handle(&handle));
    *found = false;
    if (!is_askable(&plan->problem)) return TUTTI_OK;
    TTI_TRY(make_descriptors(plan));
    return choose(handle, plan, found);
}

tutti_status tti_blas_plan_create(const tti_blas_problem *problem, tti_blas_plan **out) {
    const tti_cuda *device = tti_cuda_device();
    tti_blas_plan *plan = calloc(1, sizeof *plan);
    bool found;
    if (!plan) return tti_fail(TUTTI_E_NOMEM, "matrix product: out of memory for its plan");
    plan->problem = *problem;
    plan->problem.tf32 = problem->in == TUTTI_F32 && device->desc.tf32;
    plan->problem.exact = device->desc.exact;
    tutti_status st = plan_fill(plan, &found);
    if (st == TUTTI_OK && !found && problem->epilogue == TTI_BLAS_PLAIN) plan->own = found = true;
    if (st == TUTTI_OK && found) {
        *out = plan;
        return TUTTI_OK;
    }
    tti_blas_plan_destroy(plan);
    if (st == TUTTI_OK) *out = NULL;
    return st;
}

void tti_blas_plan_destroy(tti_blas_plan *plan) {
    if (!plan) return;
    free_descriptors(plan);
    free(plan);
}

size_t tti_blas_workspace(const tti_blas_plan *plan) { return plan->n_workspace; }

double tti_blas_time_us(const tti_blas_plan *plan) { return plan->us; }

static tutti_status run_own(const tti_blas_problem *p, const tti_blas_args *args) {
    tti_cuda_gemm_desc desc = {
        .m = p->m, .n = p->n, .k = p->k, .n_batch = p->n_batch, .ldd = p->ldd};
    desc.a_row = p->trans_a ? 1 : p->lda, desc.a_col = p->trans_a ? p->lda : 1;
    desc.b_row = p->trans_b ? 1 : p->ldb, desc.b_col = p->trans_b ? p->ldb : 1;
    desc.a_step = p->a_step, desc.b_step = p->b_step, desc.d_step = p->d_step;
    desc.in = (tutti_dtype)p->in, desc.out = (tutti_dtype)p->out;
    desc.a = args->a, desc.b = args->b, desc.c = p->add ? args->c : NULL, desc.d = args->d;
    TTI_CUDA(tti_cuda_gemm(&desc, tti_cuda_stream()));
    return TUTTI_OK;
}

tutti_status tti_blas_run(tti_blas_plan *plan, const tti_blas_args *args) {
    if (plan->own) return run_own(&plan->problem, args);
    cublasLtHandle_t handle;
    TTI_TRY(get_handle(&handle));
    TTI_TRY(set_pointers(plan, args->bias, args->aux));
    return check(launch(handle, plan, &plan->algo, plan->n_workspace, args), "cublasLtMatmul");
}
