/* cpu_loss_test.c - the best class of cross_entropy in every instruction set: the first of equal
 * ones, wherever it lies among whole vectors and the rest, and NaN as a plain loop has it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/philox.h"
#include "ops/op_samples.h"
#include "ops/op_table.h"
#include "t.h"

enum { N_ROWS = 64, MAX_CLASSES = 70 };

static size_t plain_argmax(const float *x, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++) best = x[i] > x[best] ? i : best;
    return best;
}

static bool has_nan(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (isnan(x[i])) return true;
    return false;
}

/* Few different values, so that many are equal; some rows have a NaN, the first of them in front.
 */
static void fill_row(uint64_t row, size_t n, float *x) {
    static const float values[5] = {-1, -0.0f, 0, 2, 2.5f};
    for (size_t i = 0; i < n; i++)
        x[i] = values[tti_philox_draw(7, row, i).v[0] % (row % 3 ? 5 : 3)];
    if (row % 8 == 0) x[row * 5 % n] = NAN;
}

static void check_classes(size_t n) {
    float x[N_ROWS * MAX_CLASSES], loss, count, correct, rows[2 * N_ROWS];
    _Alignas(64) float scratch[MAX_CLASSES + 64];
    int32_t label[N_ROWS];
    char text[64];
    tutti_type types[TTI_MAX_IN];
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1];
    const tti_op *op = tti_op_find("cross_entropy");
    const tti_kernel *kernel;
    tutti_graph *g = tutti_graph_create(true);
    float want = 0;
    snprintf(text, sizeof text, "f32[%d,%zu] i32[%d]", N_ROWS, n, N_ROWS);
    int n_in = t_parse_sample(op, &(tti_sample){.in = text}, types, attrs);
    tti_node *node = t_add_node(g, op, types, n_in, attrs);
    T_OK(tutti_graph_check(g));
    for (size_t r = 0; r < N_ROWS; r++) {
        fill_row(r, n, x + r * n);
        size_t best = plain_argmax(x + r * n, n);
        label[r] =
            (int32_t)(r % 2 ? best : (best + 1) % n); /* of equal ones the next one: no hit */
        want += !has_nan(x + r * n, n) && (size_t)label[r] == best;
    }
    for (int k = 0; (kernel = tti_cpu_kernel_at(k)) != NULL; k++) {
        void *in[2] = {x, label}, *out[4] = {&loss, &count, &correct, rows};
        if (strcmp(kernel->op, op->name) || (kernel->can_run && !kernel->can_run(node))) continue;
        assert_true(kernel->scratch_bytes(node, NULL) <= sizeof scratch);
        T_OK(kernel->run(NULL, &(tti_kargs){node, in, out, scratch, NULL}));
        assert_true(correct == want);
        for (size_t r = 0; r < N_ROWS; r++) {
            float most = x[r * n + plain_argmax(x + r * n, n)];
            assert_int_equal(memcmp(&rows[2 * r], &most, sizeof most), 0);
        }
    }
    tutti_graph_destroy(g);
}

T_CASE(the_best_class_is_the_first_of_equal_ones) {
    T_UNUSED;
    static const size_t sizes[] = {1, 2, 15, 16, 17, 31, 32, 37, 64, MAX_CLASSES};
    for (size_t i = 0; i < TTI_COUNT(sizes); i++) check_classes(sizes[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_class_is_the_first_of_equal_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
