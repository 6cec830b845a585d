/* sdpa_cases.h - attention with separate inputs for cuda_ops_test.c: cases for each kernel. */
#ifndef TTI_TESTS_CUDA_SDPA_CASES_H
#define TTI_TESTS_CUDA_SDPA_CASES_H

#include "backend/cuda/op_bench.h"

static const op_case sdpa_cases[] = {
    /* sdpa_mma.cu: several tiles with edges, each width, and all that a score may have */
    {"sdpa", {.in = "bf16[2,130,96] bf16[2,150,96] bf16[2,150,96]", .attrs = "heads=3"}},
    {"sdpa",
     {.in = "f16[2,200,240] f16[2,200,120] f16[2,200,144] f16[1,1,200,200]",
      .attrs = "heads=6 kv_heads=3 causal=1 with=1 window=70",
      .lo = -2,
      .hi = 2}},
    {"sdpa",
     {.in = "bf16[64,49,64] bf16[64,49,64] bf16[64,49,64] bf16[16,2,49,49]",
      .attrs = "heads=2 with=1 bias_period=16"}},
    {"sdpa",
     {.in = "bf16[8,70,64] bf16[8,70,64] bf16[8,70,64] bf16[4,2,70,70]",
      .attrs = "heads=2 with=1 bias_period=4"}},
    {"sdpa",
     {.in = "bf16[3,70,256] bf16[3,140,256] bf16[3,140,192] bf16[3,2,70,1] i32[3,70] i32[3,140]",
      .attrs = "heads=2 with=3 softcap=1.5 p=0.3 key=9",
      .int_hi = 2}},
    /* sdpa_short.cu: both widths, one head and several for each block, and edges */
    {"sdpa",
     {.in = "bf16[2000,49,96] bf16[2000,49,96] bf16[2000,49,96] bf16[1,3,49,49]",
      .attrs = "heads=3 with=1"}},
    {"sdpa", {.in = "f16[3,64,48] f16[3,33,48] f16[3,33,48]", .attrs = "heads=2 window=20"}},
    {"sdpa",
     {.in = "bf16[5,17,192] bf16[5,17,192] bf16[5,17,144] bf16[5,1,17,17] i32[5,17] i32[5,17]",
      .attrs = "heads=3 causal=1 with=3",
      .int_hi = 2}},
    {"sdpa_grad",
     {.in = "f16[3,64,48] f16[3,33,48] f16[3,33,48] f16[3,64,48] f32[3,2,64] "
            "f32[3,2,64] f16[3,64,48]",
      .attrs = "heads=2 window=20"}},
    {"sdpa_grad",
     {.in = "bf16[3000,9,96] bf16[3000,12,96] bf16[3000,12,96] bf16[3000,9,96] "
            "f32[3000,3,9] f32[3000,3,9] bf16[3000,9,96]",
      .attrs = "heads=3"}},
    {"sdpa_grad",
     {.in = "bf16[5,17,192] bf16[5,17,192] bf16[5,17,144] bf16[5,1,17,17] i32[5,17] "
            "i32[5,17] bf16[5,17,144] f32[5,3,17] f32[5,3,17] bf16[5,17,144]",
      .attrs = "heads=3 causal=1 with=3 grad_bias=1",
      .int_hi = 2}},
    {"sdpa_grad",
     {.in = "bf16[2,130,96] bf16[2,150,96] bf16[2,150,96] bf16[2,130,96] f32[2,3,130] "
            "f32[2,3,130] bf16[2,130,96]",
      .attrs = "heads=3"}},
    {"sdpa_grad", /* each tile of the bias in many chunks, in few, in one */
     {.in = "bf16[600,49,64] bf16[600,49,64] bf16[600,49,64] bf16[1,2,49,49] "
            "bf16[600,49,64] f32[600,2,49] f32[600,2,49] bf16[600,49,64]",
      .attrs = "heads=2 with=1 grad_bias=1"}},
    {"sdpa_grad",
     {.in = "f16[2,200,240] f16[2,200,120] f16[2,200,144] f16[2,1,200,200] "
            "f16[2,200,288] f32[2,6,200] f32[2,6,200] f16[2,200,288]",
      .attrs = "heads=6 kv_heads=3 causal=1 with=1 window=70 grad_bias=1"}},
    {"sdpa_grad",
     {.in = "bf16[64,49,64] bf16[64,49,64] bf16[64,49,64] bf16[16,2,49,49] "
            "bf16[64,49,64] f32[64,2,49] f32[64,2,49] bf16[64,49,64]",
      .attrs = "heads=2 with=1 grad_bias=1 bias_period=16"}},
    {"sdpa_grad", /* in tiles of more than 64 queries and keys too */
     {.in = "bf16[300,70,64] bf16[300,70,64] bf16[300,70,64] bf16[1,2,70,70] "
            "bf16[300,70,64] f32[300,2,70] f32[300,2,70] bf16[300,70,64]",
      .attrs = "heads=2 with=1 grad_bias=1"}},
    {"sdpa_grad",
     {.in = "bf16[8,70,64] bf16[8,70,64] bf16[8,70,64] bf16[4,2,70,70] bf16[8,70,64] "
            "f32[8,2,70] f32[8,2,70] bf16[8,70,64]",
      .attrs = "heads=2 with=1 grad_bias=1 bias_period=4"}},
    {"sdpa_grad",
     {.in = "bf16[3,70,256] bf16[3,140,256] bf16[3,140,192] bf16[3,2,70,140] i32[3,70] "
            "i32[3,140] bf16[3,70,192] f32[3,2,70] f32[3,2,70] bf16[3,70,192]",
      .attrs = "heads=2 with=3 softcap=1.5 p=0.3 key=9 grad_bias=1",
      .int_hi = 2}},
    /* A finite bias hides all keys, in each kernel.  The largest biases overflow in base 2. */
    {"sdpa",
     {.in = "bf16[2,130,96] bf16[2,150,96] bf16[2,150,96] bf16[1,3,130,150]",
      .attrs = "heads=3 with=1 causal=1 scale=1e-7",
      .shift = -0x1p30,
      .shifted = 1 << 3}},
    {"sdpa",
     {.in = "bf16[2,70,256] bf16[2,140,256] bf16[2,140,192] bf16[2,2,70,1]",
      .attrs = "heads=2 with=1 window=40 p=0.3 key=9",
      .shift = -3.3e38,
      .shifted = 1 << 3}},
    {"sdpa",
     {.in = "bf16[6,49,64] bf16[6,33,64] bf16[6,33,64] bf16[3,2,49,33]",
      .attrs = "heads=2 with=1 bias_period=3",
      .shift = -3.3e38,
      .shifted = 1 << 3}},
    {"sdpa",
     {.in = "f32[2,40,60] f32[2,70,30] f32[2,70,30] f32[2,4,40,70]",
      .attrs = "heads=4 kv_heads=2 with=1",
      .shift = -3.3e38,
      .shifted = 1 << 3}},
    {"sdpa_grad",
     {.in = "bf16[2,130,96] bf16[2,150,96] bf16[2,150,96] bf16[2,1,1,150] bf16[2,130,96] "
            "f32[2,3,130] f32[2,3,130] bf16[2,130,96]",
      .attrs = "heads=3 with=1 causal=1 replaces=1 softcap=2",
      .shift = -0x1p30,
      .shifted = 1 << 3 | 1 << 5}},
    {"sdpa_grad",
     {.in = "bf16[6,49,64] bf16[6,33,64] bf16[6,33,64] bf16[3,2,49,33] bf16[6,49,64] f32[6,2,49] "
            "f32[6,2,49] bf16[6,49,64]",
      .attrs = "heads=2 with=1 bias_period=3 grad_bias=1 replaces=1",
      .shift = -0x1p30,
      .shifted = 1 << 3 | 1 << 5}},
    {"sdpa_grad",
     {.in = "bf16[2,130,96] bf16[2,150,96] bf16[2,150,96] bf16[1,3,130,150] bf16[2,130,96] "
            "f32[2,3,130] f32[2,3,130] bf16[2,130,96]",
      .attrs = "heads=3 with=1 causal=1 grad_bias=1 scale=1e-7",
      .shift = -0x1p30,
      .shifted = 1 << 3 | 1 << 5}},
    {"sdpa_grad",
     {.in = "bf16[2,70,256] bf16[2,140,256] bf16[2,140,192] bf16[2,2,70,1] bf16[2,70,192] "
            "f32[2,2,70] f32[2,2,70] bf16[2,70,192]",
      .attrs = "heads=2 with=1 window=40 p=0.3 key=9",
      .shift = -0x1.8p127,
      .shifted = 1 << 3 | 1 << 5}},
    {"sdpa_grad",
     {.in = "bf16[6,49,64] bf16[6,33,64] bf16[6,33,64] bf16[3,2,49,33] bf16[6,49,64] f32[6,2,49] "
            "f32[6,2,49] bf16[6,49,64]",
      .attrs = "heads=2 with=1 bias_period=3 grad_bias=1",
      .shift = -0x1.8p127,
      .shifted = 1 << 3 | 1 << 5}},
    {"sdpa_grad",
     {.in = "f32[2,40,60] f32[2,70,30] f32[2,70,30] f32[2,4,40,70] f32[2,40,60] f32[2,4,40] "
            "f32[2,4,40] f32[2,40,60]",
      .attrs = "heads=4 kv_heads=2 with=1 grad_bias=1",
      .shift = -0x1p127,
      .shifted = 1 << 3 | 1 << 5}},
};

#endif /* TTI_TESTS_CUDA_SDPA_CASES_H */
