/* dnn.c - plans of cuDNN: engines proposed, filtered, timed; plans kept in memory and on disk.
 *
 * A plan takes up to a second to compile and a millisecond to read, so the choice is stored as
 * cuDNN's own text, one file for each graph.  The key has everything on which the choice depends; a
 * text that cuDNN refuses is made again.  If the same bits are needed every time, the engine is the
 * first suitable one, never the fastest measured: two workers could disagree. */
#include "backend/cuda/conv/dnn.h"

#if TUTTI_HAVE_CUDNN
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/conv/dnn_lib.h"
#include "backend/cuda/runtime/timing.h"
#include "base/files/cache.h"
#include "base/philox.h"
#include "base/thread.h"

enum { MAX_CONFIGS = 48, MAX_NOTES = 32, N_WARM = 2, N_TIMED = 5 };

struct tti_dnn_plan {
    struct tti_dnn_plan *next;
    char *key;
    tti_dnn_desc desc;
    size_t n_bytes; /* workspace */
    tti_dnn_graph graph;
};

/* A plan to compile: its key and its graph; its text once it is compiled. */
typedef struct wanted_plan {
    struct wanted_plan *next;
    tti_dnn_choice choice;
    tti_dnn_plan *plan;
    char *text;
    size_t n_text;
} wanted_plan;

/* The state of a device. */
typedef struct dnn_device {
    const tti_dnn_lib *lib;
    cudnnHandle_t handle;
    tti_dnn_plan *plans;
    bool collects;
    wanted_plan *wanted;
} dnn_device;

static tutti_status open_device(dnn_device **out) {
    const tti_dnn_lib *lib = tti_dnn_lib_get();
    tti_cuda *cuda = tti_cuda_device();
    *out = NULL;
    if (!cuda) return tti_fail(TUTTI_E_DEVICE, "cuDNN: this thread has not opened a device");
    if (cuda->dnn) {
        *out = cuda->dnn;
        return TUTTI_OK;
    }
    if (!lib->version) return tti_fail(TUTTI_E_UNSUPPORTED, "cuDNN: %s", lib->why);
    dnn_device *d = calloc(1, sizeof *d);
    if (!d) return tti_fail(TUTTI_E_NOMEM, "cuDNN: out of memory for its handle");
    d->lib = lib;
    tutti_status st = tti_dnn_check(lib, lib->cudnnCreate(&d->handle), "cudnnCreate");
    if (st != TUTTI_OK) {
        free(d);
        return st;
    }
    *out = cuda->dnn = d;
    return TUTTI_OK;
}

bool tti_dnn_ready(void) {
    dnn_device *d;
    return open_device(&d) == TUTTI_OK;
}

static void plan_destroy(const tti_dnn_lib *lib, tti_dnn_plan *plan) {
    if (!plan) return;
    if (plan->desc) lib->cudnnBackendDestroyDescriptor(plan->desc);
    free(plan->key);
    free(plan);
}

void tti_cuda_dnn_release(void *dnn) {
    dnn_device *d = dnn;
    if (!d) return;
    while (d->plans) {
        tti_dnn_plan *plan = d->plans;
        d->plans = plan->next;
        plan_destroy(d->lib, plan);
    }
    d->lib->cudnnDestroy(d->handle);
    free(d);
}

size_t tti_dnn_plan_bytes(const tti_dnn_plan *plan) { return plan->n_bytes; }

/* ---- one plan ---- */

static tutti_status read_workspace(const tti_dnn_lib *lib, tti_dnn_desc plan, size_t *n_bytes) {
    int64_t n = 0, got = 0;
    TTI_DNN(lib, cudnnBackendGetAttribute, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
            CUDNN_TYPE_INT64, 1, &got, &n);
    *n_bytes = n > 0 ? (size_t)n : 0;
    return TUTTI_OK;
}

