/* cpu_backend_test.c - every kernel against the reference, on every sample of every op.
 *
 * For each layout of the 4-D values that a kernel accepts: the result is within TOLERANCE of the
 * reference's, relative to the largest magnitude of the output (f32 sums of the samples' lengths;
 * integers and 16-bit floats as stated below); a second run and an in-place run give the same
 * bits; so does every instruction set; nothing is written outside the outputs. */
#include "backend/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "ops/op_samples.h"
#include "ops/op_table.h"
#include "ops/rules.h"
#include "ops/special_values.h"
#include "t.h"

static const double TOLERANCE = 1e-5;    /* f32 */
static const double TOLERANCE_16 = 1e-2; /* bf16, f16: one rounding of 8 or more bits */

enum { GUARD_BYTES = 64, MAX_VALUES = TTI_MAX_IN + TTI_MAX_OUT };

/* ---- one node with memory ---- */

typedef struct bench {
    tutti_graph *g;
    tti_node *node;
    void *start[TTI_MAX_IN]; /* what the inputs hold */
    void *in[TTI_MAX_IN];    /* given to the kernel */
    void *out[TTI_MAX_OUT];
    void *want[TTI_MAX_OUT]; /* by the reference */
} bench;

static const tti_run test_run = {.seed = 11, .step = 3, .sample0 = 40};

static void *guarded(size_t n_bytes) {
    size_t n = (n_bytes + GUARD_BYTES + 63) / 64 * 64;
    unsigned char *memory = aligned_alloc(64, n);
    assert_non_null(memory);
    memset(memory, 0xA5, n);
    return memory;
}

static bool is_intact(const void *memory, size_t n_bytes) {
    const unsigned char *guard = (const unsigned char *)memory + n_bytes;
    for (int i = 0; i < GUARD_BYTES; i++)
        if (guard[i] != 0xA5) return false;
    return true;
}

/* The node of a sample in a graph of its own. */
static void bench_open(bench *b, const tti_op *op, const tti_sample *sample) {
    tutti_type types[TTI_MAX_IN];
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1];
    *b = (bench){.g = tutti_graph_create(true)};
    int n_in = t_parse_sample(op, sample, types, attrs);
    b->node = t_add_node(b->g, op, types, n_in, attrs);
    T_OK(tutti_graph_check(b->g));
    for (int i = 0; i < n_in; i++) {
        size_t n = tti_value_n_bytes(b->node->in[i]);
        b->start[i] = guarded(n), b->in[i] = guarded(n);
        t_fill_input(b->node, sample, i, b->start[i]);
    }
    for (int k = 0; k < op->n_out; k++) {
        size_t n = tti_value_n_bytes(b->node->out[k]);
        b->out[k] = guarded(n), b->want[k] = guarded(n);
    }
}

static void bench_close(bench *b) {
    for (int i = 0; i < TTI_MAX_IN; i++) free(b->start[i]), free(b->in[i]);
    for (int k = 0; k < TTI_MAX_OUT; k++) free(b->out[k]), free(b->want[k]);
    tutti_graph_destroy(b->g);
}

/* Runs kernel; in_place: out k takes the place of in k for k < n_in_place. */
static void bench_run(bench *b, const tti_kernel *kernel, int n_in_place) {
    void *state = NULL, *out[TTI_MAX_OUT];
    for (int i = 0; i < b->node->n_in; i++)
        memcpy(b->in[i], b->start[i], tti_value_n_bytes(b->node->in[i]));
    for (int k = 0; k < b->node->op->n_out; k++) {
        out[k] = k < n_in_place ? b->in[k] : b->out[k];
        if (k >= n_in_place) memset(out[k], 0xA5, tti_value_n_bytes(b->node->out[k]));
    }
    if (kernel->prepare) T_OK(kernel->prepare(b->node, &state));
    size_t n_scratch = kernel->scratch_bytes ? kernel->scratch_bytes(b->node, state) : 0;
    void *scratch = guarded(n_scratch);
    T_OK(kernel->run(state, &(tti_kargs){b->node, b->in, out, scratch, &test_run}));
    assert_true(is_intact(scratch, n_scratch));
    free(scratch);
    if (kernel->release) kernel->release(state);
    for (int i = 0; i < b->node->n_in; i++)
        assert_true(is_intact(b->in[i], tti_value_n_bytes(b->node->in[i])));
    for (int k = 0; k < b->node->op->n_out; k++) {
        assert_true(is_intact(out[k], tti_value_n_bytes(b->node->out[k])));
        if (k < n_in_place) memcpy(b->out[k], out[k], tti_value_n_bytes(b->node->out[k]));
    }
}

static void keep_as_wanted(bench *b) {
    for (int k = 0; k < b->node->op->n_out; k++)
        memcpy(b->want[k], b->out[k], tti_value_n_bytes(b->node->out[k]));
}

static const char *label(const bench *b, const tti_kernel *kernel) {
    static char text[512];
    tti_str str = {0};
    for (int i = 0; i < b->node->n_in; i++) {
        tti_type_print(&str, &b->node->in[i]->type);
        tti_str_add(&str, b->node->in[i]->layout ? "L " : " ");
    }
    snprintf(text, sizeof text, "%s by %s on %s", b->node->op->name, kernel->name,
             tti_str_text(&str));
    tti_str_free(&str);
    return text;
}

static double tolerance_of(tutti_dtype dtype) {
    if (dtype == TUTTI_F32 || dtype == TUTTI_F64) return TOLERANCE;
    return dtype == TUTTI_F16 || dtype == TUTTI_BF16 ? TOLERANCE_16 : 0;
}

