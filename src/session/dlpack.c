/* dlpack.c - views of DLPack tensors, and tensors made for their consumers
 * (github.com/dmlc/dlpack, dlpack.h 1.1). */
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "ir/graph.h"
#include "session/session_state.h"

/* The structs of dlpack.h, whose layout is fixed. */
typedef struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t n_dims;
    uint8_t type_code, type_bits;
    uint16_t type_lanes;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row-major */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *manager;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_managed_versioned {
    uint32_t major, minor;
    void *manager;
    void (*deleter)(struct dl_managed_versioned *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_managed_versioned;

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };
enum { DL_INT, DL_UINT, DL_FLOAT, DL_BFLOAT = 4, DL_BOOL = 6 };

/* The first row of a dtype is the one that is written. */
static const struct {
    uint8_t code, bits;
    tutti_dtype dtype;
} known[] = {{DL_FLOAT, 32, TUTTI_F32},   {DL_FLOAT, 64, TUTTI_F64}, {DL_FLOAT, 16, TUTTI_F16},
             {DL_BFLOAT, 16, TUTTI_BF16}, {DL_INT, 32, TUTTI_I32},   {DL_INT, 64, TUTTI_I64},
             {DL_UINT, 8, TUTTI_U8},      {DL_BOOL, 8, TUTTI_U8}};

static bool find_dtype(const dl_tensor *t, tutti_dtype *out) {
    for (size_t i = 0; i < TTI_COUNT(known); i++) {
        if (known[i].code != t->type_code || known[i].bits != t->type_bits || t->type_lanes != 1)
            continue;
        *out = known[i].dtype;
        return true;
    }
    return false;
}

static tutti_status check_strides(const dl_tensor *t, const char *name) {
    int64_t step = 1;
    for (int i = t->n_dims - 1; i >= 0; i--) {
        if (t->shape[i] > 1 && t->strides && t->strides[i] != step)
            return tti_fail(TUTTI_E_INVALID,
                            "dlpack: '%s' is not contiguous: dimension %d has stride %" PRId64
                            ", not %" PRId64 "; pass a contiguous copy",
                            name, i, t->strides[i], step);
        if (t->shape[i] < 0 ||
            (t->shape[i] > 0 && __builtin_mul_overflow(step, t->shape[i], &step)))
            return tti_fail(TUTTI_E_INVALID, "dlpack: '%s': dimension %d is %" PRId64, name, i,
                            t->shape[i]);
    }
    return TUTTI_OK;
}

static tutti_status view(const dl_tensor *t, const char *name, tutti_tensor *out) {
    tutti_tensor made = {.name = name};
    bool on_host = t->device_type == DL_CPU || t->device_type == DL_CUDA_HOST;
    bool on_cuda = t->device_type == DL_CUDA || t->device_type == DL_CUDA_MANAGED;
    if (!on_host && (!on_cuda || t->device_id < 0))
        return tti_fail(
            TUTTI_E_UNSUPPORTED,
            "dlpack: '%s' is on a device of type %d; only the host and CUDA are supported", name,
            t->device_type);
    if (!find_dtype(t, &made.type.dtype))
        return tti_fail(TUTTI_E_UNSUPPORTED, "dlpack: '%s' has dtype code %d with %d bits", name,
                        t->type_code, t->type_bits);
    if (t->n_dims < 0 || t->n_dims > TUTTI_MAX_DIMS || (t->n_dims > 0 && !t->shape))
        return tti_fail(TUTTI_E_INVALID, "dlpack: '%s' has %d dimensions, not 0 .. %d", name,
                        t->n_dims, TUTTI_MAX_DIMS);
    TTI_TRY(check_strides(t, name));
    made.type.shape.n_dims = t->n_dims;
    for (int i = 0; i < t->n_dims; i++) made.type.shape.dim[i] = t->shape[i];
    made.data = t->data ? (char *)t->data + t->byte_offset : NULL;
    made.device = on_cuda ? t->device_id + 1 : 0;
    *out = made;
    return TUTTI_OK;
}

tutti_status tutti_tensor_from_dlpack(const void *managed, bool is_versioned, const char *name,
                                      tutti_tensor *out) {
    if (!managed || !out)
        return tti_fail(TUTTI_E_INVALID, "tutti_tensor_from_dlpack: %s is NULL",
                        managed ? "out" : "managed");
    if (!is_versioned) return view(&((const dl_managed *)managed)->tensor, name ? name : "", out);
    const dl_managed_versioned *v = managed;
    if (v->major != 1)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "dlpack: '%s' has version %u.%u, only 1.x is supported", name ? name : "",
                        v->major, v->minor);
    return view(&v->tensor, name ? name : "", out);
}

/* ---- tensors that are made here ---- */

/* Memory with its description, in one allocation: lives until the deleter is called. */
typedef struct owned_tensor {
    union {
        dl_managed plain;
        dl_managed_versioned versioned;
    } as;                      /* the first member: consumers have its address */
    const tti_device_ops *ops; /* NULL: host memory */
    void *data;
    int64_t shape[TUTTI_MAX_DIMS + 1], strides[TUTTI_MAX_DIMS + 1];
} owned_tensor;

static void destroy_owned(owned_tensor *owned) {
    if (owned->ops)
        owned->ops->memory.release_lasting(owned->data);
    else
        free(owned->data);
    free(owned);
}

