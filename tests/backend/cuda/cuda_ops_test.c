/* cuda_ops_test.c - every op on the device against the reference: every sample, every layout, every
 * legal mixture of float dtypes, and larger cases for the paths that small samples do not reach.
 *
 * The result is within TOLERANCE of the reference's (with 16-bit values, or products in tf32, what
 * their roundings may do), relative to the largest magnitude of the output; a second run gives the
 * same bits in exact mode; nothing is written outside outputs and scratch.  All failures are listed
 * before the test fails, at most MAX_NUMBERS of them by name.
 * The references are computed on the host, so several processes share the cases and the GPUs.
 * TUTTI_TEST_OPS: a text that the names of the ops to try contain; TUTTI_TEST_CASES: a pattern of
 * cases to run, such as "samples*"; with either, one process runs them all.  Exit code 77 without a
 * device.
 */
#include "backend/cuda/attention/sdpa_cases.h"
#include "backend/cuda/conv/depthwise_cases.h"
#include "backend/cuda/op_bench.h"
#include "backend/split.h"
#include "ops/special_values.h"

static const double TOLERANCE = 2e-5;
static const double TOLERANCE_16 = 1e-2;   /* one rounding of 8 bits */
static const double TOLERANCE_TF32 = 2e-3; /* operands rounded to 11 bits */

static bool is_exact; /* the same bits on every run are asked for */
static bool is_tf32;  /* products of f32 may be rounded to that */

/* Relative to the largest magnitude of output k. */
static double tolerance_of(const bench *b, int k) {
    tutti_dtype dtype = b->node->out[k]->type.dtype;
    if (dtype == TUTTI_F16 || dtype == TUTTI_BF16) return TOLERANCE_16;
    if (!is_float(dtype)) return 0;
    for (int i = 0; i < b->node->n_in; i++) { /* one rounding of what came in in 16 bits */
        tutti_dtype in = b->node->in[i]->type.dtype;
        bool has_low_copy = in == TUTTI_F16 || in == TUTTI_BF16;
        if (tti_value_n_bytes(b->node->in[i]) && has_low_copy) return TOLERANCE_16;
    }
    return is_tf32 ? TOLERANCE_TF32 : TOLERANCE;
}

/* The largest finite magnitude that the reference has in output k. */
static double largest_of(const bench *b, int k) {
    const tutti_value *value = b->node->out[k];
    return t_largest(value->type.dtype, b->want[k], (size_t)tti_value_n_elems(value));
}

static void compare(bench *b) {
    for (int k = 0; k < b->node->op->n_out; k++) {
        const tutti_value *value = b->node->out[k];
        tutti_dtype dtype = value->type.dtype;
        double largest = largest_of(b, k), tolerance = tolerance_of(b, k);
        for (size_t i = 0; i < (size_t)tti_value_n_elems(value); i++) {
            double got = tti_load_elem(dtype, b->got[k], i);
            double want = tti_load_elem(dtype, b->want[k], i);
            if (got == want || (isnan(got) && isnan(want))) continue; /* infinities are equal */
            if (fabs(got - want) <= tolerance * largest) continue;
            char text[160];
            snprintf(text, sizeof text, "out %d[%zu] is %.9g, want %.9g (largest %.3g) by %s", k, i,
                     got, want, largest, cuda->select(b->node, false)->name);
            report(b, text);
            return;
        }
    }
}

static void check(bench *b) {
    on_device d;
    n_tried++;
    run_reference(b);
    if (device_open(b, &d) && device_run_once(b, &d, b->got)) {
        compare(b);
        if (is_exact && device_run_once(b, &d, b->first))
            for (int k = 0; k < b->node->op->n_out; k++)
                if (memcmp(b->got[k], b->first[k], tti_value_n_bytes(b->node->out[k])) != 0)
                    report(b, "a second run gives other bits");
    }
    device_close(&d);
}

static void check_sample(const tti_op *op, const tti_sample *sample, variant v) {
    bench b;
    if (bench_open(&b, op, sample, v))
        for (int which = 0; which < 2; which++)
            if (set_layouts(b.node, which)) check(&b);
    bench_close(&b);
    tti_clear_error();
}

/* As written; all floats in 16 bits; one input alone, and all but one.  Parameters and optimizer
 * state are f32 in every plan (docs/adr/0003-mixed-precision.md), so updates come as written. */
static void check_variants(const tti_op *op, const tti_sample *sample) {
    check_sample(op, sample, (variant){TUTTI_F32, 0});
    if (op->traits & TTI_UPDATE) return;
    check_sample(op, sample, (variant){TUTTI_BF16, ~0u});
    check_sample(op, sample, (variant){TUTTI_F16, ~0u});
    for (int i = 0; i < 4 && i < op->n_in_max && op->n_in_max > 1; i++) {
        check_sample(op, sample, (variant){TUTTI_BF16, 1u << i});
        check_sample(op, sample, (variant){TUTTI_BF16, ~(1u << i)});
    }
}

/* Every loop asks once per op or case. */
static bool is_wanted(const tti_op *op) {
    const char *text = getenv("TUTTI_TEST_OPS");
    return split_is_mine() && (!text || strstr(op->name, text));
}

static void end(const char *what) {
    n_ever += n_tried;
    printf("%s: %d cases, %d failures, %d without a kernel\n", what, n_tried, n_failed, n_missing);
    if (n_failed) fail_msg("%d of %d cases failed", n_failed, n_tried);
}

/* Exchanges between the workers of a tensor axis are the executor's, not kernels of a backend. */
static bool is_kernels(const tti_op *op) {
    return !(op->traits & (TTI_SOURCE | TTI_FUSED | TTI_VIEW | TTI_COLLECTIVE));
}

