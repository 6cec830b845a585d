/* cuda_conv_small_test.c - small convolutions and products on tensor cores, exactly.
 *
 * Values are multiples of 1/8 up to 1, which tf32 holds, and every sum of their products fits into
 * f32: so any order of additions gives the bits of the reference.  Exit code 77 without a device.
 */
#include <stdio.h>
#include <stdlib.h>

#include "backend/cpu/cpu.h"
#include "backend/gpus.h"
#include "base/dtype.h"
#include "base/philox.h"
#include "ops/op_table.h"
#include "t.h"

static const tti_device_ops *ops;
static bool plain_pooled; /* what is after a pooling lies in plain bytes */

typedef struct conv_case {
    const char *op, *in, *attrs, *kernel;
} conv_case;

static tti_node *make_node(tutti_graph *g, const conv_case *c) {
    const tti_op *op = tti_op_find(c->op);
    const char *text = c->in, *attr_text = c->attrs;
    tutti_value *in[3];
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {{0}};
    int n_in = 0;
    while (*text) {
        tutti_type type;
        char name[8];
        while (*text == ' ') text++;
        T_OK(tti_type_parse(&text, &type));
        snprintf(name, sizeof name, "x%d", n_in);
        in[n_in++] = tutti_input(g, name, type.dtype, &type.shape);
    }
    T_OK(tti_attrs_parse(op, &attr_text, &g->arena, attrs, TTI_MAX_ATTRS));
    tti_node *node = tti_graph_add(
        g, &(tti_node_desc){.op = op, .name = "it", .in = in, .n_in = n_in, .attrs = attrs});
    assert_non_null(node);
    for (int i = 0; i < n_in; i++)
        if (in[i]->type.shape.n_dims == 4 && !(op->weights_in >> i & 1))
            in[i]->layout = TTI_CHANNELS_LAST_BYTES;
    for (int k = 0; k < op->n_out; k++)
        if (node->out[k]->type.shape.n_dims == 4 && !(op->weights_out >> k & 1))
            node->out[k]->layout = TTI_CHANNELS_LAST_BYTES;
    bool is_grad = strstr(c->op, "_grad_") != NULL;
    for (int i = 0; plain_pooled && i < 2; i++)
        (is_grad ? node->in[i] : node->out[i])->layout = TTI_PLAIN;
    return node;
}

/* Bytes are places in a window, and nowhere. */
static void *eighths(const tutti_value *value, uint64_t stream) {
    size_t n = (size_t)tti_value_n_elems(value);
    float *x = malloc(n * sizeof *x + 4);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        uint32_t draw = tti_philox_draw(5, stream, i).v[0];
        double number = value->type.dtype == TUTTI_U8 ? draw % 5 : ((int)(draw % 17) - 8) / 8.0;
        tti_store_elem(value->type.dtype, x, i, number);
    }
    return x;
}

static void *on_device(const void *from, size_t n_bytes) {
    void *memory = cuda->alloc(n_bytes);
    assert_non_null(memory);
    if (from) T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, memory, from, n_bytes));
    return memory;
}

static void run(const tti_kernel *kernel, const tti_node *node, void *const *in, void *const *out,
                bool device) {
    size_t n = kernel->scratch_bytes ? kernel->scratch_bytes(node, NULL) : 0;
    void *scratch = device ? on_device(NULL, n) : calloc(1, n + 1);
    T_OK(kernel->run(NULL, &(tti_kargs){.node = node, .in = in, .out = out, .scratch = scratch}));
    if (device) T_OK(ops->queues.sync());
    if (device)
        cuda->release(scratch, n);
    else
        free(scratch);
}

