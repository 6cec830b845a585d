/* golden_test.c - ten steps of three models by five optimizers lose as much as PyTorch's.
 *
 * The bits of parameters, inputs and labels are compared first: a difference there would make the
 * losses differ for no fault of the training step. */
#include "exec/exec.h"
#include "golden/golden_data.h"
#include "ops/op_table.h"
#include "t.h"
#include "tutti/models.h"

typedef struct setup {
    int n_shards, n_compute_threads;
    bool reference;
} setup;

static size_t sample_elems(const char *model) { return strcmp(model, "mlp_small") == 0 ? 16 : 784; }

static tutti_graph *make_graph(const char *name, int64_t rows, bool training) {
    tutti_model_params params = {.n_classes = GOLDEN_CLASSES};
    tutti_shape x_shape = TUTTI_SHAPE(rows, (int64_t)sample_elems(name));
    if (strcmp(name, "mlp_small") == 0) {
        params.n_hidden = 1, params.hidden[0] = 32;
    } else if (strcmp(name, "mlp") == 0) {
        params.n_hidden = 2, params.hidden[0] = params.hidden[1] = 512;
    } else {
        x_shape = TUTTI_SHAPE(rows, 1, 28, 28);
    }
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &x_shape);
    tutti_value *target = tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(rows));
    const tutti_model *model = tutti_model_find(strcmp(name, "lenet") == 0 ? "lenet" : "mlp");
    assert_non_null(model);
    tutti_value *logits = model->build(g, x, &params), *sums[TTI_MAX_OUT] = {0};
    tti_emit_n(g, "cross_entropy", "loss", (tutti_value *[]){logits, target}, 2, NULL, sums);
    tutti_output(g, "loss_sum", sums[0]);
    tutti_output(g, "count", sums[1]);
    tutti_output(g, "correct", sums[2]);
    T_OK(tutti_graph_check(g));
    return g;
}

static tti_plan *make_plan(const golden_case *c, const setup *s) {
    bool sgd = strcmp(c->optimizer, "sgd") == 0;
    tti_attr_arg of_sgd[] = {
        TTI_FLOAT("momentum", c->momentum), TTI_INT("nesterov", c->nesterov), {0}};
    tti_attr_arg of_adam[] = {
        TTI_FLOAT("beta1", c->beta1), TTI_FLOAT("beta2", c->beta2), TTI_FLOAT("eps", c->eps), {0}};
    tti_target target = {.fuse = !s->reference};
    if (!s->reference) target.prefers_channels_last = tti_backend_cpu.prefers_channels_last;
    int64_t rows = GOLDEN_BATCH / s->n_shards;
    tti_plan *plan = NULL;
    T_OK(tti_plan_create(&(tti_plan_desc){.train = make_graph(c->model, rows, true),
                                          .eval = make_graph(c->model, rows, false),
                                          .target = &target,
                                          .optimizer = c->optimizer,
                                          .optimizer_attrs = sgd ? of_sgd : of_adam,
                                          .weight_decay = c->weight_decay,
                                          .bucket_bytes = 1 << 20},
                         &plan));
    return plan;
}

static tti_exec *make_exec(const golden_case *c, const setup *s, const tti_plan *plan) {
    tti_exec *exec = NULL;
    T_OK(tti_exec_create(&(tti_exec_desc){.plan = plan,
                                          .backend = &tti_backend_cpu,
                                          .n_shards = s->n_shards,
                                          .n_compute_threads = s->n_compute_threads,
                                          .alg = TUTTI_ALG_DIRECT,
                                          .reference = s->reference,
                                          .seed = GOLDEN_SEED,
                                          .beta1 = c->beta1,
                                          .beta2 = c->beta2},
                         &exec));
    return exec;
}

static void check_initial_params(const char *model, const tti_plan *plan, tti_exec *exec) {
    int n_checked = 0;
    for (size_t i = 0; i < sizeof golden_params / sizeof *golden_params; i++) {
        const golden_bits *want = &golden_params[i];
        if (strcmp(want->model, model) != 0) continue;
        int at = tti_plan_find_slot(plan, want->param);
        assert_true(at >= 0);
        const tti_slot *slot = &plan->slots[at];
        T_EQ(slot->n_elems, want->n_elems);
        if (golden_hash(tti_exec_params(exec) + slot->first, slot->n_elems) != want->hash)
            fail_msg("%s: the initial %s has other bits than PyTorch was given", model,
                     want->param);
        n_checked++;
    }
    T_EQ(n_checked, plan->n_slots);
}