T_CASE(samples_match_the_reference) {
    T_UNUSED;
    const tti_op *op;
    n_tried = n_failed = n_missing = 0;
    for (int i = 0; (op = tti_op_at(i)) != NULL; i++) {
        if (!is_kernels(op) || !is_wanted(op)) continue;
        for (const tti_sample *sample = op->samples; sample->in; sample++)
            if (sample->expect == TUTTI_OK) check_variants(op, sample);
    }
    end("samples");
}

/* Shapes that reach the vector paths, several blocks and second passes. */
static const op_case large[] = {
    {"add", {.in = "f32[64,1031] f32[64,1031]"}},
    {"add", {.in = "f32[8,64,28,28] f32[8,64,28,28]"}},
    {"add", {.in = "f32[300,768] f32[768]"}},
    {"relu", {.in = "f32[1000003]"}},
    {"gelu", {.in = "f32[512,3072]", .attrs = "approximate=1", .lo = -4, .hi = 4}},
    {"gelu_grad",
     {.in = "f32[512,3072] f32[512,3072]", .attrs = "approximate=1", .lo = -4, .hi = 4}},
    {"cast", {.in = "f32[1000003]", .attrs = "dtype=3"}},
    {"sum", {.in = "f32[4096,768]", .attrs = "axes=[0]"}},
    {"sum", {.in = "f32[300,5000]", .attrs = "axes=[1]"}},
    {"sum", {.in = "f32[2000000]"}},
    {"sum_to", {.in = "f32[4096,768]", .attrs = "dims=[768]"}},
    {"dropout", {.in = "f32[64,1000]", .attrs = "p=0.5 key=7"}},
    {"dropout", {.in = "f32[16,33,96]", .attrs = "p=0.1 key=7 cut_dim=2 cut_n=4 cut_index=1"}},
    {"dropout", {.in = "f32[16,33,97]", .attrs = "p=0.1 key=7 cut_dim=1 cut_n=2 cut_index=1"}},
    {"dropout_grad", {.in = "f32[16,32,768]", .attrs = "p=0.1 key=7 cut_dim=1 cut_n=2"}},
    {"tensor_slice", {.in = "f32[16,33,768]", .attrs = "dim=2 n=4 index=3"}},
    {"tensor_slice", {.in = "f32[16,34,97]", .attrs = "dim=1 n=2 index=1"}},
    {"own_rows", {.in = "i32[16,1024]", .attrs = "first=25152 n=25152", .int_hi = 50303}},
    {"entropy_part",
     {.in = "f32[5000,1031] i32[5000]", .lo = -8, .hi = 8, .int_lo = -1, .int_hi = 2000}},
    {"entropy_join",
     {.in = "f32[5000,7] f32[5000,20] i32[5000]",
      .attrs = "n=4 first=7",
      .lo = 0.5,
      .hi = 3,
      .int_lo = -1,
      .int_hi = 27}},
    {"entropy_join_grad",
     {.in = "f32[300,25152] i32[300] f32[] f32[300,2]",
      .attrs = "n=2 first=25152 smoothing=0.1",
      .lo = 0.5,
      .hi = 3,
      .int_lo = -1,
      .int_hi = 50303}},
    {"transpose", {.in = "f32[8,12,100,64]", .attrs = "perm=[0,2,1,3]"}},
    {"concat", {.in = "f32[3,64,17,16] f32[3,64,17,16]", .attrs = "axis=1"}},
    {"concat", {.in = "f32[3,64,17,16] f32[3,24,17,16] f32[3,5,17,16]", .attrs = "axis=1"}},
    {"concat", {.in = "f32[3,24,17,16] f32[3,24,9,16]", .attrs = "axis=2"}},
    {"slice", {.in = "f32[3,128,17,16]", .attrs = "axis=1 start=64 len=64"}},
    {"slice", {.in = "f32[3,40,17,16]", .attrs = "axis=-1 start=3 len=9"}},
    {"slice_grad", {.in = "f32[3,64,17,16]", .attrs = "axis=1 start=64 total=128"}},
    {"add", {.in = "f32[3,64,17,16] f32[1,64,1,1]"}},
    {"mul", {.in = "f32[96,1,1] f32[3,96,14,14]"}},
    {"mul", {.in = "f32[3,96,14,14] f32[3,96,1,1]"}},
    {"sum_to", {.in = "f32[3,64,17,16]", .attrs = "dims=[1,64,1,1]"}},
    {"sum_to", {.in = "f32[3,96,14,14]", .attrs = "dims=[3,96,1,1]"}},
    {"sum_to", {.in = "f32[3,96,14,14]", .attrs = "dims=[96,1,1]"}},
    {"to_layout", {.in = "f32[8,3,65,67]", .attrs = "layout=1"}},
    {"to_layout", {.in = "f32[8,64,33,31]", .attrs = "layout=1"}},
    {"to_layout", {.in = "f32[8,64,33,31]", .attrs = "layout=0"}},
    {"embedding", {.in = "f32[1000,768] i32[16,256]", .int_lo = 0, .int_hi = 999}},
    {"embedding_grad",
     {.in = "f32[16,256,768] i32[16,256]", .attrs = "rows=1000", .int_lo = 0, .int_hi = 99}},
    {"embedding_grad",
     {.in = "f32[8,256,64] i32[8,256]", .attrs = "rows=50000", .int_lo = 0, .int_hi = 49999}},
    {"layer_norm", {.in = "f32[1000,768] f32[768] f32[768]"}},
    {"layer_norm", {.in = "f32[100,1600] f32[1600] f32[1600]"}},
    {"layer_norm_grad_x", {.in = "f32[1000,768] f32[1000,768] f32[1000] f32[1000] f32[768]"}},
    {"layer_norm_grad_w", {.in = "f32[5000,768] f32[5000,768] f32[5000] f32[5000]"}},
    {"softmax", {.in = "f32[512,1000]"}},
    {"cross_entropy",
     {.in = "f32[300,50304] i32[300]", .int_lo = -1, .int_hi = 50303, .lo = -8, .hi = 8}},
    {"cross_entropy", {.in = "f32[1000,10] i32[1000]", .int_lo = -1, .int_hi = 9}},
    {"scale_rows", {.in = "f32[999,768] f32[999]"}},
    {"max_pool2d", {.in = "f32[8,64,56,56]", .attrs = "kernel=[3,3] stride=[2,2] pad=[1,1]"}},
    {"max_pool2d", {.in = "f32[3,16,15,10]", .attrs = "kernel=[3,3] stride=[2,2] pad=[1,1]"}},
    {"max_pool2d_grad",
     {.in = "f32[3,16,8,5] u8[3,16,8,5]",
      .attrs = "kernel=[3,3] stride=[2,2] pad=[1,1] in_hw=[15,10]",
      .int_lo = 4,
      .int_hi = 5}},
    {"max_pool2d_grad",
     {.in = "f32[4,64,28,28] u8[4,64,28,28]",
      .attrs = "kernel=[3,3] stride=[2,2] pad=[1,1] in_hw=[56,56]",
      .int_lo = 7,
      .int_hi = 8}},
    {"bn_stats", {.in = "f32[16,64,56,56]"}},
    {"bn_stats", {.in = "f32[16,64,20,20] i32[]", .int_lo = 9, .int_hi = 9, .lo = 3, .hi = 5}},
    {"bn_apply",
     {.in = "f32[8,256,28,28] f32[513] f32[256] f32[256] f32[8,256,28,28]",
      .attrs = "act=1",
      .lo = 0.1,
      .hi = 2}},
    {"bn_grad_sums",
     {.in = "f32[8,264,20,20] f32[8,264,20,20] f32[529] i32[] f32[264] f32[264]",
      .attrs = "act=1 eps=9",
      .lo = -2,
      .hi = 2,
      .int_lo = 5,
      .int_hi = 5}},
    {"bn_grad_join",
     {.in = "f32[8,264,20,20] f32[8,264,20,20] f32[8,264,20,20] f32[529] i32[] f32[8,264,20,20]",
      .attrs = "eps=9",
      .lo = -2,
      .hi = 2,
      .int_lo = 5,
      .int_hi = 5}},
    {"bn_grad_join",
     {.in = "f32[8,264,20,20] u8[8,33,20,20] f32[8,264,20,20] f32[529] i32[] f32[8,264,20,20]",
      .attrs = "eps=9",
      .lo = -2,
      .hi = 2,
      .int_lo = 5,
      .int_hi = 7}},
    {"bn_apply_mask",
     {.in = "f32[8,264,20,20] f32[529] f32[264] f32[264] f32[8,264,20,20]", .lo = 0.1, .hi = 2}},
    {"bn_grad_apply",
     {.in = "f32[8,264,20,20] f32[8,264,20,20] f32[529] f32[264] f32[529] i32[] f32[264]",
      .attrs = "act=1 eps=9",
      .lo = -2,
      .hi = 2,
      .int_lo = 5,
      .int_hi = 5}},
    {"bn_stats", {.in = "f32[32,2048,7,7]", .lo = 3, .hi = 5}},
    {"linear", {.in = "f32[1024,768] f32[2304,768] f32[2304]"}},
    {"linear_grad_w", {.in = "f32[4096,256] f32[4096,128]"}},
    {"matmul", {.in = "f32[256,512] f32[512,384]"}},
    {"conv2d", {.in = "f32[4,64,28,28] f32[64,64,3,3]", .attrs = "pad=[1,1]"}},
    {"conv2d", {.in = "f32[4,3,64,64] f32[64,3,7,7]", .attrs = "stride=[2,2] pad=[3,3]"}},
    {"conv2d", {.in = "f32[3,4,65,250] f32[64,4,5,3] f32[64]", .attrs = "stride=[2,2] pad=[2,0]"}},
    {"conv2d_grad_w",
     {.in = "f32[3,64,33,124] f32[3,1,65,250]", .attrs = "stride=[2,2] pad=[2,0] kernel=[5,3]"}},
    {"conv2d", {.in = "f32[4,64,28,28] f32[256,64,1,1]"}},
    {"conv2d_grad_x",
     {.in = "f32[4,128,14,14] f32[128,64,2,2]", .attrs = "stride=[2,2] in_hw=[28,28]"}},
    {"conv2d", {.in = "f32[4,64,28,28] f32[128,64,2,2]", .attrs = "stride=[2,2]"}},
    {"conv2d_grad_w",
     {.in = "f32[4,128,14,14] f32[4,64,28,28]", .attrs = "stride=[2,2] kernel=[2,2]"}},
    {"conv2d_stats", {.in = "bf16[16,64,28,28] bf16[256,64,1,1]"}},
    {"conv2d_stats", {.in = "bf16[16,64,28,28] bf16[64,64,1,1] i32[]", .int_lo = 9, .int_hi = 9}},
    {"conv2d_stats", {.in = "f16[16,128,28,28] f16[64,128,1,1] i32[]", .int_lo = 16, .int_hi = 16}},
    /* own kernels: columns of 64, 128 and 256, less than a whole block of channels and more */
    {"conv2d_stats", {.in = "bf16[88,16,28,28] bf16[64,16,1,1]"}},
    {"conv2d_stats", {.in = "bf16[45,72,28,28] bf16[128,72,1,1] i32[]", .int_lo = 9, .int_hi = 9}},
    {"conv2d_stats",
     {.in = "bf16[23,24,28,28] bf16[256,24,1,1] i32[]",
      .int_lo = 0,
      .int_hi = 0,
      .lo = 1,
      .hi = 2}},
    {"conv2d_stats", {.in = "bf16[360,16,5,5] bf16[512,16,1,1]", .lo = 0.5, .hi = 1.5}},
    {"conv2d_grad_join",
     {.in = "bf16[23,256,28,28] u8[23,32,28,28] f32[513] bf16[23,24,28,28] bf16[24,256,1,1] i32[] "
            "bf16[23,256,28,28]",
      .attrs = "eps=9",
      .lo = -2,
      .hi = 2,
      .int_lo = 7,
      .int_hi = 21}},
    {"conv2d_grad_join",
     {.in = "bf16[360,512,5,5] u8[360,64,5,5] f32[1025] bf16[360,72,5,5] bf16[72,512,1,1]",
      .attrs = "eps=9",
      .lo = -2,
      .hi = 2,
      .int_lo = 0,
      .int_hi = 255}},
    {"conv2d_grad_join",
     {.in = "bf16[360,512,5,5] u8[360,64,5,5] f32[1025] bf16[360,16,5,5] bf16[16,512,1,1] "
            "bf16[360,512,5,5]",
      .attrs = "eps=9",
      .lo = -2,
      .hi = 2,
      .int_lo = 0,
      .int_hi = 255}},
    {"conv2d_grad_sums",
     {.in = "bf16[88,64,28,28] f32[129] f32[64] f32[64] bf16[88,16,28,28] bf16[16,64,1,1]",
      .attrs = "eps=9",
      .lo = -2,
      .hi = 2}},
    {"conv2d_grad_sums",
     {.in = "bf16[360,512,5,5] f32[1025] f32[512] f32[512] bf16[360,72,5,5] bf16[72,512,1,1] i32[]",
      .attrs = "eps=9",
      .lo = -2,
      .hi = 2,
      .int_lo = 211,
      .int_hi = 211}},
    {"bn_apply_pool",
     {.in = "bf16[9,64,57,56] f32[129] f32[64] f32[64]", .attrs = "eps=1e4", .lo = -2, .hi = 2}},
    {"bn_apply_pool",
     {.in = "f16[3,512,7,9] f32[1025] f32[512] f32[512]", .attrs = "eps=1e4", .lo = -2, .hi = 2}},
    {"bn_apply_pool",
     {.in = "bf16[3,520,6,5] f32[1041] f32[520] f32[520]", .attrs = "eps=1e4", .lo = -2, .hi = 2}},
    {"bn_pool_grad_sums",
     {.in = "bf16[9,64,29,28] u8[9,64,29,28] bf16[9,64,57,56] f32[129] i32[]",
      .lo = 0.5,
      .hi = 2,
      .int_lo = 0,
      .int_hi = 9}},
    {"bn_pool_grad_sums",
     {.in = "f16[3,512,4,5] u8[3,512,4,5] f16[3,512,7,9] f32[1025]",
      .lo = 0.5,
      .hi = 2,
      .int_hi = 9}},
    {"bn_pool_grad_apply",
     {.in = "bf16[9,64,29,28] u8[9,64,29,28] bf16[9,64,57,56] f32[129] f32[64] f32[129] i32[]",
      .lo = 0.5,
      .hi = 2,
      .int_lo = 0,
      .int_hi = 9}},
    {"bn_pool_grad_apply",
     {.in = "f16[3,512,4,5] u8[3,512,4,5] f16[3,512,7,9] f32[1025] f32[512] f32[1025]",
      .lo = 0.5,
      .hi = 2,
      .int_hi = 9}},
    {"conv2d", {.in = "f32[3,70,9,8] f32[65,70,3,3]", .attrs = "pad=[1,1]"}}, /* weights turned */
    {"conv2d_grad_w", {.in = "f32[3,65,9,8] f32[3,70,9,8]", .attrs = "pad=[1,1] kernel=[3,3]"}},
    {"conv2d_grad_x", {.in = "f32[4,64,28,28] f32[64,64,3,3]", .attrs = "pad=[1,1] in_hw=[28,28]"}},
    {"conv2d_grad_w", {.in = "f32[4,64,28,28] f32[4,64,28,28]", .attrs = "pad=[1,1] kernel=[3,3]"}},
    {"attention", {.in = "f32[4,256,768]", .attrs = "heads=4 causal=1"}},
    {"attention", {.in = "f32[2,200,768]", .attrs = "heads=4 causal=0"}},
    {"attention_grad",
     {.in = "f32[2,256,768] f32[2,256,256] f32[2,4,256] f32[2,256,256]",
      .attrs = "heads=4 causal=1"}},
    /* 16 bits: cuDNN's engines, images padded to whole vectors, own kernels on tensor cores */
    {"conv2d",
     {.in = "bf16[4,3,64,64] bf16[64,3,7,7] bf16[64]", .attrs = "stride=[2,2] pad=[3,3] act=1"}},
    {"conv2d", {.in = "f32[16,32,28,28] f32[64,1,3,3]", .attrs = "pad=[1,1] groups=32"}},
    {"conv2d_grad_w",
     {.in = "f32[4,64,32,32] f32[4,3,64,64]", .attrs = "stride=[2,2] pad=[3,3] kernel=[7,7]"}},
    {"conv2d_grad_x",
     {.in = "f32[4,256,14,14] f32[256,64,1,1]", .attrs = "stride=[2,2] in_hw=[28,28]"}},
    {"attention",
     {.in = "bf16[6,128,768] i32[6]", .attrs = "heads=4", .int_lo = -64, .int_hi = 140}},
    {"attention", {.in = "bf16[2,200,1024]", .attrs = "heads=6 kv_heads=1 causal=1"}},
    {"attention", {.in = "f16[2,130,480]", .attrs = "heads=4 causal=1"}},
    {"attention", {.in = "f32[2,130,300]", .attrs = "heads=2 kv_heads=1 causal=1"}},
    {"attention_grad",
     {.in = "bf16[2,256,768] bf16[2,256,256] f32[2,4,256] bf16[2,256,256]",
      .attrs = "heads=4 causal=1"}},
    {"attention_grad",
     {.in = "bf16[6,128,768] i32[6] bf16[6,128,256] f32[6,4,128] bf16[6,128,256]",
      .attrs = "heads=4",
      .int_lo = -64,
      .int_hi = 140}},
    {"attention_grad",
     {.in = "bf16[2,200,1024] bf16[2,200,768] f32[2,6,200] bf16[2,200,768]",
      .attrs = "heads=6 kv_heads=1 causal=1"}},
    {"attention_grad",
     {.in = "f32[2,130,300] f32[2,130,150] f32[2,2,130] f32[2,130,150]",
      .attrs = "heads=2 kv_heads=1 causal=1"}},
    /* All elements of a row are huge, as where a mask hides each of them. */
    {"softmax", {.in = "f32[512,1000]", .shift = -3.3e38, .shifted = 1 << 0}},
    {"log_softmax", {.in = "f32[100,2000]", .shift = -3.3e38, .shifted = 1 << 0}},
    {"log_softmax", {.in = "f32[30,70,3]", .attrs = "axis=1", .shift = 3.3e38, .shifted = 1 << 0}},
    {"cross_entropy",
     {.in = "f32[1000,10] i32[1000]", .int_hi = 9, .shift = -3.3e38, .shifted = 1 << 0}},
    {"cross_entropy",
     {.in = "f32[30,3000] i32[30]", .int_hi = 2999, .shift = -3.3e38, .shifted = 1 << 0}},
    {"cross_entropy_and_grad",
     {.in = "bf16[9,50304] i32[9] f32[]", .int_hi = 50303, .shift = -0x1p30, .shifted = 1 << 0}},
    {"cross_entropy_and_grad",
     {.in = "bf16[9,50304] i32[9] f32[]", .int_hi = 50303, .shift = -3.3e38, .shifted = 1 << 0}},
    {"cross_entropy_and_grad_sums",
     {.in = "bf16[700,2056] i32[700] f32[]", .int_hi = 2055, .shift = 0x1p30, .shifted = 1 << 0}},
    {"cross_entropy_and_grad_sums",
     {.in = "bf16[700,2056] i32[700] f32[]", .int_hi = 2055, .shift = -3.3e38, .shifted = 1 << 0}},
    {"cross_entropy_and_grad", /* rows in shared memory, in all groups of copies */
     {.in = "bf16[9,50304] i32[9] f32[]", .lo = -4, .hi = 4, .int_lo = -1, .int_hi = 50303}},
    {"cross_entropy_and_grad",
     {.in = "f16[5,30528] i32[5] f32[]",
      .attrs = "smoothing=0.1",
      .lo = -4,
      .hi = 4,
      .int_hi = 30527}},
    {"cross_entropy_and_grad_sums", /* more rows of a block than are on their way, the last not all
                                     */
     {.in = "bf16[700,2056] i32[700] f32[]", .lo = -4, .hi = 4, .int_lo = -1, .int_hi = 2055}},
    {"cross_entropy_and_grad_sums", /* half of the rows do not count */
     {.in = "bf16[700,2056] i32[700] f32[]", .attrs = "ignore=0", .lo = -4, .hi = 4, .int_hi = 1}},
    {"cross_entropy_and_grad_sums", /* all vectors of a thread */
     {.in = "f16[5,30528] i32[5] f32[]",
      .attrs = "smoothing=0.1",
      .lo = -4,
      .hi = 4,
      .int_hi = 30527}},
    {"cross_entropy_and_grad_sums",
     {.in = "bf16[270,32768] i32[270] f32[]", .lo = -4, .hi = 4, .int_lo = -1, .int_hi = 32767}},
    {"cross_entropy_and_grad_sums", /* rows too long for it, then odd ones */
     {.in = "bf16[9,50304] i32[9] f32[]", .lo = -4, .hi = 4, .int_hi = 50303}},
    {"cross_entropy_and_grad_sums",
     {.in = "bf16[40,3001] i32[40] f32[]", .lo = -4, .hi = 4, .int_lo = -1, .int_hi = 3000}},
    {"layer_norm_grads_sums", /* teams of one, two, three, four, seven and eight warps; few rows */
     {.in = "bf16[4000,264] bf16[4000,264] f32[4000] f32[4000] f32[264]", .lo = 0.1, .hi = 1}},
    {"layer_norm_grads_sums",
     {.in = "f16[7001,1024] f16[7001,1024] f32[7001] f32[7001] f32[1024] f16[7001,1024]",
      .lo = 0.1,
      .hi = 1}},
    {"layer_norm_grads",
     {.in = "bf16[3,200] bf16[3,200] f32[3] f32[3] f32[200] bf16[3,200]", .lo = 0.1, .hi = 1}},
    {"layer_norm_grads_sums",
     {.in = "bf16[5000,768] bf16[5000,768] f32[5000] f32[5000] f32[768] bf16[5000,768]",
      .lo = 0.1,
      .hi = 1}},
    {"layer_norm_grads_sums", /* many turns of a team, the last one of one row */
     {.in = "bf16[17001,200] bf16[17001,200] f32[17001] f32[17001] f32[200] bf16[17001,200]",
      .lo = 0.1,
      .hi = 1}},
    {"layer_norm_grads_sums",
     {.in = "f16[3001,1600] f16[3001,1600] f32[3001] f32[3001] f32[1600] f16[3001,1600]",
      .lo = 0.1,
      .hi = 1}},
    {"layer_norm_grads_sums",
     {.in = "bf16[1201,2048] bf16[1201,2048] f32[1201] f32[1201] f32[2048]", .lo = 0.1, .hi = 1}},
    {"layer_norm_grads_sums",
     {.in = "bf16[1,8] bf16[1,8] f32[1] f32[1] f32[8] bf16[1,8]", .lo = 0.1, .hi = 1}},
    {"layer_norm_grads_sums", /* no whole vectors; long rows whose columns are summed apart */
     {.in = "bf16[601,1028] bf16[601,1028] f32[601] f32[601] f32[1028] bf16[601,1028]",
      .lo = 0.1,
      .hi = 1}},
    {"layer_norm_grads",
     {.in = "bf16[601,1600] bf16[601,1600] f32[601] f32[601] f32[1600] bf16[601,1600]",
      .lo = 0.1,
      .hi = 1}},
    {"add_layer_norm", {.in = "bf16[999,768] bf16[999,768] f32[768] f32[768]", .attrs = "dtype=3"}},
    {"matmul_gelu_grad_sums", {.in = "f32[1500,64] f32[64,520] f32[1500,520]", .lo = 0.1, .hi = 1}},
    {"attention_cached",
     {.in = "bf16[2,1,768] bf16[2,600,256] bf16[2,600,256] i32[1]",
      .attrs = "heads=4",
      .int_lo = 300,
      .int_hi = 300}},
};