/* A finished plan for an engine configuration, or for a text of the cache (config NULL). */
static tutti_status make_plan(const dnn_device *d, tti_dnn_desc config, const char *text,
                              size_t n_text, tti_dnn_desc *out) {
    const tti_dnn_lib *lib = d->lib;
    tti_dnn_desc plan;
    TTI_DNN(lib, cudnnBackendCreateDescriptor, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
    cudnnStatus_t st = lib->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                                     CUDNN_TYPE_HANDLE, 1, &d->handle);
    if (st == CUDNN_STATUS_SUCCESS && config)
        st = lib->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (st == CUDNN_STATUS_SUCCESS && !config)
        st = lib->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                           CUDNN_TYPE_CHAR, (int64_t)n_text, text);
    if (st == CUDNN_STATUS_SUCCESS) st = lib->cudnnBackendFinalize(plan);
    tutti_status result = tti_dnn_check(lib, st, "execution plan");
    if (result != TUTTI_OK)
        lib->cudnnBackendDestroyDescriptor(plan);
    else
        *out = plan;
    return result;
}

static tutti_status execute(const dnn_device *d, tti_dnn_desc plan, const tti_dnn_graph *graph,
                            void *const *data, void *workspace) {
    tti_dnn_pool pool = {.lib = d->lib};
    int64_t ids[TTI_DNN_MAX_TENSORS], n = 0;
    void *pointers[TTI_DNN_MAX_TENSORS];
    for (int i = 0; i < graph->n_tensors; i++) {
        const tti_dnn_tensor *t = &graph->tensors[i];
        if (t->kind == TTI_DNN_VIRTUAL) continue;
        ids[n] = i + 1;
        pointers[n++] = t->kind == TTI_DNN_SCALAR ? (void *)(uintptr_t)&t->value : data[i];
    }
    tti_dnn_desc pack;
    TTI_TRY(tti_dnn_pool_new(&pool, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    const tti_dnn_lib *lib = d->lib;
    cudnnStatus_t st = lib->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                                     CUDNN_TYPE_INT64, n, ids);
    if (st == CUDNN_STATUS_SUCCESS)
        st = lib->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                           CUDNN_TYPE_VOID_PTR, n, pointers);
    if (st == CUDNN_STATUS_SUCCESS)
        st = lib->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                           CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (st == CUDNN_STATUS_SUCCESS) st = lib->cudnnBackendFinalize(pack);
    if (st == CUDNN_STATUS_SUCCESS) st = lib->cudnnSetStream(d->handle, tti_cuda_stream());
    if (st == CUDNN_STATUS_SUCCESS) st = lib->cudnnBackendExecute(d->handle, plan, pack);
    tutti_status result = tti_dnn_check(lib, st, "running a plan");
    tti_dnn_pool_empty(&pool);
    return result;
}

tutti_status tti_dnn_run(tti_dnn_plan *plan, void *const *data, void *workspace) {
    dnn_device *d;
    TTI_TRY(open_device(&d));
    return execute(d, plan->desc, &plan->graph, data, workspace);
}

/* ---- engines that may be taken ---- */

static bool is_banned(cudnnBackendNumericalNote_t note, const tti_dnn_choice *choice) {
    switch (note) {
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
            return choice->no_tensor_cores;
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
            return choice->deterministic;
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        case CUDNN_NUMERICAL_NOTE_FFT:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
            return true; /* lose digits */
        default:
            return false;
    }
}

static bool is_allowed(tti_dnn_pool *pool, tti_dnn_desc config, const tti_dnn_choice *choice) {
    cudnnBackendNumericalNote_t notes[MAX_NOTES];
    int64_t n = 0;
    tti_dnn_desc engine;
    const tti_dnn_lib *lib = pool->lib;
    if (tti_dnn_pool_new(pool, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != TUTTI_OK) return false;
    if (lib->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                      &engine) != CUDNN_STATUS_SUCCESS ||
        lib->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                      CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES, &n,
                                      notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < TTI_MIN(n, MAX_NOTES); i++)
        if (is_banned(notes[i], choice)) return false;
    return true;
}

/* Configurations as the heuristics order them, at most MAX_CONFIGS; a mode without any adds none.
 */