/* The largest finite magnitude that the reference has in output k. */
static double largest_of(const bench *b, int k) {
    const tutti_value *value = b->node->out[k];
    return t_largest(value->type.dtype, b->want[k], (size_t)tti_value_n_elems(value));
}

/* Compares the outputs with the reference's; put is the special value in an input, 0 for none. */
static void expect_near(const bench *b, const tti_kernel *kernel, double put) {
    for (int k = 0; k < b->node->op->n_out; k++) {
        const tutti_value *value = b->node->out[k];
        tutti_dtype dtype = value->type.dtype;
        double tolerance = tolerance_of(dtype) * largest_of(b, k);
        for (size_t i = 0; i < (size_t)tti_value_n_elems(value); i++) {
            double got = tti_load_elem(dtype, b->out[k], i);
            double want = tti_load_elem(dtype, b->want[k], i);
            if (!t_is_honest(got, want, put, tolerance))
                fail_msg("%s, special value %g: out %d[%zu] is %.9g, want %.9g", label(b, kernel),
                         put, k, i, got, want);
        }
    }
}

static void expect_bits(const bench *b, const tti_kernel *kernel, const char *what) {
    for (int k = 0; k < b->node->op->n_out; k++)
        if (memcmp(b->out[k], b->want[k], tti_value_n_bytes(b->node->out[k])) != 0)
            fail_msg("%s: %s gives other bits in out %d", label(b, kernel), what, k);
}

/* ---- what is tried ---- */

static bool fits(const tti_kernel *kernel, const tti_node *node) {
    bool named = strcmp(kernel->op, node->op->name) == 0 || strcmp(kernel->op, "*") == 0;
    return named && (!kernel->can_run || kernel->can_run(node));
}

/* How many outputs the op may write over its inputs. */
static int n_in_place(const tti_node *node) {
    if (node->op->traits & TTI_UPDATE) return node->op->n_out;
    bool may = (node->op->traits & (TTI_IN_PLACE | TTI_VIEW)) != 0;
    return may && node->in[0]->layout == node->out[0]->layout &&
           tti_value_n_bytes(node->in[0]) == tti_value_n_bytes(node->out[0]);
}

static void check_kernel(bench *b, const tti_kernel *kernel) {
    bench_run(b, &tti_reference_kernel, 0);
    keep_as_wanted(b);
    bench_run(b, kernel, 0);
    expect_near(b, kernel, 0);
    keep_as_wanted(b);
    bench_run(b, kernel, 0);
    expect_bits(b, kernel, "a second run");
    int n = n_in_place(b->node);
    if (!n) return;
    bench_run(b, kernel, n);
    expect_bits(b, kernel, "an in-place run");
}

/* Gives the 4-D values N,H,W,C bytes: bit 0 the inputs, bit 1 the outputs; weights stay plain. */
static bool set_layouts(tti_node *node, int which) {
    bool any = false;
    for (int i = 0; i < node->n_in; i++) {
        bool is_weight = (node->op->weights_in >> i & 1) != 0;
        bool last = (which & 1) && node->in[i]->type.shape.n_dims == 4 && !is_weight;
        node->in[i]->layout = last ? TTI_CHANNELS_LAST_BYTES : TTI_PLAIN;
        any |= last;
    }
    for (int k = 0; k < node->op->n_out; k++) {
        bool is_weight = (node->op->weights_out >> k & 1) != 0;
        bool last = (which & 2) && node->out[k]->type.shape.n_dims == 4 && !is_weight;
        node->out[k]->layout = last ? TTI_CHANNELS_LAST_BYTES : TTI_PLAIN;
        any |= last;
    }
    return any || which == 0;
}

typedef void (*visit_fn)(bench *b);

/* Calls for each good sample of each op in each layout. */
static void for_samples(visit_fn visit) {
    const tti_op *op;
    for (int i = 0; (op = tti_op_at(i)) != NULL; i++) {
        if (op->traits & (TTI_SOURCE | TTI_FUSED)) continue;
        for (const tti_sample *sample = op->samples; sample->in; sample++) {
            if (sample->expect != TUTTI_OK) continue;
            bench b;
            bench_open(&b, op, sample);
            for (int which = 0; which < 4; which++)
                if (set_layouts(b.node, which)) visit(&b);
            bench_close(&b);
        }
    }
}

static void check_all_kernels(bench *b) {
    const tti_kernel *kernel;
    for (int i = 0; (kernel = tti_cpu_kernel_at(i)) != NULL; i++)
        if (fits(kernel, b->node)) check_kernel(b, kernel);
}

T_CASE(kernels_match_the_reference) {
    T_UNUSED;
    for_samples(check_all_kernels);
}

static void check_instruction_sets(bench *b) {
    const tti_cpu_isa *best = tti_cpu_isa_at(0), *isa;
    for (int f = 0; best->kernels[f]; f++)
        for (int r = 0; best->kernels[f][r].op; r++) {
            if (!fits(&best->kernels[f][r], b->node)) continue;
            bench_run(b, &best->kernels[f][r], 0);
            keep_as_wanted(b);
            for (int i = 1; (isa = tti_cpu_isa_at(i)) != NULL; i++) {
                assert_true(fits(&isa->kernels[f][r], b->node));
                bench_run(b, &isa->kernels[f][r], 0);
                expect_bits(b, &isa->kernels[f][r], "another instruction set");
            }
        }
}

T_CASE(instruction_sets_give_the_same_bits) {
    T_UNUSED;
    for_samples(check_instruction_sets);
}

