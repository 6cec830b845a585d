/* fused_models_test.c - the graphs of whole models with everything that a backend can ask of the
 * passes (tti_backend.fuses_training) mean what they mean without.
 *
 * Evaluated in double the loss and every gradient are the same but for the order of sums.  When
 * every node rounds to its dtype, the graph that was rewritten is about as far from the exact
 * result as the one that was not: how far that is depends on the model, and fewer nodes round. */
#include "base/philox.h"
#include "models/models.h"
#include "passes/rewrite.h"
#include "reference_run.h"
#include "t.h"
#include "train/narrow_resnet.h"
#include "train/setup/blueprint.h"
#include "train/small_job.h"

enum { ROWS = 4, TOKENS = 6, WORDS = 37, IGNORED = -1, N_DRAWS = 16, MOST_OUTPUTS = 128 };

typedef struct model_case {
    const char *name;
    tutti_model_fn build;
    tutti_dtype dtype; /* of x */
    tutti_shape x;
    tutti_model_params params;
    bool hard; /* all of a row's target is its label */
} model_case;

static const model_case gpt2 = {"gpt2",
                                tti_model_gpt2,
                                TUTTI_I32,
                                {2, {ROWS, TOKENS}},
                                {.n_classes = WORDS, .n_layers = 2, .n_heads = 2, .width = 16},
                                false};
/* Its head goes without logits. */
static const model_case hard_gpt2 = {"gpt2 with hard targets",
                                     tti_model_gpt2,
                                     TUTTI_I32,
                                     {2, {ROWS, TOKENS}},
                                     {.n_classes = WORDS, .n_layers = 2, .n_heads = 2, .width = 16},
                                     true};
static const model_case bert = {
    "bert",
    tti_model_bert,
    TUTTI_I32,
    {2, {ROWS, TOKENS}},
    {.n_classes = WORDS, .n_layers = 2, .n_heads = 2, .width = 16, .dropout = 0.1},
    false};

/* With dropout, and positions that are left over: its residual stream is in f32. */
static const model_case dropping_gpt2 = {"gpt2 with dropout",
                                         tti_model_gpt2,
                                         TUTTI_I32,
                                         {2, {ROWS, TOKENS}},
                                         {.n_classes = WORDS,
                                          .n_layers = 2,
                                          .n_heads = 2,
                                          .width = 16,
                                          .context = 2 * TOKENS,
                                          .dropout = 0.1},
                                         false};

static const model_case resnet = {
    "resnet", narrow_resnet, TUTTI_F32, {4, {ROWS, 3, 16, 16}}, {.n_classes = 5}, false};

static const model_case lenet = {
    "lenet", tti_model_lenet, TUTTI_F32, {4, {ROWS, 3, 8, 12}}, {.n_classes = 5, .dropout = 0.1},
    false};

static bool likes_channels_last(const tti_node *node) {
    return (node->op->traits & TTI_CHANNELS_LAST) != 0 && node->n_in > 0;
}

static bool likes_pooling(const tti_node *conv, bool tf32) {
    return conv->in[0]->type.dtype == TUTTI_F32 && !tf32;
}

static bool likes_gelu(const tti_node *product) {
    return strcmp(product->op->name, "linear") == 0 || strcmp(product->op->name, "matmul") == 0;
}

static bool likes_joins(const tti_node *grad_x, bool keeps) {
    (void)keeps;
    return grad_x->in[0]->layout == grad_x->out[0]->layout;
}

static bool likes_heads(const tti_node *logits) { return logits->n_in == 2; }

/* The target of a job as in blueprint.c, for a backend that fuses or does not. */
static tti_target target_of(bool fuses, const char *precision, bool low_precision_residual) {
    tti_backend backend = {.name = "made-up",
                           .prefers_channels_last = fuses ? likes_channels_last : NULL,
                           .strided = fuses,
                           .fuses_pool = fuses ? likes_pooling : NULL,
                           .joins_exact_gelu = fuses ? likes_gelu : NULL,
                           .joins_gradient = fuses ? likes_joins : NULL,
                           .joins_head = fuses ? likes_heads : NULL,
                           .fuses_training = fuses};
    tutti_job *job = SMALL_JOB(
        precision, low_precision_residual ? "train.low_precision_residual=true" : "train.seed=1",
        fuses ? "train.seed=1" : "parallel.backend=reference");
    tti_blueprint b = {.config = job->config, .devices.backend = &backend};
    tti_target target = tti_blueprint_target(&b);
    T_EQ(target.fuse, fuses);
    T_EQ(target.fuse_loss, fuses);
    tutti_job_destroy(job);
    return target;
}

static tutti_graph *graph_of(const model_case *m, const tti_target *target) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", m->dtype, &m->x);
    tutti_value *logits = m->build(g, x, &m->params);
    int64_t n_classes = m->params.n_classes, n = tti_value_n_elems(logits) / n_classes;
    logits = tutti_reshape(g, logits, &TUTTI_SHAPE(n, n_classes));
    tutti_value *labels = tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(n));
    tutti_loss loss = tutti_cross_entropy(g, logits, labels, m->hard ? 0 : 0.1, IGNORED);
    tutti_output(g, "loss_sum", loss.sum);
    tutti_output(g, "count", loss.count);
    tutti_output(g, "correct", loss.correct);
    T_OK(tutti_graph_check(g));
    T_OK(tti_pipeline_run(&g, target, NULL));
    return g;
}

