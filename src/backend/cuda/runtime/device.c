/* device.c - the device that a thread has opened: queues, memory, copies, captured graphs. */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/device_check.h"
#include "backend/cuda/runtime/draw.h"
#include "backend/cuda/runtime/step.h"
#include "base/clock.h"
#include "base/fault.h"

enum {
    CHECK_NS = 1000000, /* between two looks at the peers */
    SPIN_NS = 2000000   /* before a wait begins to sleep */
};

static _Thread_local tti_cuda *current;

tti_cuda *tti_cuda_device(void) { return current; }
int tti_cuda_index(void) { return current->desc.index; }
bool tti_cuda_is_exact(void) { return current->desc.exact; }
bool tti_cuda_uses_tf32(void) { return current->desc.tf32; }
cudaStream_t tti_cuda_stream_of(tti_queue queue) { return current->streams[queue]; }

cudaStream_t tti_cuda_stream(void) { return current->streams[TTI_QUEUE_COMPUTE]; }

tutti_status tti_cuda_check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return TUTTI_OK;
    cudaGetLastError(); /* clears the error for later calls, if possible */
    tutti_status st = error == cudaErrorMemoryAllocation ? TUTTI_E_NOMEM : TUTTI_E_DEVICE;
    return tti_fail(st, "cuda: %.60s: %s (%s)", what, cudaGetErrorString(error),
                    cudaGetErrorName(error));
}

int tti_cuda_count(void) {
    int n = 0;
    if (cudaGetDeviceCount(&n) == cudaSuccess) return n;
    cudaGetLastError();
    return 0;
}

void tti_cuda_describe_device(int index, tti_str *str) {
    struct cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, index) != cudaSuccess) {
        tti_str_add(str, "not readable");
        return;
    }
    tti_str_printf(str, "%s, %.1f GiB, sm_%d%d, %d multiprocessors", p.name,
                   (double)p.totalGlobalMem / (1 << 30), p.major, p.minor, p.multiProcessorCount);
}

/* From the UUID, which does not depend on the numbering of visible devices; 0: not readable. */
uint64_t tti_cuda_identity(int index) {
    struct cudaDeviceProp p;
    uint64_t half[2];
    if (cudaGetDeviceProperties(&p, index) != cudaSuccess) return 0;
    memcpy(half, &p.uuid, sizeof half);
    return half[0] * 0x9E3779B97F4A7C15u ^ half[1];
}

bool tti_cuda_is_exclusive(int index) {
    int mode = cudaComputeModeDefault;
    cudaError_t error = cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, index);
    return error == cudaSuccess && mode == cudaComputeModeExclusiveProcess;
}

void tti_cuda_kind(int index, tti_str *str) {
    struct cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, index) == cudaSuccess)
        tti_str_printf(str, "%s, %d multiprocessors", p.name, p.multiProcessorCount);
}

static tutti_status read_properties(tti_cuda *d) {
    struct cudaDeviceProp p;
    TTI_CUDA(cudaGetDeviceProperties(&p, d->desc.index));
    d->n_sms = p.multiProcessorCount;
    d->capability = p.major * 10 + p.minor;
    d->shared_optin = p.sharedMemPerBlockOptin;
    snprintf(d->name, sizeof d->name, "%.63s", p.name);
    return tti_cuda_fits_device(d->name, p.major, p.minor, tti_launch_step_load());
}

/* The queue of sums between devices has priority, so that others need not wait for it. */
static tutti_status make_queues(tti_cuda *d) {
    int lowest = 0, highest = 0;
    TTI_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    for (int i = 0; i < TTI_N_QUEUES; i++) {
        bool between = i == TTI_QUEUE_COMM || i == TTI_QUEUE_PEER;
        TTI_CUDA(cudaStreamCreateWithPriority(&d->streams[i], cudaStreamNonBlocking,
                                              between ? highest : lowest));
        TTI_CUDA(cudaEventCreateWithFlags(&d->orders[i], cudaEventDisableTiming));
    }
    for (size_t i = 0; i < TTI_COUNT(d->host_events); i++)
        TTI_CUDA(cudaEventCreateWithFlags(&d->host_events[i], cudaEventDisableTiming));
    for (size_t i = 0; i < TTI_COUNT(d->notes); i++)
        TTI_CUDA(cudaEventCreateWithFlags(&d->notes[i], cudaEventDisableTiming));
    return TUTTI_OK;
}