/* ---- sizes that the samples do not have: whole vectors, blocks and tiles, and beyond ---- */

typedef struct big_sample {
    const char *op;
    tti_sample sample;
} big_sample;

static const big_sample big_samples[] = {
    {"relu", {.in = "f32[3,33,7,5]"}},
    {"gelu", {.in = "f32[1037]"}},
    {"add", {.in = "f32[3,33,7,5] f32[33,1,1]"}},
    {"add", {.in = "f32[61,70] f32[70]"}},
    {"mul", {.in = "f32[61,1] f32[61,70]"}},
    {"sum_to", {.in = "f32[5,33,7,6]", .attrs = "dims=[1,33,1,1]"}},
    {"sum_to", {.in = "f32[61,70]", .attrs = "dims=[70]"}},
    {"matmul", {.in = "f32[130,70] f32[70,101]"}},
    {"matmul", {.in = "f32[70,130] f32[101,70]", .attrs = "trans_a=1 trans_b=1"}},
    {"matmul", {.in = "f32[3,17,600] f32[3,600,33]"}},
    {"linear", {.in = "f32[67,784] f32[100,784] f32[100]", .attrs = "act=1"}},
    {"linear_grad_w", {.in = "f32[67,100] f32[67,300]"}},
    {"conv2d", {.in = "f32[2,32,14,14] f32[64,32,3,3] f32[64]", .attrs = "pad=[1,1] act=1"}},
    {"conv2d", {.in = "f32[2,1,28,28] f32[32,1,3,3] f32[32]", .attrs = "pad=[1,1]"}},
    {"conv2d", {.in = "f32[2,32,9,9] f32[32,1,3,3]", .attrs = "pad=[1,1] groups=32"}},
    {"conv2d_grad_x", {.in = "f32[2,64,14,14] f32[64,32,3,3]", .attrs = "pad=[1,1] in_hw=[14,14]"}},
    {"conv2d_grad_w", {.in = "f32[2,64,14,14] f32[2,32,14,14]", .attrs = "pad=[1,1] kernel=[3,3]"}},
    {"conv2d_grad_w", {.in = "f32[2,32,28,28] f32[2,1,28,28]", .attrs = "pad=[1,1] kernel=[3,3]"}},
    /* by taps, in N,H,W,C order: padding, a stride, taps that see nothing */
    {"conv2d", {.in = "f32[16,130,2,2] f32[128,130,3,3] f32[128]", .attrs = "pad=[1,1] act=1"}},
    {"conv2d", {.in = "f32[32,128,2,1] f32[128,128,2,1]", .attrs = "stride=[2,3] pad=[2,1]"}},
    {"conv2d_grad_x", {.in = "f32[16,128,2,2] f32[128,130,2,2]", .attrs = "in_hw=[3,3]"}},
    {"conv2d_grad_w", {.in = "f32[16,128,3,2] f32[16,130,2,2]", .attrs = "pad=[1,0] kernel=[2,1]"}},
    {"conv2d_grad_w",
     {.in = "f32[32,128,3,1] f32[32,128,2,1]", .attrs = "stride=[2,3] pad=[2,1] kernel=[2,2]"}},
    {"max_pool2d", {.in = "f32[2,35,8,8]", .attrs = "kernel=[2,2]"}},
    {"max_pool2d", {.in = "f32[2,35,9,9]", .attrs = "kernel=[3,3] stride=[2,2] pad=[1,1]"}},
    {"max_pool2d_grad",
     {.in = "f32[2,35,4,4] u8[2,35,4,4]", .attrs = "kernel=[2,2] in_hw=[8,8]", .int_hi = 3}},
    {"max_pool2d_grad",
     {.in = "f32[2,35,4,4] u8[2,35,4,4]",
      .attrs = "kernel=[3,3] stride=[2,2] in_hw=[9,9]",
      .int_hi = 8}},
    {"avg_pool2d", {.in = "f32[2,35,9,9]", .attrs = "kernel=[3,3] stride=[2,2] pad=[1,1]"}},
    {"softmax", {.in = "f32[7,1000]", .lo = -20, .hi = 20}},
    {"log_softmax", {.in = "f32[7,100]", .lo = -20, .hi = 20}},
    {"cross_entropy", {.in = "f32[67,10] i32[67]", .int_lo = -1, .int_hi = 9}},
    {"cross_entropy",
     {.in = "f32[9,1000] i32[9]", .attrs = "smoothing=0.1", .lo = -9, .hi = 9, .int_hi = 999}},
    {"mse", {.in = "f32[9,130] f32[9,130] i32[9]", .int_lo = -1, .int_hi = 1}},
    {"sum", {.in = "f32[7,100,33]", .attrs = "axes=[0,2]"}},
    {"max_reduce", {.in = "f32[7,100,33]", .attrs = "axes=[1]"}},
    {"transpose", {.in = "f32[37,5,50]", .attrs = "perm=[2,1,0]"}},
    {"reshape", {.in = "f32[3,33,7,5]", .attrs = "dims=[3,1155]"}},
    {"concat", {.in = "f32[3,16,7,5] f32[3,17,7,5]", .attrs = "axis=1"}},
    {"dropout", {.in = "f32[5,33,7,6]", .attrs = "p=0.3 key=77"}},
    {"dropout", {.in = "f32[5,33,301]", .attrs = "p=0.3 key=77 cut_dim=2 cut_n=3 cut_index=1"}},
    {"dropout_grad", {.in = "f32[2,777]", .attrs = "p=0.3 key=7 cut_dim=1 cut_n=4 cut_index=3"}},
    {"entropy_part",
     {.in = "f32[9,1000] i32[9]",
      .attrs = "first=2000",
      .lo = -9,
      .hi = 9,
      .int_lo = 1500,
      .int_hi = 3500}},
    {"entropy_join_grad",
     {.in = "f32[9,1000] i32[9] f32[] f32[9,2]",
      .attrs = "smoothing=0.1 n=4 first=2000",
      .lo = 1,
      .hi = 3,
      .int_lo = -1,
      .int_hi = 3999}},
    {"tensor_slice", {.in = "f32[3,34,7,5]", .attrs = "n=2 index=1 dim=1"}},
    {"adamw", {.in = "f32[1037] f32[1037] f32[1037] f32[1037] f32[8]", .lo = 0.1, .hi = 0.9}},
    {"to_layout", {.in = "f32[3,33,7,5]", .attrs = "layout=1"}},
    {"layer_norm", {.in = "f32[3,70,130] f32[130] f32[130]", .lo = -3, .hi = 5}},
    {"layer_norm", {.in = "f32[3,5000] f32[5000]", .lo = 2, .hi = 3}},
    {"layer_norm_grad_x", {.in = "f32[3,70,130] f32[3,70,130] f32[3,70] f32[3,70] f32[130]"}},
    {"layer_norm_grad_w", {.in = "f32[3,70,130] f32[3,70,130] f32[3,70] f32[3,70]"}},
    {"rms_norm", {.in = "f32[70,130] f32[130]"}},
    {"rms_norm_grad_x", {.in = "f32[70,130] f32[70,130] f32[70] f32[130]"}},
    {"rms_norm_grad_w", {.in = "f32[70,130] f32[70,130] f32[70]"}},
    {"group_norm", {.in = "f32[3,32,9,9] f32[32] f32[32]", .attrs = "groups=4"}},
    {"group_norm_grad_x",
     {.in = "f32[3,32,9,9] f32[3,32,9,9] f32[3,4] f32[3,4] f32[32]", .attrs = "groups=4"}},
    {"group_norm_grad_w",
     {.in = "f32[3,32,9,9] f32[3,32,9,9] f32[3,4] f32[3,4]", .attrs = "groups=4"}},
    {"bn_stats", {.in = "f32[3,70,13,11] i32[]", .lo = 2, .hi = 3, .int_lo = 2, .int_hi = 2}},
    {"bn_stats", {.in = "f32[700,70]", .lo = 9, .hi = 10}},
    {"bn_apply", {.in = "f32[3,70,13,11] f32[141] f32[70] f32[70]", .lo = 0.5, .hi = 2}},
    {"bn_eval", {.in = "f32[3,70,13,11] f32[70] f32[70] f32[70] f32[70]", .lo = 0.5, .hi = 2}},
    {"bn_grad_sums", {.in = "f32[3,70,13,11] f32[3,70,13,11] f32[141]", .lo = 0.5, .hi = 2}},
    {"bn_grad_apply",
     {.in = "f32[3,70,13,11] f32[3,70,13,11] f32[141] f32[70] f32[141] i32[]",
      .lo = 0.5,
      .hi = 2,
      .int_lo = 2,
      .int_hi = 2}},
    {"bn_apply",
     {.in = "f32[3,70,13,11] f32[141] f32[70] f32[70] f32[3,70,13,11]",
      .attrs = "act=1",
      .lo = 0.1,
      .hi = 2}},
    {"bn_eval",
     {.in = "f32[3,70,13,11] f32[70] f32[70] f32[70] f32[70]",
      .attrs = "act=1",
      .lo = 0.1,
      .hi = 2}},
    {"bn_grad_sums", /* eps: M2 is negative here and there */
     {.in = "f32[3,70,53,41] f32[3,70,53,41] f32[141] f32[3,70,53,41]",
      .attrs = "act=1 eps=9",
      .lo = -2,
      .hi = 2}},
    {"bn_grad_apply",
     {.in = "f32[3,70,13,11] f32[3,70,13,11] f32[141] f32[70] f32[141] i32[] f32[3,70,13,11]",
      .attrs = "act=1 eps=9",
      .lo = -2,
      .hi = 2,
      .int_lo = 2,
      .int_hi = 2}},
    {"rotary", {.in = "f32[3,70,120]", .attrs = "heads=3 dim=34 start=5"}},
    {"rotary", {.in = "f32[3,1,120] i32[1]", .attrs = "heads=3 dim=34 inverse=1", .int_hi = 900}},
    {"attention_cached",
     {.in = "f32[2,1,120] f32[2,150,20] f32[2,150,20] i32[1]",
      .attrs = "heads=8 kv_heads=2",
      .int_lo = 140,
      .int_hi = 140}},
    {"relu6", {.in = "f32[1037]", .lo = -9, .hi = 9}},
    {"relu6_grad", {.in = "f32[1037] f32[1037]", .lo = -9, .hi = 9}},
    {"silu", {.in = "f32[1037]", .lo = -9, .hi = 9}},
    {"silu_grad", {.in = "f32[1037] f32[1037]", .lo = -9, .hi = 9}},
    {"gelu", {.in = "f32[1037]", .attrs = "approximate=1", .lo = -9, .hi = 9}},
    {"gelu_grad", {.in = "f32[1037] f32[1037]", .attrs = "approximate=1", .lo = -9, .hi = 9}},
    {"swiglu", {.in = "f32[61,70]"}},
    {"swiglu_grad", {.in = "f32[61,70] f32[61,35]"}},
    {"geglu", {.in = "f32[61,70]"}},
    {"geglu", {.in = "f32[61,70]", .attrs = "approximate=1"}},
    {"geglu_grad", {.in = "f32[61,70] f32[61,35]"}},
    {"geglu_grad", {.in = "f32[61,70] f32[61,35]", .attrs = "approximate=1"}},
    {"drop_path", {.in = "f32[33,5,7]", .attrs = "p=0.4 key=9"}},
    {"lstm", {.in = "f32[9,7,35] f32[160,35] f32[160,40] f32[160] f32[160]"}},
    {"lstm_grad", {.in = "f32[9,7,40] f32[160,40] f32[9,7,40] f32[9,7,160] f32[9,40]"}},
    {"gru", {.in = "f32[9,7,35] f32[120,35] f32[120,40] f32[120] f32[120] f32[9,40]"}},
    {"gru_grad", {.in = "f32[9,7,40] f32[120,40] f32[9,7,40] f32[9,7,160]"}},
    {"upsample_nearest2d", {.in = "f32[3,33,7,5]", .attrs = "scale=[2,3]"}},
    {"upsample_nearest2d_grad", {.in = "f32[3,33,14,15]", .attrs = "scale=[2,3]"}},
    {"upsample_bilinear2d", {.in = "f32[3,33,7,5]", .attrs = "out=[15,9]"}},
    {"upsample_bilinear2d_grad", {.in = "f32[3,33,15,9]", .attrs = "in_hw=[7,5] align=1"}},
    {"bce_with_logits", {.in = "f32[9,330] f32[9,330] i32[9]", .lo = -9, .hi = 9, .int_lo = -1}},
    {"bce_with_logits_grad", {.in = "f32[9,330] f32[9,330] f32[]", .lo = -9, .hi = 9}},
    {"kl_div", {.in = "f32[9,330] f32[9,330]", .lo = 0.1, .hi = 1}},
    {"cast", {.in = "f32[1037]", .attrs = "dtype=2", .lo = -7, .hi = 7}},
    {"cast", {.in = "f16[1037]", .attrs = "dtype=0", .lo = -7, .hi = 7}},
    {"embedding", {.in = "f32[65,130] i32[3,70]", .int_lo = -1, .int_hi = 65}},
    {"embedding_grad", {.in = "f32[3,70,130] i32[3,70]", .attrs = "rows=65", .int_hi = 64}},
    {"gather", {.in = "f32[3,65,33] i32[70]", .attrs = "axis=1", .int_lo = -1, .int_hi = 65}},
    {"scatter_add", {.in = "f32[3,70,33] i32[70]", .attrs = "axis=1 total=65", .int_hi = 64}},
    {"attention", {.in = "f32[2,150,192]", .attrs = "heads=2 causal=1", .lo = -2, .hi = 2}},
    {"attention",
     {.in = "f32[2,300,72] i32[2]", .attrs = "heads=6 kv_heads=3", .int_lo = 40, .int_hi = 299}},
    {"attention",
     {.in = "f32[3,70,60] i32[3]", .attrs = "heads=4 causal=1", .int_lo = -1, .int_hi = 90}},
    {"attention_grad",
     {.in = "f32[2,150,96] f32[2,150,32] f32[2,1,150] f32[2,150,32]", .attrs = "causal=1"}},
    {"attention_grad",
     {.in = "f32[2,300,72] i32[2] f32[2,300,36] f32[2,6,300] f32[2,300,36]",
      .attrs = "heads=6 kv_heads=3",
      .int_lo = 40,
      .int_hi = 299}},
    {"attention_grad",
     {.in = "f32[2,70,60] i32[2] f32[2,70,20] f32[2,4,70] f32[2,70,20]",
      .attrs = "heads=4 causal=1",
      .int_lo = 20,
      .int_hi = 90}},
    {"to_layout", {.in = "u8[3,33,7,5]", .attrs = "layout=0"}},
};