static const op_case *large_at(size_t i) {
    if (i < TTI_COUNT(large)) return &large[i];
    i -= TTI_COUNT(large);
    return i < TTI_COUNT(sdpa_cases) ? &sdpa_cases[i] : NULL;
}

static void check_large(const op_case *of) {
    const tti_op *op = tti_op_find(of->op);
    assert_non_null(op);
    if (!is_wanted(op)) return;
    int before = n_tried;
    check_sample(op, &of->sample, (variant){TUTTI_F32, 0});
    check_sample(op, &of->sample, (variant){TUTTI_BF16, ~0u});
    check_sample(op, &of->sample, (variant){TUTTI_BF16, 1u});
    if (n_tried == before) printf("no such case: %s(%s)\n", op->name, of->sample.in);
    assert_true(n_tried > before);
}

T_CASE(large_cases_match_the_reference) {
    T_UNUSED;
    const op_case *of;
    n_tried = n_failed = n_missing = 0;
    for (size_t i = 0; (of = large_at(i)) != NULL; i++) check_large(of);
    for (size_t i = 0; i < TTI_COUNT(depthwise); i++) {
        const tti_op *op = tti_op_find(depthwise[i].op);
        check_large(&depthwise[i]);
        if (is_wanted(op)) check_sample(op, &depthwise[i].sample, (variant){TUTTI_F16, ~0u});
    }
    end("large cases");
}