static int propose(tti_dnn_pool *pool, tti_dnn_desc graph, cudnnBackendHeurMode_t mode,
                   tti_dnn_desc *configs) {
    const tti_dnn_lib *lib = pool->lib;
    tti_dnn_desc heuristics;
    int64_t n = 0, got = 0;
    if (tti_dnn_pool_new(pool, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics) != TUTTI_OK ||
        lib->cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                      &graph) != CUDNN_STATUS_SUCCESS ||
        lib->cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
                                      1, &mode) != CUDNN_STATUS_SUCCESS ||
        lib->cudnnBackendFinalize(heuristics) != CUDNN_STATUS_SUCCESS ||
        lib->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n,
                                      NULL) != CUDNN_STATUS_SUCCESS)
        return 0;
    n = TTI_MIN(n, MAX_CONFIGS);
    for (int64_t i = 0; i < n; i++)
        if (tti_dnn_pool_new(pool, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]) != TUTTI_OK)
            return 0;
    if (n == 0 || lib->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR, n, &got,
                                                configs) != CUDNN_STATUS_SUCCESS)
        return 0;
    return (int)TTI_MIN(got, n);
}

/* ---- timing ---- */

/* A plan with separate memory: that of tensor i, and after them the workspace. */
typedef struct trial {
    tti_trial on;
    const dnn_device *device;
    const tti_dnn_graph *graph;
    tti_dnn_desc plan;
} trial;

enum { WORKSPACE = TTI_DNN_MAX_TENSORS };
_Static_assert((int)WORKSPACE < (int)TTI_TRIAL_PLACES, "a place for everything");

static size_t tensor_elems(const tti_dnn_tensor *t) {
    size_t n = 1;
    for (int d = 0; d < 4; d++) n += (size_t)(t->dim[d] - 1) * (size_t)t->stride[d];
    return n;
}

/* False where there is no memory for it: then nothing is timed. */
static bool trial_init(trial *t, const dnn_device *d, const tti_dnn_graph *graph,
                       size_t workspace) {
    *t = (trial){.device = d, .graph = graph};
    bool ok = tti_trial_open(&t->on);
    for (int i = 0; ok && i < graph->n_tensors; i++) {
        const tti_dnn_tensor *tensor = &graph->tensors[i];
        if (tensor->kind == TTI_DNN_REAL)
            ok = tti_trial_fill(&t->on, i, (tutti_dtype)tensor->dtype, tensor_elems(tensor));
    }
    return ok && tti_trial_alloc(&t->on, WORKSPACE, TTI_MAX(workspace, 256));
}

static bool run_plan(const void *user) {
    const trial *t = user;
    void *const *memory = t->on.memory;
    return execute(t->device, t->plan, t->graph, memory, memory[WORKSPACE]) == TUTTI_OK;
}

/* Microseconds of one run, the best of a few; infinite where it fails. */
static double time_plan(trial *t, tti_dnn_desc plan) {
    t->plan = plan;
    double us = tti_trial_least_us(&t->on, N_WARM, N_TIMED, run_plan, t);
    return us < 0 ? HUGE_VAL : us;
}

/* ---- the choice ---- */

/* Plans that could be made, in the order of the heuristics. */
typedef struct candidates {
    tti_dnn_desc plans[MAX_CONFIGS];
    size_t n_bytes[MAX_CONFIGS];
    int n;
} candidates;

static void add_candidates(const dnn_device *d, tti_dnn_pool *pool, tti_dnn_desc graph,
                           cudnnBackendHeurMode_t mode, const tti_dnn_choice *choice,
                           candidates *c) {
    tti_dnn_desc configs[MAX_CONFIGS];
    int want = choice->deterministic ? 1 : TTI_MIN(TTI_MAX(choice->n_timed, 1), MAX_CONFIGS);
    int n = propose(pool, graph, mode, configs);
    for (int i = 0; i < n && c->n < want; i++) {
        tti_dnn_desc plan;
        size_t bytes;
        if (!is_allowed(pool, configs[i], choice)) continue;
        if (make_plan(d, configs[i], NULL, 0, &plan) != TUTTI_OK) continue;
        if (read_workspace(d->lib, plan, &bytes) != TUTTI_OK || bytes > choice->max_workspace) {
            d->lib->cudnnBackendDestroyDescriptor(plan);
            continue;
        }
        c->plans[c->n] = plan, c->n_bytes[c->n++] = bytes;
    }
}

