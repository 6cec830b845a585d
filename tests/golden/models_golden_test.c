/* models_golden_test.c - ten steps of model families lose as much as PyTorch's, by plain C and by
 * fast kernels, in one shard and in several; a few where steps take long.
 *
 * make_models.py says how weights and data are made; batch norm over several shards is PyTorch's
 * over the whole batch when the statistics are joined.  The networks of make_nets.py are also
 * evaluated after the last step, with the running statistics. */
#include <stdlib.h>

#include "exec/exec.h"
#include "golden/golden_data.h"
#include "golden/models_losses.h"
#include "golden/nets_losses.h"
#include "ops/op_table.h"
#include "t.h"
#include "tutti/models.h"
#include "tutti/ops.h"

enum { CLASSES = 10, MAX_SIDE = 32, MAX_PIXELS = 3 * MAX_SIDE * MAX_SIDE, MAX_LABELS = 256 };

typedef struct setup {
    int n_shards, n_compute_threads;
    bool reference;
    int n_steps; /* 0: all */
} setup;

static const models_case *find_case(const char *model) {
    for (size_t i = 0; i < sizeof models_cases / sizeof *models_cases; i++)
        if (strcmp(models_cases[i].model, model) == 0) return &models_cases[i];
    for (size_t i = 0; i < sizeof nets_cases / sizeof *nets_cases; i++)
        if (strcmp(nets_cases[i].model, model) == 0) return &nets_cases[i];
    fail_msg("no numbers for %s", model);
    return NULL;
}

/* The place of a case of make_nets.py, -1 for others. */
static int net_of(const models_case *c) {
    bool is_net = c >= nets_cases && c < nets_cases + sizeof nets_cases / sizeof *nets_cases;
    return is_net ? (int)(c - nets_cases) : -1;
}

/* Models of images, as make_models.py and make_nets.py build them. */
typedef struct image_net {
    const char *model;
    int64_t side;
    bool by_pixel; /* a label for each pixel */
    tutti_model_params params;
} image_net;

static const image_net *image_net_of(const models_case *c) {
    static const image_net nets[] = {
        {"resnet18", 16, false, {.n_classes = CLASSES, .small_images = true}},
        {"vit",
         32,
         false,
         {.n_classes = CLASSES,
          .patch = 8,
          .n_layers = 2,
          .n_heads = 2,
          .width = 32,
          .mlp_width = 64}},
        {"convnext",
         32,
         false,
         {.n_classes = CLASSES, .width = 8, .n_stages = 4, .depths = {1, 1, 2, 1}}},
        {"swin",
         32,
         false,
         {.n_classes = CLASSES,
          .width = 16,
          .n_heads = 2,
          .window = 3,
          .n_stages = 4,
          .depths = {2, 1, 1, 2}}},
        {"unet", 16, true, {.n_classes = CLASSES, .width = 4, .n_layers = 2}}};
    static const image_net narrow = {
        .side = NETS_SIDE,
        .params = {.n_classes = CLASSES, .small_images = true, .width_multiplier = NETS_WIDTH}};
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        if (strcmp(nets[i].model, c->model) == 0) return &nets[i];
    return net_of(c) >= 0 ? &narrow : NULL;
}

static bool is_bert(const models_case *c) { return strcmp(c->model, "bert") == 0; }

/* ---- the plan ---- */

static tutti_graph *make_graph(const models_case *c, int64_t rows, bool training) {
    const tutti_model_params tokens = {.n_classes = MODELS_VOCABULARY,
                                       .n_layers = 2,
                                       .n_heads = 2,
                                       .width = MODELS_WIDTH,
                                       .context = strcmp(c->model, "gpt2") == 0 ? 20 : 0,
                                       .padded = true};
    const tutti_model *model = tutti_model_find(c->model);
    tutti_graph *g = tutti_graph_create(training);
    tutti_graph_set_sync_batch_norm(g, true);
    tutti_shape x_shape = TUTTI_SHAPE(rows, MODELS_TOKENS), y_shape = x_shape;
    const image_net *net = image_net_of(c);
    if (net) x_shape = TUTTI_SHAPE(rows, 3, net->side, net->side), y_shape = TUTTI_SHAPE(rows);
    if (net && net->by_pixel) y_shape = TUTTI_SHAPE(rows, net->side, net->side);
    tutti_value *x = tutti_input(g, "x", net ? TUTTI_F32 : TUTTI_I32, &x_shape);
    tutti_value *target = tutti_input(g, "target", TUTTI_I32, &y_shape);
    tutti_value *logits = model->build(g, x, net ? &net->params : &tokens);
    if (net && net->by_pixel) logits = tutti_permute(g, logits, (int[]){0, 2, 3, 1}, 4);
    tutti_shape flat = tutti_value_type(logits).shape;
    flat = TUTTI_SHAPE(-1, flat.dim[flat.n_dims - 1]);
    tutti_loss loss = tutti_cross_entropy(g, tutti_reshape(g, logits, &flat),
                                          tutti_reshape(g, target, &TUTTI_SHAPE(-1)), 0, -1);
    tutti_output(g, "loss_sum", loss.sum);
    tutti_output(g, "count", loss.count);
    tutti_output(g, "correct", loss.correct);
    T_OK(tutti_graph_check(g));
    return g;
}