/* Enough tiles for wgmma.cu, with edges in all directions; in exact mode it takes all gelus. Enough
 * heads for attention_grad.cu: one and two for a block, one to three blocks of keys.  As written
 * only: the reference takes seconds for each. */
static const op_case tiled[] = {
    {"linear", {.in = "bf16[8498,72] bf16[1528,72] bf16[1528]"}},
    {"linear_gelu", {.in = "bf16[7,1214,72] bf16[1528,72] bf16[1528]", .lo = -0.3, .hi = 0.4}},
    {"linear_gelu", {.in = "f16[17100,72] f16[760,72]", .lo = -0.4, .hi = 0.4}},
    {"linear_gelu",
     {.in = "bf16[8498,72] bf16[1528,72] bf16[1528]",
      .attrs = "approximate=0",
      .lo = -0.4,
      .hi = 0.5}},
    {"cross_entropy_head",
     {.in = "bf16[1500,72] bf16[2296,72] i32[1500] f32[]", .int_lo = -1, .int_hi = 2295}},
    {"cross_entropy_head", /* no row counts: powers of e alone */
     {.in = "bf16[1500,72] bf16[2296,72] i32[1500] f32[]",
      .lo = -0.3,
      .hi = 0.3,
      .int_lo = -1,
      .int_hi = -1}},
    {"matmul_gelu_grad", {.in = "bf16[8498,72] bf16[72,1528] bf16[8498,1528]", .lo = -2, .hi = 3}},
    {"matmul_gelu_grad_sums",
     {.in = "bf16[7,1214,72] bf16[72,1528] bf16[7,1214,1528]", .lo = -0.5, .hi = 1}},
    {"matmul_gelu_grad_sums", {.in = "f16[17100,72] f16[72,760] f16[17100,760]", .lo = -1}},
    {"matmul_gelu_grad_sums",
     {.in = "bf16[8498,72] bf16[72,1528] bf16[8498,1528]",
      .attrs = "approximate=0",
      .lo = -1,
      .hi = 2}},
    {"attention_grad",
     {.in = "bf16[22,256,2304] bf16[22,256,768] f32[22,12,256] bf16[22,256,768]",
      .attrs = "heads=12 causal=1"}},
    {"attention_grad",
     {.in = "bf16[11,256,2304] bf16[11,256,768] f32[11,12,256] bf16[11,256,768]",
      .attrs = "heads=12"}},
    {"attention_grad",
     {.in = "bf16[33,384,768] bf16[33,384,256] f32[33,4,384] bf16[33,384,256]",
      .attrs = "heads=4 causal=1"}},
    {"attention_grad",
     {.in = "bf16[100,128,192] bf16[100,128,64] f32[100,1,128] bf16[100,128,64]",
      .attrs = "heads=1 scale=0.3",
      .lo = -2}},
    {"attention_grad", /* several query heads for a key head */
     {.in = "bf16[14,256,768] bf16[14,256,512] f32[14,8,256] bf16[14,256,512]",
      .attrs = "heads=8 kv_heads=2 causal=1"}},
    {"attention_grad",
     {.in = "bf16[33,128,384] bf16[33,128,256] f32[33,4,128] bf16[33,128,256]",
      .attrs = "heads=4 kv_heads=1"}},
    {"attention_grad_sums", /* of terms that do not cancel */
     {.in = "bf16[22,256,2304] bf16[22,256,768] f32[22,12,256] bf16[22,256,768]",
      .attrs = "heads=12 causal=1",
      .lo = 0.1,
      .hi = 1}},
    {"attention_grad_sums",
     {.in = "bf16[33,384,768] bf16[33,384,256] f32[33,4,384] bf16[33,384,256]",
      .attrs = "heads=4",
      .lo = 0.1,
      .hi = 1}},
};