static tutti_status open_device(tti_cuda *d) {
    int n = 0;
    TTI_CUDA(cudaGetDeviceCount(&n));
    if (d->desc.index < 0 || d->desc.index >= n)
        return tti_fail(TUTTI_E_UNSUPPORTED, "cuda: there is no device %d; this machine has %d",
                        d->desc.index, n);
    TTI_CUDA(cudaSetDevice(d->desc.index));
    TTI_TRY(read_properties(d));
    return make_queues(d);
}

/* The libraries have hundreds of megabytes: they are mapped while the host draws the initial
 * parameters.  A failure is reported where the library is needed. */
static void *load_libraries(void *arg) {
    tti_str ignored = {0};
    (void)arg;
    tti_cuda_blas_describe(&ignored);
    tti_cuda_dnn_describe(&ignored);
    tti_str_free(&ignored);
    return NULL;
}

tutti_status tti_cuda_open(const tti_device_desc *desc) {
    if (current) return tti_fail(TUTTI_E_INTERNAL, "cuda: this thread has a device already");
    tti_cuda *d = calloc(1, sizeof *d);
    if (!d) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    d->desc = *desc;
    current = d;
    d->loads = pthread_create(&d->loader, NULL, load_libraries, NULL) == 0;
    tutti_status st = open_device(d);
    if (st != TUTTI_OK) tti_cuda_close();
    return st;
}

void tti_cuda_close(void) {
    tti_cuda *d = current;
    if (!d) return;
    if (d->loads) pthread_join(d->loader, NULL);
    cudaDeviceSynchronize();
    if (d->blas) tti_cuda_blas_release(d->blas);
    if (d->dnn) tti_cuda_dnn_release(d->dnn);
    for (int i = 0; i < TTI_N_QUEUES; i++) {
        if (d->streams[i]) cudaStreamDestroy(d->streams[i]);
        if (d->orders[i]) cudaEventDestroy(d->orders[i]);
    }
    for (int i = 0; i < d->n_stamps; i++) cudaEventDestroy(d->stamps[i]);
    free(d->stamps);
    for (size_t i = 0; i < TTI_COUNT(d->host_events); i++)
        if (d->host_events[i]) cudaEventDestroy(d->host_events[i]);
    for (size_t i = 0; i < TTI_COUNT(d->notes); i++)
        if (d->notes[i]) cudaEventDestroy(d->notes[i]);
    free(d);
    current = NULL;
}

/* ---- memory ---- */

void *tti_cuda_alloc(size_t n_bytes) {
    void *memory = NULL;
    size_t n = n_bytes ? n_bytes : 64;
    if (tti_cuda_check(cudaMalloc(&memory, n), "cudaMalloc") != TUTTI_OK) return NULL;
    /* Our queues do not wait for the default one: zeros that come late would fall on data. */
    cudaError_t error = cudaMemsetAsync(memory, 0, n, tti_cuda_stream());
    if (error == cudaSuccess) error = cudaStreamSynchronize(tti_cuda_stream());
    if (tti_cuda_check(error, "cudaMemset") != TUTTI_OK) {
        cudaFree(memory);
        return NULL;
    }
    current->n_bytes += n;
    current->n_peak = TTI_MAX(current->n_peak, current->n_bytes);
    return memory;
}

void tti_cuda_release(void *memory, size_t n_bytes) {
    if (!memory || !current) return;
    current->n_bytes -= n_bytes ? n_bytes : 64;
    cudaFree(memory);
}