static tti_plan *make_plan(const models_case *c, const setup *s) {
    tti_attr_arg of_sgd[] = {TTI_FLOAT("momentum", c->momentum), TTI_INT("nesterov", 0), {0}};
    tti_attr_arg of_adam[] = {
        TTI_FLOAT("beta1", 0.9), TTI_FLOAT("beta2", 0.999), TTI_FLOAT("eps", 1e-8), {0}};
    tti_target target = {.fuse = !s->reference};
    if (!s->reference) target.prefers_channels_last = tti_backend_cpu.prefers_channels_last;
    int64_t rows = MODELS_BATCH / s->n_shards;
    tti_plan *plan = NULL;
    T_OK(tti_plan_create(
        &(tti_plan_desc){.train = make_graph(c, rows, true),
                         .eval = make_graph(c, rows, false),
                         .target = &target,
                         .optimizer = c->optimizer,
                         .optimizer_attrs = strcmp(c->optimizer, "sgd") == 0 ? of_sgd : of_adam,
                         .weight_decay = c->weight_decay,
                         .bucket_bytes = 1 << 20},
        &plan));
    return plan;
}

/* ---- weights, as in make_models.py ---- */

static void fill_slot(const tti_slot *slot, float *w) {
    const tutti_shape *shape = &slot->param->out[0]->type.shape;
    const char *name = slot->param->name;
    bool matrix = shape->n_dims > 1, scale = strstr(name, ".weight") != NULL;
    uint64_t key = tti_mix64(GOLDEN_SEED, tti_hash_name(name));
    double bound = 0.1, middle = !matrix && scale ? 1 : 0;
    if (matrix) bound = sqrt(3.0 / ((double)slot->n_elems / (double)shape->dim[0]));
    tti_philox draw = {{0}};
    for (size_t i = 0; i < (size_t)slot->n_elems; i++) {
        if (i % 4 == 0) draw = tti_philox_draw(key, 0, i / 4);
        double u = tti_philox_unit(draw.v[i % 4]);
        w[i] = (float)(middle + bound * (2 * u - 1));
    }
}

static void fill_weights(const models_case *c, const tti_plan *plan, tti_exec *exec) {
    long n = 0;
    for (int i = 0; i < plan->n_slots; i++) {
        const tti_slot *slot = &plan->slots[i];
        if (slot->buffer) continue;
        fill_slot(slot, tti_exec_params(exec) + slot->first);
        n += (long)slot->n_elems;
    }
    T_EQ(n, c->n_params);
}

/* ---- data ---- */

typedef struct batch {
    _Alignas(64) float pixels[MODELS_BATCH * MAX_PIXELS];
    _Alignas(64) int32_t tokens[MODELS_BATCH * MODELS_TOKENS];
    _Alignas(64) int32_t labels[MODELS_BATCH * MAX_LABELS];
} batch;

static void make_batch(const models_case *c, int step, batch *b) {
    uint32_t classes = image_net_of(c) ? CLASSES : MODELS_VOCABULARY, pad = is_bert(c);
    golden_x(step, b->pixels, MODELS_BATCH * MAX_PIXELS);
    for (size_t i = 0; i < MODELS_BATCH * MAX_LABELS; i++)
        b->labels[i] = (int32_t)(golden_draw("golden.labels", step, i) % classes);
    for (size_t i = 0; i < MODELS_BATCH * MODELS_TOKENS; i++) {
        uint32_t token = golden_draw("golden.tokens", step, i) % (MODELS_VOCABULARY - pad);
        b->tokens[i] = (int32_t)(token + pad);
        size_t row = i / MODELS_TOKENS;
        if (pad && i % MODELS_TOKENS >= MODELS_TOKENS - row % 5)
            b->tokens[i] = 0, b->labels[i] = -1;
    }
}

/* ---- steps ---- */

static tti_step_desc make_step(const models_case *c, const setup *s, int step, batch *data,
                               tti_shard_data *shards) {
    size_t rows = (size_t)(MODELS_BATCH / s->n_shards);
    const image_net *net = image_net_of(c);
    size_t n_pixels = net ? (size_t)(net->side * net->side) : 0;
    make_batch(c, step, data);
    for (size_t v = 0; v < (size_t)s->n_shards; v++) {
        size_t first = v * rows;
        shards[v] = (tti_shard_data){data->tokens + first * MODELS_TOKENS,
                                     data->labels + first * MODELS_TOKENS, (int32_t)rows};
        if (net) shards[v].x = data->pixels + first * 3 * n_pixels;
        if (net) shards[v].target = data->labels + first * (net->by_pixel ? n_pixels : 1);
    }
    return (tti_step_desc){.step = (uint64_t)step,
                           .lr = c->lr,
                           .shards = shards,
                           .shard_size = (int64_t)rows,
                           .n_rows = MODELS_BATCH};
}