T_CASE(many_tiles_match_the_reference) {
    T_UNUSED;
    n_tried = n_failed = n_missing = 0;
    for (size_t i = 0; i < TTI_COUNT(tiled); i++) {
        const tti_op *op = tti_op_find(tiled[i].op);
        assert_non_null(op);
        if (is_wanted(op)) check_sample(op, &tiled[i].sample, (variant){TUTTI_F32, 0});
    }
    end("many tiles");
}

/* ---- NaN, infinities, denormals and minus zero ---- */

/* The positions of maxima are compared only where they are certain: which of several elements that
 * are not finite is the largest depends on zeros of padding, and elements that a denormal scales
 * are equal or not by their last rounding. */
static void expect_honest(bench *b, int i, double put) {
    for (int k = 0; k < b->node->op->n_out; k++) {
        const tutti_value *value = b->node->out[k];
        tutti_dtype dtype = value->type.dtype;
        if (!is_float(dtype) && !(put == 0)) continue;
        double tolerance = tolerance_of(b, k) * largest_of(b, k);
        for (size_t e = 0; e < (size_t)tti_value_n_elems(value); e++) {
            double got = tti_load_elem(dtype, b->got[k], e);
            double want = tti_load_elem(dtype, b->want[k], e);
            if (t_is_honest(got, want, put, tolerance)) continue;
            char text[160];
            snprintf(text, sizeof text, "with %g in input %d, out %d[%zu] is %g, want %g, by %s",
                     put, i, k, e, got, want, cuda->select(b->node, false)->name);
            report(b, text);
            return;
        }
    }
}

