/* depthwise_plan_test.c - tiles of depthwise convolutions: the tasks of all tiles compute each
 * result once, from the sources and positions of the window that the definition names, and read
 * nothing outside of their tile.  No device is needed. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/conv/depthwise.h"
#include "base/error.h"
#include "base/philox.h"
#include "t.h"

enum { N_RANDOM = 300, MAX_SIDE = 60, MAX_KERNEL = 7 };

/* What one axis of a convolution is: result i meets sources; `found` counts [result][tap]. */
typedef struct axis_case {
    const tti_depthwise_plan *plan;
    const tti_depthwise_axis *axis;
    int stride, pad, columns;
    bool grad_x;
    int found[MAX_SIDE + 16][MAX_KERNEL];
} axis_case;

/* The tap by which the definition joins source and result; -1: none. */
static int tap_of(const axis_case *c, int source, int result) {
    int x = c->grad_x ? result : source, y = c->grad_x ? source : result;
    int tap = x + c->pad - y * c->stride;
    return tap >= 0 && tap < c->plan->kernel ? tap : -1;
}

static void visit_task(axis_case *c, int tile, int task) {
    const tti_depthwise_axis *a = c->axis;
    const tti_depthwise_plan *p = c->plan;
    int result = a->out_base + tile * a->out_step + task * c->columns;
    int first = task * tti_depthwise_step(p->mode, c->columns);
    int span = tti_depthwise_span(p->mode, p->kernel, c->columns);
    assert_true(first >= 0 && first + span <= a->span);
    for (int b = 0; b < span; b++)
        for (int u = 0; u < c->columns; u++) {
            int source = a->base + tile * a->step + first + b;
            int tap = tti_depthwise_tap(p->mode, p->kernel, b, u);
            bool has_tap = tap >= 0 && tap < p->kernel;
            if (p->flip && has_tap) tap = p->kernel - 1 - tap;
            assert_int_equal(has_tap ? tap : -1, tap_of(c, source, result + u));
            bool exists = result + u >= 0 && result + u < a->out;
            if (has_tap && exists) c->found[result + u][tap]++;
        }
}

/* Every result has every tap that its stride allows, once. */
static void check_axis(axis_case *c) {
    const tti_depthwise_axis *a = c->axis;
    memset(c->found, 0, sizeof c->found);
    assert_true(a->out <= MAX_SIDE + 15);
    for (int tile = 0; tile < a->n_tiles; tile++)
        for (int task = 0; task < a->n_tasks; task++) visit_task(c, tile, task);
    for (int i = 0; i < a->out; i++)
        for (int tap = 0; tap < c->plan->kernel; tap++) {
            bool meets = !c->grad_x || (i + c->pad - tap) % c->stride == 0;
            assert_int_equal(c->found[i][tap], meets ? 1 : 0);
        }
}

static void check_plan(tutti_dtype dtype, const tti_cuda_conv *v, tti_depthwise_kind kind) {
    tti_depthwise_plan p = tti_depthwise_plan_of(dtype, v, kind);
    assert_true(p.is_tiled);
    int n_tasks = p.n_images * p.axis[0].n_tasks * p.axis[1].n_tasks;
    assert_true(n_tasks <= TTI_DEPTHWISE_MAX_TASKS);
    assert_true(p.n_threads >= n_tasks * TTI_DEPTHWISE_LANES && p.n_threads % 32 == 0);
    assert_true(p.n_threads <= TTI_DEPTHWISE_MAX_THREADS && p.n_shared <= 96 << 10);
    assert_true(p.n_groups * TTI_DEPTHWISE_CHANNELS >= p.c);
    assert_true(p.n_images == 1 || p.axis[0].n_tiles * p.axis[1].n_tiles == 1);
    assert_true(p.n_tiles >= (p.n / p.n_images) * p.axis[0].n_tiles * p.axis[1].n_tiles);
    assert_true(p.n_blocks >= 1 && p.n_blocks <= TTI_MAX(p.n_tiles, 1) && p.n_blocks < 65536);
    for (int d = 0; d < 2; d++) {
        axis_case c = {.plan = &p,
                       .axis = &p.axis[d],
                       .stride = (int)v->stride[d],
                       .pad = (int)v->pad[d],
                       .columns = d ? tti_depthwise_columns(p.mode) : TTI_DEPTHWISE_TASK_ROWS,
                       .grad_x = kind == TTI_DEPTHWISE_GRAD_X};
        check_axis(&c);
    }
}

