/* nccl.c - the only file that knows NCCL.
 *
 * Its few calls are declared here, so that only the library itself is needed, and only where it is
 * used.  A communicator is made in a separate thread: the call may block forever for a missing
 * rank, and the worker must not.  Every call runs there once, so that later calls never block on
 * the host, and steps can be captured. */
#include "backend/cuda/comm/nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/library.h"
#include "base/clock.h"
#include "base/fault.h"

/* As in nccl.h of NCCL 2; results are of ncclResult_t. */
typedef struct ncclComm *ncclComm_t;
enum { NCCL_SUCCESS = 0, NCCL_REMOTE_ERROR = 6, NCCL_IN_PROGRESS = 7 };
enum { NCCL_UINT8 = 1, NCCL_FLOAT16 = 6, NCCL_FLOAT32 = 7, NCCL_BFLOAT16 = 9, NCCL_SUM = 0 };

typedef struct library {
    int (*ncclGetVersion)(int *version);
    int (*ncclGetUniqueId)(tti_nccl_id *id);
    int (*ncclCommInitRank)(ncclComm_t *comm, int n_ranks, tti_nccl_id id, int rank);
    int (*ncclCommDestroy)(ncclComm_t comm);
    int (*ncclCommAbort)(ncclComm_t comm);
    int (*ncclCommGetAsyncError)(ncclComm_t comm, int *error);
    const char *(*ncclGetErrorString)(int result);
    int (*ncclAllReduce)(const void *src, void *dst, size_t n, int type, int op, ncclComm_t comm,
                         cudaStream_t stream);
    int (*ncclAllGather)(const void *src, void *dst, size_t n, int type, ncclComm_t comm,
                         cudaStream_t stream);
    int (*ncclSend)(const void *src, size_t n, int type, int peer, ncclComm_t comm,
                    cudaStream_t stream);
    int (*ncclRecv)(void *dst, size_t n, int type, int peer, ncclComm_t comm, cudaStream_t stream);
    int (*ncclGroupStart)(void);
    int (*ncclGroupEnd)(void);
    int version;
    bool there;
    char why[512]; /* not there */
} library;

#define FUNCTIONS(X)         \
    X(ncclGetVersion)        \
    X(ncclGetUniqueId)       \
    X(ncclCommInitRank)      \
    X(ncclCommDestroy)       \
    X(ncclCommAbort)         \
    X(ncclCommGetAsyncError) \
    X(ncclGetErrorString)    \
    X(ncclAllReduce)         \
    X(ncclAllGather)         \
    X(ncclSend)              \
    X(ncclRecv)              \
    X(ncclGroupStart)        \
    X(ncclGroupEnd)

struct tti_nccl {
    ncclComm_t comm; /* NULL: aborted */
    int rank, n_ranks;
    int device;
    pthread_t ender; /* which aborts it */
    bool is_ending;
};

enum { END_S = 10 };

/* NCCL finds the links of the host and loads its kernels before it connects, which takes seconds
 * where other programs do the same. */
enum { CONNECT_MS = 60000, LOOK_MS = 5 /* for a rank that is lost meanwhile */ };

/* ---- the library, one for the process ---- */

static library nccl;

static bool load_functions(void *handle) {
#define LOAD(name)                                                                   \
    *(void **)(&nccl.name) = dlsym(handle, #name);                                   \
    if (!nccl.name) {                                                                \
        snprintf(nccl.why, sizeof nccl.why, "NCCL has no %s: it is too old", #name); \
        return false;                                                                \
    }
    FUNCTIONS(LOAD)
#undef LOAD
    return true;
}

static void load_library(void) {
    static const char *const names[] = {"libnccl.so.2", NULL};
    tti_str why = {0};
    /* Multicast over NVLink can take the devices of a host out of service, and adds in an order
     * that changes from call to call.  NCCL reads this when it is loaded. */
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    void *handle = tti_cuda_library(names, &why);
    snprintf(nccl.why, sizeof nccl.why, "%s", tti_str_text(&why));
    tti_str_free(&why);
    if (!handle || !load_functions(handle)) return;
    nccl.there = nccl.ncclGetVersion(&nccl.version) == NCCL_SUCCESS;
    if (!nccl.there) snprintf(nccl.why, sizeof nccl.why, "NCCL does not report its version");
}

bool tti_nccl_load(tti_str *why) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_library);
    if (!nccl.there && why) tti_str_add(why, nccl.why);
    return nccl.there;
}

void tti_nccl_describe(tti_str *str) {
    if (!tti_nccl_load(NULL))
        tti_str_printf(str, "no NCCL (%s)", nccl.why);
    else
        tti_str_printf(str, "NCCL %d.%d.%d", nccl.version / 10000, nccl.version % 10000 / 100,
                       nccl.version % 100);
}

static tutti_status check(int result, const char *what) {
    if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) return TUTTI_OK;
    return tti_fail(TUTTI_E_DEVICE, "cuda: %s: %s", what, nccl.ncclGetErrorString(result));
}

tutti_status tti_nccl_make_id(tti_nccl_id *id) {
    memset(id, 0, sizeof *id);
    return check(nccl.ncclGetUniqueId(id), "ncclGetUniqueId");
}