static void delete_plain(dl_managed *self) {
    if (self) destroy_owned(self->manager);
}

static void delete_versioned(dl_managed_versioned *self) {
    if (self) destroy_owned(self->manager);
}

static dl_tensor describe(owned_tensor *owned, const tutti_type *type, int32_t device) {
    dl_tensor t = {.data = owned->data,
                   .device_type = device > 0 ? DL_CUDA : DL_CPU,
                   .device_id = device > 0 ? device - 1 : 0,
                   .n_dims = type->shape.n_dims,
                   .type_lanes = 1,
                   .shape = owned->shape,
                   .strides = owned->strides};
    size_t row = 0;
    while (known[row].dtype != type->dtype) row++;
    t.type_code = known[row].code;
    t.type_bits = known[row].bits;
    int64_t step = 1;
    for (int i = type->shape.n_dims - 1; i >= 0; i--) {
        owned->shape[i] = type->shape.dim[i];
        owned->strides[i] = step;
        step *= TTI_MAX(type->shape.dim[i], 1);
    }
    return t;
}

/* Device memory is allocated by the thread that has opened its device. */
typedef struct new_call {
    owned_tensor *owned;
    const tutti_type *type;
    const tti_session_worker *worker; /* on that device; NULL: host memory */
} new_call;

static tutti_status alloc_worker(tti_session_worker *w, void *arg) {
    new_call *call = arg;
    if (w != call->worker) return TUTTI_OK;
    size_t n_bytes = tti_type_bytes(call->type);
    call->owned->ops = tti_worker_backend(w)->device;
    call->owned->data = call->owned->ops->memory.alloc_lasting(n_bytes);
    if (call->owned->data) return TUTTI_OK;
    return tti_fail(TUTTI_E_NOMEM,
                    "session: cannot allocate %zu bytes of device memory for a tensor", n_bytes);
}

static tutti_status find_worker(const tutti_session *s, int32_t device,
                                const tti_session_worker **out) {
    *out = device > 0 ? tti_session_worker_on(s, device - 1) : NULL;
    if (device == 0 || *out) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID,
                    "session: device is %d; 0 stands for the host and k for CUDA device k - 1, on "
                    "which a worker of this process must compute",
                    device);
}

static tutti_status check_new(const tutti_type *type, void **managed) {
    if (!managed) return tti_fail(TUTTI_E_INVALID, "session: managed is NULL");
    *managed = NULL;
    if (!type) return tti_fail(TUTTI_E_INVALID, "session: type is NULL");
    const tutti_tensor t = {.name = "new tensor", .type = *type};
    return tti_tensor_check_type("tensor", &t);
}

static tutti_status make_new(tutti_session *s, const tutti_type *type, int32_t device,
                             bool is_versioned, void **managed) {
    new_call call = {.type = type};
    TTI_TRY(check_new(type, managed));
    TTI_TRY(find_worker(s, device, &call.worker));
    owned_tensor *owned = call.owned = calloc(1, sizeof *owned);
    if (owned && !call.worker)
        owned->data = aligned_alloc(64, (tti_type_bytes(type) + 127) & ~(size_t)63);
    tutti_status st = owned && (call.worker || owned->data)
                          ? TUTTI_OK
                          : tti_fail(TUTTI_E_NOMEM, "session: out of memory for a tensor");
    if (st == TUTTI_OK && call.worker) st = tti_session_try(s, alloc_worker, &call);
    if (st != TUTTI_OK) {
        if (owned) destroy_owned(owned);
        return st;
    }
    dl_tensor tensor = describe(owned, type, device);
    if (is_versioned)
        owned->as.versioned = (dl_managed_versioned){1, 1, owned, delete_versioned, 0, tensor};
    else
        owned->as.plain = (dl_managed){tensor, owned, delete_plain};
    *managed = owned;
    return TUTTI_OK;
}

tutti_status tutti_session_new_dlpack(tutti_session *s, const tutti_type *type, int32_t device,
                                      bool is_versioned, void **managed) {
    TTI_TRY(tti_session_enter(s, __func__));
    return tti_session_leave(s, make_new(s, type, device, is_versioned, managed));
}

tutti_status tutti_session_read_dlpack(tutti_session *s, tutti_array_kind kind, const char *name,
                                       int32_t device, bool is_versioned, void **managed) {
    tutti_type type;
    tutti_tensor to;
    if (!managed) return tti_fail(TUTTI_E_INVALID, "%s: managed is NULL", __func__);
    *managed = NULL;
    TTI_TRY(tti_session_array_type(s, kind, name, &type));
    TTI_TRY(tutti_session_new_dlpack(s, &type, device, is_versioned, managed));
    tutti_status st = tutti_tensor_from_dlpack(*managed, is_versioned, name, &to);
    if (st == TUTTI_OK) st = tutti_session_read(s, kind, name, &to);
    if (st == TUTTI_OK) return TUTTI_OK;
    tutti_dlpack_release(*managed, is_versioned);
    *managed = NULL;
    return st;
}

void tutti_dlpack_release(void *managed, bool is_versioned) {
    if (!managed) return;
    if (is_versioned) {
        dl_managed_versioned *v = managed;
        if (v->deleter) v->deleter(v);
        return;
    }
    dl_managed *plain = managed;
    if (plain->deleter) plain->deleter(plain);
}
