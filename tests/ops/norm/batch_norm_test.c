/* batch_norm_test.c - the chain of ops as a whole: its gradient goes through the statistics,
 * padding counts nothing, joined shards give what one batch gives, and the builder names what it
 * makes. */
#include "ir/graph.h"
#include "ops/op_table.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

enum { N = 4, C = 3, S = 2, N_X = N * C * S };

static double some(size_t i, double phase) { return 1.5 * sin(0.9 * (double)i + phase) + 0.25; }

/* The training graph of one layer and the gradient of its output, dy given. */
typedef struct layer {
    tutti_graph *g;
    tutti_value *x, *dy, *y, *dx[4];
    t_reference *r;
} layer;

/* Data for the graph as it is now; in 2 and 3 of y's node are gamma and beta. */
static void fill_layer(layer *l, double rows) {
    l->r = t_reference_create(l->g);
    for (size_t i = 0; i < N_X; i++) {
        t_reference_of(l->r, l->x)[i] = some(i, 0);
        t_reference_of(l->r, l->dy)[i] = some(i, 2);
    }
    for (size_t c = 0; c < C; c++) {
        t_reference_of(l->r, l->y->node->in[2])[c] = some(c, 4);
        t_reference_of(l->r, l->y->node->in[3])[c] = some(c, 5);
    }
    *t_reference_of(l->r, tti_graph_find_source(l->g, "rows")->out[0]) = rows;
}

static layer make_layer(bool sync, double rows) {
    layer l = {.g = tutti_graph_create(true)};
    l.x = tutti_input(l.g, "x", TUTTI_F32, &TUTTI_SHAPE(N, C, S));
    l.dy = tutti_input(l.g, "dy", TUTTI_F32, &TUTTI_SHAPE(N, C, S));
    l.y = tutti_batch_norm2d(l.g, l.x, &(tutti_batch_norm_desc){.eps = 1e-3, .sync = sync}, "bn");
    T_OK(tutti_graph_check(l.g));
    T_OK(l.y->node->op->grad(l.g, l.y->node, &l.dy, (bool[]){true, true, true, true}, l.dx));
    fill_layer(&l, rows);
    t_reference_run(l.r, &(tti_run){0});
    return l;
}

static void free_layer(layer *l) {
    t_reference_destroy(l->r);
    tutti_graph_destroy(l->g);
}

static bool has_op(const tutti_graph *g, const char *op) {
    for (int i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i]->op->name, op) == 0) return true;
    return false;
}

/* sum of dy y over the first rows samples */
static double loss_of(const layer *l, size_t rows) {
    double sum = 0;
    t_reference_run(l->r, &(tti_run){0});
    for (size_t i = 0; i < rows * C * S; i++)
        sum += t_reference_of(l->r, l->dy)[i] * t_reference_of(l->r, l->y)[i];
    return sum;
}

static void check_gradient(const layer *l, size_t rows, const tutti_value *of,
                           const tutti_value *dx) {
    double *x = t_reference_of(l->r, of);
    for (size_t i = 0; i < (size_t)tti_value_n_elems(of); i++) {
        double old = x[i], want;
        x[i] = old + 1e-5;
        want = loss_of(l, rows);
        x[i] = old - 1e-5;
        want = (want - loss_of(l, rows)) / 2e-5;
        x[i] = old;
        t_reference_run(l->r, &(tti_run){0});
        T_NEAR(t_reference_of(l->r, dx)[i], want, 1e-6);
    }
}

T_CASE(gradient_goes_through_the_statistics) {
    T_UNUSED;
    for (int sync = 0; sync < 2; sync++)
        for (size_t rows = 2; rows <= N; rows++) {
            layer l = make_layer(sync, (double)rows);
            T_EQ(has_op(l.g, "sync_moments"), sync);
            T_EQ(has_op(l.g, "sync_sum"), sync);
            check_gradient(&l, rows, l.x, l.dx[0]);
            check_gradient(&l, rows, l.y->node->in[2], l.dx[2]);
            check_gradient(&l, rows, l.y->node->in[3], l.dx[3]);
            for (size_t i = rows * C * S; i < N_X; i++)
                assert_true(t_reference_of(l.r, l.dx[0])[i] == 0);
            free_layer(&l);
        }
}