static void check_special(bench *b, on_device *d, int i, const t_special *s) {
    size_t n_bytes = tti_value_n_bytes(b->node->in[i]);
    char *before = host_memory(n_bytes);
    memcpy(before, b->in[i], n_bytes);
    n_tried++;
    t_put_special(b->node->in[i], b->in[i], s);
    run_reference(b);
    if (device_run_once(b, d, b->got)) expect_honest(b, i, s->value);
    memcpy(b->in[i], before, n_bytes);
    free(before);
}

/* The first n_specials in each of the first n_in float inputs; of a long sample one NaN only, since
 * the reference is slow. */
static void check_special_values(const op_case *of, variant types, int n_in, size_t n_specials) {
    bench b;
    on_device d;
    bool made = bench_open(&b, tti_op_find(of->op), &of->sample, types);
    if (made && tti_value_n_elems(b.node->in[0]) > 4096) n_specials = 1;
    for (int which = 0; made && which < 2; which++) {
        if (!set_layouts(b.node, which)) continue;
        bool opened = device_open(&b, &d);
        for (int i = 0; opened && i < TTI_MIN(n_in, b.node->n_in); i++) {
            const tutti_type *type = &b.node->in[i]->type;
            if (!is_float(type->dtype) || tutti_shape_n_elems(&type->shape) == 0) continue;
            for (size_t v = 0; v < n_specials; v++) check_special(&b, &d, i, &t_specials[v]);
        }
        device_close(&d);
    }
    bench_close(&b);
    tti_clear_error();
}