static void run_steps(const golden_case *c, const setup *s, tti_exec *exec) {
    static _Alignas(64) float x[GOLDEN_BATCH * 784];
    static _Alignas(64) int32_t labels[GOLDEN_BATCH];
    size_t n_elems = sample_elems(c->model), rows = (size_t)(GOLDEN_BATCH / s->n_shards);
    double tolerance = strcmp(c->optimizer, "sgd") == 0 ? 1e-5 : 1e-4;
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        golden_x(step, x, GOLDEN_BATCH * n_elems);
        golden_labels(step, labels);
        tti_shard_data shards[GOLDEN_BATCH];
        for (size_t v = 0; v < (size_t)s->n_shards; v++)
            shards[v] = (tti_shard_data){x + v * rows * n_elems, labels + v * rows, (int32_t)rows};
        tti_step_result result = {0};
        T_OK(tti_exec_step(
            exec,
            &(tti_step_desc){
                .step = (uint64_t)step, .lr = c->lr, .shards = shards, .shard_size = (int64_t)rows},
            &result));
        double loss = result.loss_sum / result.count;
        T_EQ((int)result.count, GOLDEN_BATCH);
        if (!(fabs(loss - c->loss[step]) <= tolerance * c->loss[step]))
            fail_msg("%s, %s, V = %d, step %d: loss %.9g, PyTorch %.9g, relative %.2g", c->model,
                     c->optimizer, s->n_shards, step, loss, c->loss[step],
                     fabs(loss - c->loss[step]) / c->loss[step]);
    }
}

static void check_model(const char *model, const setup *s) {
    int n_cases = 0;
    for (size_t i = 0; i < sizeof golden_cases / sizeof *golden_cases; i++) {
        const golden_case *c = &golden_cases[i];
        if (strcmp(c->model, model) != 0) continue;
        tti_plan *plan = make_plan(c, s);
        tti_exec *exec = make_exec(c, s, plan);
        check_initial_params(model, plan, exec);
        run_steps(c, s, exec);
        tti_exec_destroy(exec);
        tti_plan_destroy(plan);
        n_cases++;
    }
    T_EQ(n_cases, 5);
}

T_CASE(inputs_and_labels) {
    T_UNUSED;
    static float x[GOLDEN_BATCH * 784];
    golden_x(1, x, GOLDEN_BATCH * 784);
    assert_true(golden_hash(x, GOLDEN_BATCH * 784) == golden_x_hash);
    int32_t labels[GOLDEN_BATCH];
    golden_labels(1, labels);
    for (int i = 0; i < GOLDEN_BATCH; i++) T_EQ(labels[i], golden_labels_step1[i]);
}

T_CASE(small_mlp_by_reference) {
    T_UNUSED;
    check_model("mlp_small", &(setup){.n_shards = 1, .n_compute_threads = 1, .reference = true});
    check_model("mlp_small", &(setup){.n_shards = 8, .n_compute_threads = 2, .reference = true});
}

T_CASE(small_mlp) {
    T_UNUSED;
    check_model("mlp_small", &(setup){.n_shards = 1, .n_compute_threads = 1});
    check_model("mlp_small", &(setup){.n_shards = 16, .n_compute_threads = 1});
}

T_CASE(mlp) {
    T_UNUSED;
    check_model("mlp", &(setup){.n_shards = 1, .n_compute_threads = 1});
    check_model("mlp", &(setup){.n_shards = 4, .n_compute_threads = 2});
}

T_CASE(lenet) {
    T_UNUSED;
    check_model("lenet", &(setup){.n_shards = 1, .n_compute_threads = 1});
    check_model("lenet", &(setup){.n_shards = 8, .n_compute_threads = 2});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_and_labels),
        cmocka_unit_test(small_mlp_by_reference),
        cmocka_unit_test(small_mlp),
        cmocka_unit_test(mlp),
        cmocka_unit_test(lenet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
