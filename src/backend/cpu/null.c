/* null.c - the kernel of a backend that computes nothing: every float that it gives is 1, every
 * integer 0.
 *
 * A job on it has every cost except computation, whatever the model: for measuring how many
 * workers a machine supports.  Results depend on the number of shards alone, as real ones do. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/dtype.h"

/* n elements. */
static void fill(tutti_dtype dtype, void *out, size_t n) {
    bool is_float = dtype != TUTTI_I32 && dtype != TUTTI_I64 && dtype != TUTTI_U8;
    float *floats = out;
    if (!is_float) memset(out, 0, n * tutti_dtype_bytes(dtype));
    for (size_t i = 0; dtype == TUTTI_F32 && i < n; i++) floats[i] = 1;
    for (size_t i = 0; is_float && dtype != TUTTI_F32 && i < n; i++)
        tti_store_elem(dtype, out, i, 1);
}

static tutti_status null_run(void *state, const tti_kargs *args) {
    (void)state;
    for (int k = 0; k < args->node->op->n_out; k++) {
        const tutti_value *value = args->node->out[k];
        fill(value->type.dtype, args->out[k], (size_t)tti_value_n_elems(value));
    }
    return TUTTI_OK;
}

const tti_kernel tti_null_kernel = {.op = "*", .name = "null", .run = null_run};