void *tti_cuda_alloc_host(size_t n_bytes) {
    void *memory = NULL;
    if (tti_cuda_check(cudaMallocHost(&memory, n_bytes ? n_bytes : 64), "cudaMallocHost") !=
        TUTTI_OK)
        return NULL;
    memset(memory, 0, n_bytes ? n_bytes : 64);
    return memory;
}

void tti_cuda_release_host(void *memory) {
    if (memory) cudaFreeHost(memory);
}

void *tti_cuda_alloc_lasting(size_t n_bytes) {
    void *memory = NULL;
    return tti_cuda_check(cudaMalloc(&memory, n_bytes ? n_bytes : 64), "cudaMalloc") == TUTTI_OK
               ? memory
               : NULL;
}

void tti_cuda_release_lasting(void *memory) {
    if (memory) cudaFree(memory);
}

tutti_status tti_cuda_pin(void *memory, size_t n_bytes) {
    return tti_cuda_check(cudaHostRegister(memory, n_bytes, cudaHostRegisterDefault),
                          "cudaHostRegister");
}

void tti_cuda_unpin(void *memory) {
    if (cudaHostUnregister(memory) != cudaSuccess) cudaGetLastError();
}

void tti_cuda_memory(size_t *n_now, size_t *n_peak, size_t *n_free) {
    size_t n_total = 0;
    *n_now = current->n_bytes;
    *n_peak = current->n_peak;
    if (cudaMemGetInfo(n_free, &n_total) != cudaSuccess) *n_free = 0;
}

/* ---- queues ---- */

tutti_status tti_cuda_copy(tti_queue queue, void *dst, const void *src, size_t n_bytes) {
    if (n_bytes == 0) return TUTTI_OK;
    return tti_cuda_check(
        cudaMemcpyAsync(dst, src, n_bytes, cudaMemcpyDefault, current->streams[queue]),
        "cudaMemcpyAsync");
}

tutti_status tti_cuda_clear(tti_queue queue, void *dst, size_t n_bytes) {
    if (n_bytes == 0) return TUTTI_OK;
    return tti_cuda_check(cudaMemsetAsync(dst, 0, n_bytes, current->streams[queue]),
                          "cudaMemsetAsync");
}

tutti_status tti_cuda_order(tti_queue after, tti_queue before) {
    TTI_CUDA(cudaEventRecord(current->orders[before], current->streams[before]));
    return tti_cuda_check(cudaStreamWaitEvent(current->streams[after], current->orders[before], 0),
                          "cudaStreamWaitEvent");
}

tutti_status tti_cuda_record_event(tti_queue queue, int place) {
    return tti_cuda_check(cudaEventRecord(current->notes[place], current->streams[queue]),
                          "cudaEventRecord");
}

/* A kernel that starts early may read parameters before it waits (early.cuh): one that starts in
 * the usual way comes between. */
tutti_status tti_cuda_wait_event(tti_queue after, int place) {
    TTI_CUDA(cudaStreamWaitEvent(current->streams[after], current->notes[place], 0));
    return tti_cuda_check(tti_launch_nothing(current->streams[after]), "follow");
}

/* In a captured graph it is recorded at each replay, not at the capture. */
static tutti_status record_for_host(cudaEvent_t event, cudaStream_t stream) {
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    TTI_CUDA(cudaStreamIsCapturing(stream, &state));
    unsigned how =
        state == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
    return tti_cuda_check(cudaEventRecordWithFlags(event, stream, how), "cudaEventRecord");
}

tutti_status tti_cuda_record_host_event(tti_queue queue, int event) {
    TTI_TRY(tti_cuda_check(current->refused, "accumulate"));
    return record_for_host(current->host_events[event], current->streams[queue]);
}

void tti_cuda_add_watcher(tti_cuda_watcher *watcher) {
    watcher->next = current->watchers;
    current->watchers = watcher;
}

void tti_cuda_remove_watcher(tti_cuda_watcher *watcher) {
    tti_cuda_watcher **at = &current->watchers;
    while (*at && *at != watcher) at = &(*at)->next;
    if (*at) *at = watcher->next;
}