/* A number for element e of that source, of about the size it has in training. */
static double number_for(const model_case *m, const tti_node *node, int draw_of, int64_t e) {
    const tutti_shape *shape = &node->out[0]->type.shape;
    uint32_t draw = tti_philox_draw((uint64_t)draw_of, tti_hash_name(node->name), (uint64_t)e).v[0];
    double unit = (double)tti_philox_unit(draw);
    if (strcmp(node->name, "target") == 0)
        return e == 2 ? IGNORED : (double)(draw % (uint32_t)m->params.n_classes);
    if (node->out[0]->type.dtype == TUTTI_I32) return (double)(draw % WORDS);
    if (node->op->traits & TTI_INPUT) return 2 * unit - 1;
    if ((node->op->traits & TTI_BUFFER) || shape->n_dims < 2) return 0.5 + unit;
    double fan_in = (double)(tutti_shape_n_elems(shape) / shape->dim[0]);
    return (2 * unit - 1) * sqrt(3 / fan_in);
}

static t_reference *evaluate(const model_case *m, const tutti_graph *g, int draw, bool rounds) {
    static const tti_run run = {.seed = 3, .step = 2, .sample0 = 8};
    t_reference *r = t_reference_create(g);
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        if (!(node->op->traits & (TTI_INPUT | TTI_PARAM | TTI_BUFFER))) continue;
        double *data = t_reference_of(r, node->out[0]);
        for (int64_t e = 0; e < tti_value_n_elems(node->out[0]); e++)
            data[e] = number_for(m, node, draw, e);
    }
    r->rounds = rounds;
    t_reference_run(r, &run);
    return r;
}