/* The fastest; the first where there is nothing to time or no memory for it. */
static int best_candidate(const dnn_device *d, const tti_dnn_graph *graph, const candidates *c) {
    size_t workspace = 0;
    double best_us = HUGE_VAL;
    int best = 0;
    trial t;
    for (int i = 0; i < c->n; i++) workspace = TTI_MAX(workspace, c->n_bytes[i]);
    if (c->n < 2) return 0;
    bool ok = trial_init(&t, d, graph, workspace);
    for (int i = 0; ok && i < c->n; i++) {
        double us = time_plan(&t, c->plans[i]);
        if (us < best_us) best_us = us, best = i;
    }
    tti_trial_close(&t.on);
    return best;
}

static tutti_status choose(const dnn_device *d, const tti_dnn_choice *choice, tti_dnn_plan *plan) {
    tti_dnn_pool *pool = calloc(1, sizeof *pool);
    candidates c = {.n = 0};
    tti_dnn_desc graph;
    if (!pool) return tti_fail(TUTTI_E_NOMEM, "cuDNN: out of memory for a graph");
    pool->lib = d->lib;
    tutti_status st = tti_dnn_graph_build(pool, &plan->graph, d->handle, &graph);
    if (st == TUTTI_OK) {
        add_candidates(d, pool, graph, CUDNN_HEUR_MODE_A, choice, &c);
        if (c.n == 0) add_candidates(d, pool, graph, CUDNN_HEUR_MODE_FALLBACK, choice, &c);
        if (c.n == 0) st = tti_fail(TUTTI_E_UNSUPPORTED, "cuDNN: no engine supports this graph");
    }
    if (st == TUTTI_OK) {
        int best = best_candidate(d, &plan->graph, &c);
        plan->desc = c.plans[best], plan->n_bytes = c.n_bytes[best];
        for (int i = 0; i < c.n; i++)
            if (i != best) d->lib->cudnnBackendDestroyDescriptor(c.plans[i]);
    }
    tti_dnn_pool_empty(pool);
    free(pool);
    return st;
}

/* ---- the cache on disk ---- */

/* A name for a file: 64 bits of the key; the key itself stands in the file and is compared. */
static void cache_name(const char *key, char *name, size_t n_bytes) {
    uint64_t h = 14695981039346656037u;
    for (const char *p = key; *p; p++) h = (h ^ (unsigned char)*p) * 1099511628211u;
    snprintf(name, n_bytes, "dnn-%016llx", (unsigned long long)h);
}

static bool load_plan(const dnn_device *d, const tti_dnn_choice *choice, tti_dnn_plan *plan) {
    char name[40];
    size_t n = 0;
    cache_name(plan->key, name, sizeof name);
    char *text = tti_cache_read(name, plan->key, &n);
    bool ok = text && n > 0 && make_plan(d, NULL, text, n, &plan->desc) == TUTTI_OK;
    free(text);
    if (!ok) return false;
    if (read_workspace(d->lib, plan->desc, &plan->n_bytes) == TUTTI_OK &&
        plan->n_bytes <= choice->max_workspace)
        return true;
    d->lib->cudnnBackendDestroyDescriptor(plan->desc);
    plan->desc = NULL;
    return false;
}

/* cuDNN's text for a plan; NULL: it has none. */
static char *plan_text(const dnn_device *d, const tti_dnn_plan *plan, size_t *n_text) {
    int64_t n = 0, got = 0;
    cudnnBackendAttributeName_t what = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    if (d->lib->cudnnBackendGetAttribute(plan->desc, what, CUDNN_TYPE_CHAR, 0, &n, NULL) !=
            CUDNN_STATUS_SUCCESS ||
        n <= 0)
        return NULL;
    char *text = malloc((size_t)n);
    if (text && d->lib->cudnnBackendGetAttribute(plan->desc, what, CUDNN_TYPE_CHAR, n, &got,
                                                 text) == CUDNN_STATUS_SUCCESS) {
        *n_text = (size_t)TTI_MIN(got, n);
        return text;
    }
    free(text);
    return NULL;
}

static void save_text(const tti_dnn_plan *plan, const char *text, size_t n_text) {
    char name[40];
    cache_name(plan->key, name, sizeof name);
    tti_cache_write(name, plan->key, text, n_text);
}