/* Sizes of y, and all layouts and groups as the kernels need them. */
static void complete(tti_cuda_conv *v) {
    v->groups = v->o = v->c;
    v->x_last = v->y_last = true;
    v->p = (v->h + 2 * v->pad[0] - v->dilation[0] * (v->r - 1) - 1) / v->stride[0] + 1;
    v->q = (v->w + 2 * v->pad[1] - v->dilation[1] * (v->s - 1) - 1) / v->stride[1] + 1;
}

static uint32_t draw(uint64_t i, uint32_t n) { return tti_philox_draw(9, 1, i).v[0] % n; }

T_CASE(every_result_is_computed_once_from_its_sources) {
    T_UNUSED;
    static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_BF16};
    for (uint64_t i = 0; i < N_RANDOM; i++) {
        int64_t kernel = 3 + 2 * draw(8 * i, 3), stride = 1 + draw(8 * i + 1, 2);
        tti_cuda_conv v = {.n = draw(8 * i + 2, 20), .c = 2 + draw(8 * i + 3, 200)};
        v.h = kernel + draw(8 * i + 4, 50), v.w = kernel + draw(8 * i + 5, 50);
        v.r = v.s = kernel;
        for (int d = 0; d < 2; d++) {
            v.stride[d] = stride, v.dilation[d] = 1;
            v.pad[d] = draw(8 * i + 6 + (uint64_t)d, (uint32_t)kernel + 1);
        }
        complete(&v);
        for (int kind = TTI_DEPTHWISE_FORWARD; kind <= TTI_DEPTHWISE_GRAD_W; kind++)
            check_plan(dtypes[i % 2], &v, (tti_depthwise_kind)kind);
    }
}

T_CASE(other_windows_have_plain_kernels) {
    T_UNUSED;
    tti_cuda_conv usual = {.n = 4, .c = 32, .h = 20, .w = 20, .r = 3, .s = 3};
    for (int d = 0; d < 2; d++) usual.stride[d] = usual.dilation[d] = usual.pad[d] = 1;
    complete(&usual);
    assert_true(tti_depthwise_plan_of(TUTTI_BF16, &usual, TTI_DEPTHWISE_FORWARD).is_tiled);
    for (int which = 0; which < 4; which++) {
        tti_cuda_conv v = usual;
        if (which == 0) v.s = 4;
        if (which == 1) v.r = v.s = 9;
        if (which == 2) v.stride[1] = 2;
        if (which == 3) v.dilation[0] = 2;
        complete(&v);
        tti_depthwise_plan p = tti_depthwise_plan_of(TUTTI_BF16, &v, TTI_DEPTHWISE_GRAD_W);
        assert_true(tti_depthwise_supports(TUTTI_BF16, &v) && !p.is_tiled && p.n_blocks > 0);
    }
}

T_CASE(only_depthwise_convolutions_of_rows_are_supported) {
    T_UNUSED;
    tti_cuda_conv usual = {.n = 4, .c = 32, .h = 20, .w = 20, .r = 3, .s = 3};
    for (int d = 0; d < 2; d++) usual.stride[d] = usual.dilation[d] = usual.pad[d] = 1;
    complete(&usual);
    assert_true(tti_depthwise_supports(TUTTI_F16, &usual));
    assert_false(tti_depthwise_supports(TUTTI_F64, &usual));
    tti_cuda_conv v = usual;
    v.o = 64;
    assert_false(tti_depthwise_supports(TUTTI_F16, &v));
    v = usual, v.groups = 16;
    assert_false(tti_depthwise_supports(TUTTI_F16, &v));
    v = usual, v.y_last = false;
    assert_false(tti_depthwise_supports(TUTTI_F16, &v));
    v = usual, v.n = 1 << 20, v.h = v.w = 1 << 10;
    assert_false(tti_depthwise_supports(TUTTI_F16, &v));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_result_is_computed_once_from_its_sources),
        cmocka_unit_test(other_windows_have_plain_kernels),
        cmocka_unit_test(only_depthwise_convolutions_of_rows_are_supported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