/* However deep a network is, nothing grows in a shard that has no samples. */
T_CASE(of_no_samples_beta_is_left) {
    T_UNUSED;
    layer l = make_layer(false, 0);
    for (size_t i = 0; i < N_X; i++) {
        T_NEAR(t_reference_of(l.r, l.y)[i], some(i / S % C, 5), 0);
        T_NEAR(t_reference_of(l.r, l.dx[0])[i], 0, 0);
    }
    free_layer(&l);
}

/* sum of dy relu(bn(x) + r) over the first rows samples, and its gradient, by one node. */
T_CASE(gradient_goes_through_residual_and_activation) {
    T_UNUSED;
    for (size_t rows = 2; rows <= N; rows++) {
        layer l = make_layer(true, (double)rows);
        const tti_node *bare = l.y->node;
        t_reference_destroy(l.r); /* knows only the values there are now */
        tutti_value *r = tutti_input(l.g, "r", TUTTI_F32, &TUTTI_SHAPE(N, C, S)), *dx[5];
        tutti_value *in[] = {bare->in[0], bare->in[1], bare->in[2], bare->in[3], r};
        l.y = tti_emit(l.g, "bn_apply", "fused", in, 5,
                       (tti_attr_arg[]){TTI_FLOAT("eps", 1e-3), TTI_INT("act", 1), {0}});
        T_OK(tutti_graph_check(l.g));
        bool need[] = {true, true, true, true, true};
        T_OK(l.y->node->op->grad(l.g, l.y->node, &l.dy, need, dx));
        fill_layer(&l, (double)rows);
        for (size_t i = 0; i < N_X; i++) t_reference_of(l.r, r)[i] = some(i, 3);
        check_gradient(&l, rows, l.x, dx[0]);
        check_gradient(&l, rows, bare->in[2], dx[2]);
        check_gradient(&l, rows, bare->in[3], dx[3]);
        int n_cut = 0;
        for (size_t i = 0; i < rows * C * S; i++) {
            double y = t_reference_of(l.r, l.y)[i];
            T_NEAR(t_reference_of(l.r, dx[4])[i], y > 0 ? t_reference_of(l.r, l.dy)[i] : 0, 0);
            n_cut += y == 0;
        }
        assert_true(n_cut > 0);
        free_layer(&l);
    }
}

T_CASE(running_statistics_are_named_sums_of_rows) {
    T_UNUSED;
    layer l = make_layer(false, 3);
    const double *mean = t_reference_of(l.r, tti_graph_output(l.g, "stat.bn.running_mean"));
    const double *var = t_reference_of(l.r, tti_graph_output(l.g, "stat.bn.running_var"));
    for (size_t c = 0; c < C; c++) {
        double sum = 0, m2 = 0, n = 3 * S;
        for (size_t i = 0; i < 3 * S; i++) sum += some(i / S * C * S + c * S + i % S, 0);
        for (size_t i = 0; i < 3 * S; i++) {
            double d = some(i / S * C * S + c * S + i % S, 0) - sum / n;
            m2 += d * d;
        }
        T_NEAR(mean[c], 3 * sum / n, 1e-13);
        T_NEAR(var[c], 3 * m2 / (n - 1), 1e-13);
    }
    free_layer(&l);
}

T_CASE(a_shard_of_padding_gives_zeros) {
    T_UNUSED;
    layer l = make_layer(false, 0);
    for (size_t i = 0; i < N_X; i++) {
        assert_true(isfinite(t_reference_of(l.r, l.y)[i]));
        assert_true(t_reference_of(l.r, l.dx[0])[i] == 0);
    }
    for (size_t c = 0; c < C; c++) {
        assert_true(t_reference_of(l.r, tti_graph_output(l.g, "stat.bn.running_var"))[c] == 0);
        assert_true(t_reference_of(l.r, l.dx[2])[c] == 0);
    }
    free_layer(&l);
}