static void save_plan(const dnn_device *d, const tti_dnn_plan *plan) {
    size_t n = 0;
    char *text = plan_text(d, plan, &n);
    if (text) save_text(plan, text, n);
    free(text);
}

static char *make_key(const dnn_device *d, const tti_dnn_graph *graph,
                      const tti_dnn_choice *choice) {
    const tti_cuda *cuda = tti_cuda_device();
    tti_str str = {0};
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    tti_str_printf(&str, "cuDNN %zu driver %d device %s %d\n", d->lib->version, driver, cuda->name,
                   cuda->n_sms);
    tti_str_printf(&str, "timed %d workspace %zu plain %d same %d\n", choice->n_timed,
                   choice->max_workspace, choice->no_tensor_cores, choice->deterministic);
    tti_dnn_graph_print(graph, &str);
    if (str.failed) {
        tti_str_free(&str);
        return NULL;
    }
    return str.text;
}

static tti_dnn_plan *find_plan(const dnn_device *d, const char *key) {
    tti_dnn_plan *plan = d->plans;
    while (plan && strcmp(plan->key, key) != 0) plan = plan->next;
    return plan;
}

/* ---- several at a time ----
 *
 * Each thread has a handle of its own.  It gives cuDNN's text for the plan, from which the thread
 * of the device makes the plan for its own handle: as a plan from the disk. */

enum { MAX_THREADS = 8 };

typedef struct compilation {
    const tti_dnn_lib *lib;
    int device;
    pthread_mutex_t mutex;
    wanted_plan *next; /* to compile */
} compilation;

static wanted_plan *take_wanted(compilation *c) {
    pthread_mutex_lock(&c->mutex);
    wanted_plan *wanted = c->next;
    if (wanted) c->next = wanted->next;
    pthread_mutex_unlock(&c->mutex);
    return wanted;
}

static void *compile_wanted(void *user) {
    compilation *c = user;
    dnn_device own = {.lib = c->lib};
    if (cudaSetDevice(c->device) != cudaSuccess ||
        c->lib->cudnnCreate(&own.handle) != CUDNN_STATUS_SUCCESS)
        return NULL;
    for (wanted_plan *wanted; (wanted = take_wanted(c)) != NULL;) {
        tti_dnn_plan *plan = wanted->plan;
        if (choose(&own, &wanted->choice, plan) != TUTTI_OK) continue;
        wanted->text = plan_text(&own, plan, &wanted->n_text);
        own.lib->cudnnBackendDestroyDescriptor(plan->desc);
        plan->desc = NULL;
    }
    c->lib->cudnnDestroy(own.handle);
    return NULL;
}

/* Leaves the plan to the device, or drops it. */
static void keep_wanted(dnn_device *d, wanted_plan *wanted) {
    tti_dnn_plan *plan = wanted->plan;
    bool ok = wanted->text &&
              make_plan(d, NULL, wanted->text, wanted->n_text, &plan->desc) == TUTTI_OK &&
              read_workspace(d->lib, plan->desc, &plan->n_bytes) == TUTTI_OK;
    if (ok) {
        save_text(plan, wanted->text, wanted->n_text);
        plan->next = d->plans, d->plans = plan;
    } else {
        plan_destroy(d->lib, plan);
    }
    free(wanted->text);
    free(wanted);
}

static bool is_wanted(const dnn_device *d, const char *key) {
    const wanted_plan *wanted = d->wanted;
    while (wanted && strcmp(wanted->plan->key, key) != 0) wanted = wanted->next;
    return wanted != NULL;
}

static bool is_timed(const tti_dnn_choice *choice) {
    return choice->n_timed > 1 && !choice->deterministic;
}

/* Takes the plan if it is compiled later. */
static bool want_plan(dnn_device *d, const tti_dnn_choice *choice, tti_dnn_plan *plan) {
    if (is_timed(choice) || is_wanted(d, plan->key)) return false;
    wanted_plan *wanted = calloc(1, sizeof *wanted);
    if (!wanted) return false;
    *wanted = (wanted_plan){.next = d->wanted, .choice = *choice, .plan = plan};
    d->wanted = wanted;
    return true;
}