static void check_infinite_labels(const op_case *of, variant types) {
    bench b;
    on_device d;
    bool made = bench_open(&b, tti_op_find(of->op), &of->sample, types);
    if (made && t_put_infinite_labels(b.node, b.in[0], b.in[1])) {
        run_reference(&b);
        if (device_open(&b, &d) && device_run_once(&b, &d, b.got)) expect_honest(&b, 0, 0);
        device_close(&d);
    }
    bench_close(&b);
    tti_clear_error();
}

/* Whether an op may end in a ReLU or a gelu, or takes a maximum. */
static bool has_maximum(const char *op) {
    static const char *const names[] = {"conv2d",      "linear",  "max_pool2d",        "relu",
                                        "linear_gelu", "softmax", "cross_entropy",     "attention",
                                        "max_reduce",  "argmax",  "cross_entropy_head"};
    for (size_t k = 0; k < TTI_COUNT(names); k++)
        if (strcmp(op, names[k]) == 0) return is_wanted(tti_op_find(op));
    return false;
}

/* Every op's samples, and one NaN in the larger cases. */
T_CASE(values_that_are_not_finite_are_never_hidden) {
    T_UNUSED;
    const tti_op *op;
    n_tried = n_failed = n_missing = 0;
    for (int i = 0; (op = tti_op_at(i)) != NULL; i++) {
        if (!is_kernels(op) || !is_wanted(op)) continue;
        for (const tti_sample *sample = op->samples; sample->in; sample++) {
            if (sample->expect != TUTTI_OK) continue;
            const op_case of = {op->name, *sample};
            check_special_values(&of, (variant){TUTTI_F32, 0}, TTI_MAX_IN, TTI_COUNT(t_specials));
            check_infinite_labels(&of, (variant){TUTTI_F32, 0});
            check_infinite_labels(&of, (variant){TUTTI_BF16, ~0u});
            if (!(op->traits & TTI_UPDATE))
                check_special_values(&of, (variant){TUTTI_BF16, ~0u}, TTI_MAX_IN,
                                     TTI_COUNT(t_specials));
        }
    }
    for (size_t i = 0; i < TTI_COUNT(large); i++) {
        if (!has_maximum(large[i].op)) continue;
        check_special_values(&large[i], (variant){TUTTI_F32, 0}, TTI_MAX_IN, 1);
        check_special_values(&large[i], (variant){TUTTI_BF16, ~0u}, TTI_MAX_IN, 1);
    }
    for (size_t i = 0; i < TTI_COUNT(tiled); i++)
        if (has_maximum(tiled[i].op))
            check_special_values(&tiled[i], (variant){TUTTI_F32, 0}, 1, 1);
    end("values that are not finite");
}