/* NaN must reach the loss, as after any relu. */
T_CASE(nan_stays_behind_a_mask) {
    T_UNUSED;
    enum { CHANNELS = 8 };
    tutti_graph *g = tutti_graph_create(true);
    const tutti_shape plane = TUTTI_SHAPE(1, CHANNELS), vector = TUTTI_SHAPE(CHANNELS);
    tutti_value *in[] = {tutti_input(g, "x", TUTTI_F32, &plane),
                         tutti_input(g, "stats", TUTTI_F32, &TUTTI_SHAPE(2 * CHANNELS + 1)),
                         tutti_input(g, "gamma", TUTTI_F32, &vector),
                         tutti_input(g, "beta", TUTTI_F32, &vector),
                         tutti_input(g, "r", TUTTI_F32, &plane)};
    tutti_value *y = tti_emit(g, "bn_apply_mask", "it", in, 5, (tti_attr_arg[]){{0}});
    T_OK(tutti_graph_check(g));
    t_reference *r = t_reference_create(g);
    const double added[CHANNELS] = {NAN, 1, -1, NAN, 2, -2, 0, 3};
    memset(t_reference_of(r, in[0]), 0, CHANNELS * sizeof(double));
    for (size_t i = 0; i < 2 * CHANNELS + 1; i++) t_reference_of(r, in[1])[i] = i == 0;
    for (size_t i = 0; i < CHANNELS; i++) t_reference_of(r, in[2])[i] = 1;
    memset(t_reference_of(r, in[3]), 0, CHANNELS * sizeof(double));
    memcpy(t_reference_of(r, in[4]), added, sizeof added);
    t_reference_run(r, &(tti_run){0});
    for (size_t i = 0; i < CHANNELS; i++) {
        double got = t_reference_of(r, y)[i];
        assert_true(isnan(added[i]) ? isnan(got) : got == fmax(added[i], 0));
    }
    /* The gradient passes at NaN, as in PyTorch. */
    T_EQ((int)*t_reference_of(r, y->node->out[1]), 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 7);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(joined_moments_are_those_of_all_samples) {
    T_UNUSED;
    enum { N_PARTS = 5, ELEMS = 5, PER_PART = 6 };
    const tti_op *moments = tti_op_find("sync_moments"), *sum = tti_op_find("sync_sum");
    float parts[N_PARTS * ELEMS], out[ELEMS];
    double all[2] = {0}, m2[2] = {0}, count = 0;
    for (size_t p = 0; p < N_PARTS; p++) {
        double n = p == 3 ? 0 : PER_PART; /* one has no samples */
        parts[p * ELEMS] = (float)n;
        for (size_t c = 0; c < 2; c++) {
            double mean = 0, square = 0;
            for (size_t i = 0; i < (size_t)n; i++) mean += some(p * PER_PART + i, (double)c) / n;
            for (size_t i = 0; i < (size_t)n; i++)
                square += pow(some(p * PER_PART + i, (double)c) - mean, 2);
            parts[p * ELEMS + 1 + c] = (float)mean;
            parts[p * ELEMS + 3 + c] = (float)square;
            all[c] += n * mean;
        }
        count += n;
    }
    for (size_t c = 0; c < 2; c++)
        for (size_t i = 0; i < (size_t)N_PARTS * PER_PART; i++)
            if (i / PER_PART != 3) m2[c] += pow(some(i, (double)c) - all[c] / count, 2);
    moments->join(parts, N_PARTS, ELEMS, out);
    T_NEAR(out[0], count, 0);
    for (size_t c = 0; c < 2; c++) {
        T_NEAR(out[1 + c], all[c] / count, 1e-6);
        T_NEAR(out[3 + c], m2[c], 1e-6);
    }
    moments->join(parts, 1, ELEMS, out);
    assert_memory_equal(out, parts, sizeof out);
    sum->join(parts, N_PARTS, ELEMS, out);
    T_NEAR(out[0], count, 0);
    sum->join(parts, 1, ELEMS, out);
    assert_memory_equal(out, parts, sizeof out);
}

/* The graph of one worker for samples first .. first+n-1, with the joined statistics as inputs. */
typedef struct worker {
    tutti_graph *g;
    tutti_value *x, *dy, *stats, *sums, *own_stats, *own_sums, *y, *dx;
    t_reference *r;
} worker;

static worker make_worker(int64_t first, int64_t n) {
    worker w = {.g = tutti_graph_create(true)};
    tti_attr_arg eps[] = {TTI_FLOAT("eps", 1e-3), {0}};
    w.x = tutti_input(w.g, "x", TUTTI_F32, &TUTTI_SHAPE(n, C, S));
    w.dy = tutti_input(w.g, "dy", TUTTI_F32, &TUTTI_SHAPE(n, C, S));
    w.stats = tutti_input(w.g, "stats", TUTTI_F32, &TUTTI_SHAPE(2 * C + 1));
    w.sums = tutti_input(w.g, "sums", TUTTI_F32, &TUTTI_SHAPE(2 * C + 1));
    tutti_value *gamma = tutti_input(w.g, "gamma", TUTTI_F32, &TUTTI_SHAPE(C));
    tutti_value *beta = tutti_input(w.g, "beta", TUTTI_F32, &TUTTI_SHAPE(C));
    w.own_stats = tti_emit(w.g, "bn_stats", NULL, &w.x, 1, NULL);
    w.y = tti_emit(w.g, "bn_apply", NULL, (tutti_value *[]){w.x, w.stats, gamma, beta}, 4, eps);
    w.own_sums = tti_emit(w.g, "bn_grad_sums", NULL, (tutti_value *[]){w.dy, w.x, w.stats}, 3, eps);
    w.dx = tti_emit(w.g, "bn_grad_apply", NULL,
                    (tutti_value *[]){w.dy, w.x, w.stats, gamma, w.sums}, 5, eps);
    T_OK(tutti_graph_check(w.g));
    w.r = t_reference_create(w.g);
    for (size_t i = 0; i < (size_t)n * C * S; i++) {
        t_reference_of(w.r, w.x)[i] = some((size_t)first * C * S + i, 0);
        t_reference_of(w.r, w.dy)[i] = some((size_t)first * C * S + i, 2);
    }
    for (size_t c = 0; c < C; c++) {
        t_reference_of(w.r, gamma)[c] = some(c, 4);
        t_reference_of(w.r, beta)[c] = some(c, 5);
    }
    t_reference_run(w.r, &(tti_run){0});
    return w;
}

/* Joins own of both workers into the input all of both, and runs them again. */
static void join_workers(worker *w, const char *op, bool sums) {
    float parts[2 * (2 * C + 1)], all[2 * C + 1];
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 2 * C + 1; i++)
            parts[k * (2 * C + 1) + i] =
                (float)t_reference_of(w[k].r, sums ? w[k].own_sums : w[k].own_stats)[i];
    tti_op_find(op)->join(parts, 2, 2 * C + 1, all);
    for (int k = 0; k < 2; k++) {
        double *to = t_reference_of(w[k].r, sums ? w[k].sums : w[k].stats);
        for (int i = 0; i < 2 * C + 1; i++) to[i] = all[i];
        t_reference_run(w[k].r, &(tti_run){0});
    }
}