bool tti_cuda_dnn_collect_begin(void) {
    dnn_device *d;
    if (open_device(&d) != TUTTI_OK) {
        tti_clear_error();
        return false;
    }
    d->collects = true;
    return true;
}

void tti_cuda_dnn_collect_end(void) {
    dnn_device *d;
    if (open_device(&d) != TUTTI_OK) return;
    compilation c = {.lib = d->lib, .device = tti_cuda_index(), .next = d->wanted};
    pthread_t threads[MAX_THREADS];
    int n_wanted = 0, n = 0;
    for (const wanted_plan *wanted = d->wanted; wanted; wanted = wanted->next) n_wanted++;
    pthread_mutex_init(&c.mutex, NULL);
    /* A single plan takes as long in prepare. */
    while (n_wanted > 1 && n < TTI_MIN(n_wanted, MAX_THREADS) &&
           tti_thread_start(&threads[n], NULL, compile_wanted, &c) == 0)
        n++;
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&c.mutex);
    for (wanted_plan *wanted = d->wanted, *next; wanted; wanted = next) {
        next = wanted->next;
        keep_wanted(d, wanted);
    }
    d->wanted = NULL, d->collects = false;
    tti_clear_error();
}

/* One worker of the host chooses a plan by its time; the others wait and read it. */
static tutti_status choose_once(dnn_device *d, const tti_dnn_choice *choice, tti_dnn_plan *plan) {
    enum { TIMEOUT_MS = 60000 };
    int lock = is_timed(choice) ? tti_cache_lock("dnn", tti_hash_name(plan->key), TIMEOUT_MS) : -1;
    tutti_status st = TUTTI_OK;
    if (lock < 0 || !load_plan(d, choice, plan)) {
        st = choose(d, choice, plan);
        if (st == TUTTI_OK) save_plan(d, plan);
    }
    tti_cache_unlock(lock);
    return st;
}

tutti_status tti_dnn_plan_get(const tti_dnn_graph *graph, const tti_dnn_choice *choice,
                              tti_dnn_plan **out) {
    dnn_device *d;
    TTI_TRY(open_device(&d));
    char *key = make_key(d, graph, choice);
    if (!key) return tti_fail(TUTTI_E_NOMEM, "cuDNN: out of memory for a graph");
    tti_dnn_plan *plan = find_plan(d, key);
    if (plan) {
        free(key);
        *out = plan;
        return TUTTI_OK;
    }
    plan = calloc(1, sizeof *plan);
    if (!plan) {
        free(key);
        return tti_fail(TUTTI_E_NOMEM, "cuDNN: out of memory for a plan");
    }
    plan->key = key, plan->graph = *graph;
    if (!load_plan(d, choice, plan)) {
        if (d->collects) {
            if (!want_plan(d, choice, plan)) plan_destroy(d->lib, plan);
            return tti_fail(TUTTI_E_UNSUPPORTED, "cuDNN: compiled later");
        }
        tutti_status st = choose_once(d, choice, plan);
        if (st != TUTTI_OK) {
            plan_destroy(d->lib, plan);
            return st;
        }
    }
    plan->next = d->plans, d->plans = plan;
    *out = plan;
    return TUTTI_OK;
}

#else

bool tti_dnn_ready(void) { return false; }
size_t tti_dnn_version(void) { return 0; }
size_t tti_dnn_plan_bytes(const tti_dnn_plan *plan) { return plan ? 1 : 0; }
bool tti_cuda_dnn_collect_begin(void) { return false; }
void tti_cuda_dnn_collect_end(void) {}
void tti_cuda_dnn_release(void *dnn) { TTI_ASSERT(!dnn); }

tutti_status tti_dnn_plan_get(const tti_dnn_graph *graph, const tti_dnn_choice *choice,
                              tti_dnn_plan **plan) {
    (void)graph, (void)choice, (void)plan;
    return tti_fail(TUTTI_E_UNSUPPORTED, "cuDNN: built without it");
}

tutti_status tti_dnn_run(tti_dnn_plan *plan, void *const *data, void *workspace) {
    (void)plan, (void)data, (void)workspace;
    return tti_fail(TUTTI_E_UNSUPPORTED, "cuDNN: built without it");
}

#endif