static void for_big_samples(visit_fn visit) {
    for (size_t i = 0; i < TTI_COUNT(big_samples); i++) {
        const tti_op *op = tti_op_find(big_samples[i].op);
        if (!op) fail_msg("there is no op %s", big_samples[i].op);
        bench b;
        bench_open(&b, op, &big_samples[i].sample);
        for (int which = 0; which < 4; which++)
            if (set_layouts(b.node, which)) visit(&b);
        bench_close(&b);
    }
}

T_CASE(larger_sizes) {
    T_UNUSED;
    for_big_samples(check_all_kernels);
    for_big_samples(check_instruction_sets);
}

/* ---- NaN, infinities, denormals and minus zero ---- */

static void check_special(bench *b, int i, const t_special *s) {
    const tti_kernel *kernel;
    size_t n_bytes = tti_value_n_bytes(b->node->in[i]);
    void *before = guarded(n_bytes);
    memcpy(before, b->start[i], n_bytes);
    t_put_special(b->node->in[i], b->start[i], s);
    bench_run(b, &tti_reference_kernel, 0);
    keep_as_wanted(b);
    for (int k = 0; (kernel = tti_cpu_kernel_at(k)) != NULL; k++) {
        if (kernel == &tti_reference_kernel || !fits(kernel, b->node)) continue;
        bench_run(b, kernel, 0);
        expect_near(b, kernel, s->value);
    }
    memcpy(b->start[i], before, n_bytes);
    free(before);
}