T_CASE(joined_workers_give_what_one_batch_gives) {
    T_UNUSED;
    layer whole = make_layer(true, N);
    worker w[2] = {make_worker(0, 1), make_worker(1, N - 1)};
    join_workers(w, "sync_moments", false);
    join_workers(w, "sync_sum", true);
    for (int i = 0; i < N_X; i++) {
        int k = i >= C * S, at = i - k * C * S;
        T_NEAR(t_reference_of(w[k].r, w[k].y)[at], t_reference_of(whole.r, whole.y)[i], 1e-5);
        T_NEAR(t_reference_of(w[k].r, w[k].dx)[at], t_reference_of(whole.r, whole.dx[0])[i], 1e-5);
    }
    for (int k = 0; k < 2; k++) {
        t_reference_destroy(w[k].r);
        tutti_graph_destroy(w[k].g);
    }
    free_layer(&whole);
}

T_CASE(builder_makes_parameters_and_buffers) {
    T_UNUSED;
    for (int training = 0; training < 2; training++) {
        tutti_graph *g = tutti_graph_create(training != 0);
        tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(N, C, 5, 5));
        tutti_value *y = tutti_batch_norm2d(g, x, NULL, "bn1");
        tutti_batch_norm2d(g, y, &(tutti_batch_norm_desc){.momentum = 0.3},
                           "bn2"); /* shares rows */
        T_OK(tutti_graph_check(g));
        tti_node *var = tti_graph_find_source(g, "bn1.running_var");
        assert_non_null(var);
        assert_true(var->op->traits & TTI_BUFFER);
        T_NEAR(tti_attr_float(var, "a"), 1, 0);
        T_NEAR(tti_attr_float(var, "momentum"), 0.1, 0);
        T_NEAR(tti_attr_float(tti_graph_find_source(g, "bn2.running_mean"), "momentum"), 0.3, 0);
        T_NEAR(tti_attr_float(tti_graph_find_source(g, "bn1.weight"), "a"), 1, 0);
        T_EQ(tti_attr_int(tti_graph_find_source(g, "bn1.weight"), "decay"), 0);
        T_EQ(has_op(g, "bn_eval"), !training);
        T_EQ(has_op(g, "bn_apply"), training);
        T_EQ(tti_graph_find_source(g, "rows") != NULL, training);
        tutti_graph_destroy(g);
    }
}