/* grace_ns: of the watcher that failed. */
static tutti_status check_watchers(int64_t *grace_ns) {
    for (tti_cuda_watcher *w = current->watchers; w; w = w->next) {
        *grace_ns = w->grace_ns;
        TTI_TRY(w->check(w->user));
    }
    return TUTTI_OK;
}

tutti_status tti_cuda_poll(cudaEvent_t event, tti_cuda_look_fn *look, void *user) {
    int64_t start = tti_now_ns(), checked = start;
    for (;;) {
        cudaError_t error = cudaEventQuery(event);
        if (error != cudaErrorNotReady) return tti_cuda_check(error, "cudaEventQuery");
        int64_t now = tti_now_ns();
        if (now - checked > CHECK_NS) {
            checked = now;
            TTI_TRY(look(user, now));
        }
        if (now - start < SPIN_NS)
            sched_yield();
        else
            usleep(20);
    }
}

/* A failure of a peer counts once it has lasted: what is pending may end without it. */
static tutti_status look_at_watchers(void *user, int64_t now) {
    int64_t *lost_ns = user;
    int64_t grace_ns;
    tutti_status st = check_watchers(&grace_ns);
    if (st == TUTTI_OK) return TUTTI_OK;
    if (*lost_ns == 0) *lost_ns = now;
    if (now - *lost_ns < grace_ns) return TUTTI_OK;
    for (tti_cuda_watcher *w = current->watchers; w; w = w->next) w->end(w->user);
    return st;
}

static tutti_status await_watched(cudaEvent_t event) {
    int64_t lost_ns = 0;
    return tti_cuda_poll(event, look_at_watchers, &lost_ns);
}

tutti_status tti_cuda_await(int event) {
    cudaEvent_t awaited = current->host_events[event];
    if (current->watchers) return await_watched(awaited);
    return tti_cuda_check(cudaEventSynchronize(awaited), "cudaEventSynchronize");
}

tutti_status tti_cuda_sync(void) {
    tutti_status st = TUTTI_OK;
    for (int i = 0; current->watchers && i < TTI_N_QUEUES && st == TUTTI_OK; i++) {
        st = tti_cuda_check(cudaEventRecord(current->orders[i], current->streams[i]),
                            "cudaEventRecord");
        if (st == TUTTI_OK) st = await_watched(current->orders[i]);
    }
    cudaError_t error = cudaDeviceSynchronize();
    return st != TUTTI_OK ? st : tti_cuda_check(error, "cudaDeviceSynchronize");
}

/* ---- timestamps ---- */

static tutti_status more_stamps(int n) {
    cudaEvent_t *more = realloc(current->stamps, (size_t)n * sizeof(cudaEvent_t));
    if (!more) return tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    current->stamps = more;
    while (current->n_stamps < n) {
        TTI_CUDA(cudaEventCreate(&more[current->n_stamps]));
        current->n_stamps++;
    }
    return TUTTI_OK;
}

tutti_status tti_cuda_record_timestamp(tti_queue queue, int timestamp) {
    if (timestamp >= current->n_stamps) TTI_TRY(more_stamps(timestamp + 256));
    return record_for_host(current->stamps[timestamp], current->streams[queue]);
}

tutti_status tti_cuda_read_timestamps(int n, double *us) {
    if (n < 1) return TUTTI_OK;
    TTI_TRY(tti_cuda_sync()); /* the last one of one queue is not that of all */
    for (int i = 0; i < n; i++) {
        float ms = 0;
        TTI_CUDA(cudaEventElapsedTime(&ms, current->stamps[0], current->stamps[i]));
        us[i] = 1e3 * (double)ms;
    }
    return TUTTI_OK;
}

/* ---- captured graphs ---- */

tutti_status tti_cuda_capture_begin(void) {
    return tti_cuda_check(cudaStreamBeginCapture(current->streams[TTI_QUEUE_COMPUTE],
                                                 cudaStreamCaptureModeThreadLocal),
                          "cudaStreamBeginCapture");
}