/* Every kernel against the reference, element by element. */
static void check_infinite_labels(bench *b) {
    const tti_kernel *kernel;
    if (!t_put_infinite_labels(b->node, b->start[0], b->start[1])) return;
    bench_run(b, &tti_reference_kernel, 0);
    keep_as_wanted(b);
    for (int k = 0; (kernel = tti_cpu_kernel_at(k)) != NULL; k++) {
        if (kernel == &tti_reference_kernel || !fits(kernel, b->node)) continue;
        bench_run(b, kernel, 0);
        expect_near(b, kernel, 0);
    }
}

static void check_input(bench *b, int i, size_t n_specials) {
    const tutti_type *type = &b->node->in[i]->type;
    if (!tti_is_float(type->dtype) || tutti_shape_n_elems(&type->shape) == 0) return;
    for (size_t v = 0; v < n_specials; v++) check_special(b, i, &t_specials[v]);
}

/* The reference is slow: of a long sample one NaN only. */
static void check_all_specials(bench *b) {
    size_t n = tti_value_n_elems(b->node->in[0]) <= 4096 ? TTI_COUNT(t_specials) : 1;
    for (int i = 0; i < b->node->n_in; i++) check_input(b, i, n);
}

/* One NaN into ops that take a maximum or may end in a ReLU. */
static void check_nan(bench *b) {
    static const char *const with_max[] = {"relu",       "linear",      "conv2d",  "max_pool2d",
                                           "softmax",    "log_softmax", "bn_eval", "cross_entropy",
                                           "max_reduce", "attention",   "bn_apply"};
    for (size_t k = 0; k < TTI_COUNT(with_max); k++)
        if (strcmp(b->node->op->name, with_max[k]) == 0) check_input(b, 0, 1);
}