/* ---- connecting the other ranks, in a separate thread ---- */

typedef struct connection {
    tti_nccl_id id;
    int rank, n_ranks, device;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    bool over, given_up;
    ncclComm_t comm;
    int result;
    cudaError_t error;
} connection;

/* Runs every call once, so that the connections are made: bytes [n_ranks + 1] of the device. */
static int try_calls(const connection *m, char *bytes, cudaStream_t stream) {
    int result = nccl.ncclAllReduce(bytes, bytes, 1, NCCL_FLOAT32, NCCL_SUM, m->comm, stream);
    if (result == NCCL_SUCCESS)
        result = nccl.ncclAllGather(bytes, bytes + 16, 16, NCCL_UINT8, m->comm, stream);
    if (result == NCCL_SUCCESS) result = nccl.ncclGroupStart();
    for (int r = 0; r < m->n_ranks && result == NCCL_SUCCESS; r++) {
        if (r == m->rank) continue;
        result = nccl.ncclSend(bytes, 16, NCCL_UINT8, r, m->comm, stream);
        if (result == NCCL_SUCCESS)
            result = nccl.ncclRecv(bytes + 16 * (r + 1), 16, NCCL_UINT8, r, m->comm, stream);
    }
    return result == NCCL_SUCCESS ? nccl.ncclGroupEnd() : result;
}

static void warm_up(connection *m) {
    cudaStream_t stream = NULL;
    void *bytes = NULL;
    m->error = cudaMalloc(&bytes, 16 * ((size_t)m->n_ranks + 1));
    if (m->error == cudaSuccess)
        m->error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (m->error == cudaSuccess) m->result = try_calls(m, bytes, stream);
    if (m->error == cudaSuccess) m->error = cudaStreamSynchronize(stream);
    if (stream) cudaStreamDestroy(stream);
    cudaFree(bytes);
}

static void forget(connection *m) {
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

/* Threads that still connect or abort, and that no other thread waits for any longer. */
static atomic_int n_abandoned;

/* When the process exits, the libraries release what such a thread still uses, and it would crash.
 * There is no call that ends one, so the process ends without their release. */
static void exit_with_threads(int code, void *unused) {
    (void)unused;
    if (atomic_load(&n_abandoned) == 0) return;
    fflush(NULL);
    _exit(code);
}

static void register_exit(void) { on_exit(exit_with_threads, NULL); }

static void abandon_thread(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    atomic_fetch_add(&n_abandoned, 1);
    pthread_once(&once, register_exit);
}

/* The last of the two threads frees the connection. */
static void *connect_ranks(void *arg) {
    connection *m = arg;
    m->error = cudaSetDevice(m->device);
    if (m->error == cudaSuccess)
        m->result = nccl.ncclCommInitRank(&m->comm, m->n_ranks, m->id, m->rank);
    if (m->error == cudaSuccess && m->result == NCCL_SUCCESS) warm_up(m);
    pthread_mutex_lock(&m->mutex);
    m->over = true;
    bool given_up = m->given_up;
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->mutex);
    if (given_up) {
        forget(m);
        atomic_fetch_sub(&n_abandoned, 1);
    }
    return NULL;
}

static tutti_status start(const tti_nccl_desc *desc, connection **out) {
    pthread_t thread;
    pthread_condattr_t attr;
    connection *m = calloc(1, sizeof *m);
    if (!m) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    m->id = *desc->id;
    m->rank = desc->rank;
    m->n_ranks = desc->n_ranks;
    m->device = tti_cuda_index();
    pthread_mutex_init(&m->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&thread, NULL, connect_ranks, m) != 0) {
        forget(m);
        return tti_fail(TUTTI_E_NOMEM, "cuda: cannot start a thread");
    }
    pthread_detach(thread);
    *out = m;
    return TUTTI_OK;
}

/* Up to ms; true if the ranks are connected, or it failed. */
static bool wait_a_moment(connection *m, int ms) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += ms * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000L;
    end.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&m->mutex);
    if (!m->over) pthread_cond_timedwait(&m->changed, &m->mutex, &end);
    bool over = m->over;
    pthread_mutex_unlock(&m->mutex);
    return over;
}

/* True: the connection's own thread forgets it, unless it ends right now. */
static bool give_up(connection *m) {
    pthread_mutex_lock(&m->mutex);
    m->given_up = !m->over;
    if (m->given_up) abandon_thread();
    bool given_up = m->given_up;
    pthread_mutex_unlock(&m->mutex);
    return given_up;
}

