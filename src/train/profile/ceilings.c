/* ceilings.c - times a square matrix product and a copy. */
#include "train/profile/ceilings.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/philox.h"
#include "tutti/ops.h"

enum { MIN_NS = 100000000, MAX_REPEATS = 4096, N_DRAWN = 1 << 20 };

/* Sides of the matrices: on a core of the host, and at most on a device. */
enum { LEAST_SIDE = 1024, MOST_SIDE = 8192 };

typedef struct rig {
    const tti_backend *backend;
    tutti_graph *g;
    const tti_node *node;
    const tti_kernel *kernel;
    void *state, *memory[4]; /* a, b, product, scratch */
    size_t n_bytes[4];
} rig;

static tutti_status wait(const rig *r) {
    return r->backend->device ? r->backend->device->queues.sync() : TUTTI_OK;
}

static tutti_status copy(const rig *r, void *dst, const void *src, size_t n_bytes) {
    if (r->backend->device)
        return r->backend->device->queues.copy(TTI_QUEUE_COMPUTE, dst, src, n_bytes);
    memcpy(dst, src, n_bytes);
    return TUTTI_OK;
}

/* Fills memory with repeated random values, because kernels run faster on zeros than on real
 * values. */
static tutti_status fill(const rig *r, int which, tutti_dtype dtype, int64_t n) {
    size_t n_all = r->n_bytes[which], n_drawn = n_all / (size_t)n * (size_t)TTI_MIN(n, N_DRAWN);
    char *host = malloc(n_all + 64);
    if (!host) return tti_fail(TUTTI_E_NOMEM, "doctor: out of memory");
    for (int64_t i = 0; i < n && i < N_DRAWN; i += 4) {
        tti_philox draw = tti_philox_draw((uint64_t)which, 1, (uint64_t)i);
        for (int k = 0; k < 4 && i + k < n; k++)
            tti_store_elem(dtype, host, (size_t)(i + k), tti_philox_unit(draw.v[k]) - 0.5);
    }
    for (size_t at = n_drawn; at < n_all; at += n_drawn)
        memcpy(host + at, host, TTI_MIN(n_drawn, n_all - at));
    tutti_status st = copy(r, r->memory[which], host, r->n_bytes[which]);
    if (st == TUTTI_OK) st = wait(r);
    free(host);
    return st;
}

static tutti_status build(rig *r, tutti_dtype dtype, int64_t side) {
    tutti_shape shape = TUTTI_SHAPE(side, side);
    r->g = tutti_graph_create(false);
    if (!r->g) return tti_fail(TUTTI_E_NOMEM, "doctor: out of memory");
    tutti_value *a = tutti_input(r->g, "a", dtype, &shape),
                *b = tutti_input(r->g, "b", dtype, &shape);
    tutti_value *y = tutti_matmul(r->g, a, b);
    TTI_TRY(tutti_graph_check(r->g));
    r->node = y->node;
    r->kernel = r->backend->select(r->node, false);
    if (!r->kernel) return tti_fail(TUTTI_E_UNSUPPORTED, "doctor: no kernel multiplies matrices");
    if (r->kernel->prepare) TTI_TRY(r->kernel->prepare(r->node, &r->state));
    for (int i = 0; i < 3; i++) r->n_bytes[i] = tti_value_n_bytes(a);
    r->n_bytes[3] = r->kernel->scratch_bytes ? r->kernel->scratch_bytes(r->node, r->state) : 64;
    for (int i = 0; i < 4; i++) {
        r->memory[i] = r->backend->alloc(r->n_bytes[i]);
        if (!r->memory[i])
            return tti_fail(TUTTI_E_NOMEM, "doctor: cannot allocate %zu bytes", r->n_bytes[i]);
    }
    TTI_TRY(fill(r, 0, dtype, side * side));
    return fill(r, 1, dtype, side * side);
}

typedef tutti_status (*action_fn)(const rig *r);

static tutti_status multiply(const rig *r) {
    static const tti_run run;
    void *const in[] = {r->memory[0], r->memory[1]}, *const out[] = {r->memory[2]};
    return r->kernel->run(r->state, &(tti_kargs){r->node, in, out, r->memory[3], &run});
}

static tutti_status copy_once(const rig *r) {
    return copy(r, r->memory[2], r->memory[0], r->n_bytes[0]);
}

/* Returns the seconds of one action, averaged over enough repetitions. */
static tutti_status time_of(const rig *r, action_fn action, double *s) {
    TTI_TRY(action(r));
    TTI_TRY(wait(r));
    for (int n = 1; n <= MAX_REPEATS; n *= 2) {
        int64_t start = tti_now_ns();
        for (int i = 0; i < n; i++) TTI_TRY(action(r));
        TTI_TRY(wait(r));
        int64_t ns = tti_now_ns() - start;
        *s = (double)ns * 1e-9 / n;
        if (ns >= MIN_NS) break;
    }
    return TUTTI_OK;
}

/* Returns the side of the matrices.  Three of them use at most a sixteenth of the free memory,
 * because a device may be nearly full. */
static int64_t side_of(const tti_backend *backend, tutti_dtype dtype) {
    size_t n_now, n_peak, n_free, n_bytes = 3 * tutti_dtype_bytes(dtype);
    int64_t side = MOST_SIDE;
    if (!backend->device) return LEAST_SIDE;
    backend->device->memory.get_usage(&n_now, &n_peak, &n_free);
    while (side > LEAST_SIDE && (size_t)(side * side) * n_bytes > n_free / 16) side /= 2;
    return side;
}

tutti_status tti_ceilings_measure(const tti_backend *backend, tutti_dtype dtype,
                                  tti_ceilings *out) {
    rig r = {.backend = backend};
    double multiplied = 1, copied = 1;
    *out = (tti_ceilings){.dtype = dtype, .side = side_of(backend, dtype)};
    tutti_status st = build(&r, dtype, out->side);
    if (st == TUTTI_OK) st = time_of(&r, multiply, &multiplied);
    if (st == TUTTI_OK) st = time_of(&r, copy_once, &copied);
    double side = (double)out->side;
    out->flops = 2 * side * side * side / multiplied;
    out->bytes = 2 * (double)r.n_bytes[0] / copied;
    for (int i = 0; i < 4; i++) backend->release(r.memory[i], r.n_bytes[i]);
    if (r.kernel && r.kernel->release) r.kernel->release(r.state);
    tutti_graph_destroy(r.g);
    return st;
}