T_CASE(values_that_are_not_finite_are_never_hidden) {
    T_UNUSED;
    for_samples(check_all_specials);
    for_samples(check_infinite_labels);
    for_big_samples(check_nan);
}

/* Scores of -inf have no weight, also where a whole tile of keys has them; only a row without any
 * other score is NaN, as in PyTorch. */
static void check_masked_keys(const char *attrs, size_t n_masked) {
    tti_sample sample = {.in = "f32[1,150,3]", .attrs = attrs, .lo = 0.5, .hi = 2};
    bench b;
    bench_open(&b, tti_op_find("attention"), &sample);
    for (size_t t = 0; t < n_masked; t++) ((float *)b.start[0])[3 * t + 1] = -INFINITY;
    bench_run(&b, &tti_reference_kernel, 0);
    keep_as_wanted(&b);
    bench_run(&b, tti_backend_cpu.select(b.node, false), 0);
    for (int k = 0; k < 2; k++)
        for (size_t t = 0; t < 150; t++) {
            double got = ((float *)b.out[k])[t], want = ((float *)b.want[k])[t];
            bool is_nan = strchr(attrs, 'c') ? t < n_masked : n_masked == 150;
            T_EQ(isnan(want), is_nan);
            if (is_nan ? !isnan(got) : !(fabs(got - want) < 1e-5))
                fail_msg("%s, %zu keys: output %d, row %zu is %g, not %g", attrs, n_masked, k, t,
                         got, want);
        }
    bench_close(&b);
}

T_CASE(attention_goes_on_after_keys_without_weight) {
    T_UNUSED;
    static const size_t n_masked[] = {1, 128, 140, 150};
    for (size_t i = 0; i < TTI_COUNT(n_masked); i++) {
        check_masked_keys("heads=1", n_masked[i]);
        check_masked_keys("heads=1 causal=1", n_masked[i]);
    }
}

/* ---- what rides along gives the bits of separate nodes ---- */

static void run_selected(bench *b, const char *op, const char *in, const char *attrs, int layouts) {
    tti_sample sample = {.in = in, .attrs = attrs, .lo = -2, .hi = 2, .int_lo = 2, .int_hi = 2};
    bench_open(b, tti_op_find(op), &sample);
    set_layouts(b->node, layouts);
    bench_run(b, tti_backend_cpu.select(b->node, false), 0);
}

static float relu_of(float x) { return x < 0.0f ? 0.0f : x; }

T_CASE(batch_norm_with_residual_and_relu_is_the_chain) {
    T_UNUSED;
#define X "f32[3,70,13,11]"
#define PLAIN X " f32[141] f32[70] f32[70]"
    for (int layouts = 0; layouts < 4; layouts += 3) {
        bench plain, act, both;
        run_selected(&plain, "bn_apply", PLAIN, "eps=9", layouts);
        run_selected(&act, "bn_apply", PLAIN, "eps=9 act=1", layouts);
        run_selected(&both, "bn_apply", PLAIN " " X, "eps=9 act=1", layouts);
        const float *y = plain.out[0], *r = both.in[4];
        int n_cut = 0;
        for (size_t i = 0; i < (size_t)tti_value_n_elems(both.node->out[0]); i++) {
            float one = relu_of(y[i]), other = relu_of(y[i] + r[i]);
            assert_memory_equal(&((float *)act.out[0])[i], &one, sizeof one);
            assert_memory_equal(&((float *)both.out[0])[i], &other, sizeof other);
            n_cut += other == 0.0f;
        }
        assert_true(n_cut > 0);
        bench_close(&plain), bench_close(&act), bench_close(&both);
    }
}

/* in 0, which is dy, masked by y as relu_grad does. */
static void mask_first(bench *b, const float *y) {
    float *dy = b->start[0];
    for (size_t i = 0; i < (size_t)tti_value_n_elems(b->node->in[0]); i++)
        dy[i] = y[i] > 0.0f ? dy[i] : 0.0f;
    bench_run(b, tti_backend_cpu.select(b->node, false), 0);
}