/* After a failure the caller has no connection any more. */
static tutti_status wait_for(connection *m, const tti_nccl_desc *desc) {
    int64_t limit_ms = TTI_MAX(desc->timeout_ms, (int)CONNECT_MS), start_ns = tti_now_ns();
    tutti_status st = TUTTI_OK;
    if (TTI_FAULT("nccl.connect")) limit_ms = 0;
    while (!wait_a_moment(m, limit_ms ? LOOK_MS : 0)) {
        int64_t waited_ms = (tti_now_ns() - start_ns) / TTI_NS_PER_MS;
        st = desc->check ? desc->check(desc->user) : TUTTI_OK;
        if (st == TUTTI_OK && waited_ms >= limit_ms)
            st = tti_fail(TUTTI_E_TIMEOUT,
                          "cuda: NCCL did not connect the ranks in %lld ms (the larger of %d and "
                          "parallel.timeout_ms=%d); NCCL_DEBUG=INFO shows its attempts",
                          (long long)waited_ms, CONNECT_MS, desc->timeout_ms);
        if (st != TUTTI_OK) break;
    }
    if (st == TUTTI_OK || give_up(m)) return st;
    tti_clear_error(); /* it has connected after all */
    return TUTTI_OK;
}

tutti_status tti_nccl_create(const tti_nccl_desc *desc, tti_nccl **out) {
    connection *m = NULL;
    *out = NULL;
    TTI_TRY(start(desc, &m));
    TTI_TRY(wait_for(m, desc));
    tti_nccl made = {
        .comm = m->comm, .rank = desc->rank, .n_ranks = desc->n_ranks, .device = m->device};
    cudaError_t error = m->error;
    int result = m->result;
    forget(m);
    tti_nccl *it = calloc(1, sizeof *it);
    if (!it) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    *it = made;
    tutti_status st = tti_cuda_check(error, "the first calls of NCCL");
    if (st == TUTTI_OK) st = check(result, "ncclCommInitRank");
    if (st != TUTTI_OK) {
        tti_nccl_abort(it);
        tti_nccl_destroy(it);
        return st;
    }
    *out = it;
    return TUTTI_OK;
}

typedef struct ending {
    ncclComm_t comm;
    int device;
} ending;

static void *end(void *arg) {
    ending e = *(ending *)arg;
    free(arg);
    if (cudaSetDevice(e.device) == cudaSuccess) nccl.ncclCommAbort(e.comm);
    return NULL;
}

/* Captured graphs are gone by now, and with them what an end waits for. */
void tti_nccl_destroy(tti_nccl *it) {
    struct timespec until;
    if (!it) return;
    if (it->comm) nccl.ncclCommDestroy(it->comm);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += END_S;
    if (it->is_ending && pthread_timedjoin_np(it->ender, NULL, &until) != 0) {
        abandon_thread();
        pthread_detach(it->ender);
    }
    free(it);
}

/* In a separate thread: kernels end at once, but the call returns only when all captured graphs
 * with calls of the communicator are released, which the caller does later. */
void tti_nccl_abort(tti_nccl *it) {
    ending *e = it->comm ? malloc(sizeof *e) : NULL;
    if (e) {
        *e = (ending){it->comm, it->device};
        it->is_ending = pthread_create(&it->ender, NULL, end, e) == 0;
        if (!it->is_ending) end(e);
    }
    it->comm = NULL;
}

/* ---- the calls ---- */

tutti_status tti_nccl_check(tti_nccl *it) {
    int error = NCCL_SUCCESS;
    if (!it->comm) return tti_fail(TUTTI_E_PEER, "cuda: NCCL was ended after a failure");
    TTI_TRY(check(nccl.ncclCommGetAsyncError(it->comm, &error), "ncclCommGetAsyncError"));
    if (error == NCCL_REMOTE_ERROR)
        return tti_fail(TUTTI_E_PEER, "cuda: NCCL lost the connection to another rank");
    return check(error, "NCCL");
}

tutti_status tti_nccl_sum(tti_nccl *it, tutti_dtype dtype, void *data, size_t n_elems,
                          cudaStream_t stream) {
    int type = dtype == TUTTI_BF16  ? NCCL_BFLOAT16
               : dtype == TUTTI_F16 ? NCCL_FLOAT16
                                    : NCCL_FLOAT32;
    return check(nccl.ncclAllReduce(data, data, n_elems, type, NCCL_SUM, it->comm, stream),
                 "ncclAllReduce");
}

tutti_status tti_nccl_gather(tti_nccl *it, const void *src, void *dst, size_t n_bytes,
                             cudaStream_t stream) {
    return check(nccl.ncclAllGather(src, dst, n_bytes, NCCL_UINT8, it->comm, stream),
                 "ncclAllGather");
}

tutti_status tti_nccl_send_recv(tti_nccl *it, const tti_nccl_message *messages, int n_messages,
                                cudaStream_t stream) {
    TTI_TRY(check(nccl.ncclGroupStart(), "ncclGroupStart"));
    int result = NCCL_SUCCESS;
    for (int i = 0; i < n_messages && result == NCCL_SUCCESS; i++) {
        const tti_nccl_message *m = &messages[i];
        result = m->out ? nccl.ncclSend(m->out, m->n_bytes, NCCL_UINT8, m->peer, it->comm, stream)
                        : nccl.ncclRecv(m->in, m->n_bytes, NCCL_UINT8, m->peer, it->comm, stream);
    }
    int ended = nccl.ncclGroupEnd();
    TTI_TRY(check(result, "ncclSend or ncclRecv"));
    return check(ended, "ncclGroupEnd");
}