static void check(const conv_case *c) {
    tutti_graph *g = tutti_graph_create(true);
    tti_node *node = make_node(g, c);
    const tti_kernel *kernel = cuda->select(node, false);
    assert_string_equal(kernel->name, c->kernel);
    void *in[3], *din[3], *want[2], *got[2], *dout[2];
    for (int i = 0; i < node->n_in; i++) {
        in[i] = eighths(node->in[i], (uint64_t)i);
        din[i] = on_device(in[i], tti_value_n_bytes(node->in[i]));
    }
    for (int k = 0; k < node->op->n_out; k++) {
        size_t n = tti_value_n_bytes(node->out[k]);
        want[k] = calloc(1, n), got[k] = calloc(1, n), dout[k] = on_device(NULL, n);
    }
    run(&tti_reference_kernel, node, in, want, false);
    run(kernel, node, din, dout, true);
    for (int k = 0; k < node->op->n_out; k++) {
        size_t n = tti_value_n_bytes(node->out[k]);
        T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, got[k], dout[k], n));
        T_OK(ops->queues.sync());
        for (size_t i = 0; i < (size_t)tti_value_n_elems(node->out[k]); i++) {
            double is = tti_load_elem(node->out[k]->type.dtype, got[k], i);
            double wanted = tti_load_elem(node->out[k]->type.dtype, want[k], i);
            if (is != wanted)
                fail_msg("%s(%s): out %d[%zu] is %g, want %g", c->op, c->in, k, i, is, wanted);
        }
        free(want[k]);
        free(got[k]);
        cuda->release(dout[k], n);
    }
    for (int i = 0; i < node->n_in; i++) {
        cuda->release(din[i], tti_value_n_bytes(node->in[i]));
        free(in[i]);
    }
    tutti_graph_destroy(g);
}

T_CASE(forward) {
    T_UNUSED;
    static const conv_case cases[] = {
        {"conv2d", "f32[128,1,28,28] f32[32,1,3,3] f32[32]", "pad=[1,1] act=1", "image"},
        {"conv2d", "f32[3,3,9,7] f32[16,3,3,3]", "pad=[1,1]", "image"},
        {"conv2d", "f32[2,4,5,4] f32[64,4,3,3] f32[64]", "pad=[1,1]", "image"},
        {"conv2d", "f32[128,32,14,14] f32[64,32,3,3] f32[64]", "pad=[1,1] act=1", "small"},
        {"conv2d", "f32[3,32,7,5] f32[32,32,3,3]", "pad=[1,1]", "small"},
        {"conv2d", "f32[5,64,33,20] f32[64,64,3,3] f32[64]", "pad=[1,1]", "small"},
        {"conv2d", "f32[200,64,1,1] f32[32,64,3,3] f32[32]", "pad=[1,1] act=1", "small"},
    };
    for (size_t i = 0; i < TTI_COUNT(cases); i++) check(&cases[i]);
}

T_CASE(gradients) {
    T_UNUSED;
    static const conv_case cases[] = {
        {"conv2d_grad_x", "f32[128,64,14,14] f32[64,32,3,3]", "pad=[1,1] in_hw=[14,14]", "small"},
        {"conv2d_grad_x", "f32[3,32,7,5] f32[32,64,3,3]", "pad=[1,1] in_hw=[7,5]", "small"},
        {"conv2d_grad_x", "f32[2,64,33,20] f32[64,64,3,3]", "pad=[1,1] in_hw=[33,20]", "small"},
        {"conv2d_grad_w", "f32[128,64,14,14] f32[128,32,14,14]", "pad=[1,1] kernel=[3,3]", "small"},
        {"conv2d_grad_w", "f32[3,32,7,5] f32[3,32,7,5]", "pad=[1,1] kernel=[3,3]", "small"},
        {"conv2d_grad_w", "f32[5,64,33,20] f32[5,64,33,20]", "pad=[1,1] kernel=[3,3]", "small"},
        {"conv2d_grad_w", "f32[300,32,2,2] f32[300,64,2,2]", "pad=[1,1] kernel=[3,3]", "small"},
        {"conv2d_grad_w", "f32[128,32,28,28] f32[128,1,28,28]", "pad=[1,1] kernel=[3,3]", "small"},
        {"conv2d_grad_w", "f32[3,16,9,7] f32[3,3,9,7]", "pad=[1,1] kernel=[3,3]", "small"},
    };
    for (size_t i = 0; i < TTI_COUNT(cases); i++) check(&cases[i]);
}

