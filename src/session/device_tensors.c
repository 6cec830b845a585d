/* device_tensors.c - tensors of the caller in device memory: inputs and outputs that do not go
 * through the host. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "session/session_state.h"

static bool all_on_devices(const tutti_session *s) {
    for (int i = 0; i < s->n_workers; i++)
        if (!tti_worker_backend(&s->workers[i])->device) return false;
    return true;
}

tutti_status tti_tensor_check_type(const char *what, const tutti_tensor *t) {
    const char *name = t->name ? t->name : "";
    if ((unsigned)t->type.dtype >= TUTTI_N_DTYPES)
        return tti_fail(TUTTI_E_INVALID, "session: %s '%s': dtype %d does not exist", what, name,
                        (int)t->type.dtype);
    if (t->type.shape.n_dims < 0 || t->type.shape.n_dims > TUTTI_MAX_DIMS)
        return tti_fail(TUTTI_E_INVALID, "session: %s '%s': n_dims is %d, not 0 .. %d", what, name,
                        t->type.shape.n_dims, TUTTI_MAX_DIMS);
    size_t n_bytes = tutti_dtype_bytes(t->type.dtype);
    for (int i = 0; i < t->type.shape.n_dims; i++)
        if (t->type.shape.dim[i] < 0 ||
            __builtin_mul_overflow(n_bytes, (size_t)t->type.shape.dim[i], &n_bytes) ||
            n_bytes > INT64_MAX)
            return tti_fail(TUTTI_E_INVALID, "session: %s '%s': dimension %d is %" PRId64, what,
                            name, i, t->type.shape.dim[i]);
    return TUTTI_OK;
}

tutti_status tti_tensor_check(const tutti_session *s, const char *what, const tutti_tensor *t) {
    const char *name = t->name ? t->name : "";
    TTI_TRY(tti_tensor_check_type(what, t));
    if (!t->data && tti_type_bytes(&t->type) > 0)
        return tti_fail(TUTTI_E_INVALID, "session: %s '%s': data is NULL", what, name);
    if ((uintptr_t)t->data % tutti_dtype_bytes(t->type.dtype) != 0)
        return tti_fail(TUTTI_E_INVALID, "session: %s '%s': data is not aligned to its elements",
                        what, name);
    if (t->device == 0) return TUTTI_OK;
    if (!all_on_devices(s))
        return tti_fail(
            TUTTI_E_UNSUPPORTED,
            "session: %s '%s': it is in the memory of device %d, and the session computes on the "
            "host; copy it to the host",
            what, name, t->device - 1);
    int n_devices = tti_session_device_ops(s)->count();
    if (t->device > 0 && t->device <= n_devices) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID,
                    "session: %s '%s': device is %d; 0 stands for the host and 1 .. %d for GPUs",
                    what, name, t->device, n_devices);
}

/* ---- copies, on the thread of a worker ---- */

tutti_status tti_worker_copy(const tti_session_worker *w, void *to, const void *from,
                             size_t n_bytes) {
    return tti_worker_backend(w)->device->queues.copy(TTI_QUEUE_COPY, to, from, n_bytes);
}

tutti_status tti_worker_sync(const tti_session_worker *w) {
    return tti_worker_backend(w)->device->queues.sync();
}

static tutti_status take(const tti_session_worker *w, uint8_t **memory, size_t n_bytes) {
    if (!*memory) *memory = tti_worker_backend(w)->alloc(n_bytes);
    if (*memory) return TUTTI_OK;
    return tti_fail(TUTTI_E_NOMEM,
                    "session: cannot allocate %zu bytes of device memory for a batch", n_bytes);
}

static size_t samples_bytes(const tti_session_worker *w) {
    return (size_t)w->n_shards * w->samples_bytes + 64;
}

static size_t outputs_bytes(const tti_session_worker *w) {
    return (size_t)w->n_shards * w->session->outputs_bytes + 64;
}

tutti_status tti_outputs_on_device(tti_session_worker *w) {
    return take(w, &w->device_outputs, outputs_bytes(w));
}

void tti_device_tensors_release(tti_session_worker *w) {
    const tti_backend *backend = tti_worker_backend(w);
    if (w->device_samples) backend->release(w->device_samples, samples_bytes(w));
    if (w->device_outputs) backend->release(w->device_outputs, outputs_bytes(w));
    w->device_samples = w->device_outputs = NULL;
}

/* ---- inputs ---- */

/* Labels and tokens are compared with the number of classes. */
bool tti_feed_is_direct(const tutti_session *s, int i, const tutti_tensor *t) {
    bool is_read = !tti_feed_has_fields(s) && (i > 0 || s->inputs[i].type.dtype != TUTTI_F32);
    return t->device > 0 && all_on_devices(s) && !s->loss && !is_read &&
           t->type.dtype == s->inputs[i].type.dtype;
}

/* Rows that a shard does not have: zeros, or in fields copies of the first row of the batch. */
static tutti_status pad_rows(const tti_session_worker *w, const tutti_tensor *t, tti_range rows,
                             const uint8_t *on_host, uint8_t *to, size_t row_bytes) {
    if (!tti_feed_has_fields(w->session))
        return tti_worker_copy(w, to + rows.first * row_bytes, on_host + rows.first * row_bytes,
                               (rows.last - rows.first) * row_bytes);
    for (size_t r = rows.first; r < rows.last; r++)
        TTI_TRY(tti_worker_copy(w, to + r * row_bytes, t->data, row_bytes));
    return TUTTI_OK;
}

/* Input i of a shard that has n rows from row at of the caller's on. */
static tutti_status copy_input(const tti_session_worker *w, const tti_feed *f, int i, int64_t at,
                               int64_t n, size_t shard) {
    const tutti_session *s = w->session;
    size_t rows = (size_t)w->shard_rows, row_bytes = tti_field_bytes(&s->inputs[i]);
    size_t offset = shard * w->samples_bytes + tti_field_offset(s->inputs, i, (int64_t)rows);
    const uint8_t *on_host = w->samples + offset;
    uint8_t *to = w->device_samples + offset;
    const tutti_tensor *t = f->tensor[i];
    if (!f->on_device[i] || f->n_rows == 0)
        return tti_worker_copy(w, to, on_host, rows * row_bytes);
    TTI_TRY(tti_worker_copy(w, to, (const uint8_t *)t->data + (size_t)at * row_bytes,
                            (size_t)n * row_bytes));
    return pad_rows(w, t, (tti_range){(size_t)n, rows}, on_host, to, row_bytes);
}

tutti_status tti_feed_to_device(tti_session_worker *w, const tti_feed *f) {
    const tutti_session *s = w->session;
    int64_t first, last, rows = w->shard_rows;
    int n_inputs = tti_feed_has_fields(s) ? s->n_inputs : 1; /* labels are not samples */
    TTI_TRY(take(w, &w->device_samples, samples_bytes(w)));
    tti_feed_rows(w, f, &first, &last);
    for (int k = 0; k < w->n_shards; k++) {
        int64_t at = TTI_MIN(first + k * rows, last), n = TTI_MIN(last - at, rows);
        for (int i = 0; i < n_inputs; i++) TTI_TRY(copy_input(w, f, i, at, n, (size_t)k));
        w->shards[k].x = w->device_samples + (size_t)k * w->samples_bytes;
    }
    return TUTTI_OK;
}