T_CASE(a_graph_may_ask_for_joined_statistics) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(N, C, 5, 5));
    tutti_graph_set_sync_batch_norm(g, true);
    tutti_batch_norm2d(g, x, NULL, "bn");
    T_OK(tutti_graph_check(g));
    assert_true(has_op(g, "sync_moments"));
    tutti_graph_destroy(g);
}

T_CASE(bad_layers_are_named) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(5));
    assert_null(tutti_batch_norm2d(g, x, NULL, "bn7"));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, "batch_norm2d 'bn7': input must be [N,C,..]");
    tutti_graph_destroy(g);
    g = tutti_graph_create(true);
    assert_null(tutti_buffer(g, "b", &TUTTI_SHAPE(5), 0, 2));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, "momentum must be > 0 and <= 1");
    tutti_graph_destroy(g);
}

/* Own statistics come from cut samples, joined ones are everybody's. */
T_CASE(statistics_are_own_or_joined) {
    T_UNUSED;
    const tti_placement own = {TTI_OWN, 0}, whole = {TTI_WHOLE, 0}, cut = {TTI_SPLIT, 0},
                        term = {TTI_PARTIAL, 0};
    layer l = make_layer(true, N);
    const tti_node *apply = l.y->node, *sync = apply->in[1]->node, *stats = sync->in[0]->node;
    tti_placement out[TTI_MAX_OUT];
    T_OK(stats->op->shard(stats, (tti_placement[]){cut, term}, out));
    T_EQ(out[0].kind, TTI_OWN);
    T_OK(sync->op->shard(sync, &own, out));
    T_EQ(out[0].kind, TTI_WHOLE);
    T_FAILS(sync->op->shard(sync, &term, out), TUTTI_E_UNSUPPORTED, "own statistics");
    T_OK(apply->op->shard(apply, (tti_placement[]){cut, own, whole, whole}, out));
    T_EQ(out[0].kind, TTI_SPLIT);
    T_OK(apply->op->shard(apply, (tti_placement[]){cut, whole, whole, whole}, out));
    T_FAILS(apply->op->shard(apply, (tti_placement[]){cut, term, whole, whole}, out),
            TUTTI_E_UNSUPPORTED, "bn_apply 'bn'");
    free_layer(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradient_goes_through_the_statistics),
        cmocka_unit_test(of_no_samples_beta_is_left),
        cmocka_unit_test(gradient_goes_through_residual_and_activation),
        cmocka_unit_test(running_statistics_are_named_sums_of_rows),
        cmocka_unit_test(a_shard_of_padding_gives_zeros),
        cmocka_unit_test(nan_stays_behind_a_mask),
        cmocka_unit_test(joined_moments_are_those_of_all_samples),
        cmocka_unit_test(joined_workers_give_what_one_batch_gives),
        cmocka_unit_test(builder_makes_parameters_and_buffers),
        cmocka_unit_test(a_graph_may_ask_for_joined_statistics),
        cmocka_unit_test(bad_layers_are_named),
        cmocka_unit_test(statistics_are_own_or_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
