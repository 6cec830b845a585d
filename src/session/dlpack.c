/* dlpack.c - views of DLPack tensors (github.com/dmlc/dlpack, dlpack.h 1.1). */
#include <inttypes.h>
#include <stdint.h>

#include "base/error.h"
#include "tutti/session.h"

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

static bool find_dtype(const dl_tensor *t, tutti_dtype *out) {
    static const struct {
        uint8_t code, bits;
        tutti_dtype dtype;
    } known[] = {{DL_FLOAT, 32, TUTTI_F32},   {DL_FLOAT, 64, TUTTI_F64}, {DL_FLOAT, 16, TUTTI_F16},
                 {DL_BFLOAT, 16, TUTTI_BF16}, {DL_INT, 32, TUTTI_I32},   {DL_INT, 64, TUTTI_I64},
                 {DL_UINT, 8, TUTTI_U8},      {DL_BOOL, 8, TUTTI_U8}};
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
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "dlpack: '%s' is on a device of type %d; the host and CUDA are possible",
                        name, t->device_type);
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
        return tti_fail(TUTTI_E_UNSUPPORTED, "dlpack: '%s' has version %u.%u, 1.x is possible",
                        name ? name : "", v->major, v->minor);
    return view(&v->tensor, name ? name : "", out);
}