/* The length of output i of a, or of its difference from the output of that name of b. */
static double length_of(const t_reference *a, int i, const t_reference *b) {
    const tutti_value *x = a->g->outputs[i].value;
    const tutti_value *y = b ? tti_graph_output(b->g, a->g->outputs[i].name) : NULL;
    double sum = 0;
    if (b) assert_non_null(y);
    if (b) assert_true(tti_shape_equal(&x->type.shape, &y->type.shape));
    for (int64_t e = 0; e < tti_value_n_elems(x); e++) {
        double d = t_reference_of(a, x)[e] - (b ? t_reference_of(b, y)[e] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* The scale of an error: gradients that are zero in theory, such as those of the biases of
 * keys, are noise beside the others. */
static double scale_of(const t_reference *exact, int i) {
    double largest = 0;
    for (int k = 0; k < exact->g->n_outputs; k++)
        if (strncmp(exact->g->outputs[k].name, "grad.", 5) == 0)
            largest = fmax(largest, length_of(exact, k, NULL));
    return fmax(length_of(exact, i, NULL), 0.01 * largest);
}

/* Sums over the draws, by output: squares of relative errors; of correct predictions, of how many
 * they are off. */
typedef struct errors {
    double plain[MOST_OUTPUTS], fused[MOST_OUTPUTS];
} errors;

typedef struct pair {
    const model_case *m;
    tutti_graph *plain, *fused;
} pair;

static void expect_the_same(const pair *p, const t_reference *exact, int draw) {
    t_reference *fused = evaluate(p->m, p->fused, draw, false);
    for (int i = 0; i < p->plain->n_outputs; i++) {
        double off = length_of(exact, i, fused) / scale_of(exact, i);
        if (!(off < 1e-9)) fail_msg("%s: %s is %g off", p->m->name, p->plain->outputs[i].name, off);
    }
    t_reference_destroy(fused);
}

/* Hits are whole numbers: one is lost or won where two logits are nearer than rounding, so over all
 * draws one more may be than without fusing. */
static bool is_hits(const char *name) { return strcmp(name, "correct") == 0; }

static void add_errors(const pair *p, const t_reference *exact, int draw, errors *sums) {
    t_reference *plain = evaluate(p->m, p->plain, draw, true);
    t_reference *fused = evaluate(p->m, p->fused, draw, true);
    for (int i = 0; i < p->plain->n_outputs; i++) {
        double scale = is_hits(p->plain->outputs[i].name) ? 1 : scale_of(exact, i);
        double off = length_of(exact, i, plain) / scale;
        sums->plain[i] += off * off;
        off = length_of(exact, i, fused) / scale;
        sums->fused[i] += off * off;
    }
    t_reference_destroy(plain);
    t_reference_destroy(fused);
}

/* rounding: what rounding a result once may cost.  The quarter is the noise of so few draws. */
static void expect_as_close(const pair *p, const errors *sums, double rounding) {
    for (int i = 0; i < p->plain->n_outputs; i++) {
        double plain = sqrt(sums->plain[i] / N_DRAWS), fused = sqrt(sums->fused[i] / N_DRAWS);
        const char *name = p->plain->outputs[i].name;
        if (is_hits(name) && sums->fused[i] <= sums->plain[i] + 1) continue;
        if (!(fused <= 1.25 * plain + rounding))
            fail_msg("%s: %s is %g off, %g without fusing", p->m->name, name, fused, plain);
    }
}

static void check(const model_case *m, const char *precision, bool low_precision_residual,
                  double rounding) {
    tti_target plain = target_of(false, precision, low_precision_residual);
    tti_target fused = target_of(true, precision, low_precision_residual);
    pair p = {.m = m, .plain = graph_of(m, &plain), .fused = graph_of(m, &fused)};
    errors sums = {0};
    assert_true(p.fused->n_nodes < p.plain->n_nodes);
    T_EQ(p.fused->n_outputs, p.plain->n_outputs);
    assert_true(p.plain->n_outputs <= MOST_OUTPUTS);
    for (int draw = 0; draw < N_DRAWS; draw++) {
        t_reference *exact = evaluate(m, p.plain, draw, false);
        expect_the_same(&p, exact, draw);
        add_errors(&p, exact, draw, &sums);
        t_reference_destroy(exact);
    }
    expect_as_close(&p, &sums, rounding);
    tutti_graph_destroy(p.plain);
    tutti_graph_destroy(p.fused);
}

static void check_f32(const model_case *m) { check(m, "train.precision=f32", false, 1e-6); }

static void check_bf16(const model_case *m) {
    for (int low_precision_residual = 0; low_precision_residual < 2; low_precision_residual++)
        check(m, "train.precision=bf16", low_precision_residual, 1.0 / 256);
}

T_CASE(gpt2_in_f32) {
    T_UNUSED;
    check_f32(&gpt2);
    check_f32(&dropping_gpt2);
}

T_CASE(gpt2_in_bf16) {
    T_UNUSED;
    check_bf16(&gpt2);
    check_bf16(&hard_gpt2);
    check_bf16(&dropping_gpt2);
}

T_CASE(bert_in_f32) {
    T_UNUSED;
    check_f32(&bert);
}

T_CASE(bert_in_bf16) {
    T_UNUSED;
    check_bf16(&bert);
}

T_CASE(resnet_in_f32) {
    T_UNUSED;
    check_f32(&resnet);
}

T_CASE(resnet_in_bf16) {
    T_UNUSED;
    check_bf16(&resnet);
}

T_CASE(lenet_in_f32) {
    T_UNUSED;
    check_f32(&lenet);
}

/* The cases above test something: the fused ops occur. */
T_CASE(the_fused_ops_are_there) {
    T_UNUSED;
    static const struct {
        const model_case *m;
        const char *op;
    } rows[] = {{&gpt2, "cross_entropy_and_grad"},
                {&gpt2, "layer_norm_grads_sums"},
                {&gpt2, "matmul_gelu_grad_sums"},
                {&gpt2, "linear_add"},
                {&dropping_gpt2, "add_layer_norm"},
                {&hard_gpt2, "cross_entropy_head"},
                {&hard_gpt2, "scale_rows"},
                {&bert, "cross_entropy_and_grad"},
                {&bert, "matmul_add"},
                {&bert, "linear_gelu"},
                {&bert, "matmul_gelu_grad_sums"},
                {&bert, "layer_norm_grads_cast"},
                {&resnet, "bn_apply_mask"},
                {&resnet, "bn_grad_join"},
                {&resnet, "bn_grad_sums"},
                {&lenet, "conv2d_pool"},
                {&lenet, "conv2d_pool_grad_x"},
                {&lenet, "conv2d_pool_grad_w"},
                {&resnet, "conv2d_stats"},
                {&resnet, "conv2d_grad_join"},
                {&resnet, "conv2d_grad_sums"},
                {&resnet, "bn_apply_pool"},
                {&resnet, "bn_pool_grad_sums"},
                {&resnet, "bn_pool_grad_apply"}};
    tti_target low = target_of(true, "train.precision=bf16", true);
    tti_target mixed = target_of(true, "train.precision=bf16", false);
    tti_target wide = target_of(true, "train.precision=f32", false);
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        bool casts = strstr(rows[i].op, "_cast") != NULL;
        tutti_graph *g = graph_of(rows[i].m, rows[i].m == &lenet ? &wide : casts ? &mixed : &low);
        int n = 0;
        for (int k = 0; k < g->n_nodes; k++) n += strcmp(g->nodes[k]->op->name, rows[i].op) == 0;
        if (n == 0) fail_msg("%s has no %s", rows[i].m->name, rows[i].op);
        tutti_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_in_f32),   cmocka_unit_test(gpt2_in_bf16),
        cmocka_unit_test(bert_in_f32),   cmocka_unit_test(bert_in_bf16),
        cmocka_unit_test(resnet_in_f32), cmocka_unit_test(resnet_in_bf16),
        cmocka_unit_test(lenet_in_f32),  cmocka_unit_test(the_fused_ops_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