T_CASE(masked_gradients_of_batch_norm_are_the_chain) {
    T_UNUSED;
    static const char *const ops[][3] = {
        {"bn_grad_sums", X " " X " f32[141] i32[]", X " " X " f32[141] i32[] " X},
        {"bn_grad_apply", X " " X " f32[141] f32[70] f32[141] i32[]",
         X " " X " f32[141] f32[70] f32[141] i32[] " X},
    };
    for (int layouts = 0; layouts < 4; layouts += 3)
        for (size_t i = 0; i < TTI_COUNT(ops); i++) {
            bench chain, fused;
            run_selected(&chain, ops[i][0], ops[i][1], "eps=9", layouts);
            run_selected(&fused, ops[i][0], ops[i][2], "eps=9 act=1", layouts);
            mask_first(&chain, fused.in[fused.node->n_in - 1]);
            assert_memory_equal(chain.out[0], fused.out[0], tti_value_n_bytes(fused.node->out[0]));
            bench_close(&chain), bench_close(&fused);
        }
#undef X
#undef PLAIN
}

/* ---- selection ---- */

static const char *selected(const char *op_name, const tti_sample *sample, int which) {
    bench b;
    bench_open(&b, tti_op_find(op_name), sample);
    set_layouts(b.node, which);
    const tti_kernel *kernel = tti_backend_cpu.select(b.node, false);
    const char *name = kernel ? kernel->name : "none";
    bench_close(&b);
    return name;
}

T_CASE(the_fastest_kernel_is_selected) {
    T_UNUSED;
    const char *own = tti_cpu_isa_at(0)->name, *products = TUTTI_HAVE_ONEDNN ? "onednn" : own;
    tti_sample conv = {.in = "f32[2,32,14,14] f32[64,32,3,3] f32[64]", .attrs = "pad=[1,1]"};
    for (int which = 0; which < 4; which += 3)
        assert_string_equal(selected("conv2d", &conv, which), products);
    tti_sample linear = {.in = "f32[8,16] f32[4,16] f32[4]"};
    assert_string_equal(selected("linear", &linear, 0), products);
    tti_sample same = {.in = "f32[2,3,4,5]"};
    assert_string_equal(selected("relu", &same, 0), own);
    assert_string_equal(selected("relu", &same, 3), own);
    assert_string_equal(selected("relu", &same, 1), "reference"); /* layouts differ */
    tti_sample doubles = {.in = "f64[2,3,4,5]"};
    assert_string_equal(selected("relu", &doubles, 0), "reference");
}

T_CASE(the_reference_can_be_asked_for_and_sources_run_nothing) {
    T_UNUSED;
    bench b;
    bench_open(&b, tti_op_find("relu"), &(tti_sample){.in = "f32[4]"});
    assert_string_equal(tti_backend_cpu.select(b.node, true)->name, "reference");
    assert_null(tti_backend_cpu.select(b.node->in[0]->node, false));
    bench_close(&b);
}

/* ---- fused chains ---- */

/* y = relu(0.5 x + 1) * z: the chain in a node of its own, as the fuse pass makes it. */
static tti_node *fused_node(tutti_graph *g, const char *type_text, tti_node **body) {
    tutti_type type;
    T_OK(tti_type_parse(&type_text, &type));
    tutti_value *x = tutti_input(g, "x", type.dtype, &type.shape);
    tutti_value *z = tutti_input(g, "z", type.dtype, &type.shape);
    tti_attr_arg attrs[] = {TTI_FLOAT("alpha", 0.5), TTI_FLOAT("beta", 0.25), {0}};
    tutti_value *a = tti_emit(g, "affine", NULL, &x, 1, attrs);
    tutti_value *r = tti_emit(g, "relu", NULL, &a, 1, NULL);
    tutti_value *y = tti_emit(g, "mul", NULL, (tutti_value *[]){r, z}, 2, NULL);
    T_OK(tutti_graph_check(g));
    body[0] = a->node, body[1] = r->node, body[2] = y->node;
    tti_node *node = tti_arena_alloc(&g->arena, sizeof *node);
    tutti_value **in = tti_arena_alloc(&g->arena, 2 * sizeof *in);
    tutti_value *out = tti_arena_copy(&g->arena, y, sizeof *y);
    assert_true(node && in && out);
    in[0] = x, in[1] = z;
    *node = (tti_node){.op = tti_op_find("fused"), .name = "", .n_in = 2, .in = in};
    node->out[0] = out, out->node = node;
    node->body = body, node->n_body = 3;
    return node;
}

static void check_fused(const char *type_text, const char *kernel_name) {
    tti_node *body[3];
    bench b = {.g = tutti_graph_create(true)};
    b.node = fused_node(b.g, type_text, body);
    for (int i = 0; i < 2; i++) {
        b.start[i] = guarded(tti_value_n_bytes(b.node->in[i]));
        b.in[i] = guarded(tti_value_n_bytes(b.node->in[i]));
        t_fill_input(b.node, &(tti_sample){0}, i, b.start[i]);
    }
    b.out[0] = guarded(tti_value_n_bytes(b.node->out[0]));
    b.want[0] = guarded(tti_value_n_bytes(b.node->out[0]));
    const tti_kernel *kernel = tti_backend_cpu.select(b.node, false);
    assert_non_null(kernel);
    assert_string_equal(kernel->name, kernel_name);
    check_kernel(&b, kernel);
    size_t n = (size_t)tti_value_n_elems(b.node->out[0]);
    for (size_t i = 0; i < n; i++) {
        tutti_dtype dtype = b.node->out[0]->type.dtype;
        double x = tti_load_elem(dtype, b.start[0], i), z = tti_load_elem(dtype, b.start[1], i);
        T_NEAR(tti_load_elem(dtype, b.out[0], i), fmax(0.5 * x + 0.25, 0) * z, 1e-6);
    }
    bench_close(&b);
}