T_CASE(pooled) {
    T_UNUSED;
    static const conv_case cases[] = {
        {"conv2d_pool", "f32[128,1,28,28] f32[32,1,3,3] f32[32]", "", "image"},
        {"conv2d_pool", "f32[3,3,10,6] f32[16,3,3,3] f32[16]", "", "image"},
        {"conv2d_pool", "f32[128,32,14,14] f32[64,32,3,3] f32[64]", "", "small"},
        {"conv2d_pool", "f32[5,64,32,20] f32[64,64,3,3] f32[64]", "", "small"},
        {"conv2d_pool", "f32[3,32,2,6] f32[32,32,3,3] f32[32]", "", "small"},
        {"conv2d_pool_grad_x", "f32[128,64,7,7] u8[128,64,7,7] f32[64,32,3,3]", "", "small"},
        {"conv2d_pool_grad_x", "f32[2,64,16,10] u8[2,64,16,10] f32[64,64,3,3]", "", "small"},
        {"conv2d_pool_grad_x", "f32[3,32,1,3] u8[3,32,1,3] f32[32,64,3,3]", "", "small"},
        {"conv2d_pool_grad_w", "f32[128,64,7,7] u8[128,64,7,7] f32[128,32,14,14]", "", "small"},
        {"conv2d_pool_grad_w", "f32[300,32,1,1] u8[300,32,1,1] f32[300,64,2,2]", "", "small"},
        {"conv2d_pool_grad_w", "f32[5,64,16,10] u8[5,64,16,10] f32[5,64,32,20]", "", "small"},
        {"conv2d_pool_grad_w", "f32[128,32,14,14] u8[128,32,14,14] f32[128,1,28,28]", "", "small"},
        {"conv2d_pool_grad_w", "f32[3,16,5,3] u8[3,16,5,3] f32[3,3,10,6]", "", "small"},
        {"conv2d_pool", "f32[2,5,4,4] f32[6,5,3,3] f32[6]", "", "cuda"},
        {"conv2d_pool_grad_w", "f32[2,6,2,2] u8[2,6,2,2] f32[2,5,4,4]", "", "cuda"},
    };
    for (int plain = 0; plain < 2; plain++) {
        plain_pooled = plain != 0;
        for (size_t i = 0; i < TTI_COUNT(cases); i++) check(&cases[i]);
    }
    plain_pooled = false;
}

/* Either order of both operands, sides that are no tiles, k that blocks share. */
T_CASE(products) {
    T_UNUSED;
    static const conv_case cases[] = {
        {"linear", "f32[128,3136] f32[128,3136] f32[128]", "act=1", "small"},
        {"linear", "f32[3,43,128] f32[10,128] f32[10]", "", "small"},
        {"linear", "f32[1,1] f32[1,1]", "", "small"},
        {"linear", "f32[100,999] f32[99,999]", "act=1", "small"},
        {"matmul", "f32[128,128] f32[128,3136]", "", "small"},
        {"matmul", "f32[7,33,64] f32[64,36]", "", "small"},
        {"matmul", "f32[701,66] f32[701,30]", "trans_a=1", "small"},
        {"matmul", "f32[700,64] f32[31,700]", "trans_a=1 trans_b=1", "small"},
        {"linear_grad_w", "f32[128,10] f32[128,128]", "", "small"},
        {"linear_grad_w", "f32[128,128] f32[128,3136]", "", "small"},
        {"linear_grad_w", "f32[3001,5] f32[3001,7]", "", "small"},
        {"linear_grad_w", "f32[8,1024,40] f32[8,1024,40]", "", "small"},
    };
    for (size_t i = 0; i < TTI_COUNT(cases); i++) check(&cases[i]);
}

/* Batches, and what is worth more than one launch. */
T_CASE(other_products) {
    T_UNUSED;
    static const conv_case cases[] = {
        {"matmul", "f32[8,40,33] f32[8,33,40]", "", "cublaslt"},
        {"matmul", "f32[1024,1024] f32[1024,1024]", "", "cublaslt"},
        {"linear", "f32[40,9000] f32[40,9000]", "", "cublaslt"},
        {"linear", "bf16[40,90] bf16[40,90]", "", "cublaslt"},
        {"linear", "f32[0,90] f32[40,90]", "", "cublaslt"},
    };
    for (size_t i = 0; i < TTI_COUNT(cases); i++) {
        tutti_graph *g = tutti_graph_create(true);
        assert_string_equal(cuda->select(make_node(g, &cases[i]), false)->name, cases[i].kernel);
        tutti_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(forward), cmocka_unit_test(gradients),
                                       cmocka_unit_test(pooled), cmocka_unit_test(products),
                                       cmocka_unit_test(other_products)};
    int code = find_gpus(1);
    if (code) return code;
    ops = cuda->device;
    if (ops->open(&(tti_device_desc){.index = 0, .tf32 = true}) != TUTTI_OK) return 2;
    int n = cmocka_run_group_tests(tests, NULL, NULL);
    ops->close();
    return n ? 1 : 0;
}