static tutti_status open_device(bool exact, bool tf32) {
    is_exact = exact, is_tf32 = tf32;
    TTI_TRY(ops->open(
        &(tti_device_desc){.index = split_part % n_devices, .exact = exact, .tf32 = tf32}));
    device_run = cuda->alloc(sizeof *device_run);
    return ops->queues.copy(TTI_QUEUE_COMPUTE, device_run, &test_run, sizeof test_run);
}

/* Whether fast mode chooses the kernel by its time. */
static bool is_timed(const tti_op *op) {
    return (op->traits & TTI_COMPUTE) || strstr(op->name, "linear") || strstr(op->name, "matmul") ||
           strstr(op->name, "conv2d") || strstr(op->name, "attention");
}

T_CASE(fast_kernels_match_the_reference) {
    T_UNUSED;
    const tti_op *op;
    const op_case *of;
    n_tried = n_failed = n_missing = 0;
    ops->close();
    T_OK(open_device(false, false));
    for (int i = 0; (op = tti_op_at(i)) != NULL; i++) {
        if ((op->traits & TTI_SOURCE) || !is_timed(op) || !is_wanted(op)) continue;
        for (const tti_sample *sample = op->samples; sample->in; sample++)
            if (sample->expect == TUTTI_OK) check_variants(op, sample);
    }
    for (size_t i = 0; (of = large_at(i)) != NULL; i++) {
        op = tti_op_find(of->op);
        if (!is_timed(op) || !is_wanted(op)) continue;
        check_sample(op, &of->sample, (variant){TUTTI_F32, 0});
        check_sample(op, &of->sample, (variant){TUTTI_BF16, ~0u});
    }
    op = tti_op_find(tiled[0].op);
    if (is_wanted(op)) check_sample(op, &tiled[0].sample, (variant){TUTTI_F32, 0});
    end("fast mode");
}

/* f32 as written alone: what is in 16 bits has kernels of its own, in either case. */
static void try_in_tf32(bool exact) {
    const tti_op *op;
    const op_case *of;
    ops->close();
    T_OK(open_device(exact, true));
    for (int i = 0; (op = tti_op_at(i)) != NULL; i++) {
        if ((op->traits & TTI_SOURCE) || !is_timed(op) || !is_wanted(op)) continue;
        for (const tti_sample *sample = op->samples; sample->in; sample++)
            if (sample->expect == TUTTI_OK) check_sample(op, sample, (variant){TUTTI_F32, 0});
    }
    for (size_t i = 0; (of = large_at(i)) != NULL; i++) {
        op = tti_op_find(of->op);
        if (is_timed(op) && is_wanted(op)) check_sample(op, &of->sample, (variant){TUTTI_F32, 0});
    }
}

T_CASE(products_in_tf32_match_the_reference) {
    T_UNUSED;
    n_tried = n_failed = n_missing = 0;
    try_in_tf32(true);
    try_in_tf32(false);
    end("tf32");
}

static int run_cases(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_match_the_reference),
        cmocka_unit_test(large_cases_match_the_reference),
        cmocka_unit_test(values_that_are_not_finite_are_never_hidden),
        cmocka_unit_test(many_tiles_match_the_reference),
        cmocka_unit_test(fast_kernels_match_the_reference),
        cmocka_unit_test(products_in_tf32_match_the_reference)};
    int code = find_gpus(1);
    if (code) return code;
    ops = cuda->device;
    if (open_device(true, false) != TUTTI_OK) return 2;
    if (getenv("TUTTI_TEST_CASES")) cmocka_set_test_filter(getenv("TUTTI_TEST_CASES"));
    int n = cmocka_run_group_tests(tests, NULL, NULL);
    ops->close();
    if (n_ever == 0) printf("nothing was tried: no op or no case is called so\n");
    return n || n_ever == 0 ? 1 : 0;
}

int main(void) {
    bool is_filtered = getenv("TUTTI_TEST_OPS") || getenv("TUTTI_TEST_CASES");
    return is_filtered ? run_cases() : split_run(split_count(), run_cases);
}