tutti_status tti_cuda_capture_end(void **captured_graph) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    *captured_graph = NULL;
    TTI_CUDA(cudaStreamEndCapture(current->streams[TTI_QUEUE_COMPUTE], &graph));
    /* Sums between devices keep the priority of their queue. */
    cudaError_t error =
        cudaGraphInstantiate(&ready, graph, cudaGraphInstantiateFlagUseNodePriority);
    cudaGraphDestroy(graph);
    TTI_TRY(tti_cuda_check(error, "cudaGraphInstantiate"));
    *captured_graph = ready;
    return tti_cuda_check(cudaGraphUpload(ready, current->streams[TTI_QUEUE_COMPUTE]),
                          "cudaGraphUpload");
}

/* A kernel with an invalid read: makes the device fail, for tests. */
static void lose_device(void) {
    float *nowhere = (float *)(uintptr_t)64;
    tti_cuda_accumulate(nowhere, nowhere + 16, 16);
}

tutti_status tti_cuda_replay(void *captured_graph) {
    if (TTI_FAULT_AT("cuda.replay", current->desc.index, -1)) lose_device();
    return tti_cuda_check(cudaGraphLaunch(captured_graph, current->streams[TTI_QUEUE_COMPUTE]),
                          "cudaGraphLaunch");
}

void tti_cuda_release_captured_graph(void *captured_graph) {
    if (captured_graph) cudaGraphExecDestroy(captured_graph);
}

/* ---- between the programs of a step ---- */

tutti_status tti_cuda_begin_step(const tti_step_args *args, const tti_run *fixed, tti_run *runs,
                                 int n_runs) {
    return tti_cuda_check(tti_launch_begin_step(args, fixed, runs, n_runs, tti_cuda_stream()),
                          "begin_step");
}

tutti_status tti_cuda_gather(const tti_gather *gather, const tti_run *fixed, tti_run *runs) {
    return tti_cuda_check(tti_launch_begin_gather(gather, fixed, runs, tti_cuda_stream()),
                          "gather");
}

tutti_status tti_cuda_unpack(tti_queue queue, const tti_unpack *unpack) {
    return tti_cuda_check(tti_launch_unpack(unpack, current->streams[queue]), "unpack");
}

tutti_status tti_cuda_draw(const tti_draws *draws, int n, float *params) {
    size_t n_bytes = (size_t)n * sizeof *draws;
    tti_draws *table = tti_backend_cuda.alloc(n_bytes);
    if (!table) return tti_fail(TUTTI_E_NOMEM, "cuda: %zu bytes of tables", n_bytes);
    tutti_status st = tti_cuda_copy(TTI_QUEUE_COMPUTE, table, draws, n_bytes);
    if (st == TUTTI_OK)
        st = tti_cuda_check(tti_launch_draw(table, n, params, tti_cuda_stream()), "draw");
    if (st == TUTTI_OK) st = tti_cuda_sync();
    tti_backend_cuda.release(table, n_bytes);
    return st;
}

tutti_status tti_cuda_report(const tti_step_report *report, const double *sums, int n_sums,
                             void *host_report) {
    return tti_cuda_check(tti_launch_report(report, sums, n_sums, host_report, tti_cuda_stream()),
                          "report");
}

tutti_status tti_cuda_collect(const tti_collected *collected, double *sums) {
    return tti_cuda_check(tti_launch_collect(collected, sums, tti_cuda_stream()), "collect");
}

/* Refused if the device was lost: the next event reports it. */
void tti_cuda_accumulate(float *dst, const float *src, size_t n_elems) {
    cudaError_t error = tti_launch_accumulate(dst, src, n_elems, tti_cuda_stream());
    if (current->refused == cudaSuccess) current->refused = error;
}

void tti_cuda_accumulate_rounded(float *dst, const float *src, size_t n_elems) {
    cudaError_t error = tti_launch_accumulate_rounded(dst, src, n_elems, tti_cuda_stream());
    if (current->refused == cudaSuccess) current->refused = error;
}