static void expect_loss(const models_case *c, const setup *s, const char *what, int step,
                        const tti_step_result *result, double want) {
    double loss = result->loss_sum / result->count;
    double most = net_of(c) >= 0 ? fmax(1e-4, 5 * c->spread) : 1e-4;
    if (!(fabs(loss - want) <= most * want))
        fail_msg("%s, V = %d, %s %d: loss %.9g, PyTorch %.9g, relative %.2g", c->model, s->n_shards,
                 what, step, loss, want, fabs(loss - want) / want);
}

static void run_steps(const models_case *c, const setup *s, tti_exec *exec) {
    static batch data;
    tti_shard_data shards[MODELS_BATCH];
    for (int step = 0; step < (s->n_steps ? s->n_steps : MODELS_STEPS); step++) {
        tti_step_desc desc = make_step(c, s, step, &data, shards);
        tti_step_result result = {0};
        T_OK(tti_exec_step(exec, &desc, &result));
        expect_loss(c, s, "step", step, &result, c->loss[step]);
    }
    if (net_of(c) < 0) return;
    tti_step_desc desc = make_step(c, s, 0, &data, shards);
    tti_step_result result = {0};
    T_OK(tti_exec_eval(exec, &desc, &result));
    expect_loss(c, s, "evaluation", 0, &result, nets_evals[net_of(c)].loss);
}

static void check_model(const char *model, const setup *s) {
    const models_case *c = find_case(model);
    tti_plan *plan = make_plan(c, s);
    tti_exec *exec = NULL;
    T_OK(tti_exec_create(&(tti_exec_desc){.plan = plan,
                                          .backend = &tti_backend_cpu,
                                          .n_shards = s->n_shards,
                                          .n_compute_threads = s->n_compute_threads,
                                          .alg = TUTTI_ALG_DIRECT,
                                          .reference = s->reference,
                                          .seed = GOLDEN_SEED,
                                          .beta1 = 0.9,
                                          .beta2 = 0.999},
                         &exec));
    fill_weights(c, plan, exec);
    run_steps(c, s, exec);
    tti_exec_destroy(exec);
    tti_plan_destroy(plan);
}

static void check_small(const char *model) {
    int n_steps = image_net_of(find_case(model)) ? 3 : 0;
    check_model(
        model,
        &(setup){.n_shards = 1, .n_compute_threads = 1, .reference = true, .n_steps = n_steps});
    check_model(model, &(setup){.n_shards = 1, .n_compute_threads = 1});
    int n_shards = image_net_of(find_case(model)) ? 4 : 8;
    check_model(model, &(setup){.n_shards = n_shards, .n_compute_threads = 2});
}

T_CASE(gpt2) {
    T_UNUSED;
    check_small("gpt2");
}

T_CASE(bert) {
    T_UNUSED;
    check_small("bert");
}

T_CASE(lstm) {
    T_UNUSED;
    check_small("lstm");
}

T_CASE(vit) {
    T_UNUSED;
    check_small("vit");
}

T_CASE(convnext) {
    T_UNUSED;
    check_small("convnext");
}

T_CASE(swin) {
    T_UNUSED;
    check_small("swin");
}

T_CASE(unet) {
    T_UNUSED;
    check_small("unet");
}

T_CASE(resnet18) {
    T_UNUSED;
    check_model("resnet18", &(setup){.n_shards = 1, .n_compute_threads = 1});
    check_model("resnet18", &(setup){.n_shards = 4, .n_compute_threads = 2, .n_steps = 3});
}

T_CASE(convolutional_networks) {
    T_UNUSED;
    for (size_t i = 0; i < sizeof nets_cases / sizeof *nets_cases; i++) {
        assert_string_equal(nets_evals[i].model, nets_cases[i].model);
        check_model(nets_cases[i].model, &(setup){.n_shards = 1, .n_compute_threads = 1});
    }
    check_model("mobilenet_v3_small", &(setup){.n_shards = 4, .n_compute_threads = 2});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2),
        cmocka_unit_test(bert),
        cmocka_unit_test(lstm),
        cmocka_unit_test(vit),
        cmocka_unit_test(convnext),
        cmocka_unit_test(swin),
        cmocka_unit_test(unet),
        cmocka_unit_test(resnet18),
        cmocka_unit_test(convolutional_networks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