T_CASE(fused_chains_run_in_blocks) {
    T_UNUSED;
    check_fused("f32[2]", tti_cpu_isa_at(0)->name);
    check_fused("f32[5,1000]", tti_cpu_isa_at(0)->name);
    check_fused("f64[5,1000]", "reference");
}

/* ---- memory, description, threads ---- */

T_CASE(memory_is_aligned_and_zero) {
    T_UNUSED;
    static const size_t sizes[] = {0, 1, 100, 2 << 20, (2 << 20) + 1, 5000001};
    for (size_t i = 0; i < TTI_COUNT(sizes); i++) {
        unsigned char *p = tti_backend_cpu.alloc(sizes[i]);
        assert_non_null(p);
        assert_true((uintptr_t)p % 64 == 0);
        for (size_t j = 0; j < sizes[i]; j++) assert_true(p[j] == 0);
        memset(p, 1, sizes[i]);
        tti_backend_cpu.release(p, sizes[i]);
    }
    tti_backend_cpu.release(NULL, 100);
    assert_null(tti_backend_cpu.alloc(SIZE_MAX));
    assert_null(tti_backend_cpu.alloc(SIZE_MAX - 4096));
}

T_CASE(the_description_names_the_libraries) {
    T_UNUSED;
    tti_str str = {0};
    tti_backend_cpu.describe(&str);
    assert_non_null(strstr(tti_str_text(&str), tti_cpu_isa_at(0)->name));
    assert_non_null(strstr(tti_str_text(&str), "oneDNN"));
    tti_str_free(&str);
}

T_CASE(denormals_are_zero_after_thread_init) {
    T_UNUSED;
    tti_cpu_thread_init();
#if defined(__x86_64__)
    volatile float small = 0x1p-126f;
    assert_true(small * 0.5f == 0.0f);
#endif
    assert_true(tti_backend_cpu.prefers_channels_last != NULL);
}

/* ---- each op has a kernel ---- */

/* Ops that the reference computes, in f64 and element by element: those that are made for devices
 * only; those of the executor; with few elements, one for a channel or row; and rare ones. */
static const char on_reference[] =
    " matmul_gelu_grad_sums matmul_wide linear_grad_w_wide conv2d_stats conv2d_pool"
    " conv2d_pool_grad_x conv2d_pool_grad_w bn_apply_pair bn_apply_mask conv2d_grad_join"
    " conv2d_grad_sums bn_apply_pool bn_pool_grad_sums bn_pool_grad_apply add_layer_norm"
    " layer_norm_grads layer_norm_grads_cast layer_norm_grads_sums attention_grad_sums"
    " cross_entropy_and_grad cross_entropy_and_grad_sums cross_entropy_head scale_rows"
    " sync_moments sync_sum tensor_copy tensor_all_reduce tensor_all_gather tensor_reduce_scatter"
    " bn_running bn_grad_join own_rows entropy_join "
    " stop_gradient gather_rows sum_rows permute_view ";

/* A row of its own, or a kernel for all ops that takes one of its samples. */
static bool has_kernel(const tti_op *op) {
    const tti_kernel *kernel;
    for (int i = 0; (kernel = tti_cpu_kernel_at(i)) != NULL; i++)
        if (strcmp(kernel->op, op->name) == 0) return true;
    bool found = false;
    for (const tti_sample *s = op->samples; s && s->in && !found; s++) {
        bench b;
        if (s->expect != TUTTI_OK) continue;
        bench_open(&b, op, s);
        kernel = tti_backend_cpu.select(b.node, false);
        found = kernel != &tti_reference_kernel && kernel != &tti_narrow_kernel;
        bench_close(&b);
    }
    return found;
}

T_CASE(each_op_has_a_kernel_or_a_reason) {
    T_UNUSED;
    const tti_op *op;
    for (int i = 0; (op = tti_op_at(i)) != NULL; i++) {
        if (op->traits & (TTI_SOURCE | TTI_FUSED)) continue;
        char word[64];
        snprintf(word, sizeof word, " %s ", op->name);
        bool listed = strstr(on_reference, word) != NULL;
        if (has_kernel(op) == listed)
            fail_msg(
                "%s %s on_reference", op->name,
                listed ? "has a kernel: take it out of" : "has no kernel: add one, or list it in");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_op_has_a_kernel_or_a_reason),
        cmocka_unit_test(kernels_match_the_reference),
        cmocka_unit_test(instruction_sets_give_the_same_bits),
        cmocka_unit_test(larger_sizes),
        cmocka_unit_test(values_that_are_not_finite_are_never_hidden),
        cmocka_unit_test(attention_goes_on_after_keys_without_weight),
        cmocka_unit_test(batch_norm_with_residual_and_relu_is_the_chain),
        cmocka_unit_test(masked_gradients_of_batch_norm_are_the_chain),
        cmocka_unit_test(the_fastest_kernel_is_selected),
        cmocka_unit_test(the_reference_can_be_asked_for_and_sources_run_nothing),
        cmocka_unit_test(fused_chains_run_in_blocks),
        cmocka_unit_test(memory_is_aligned_and_zero),
        cmocka_unit_test(the_description_names_the_libraries),
        cmocka_unit_test(denormals_are_zero_after_thread_init),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
