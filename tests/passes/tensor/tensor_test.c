/* tensor_test.c - the graphs of all workers of a tensor axis together are the whole graph: losses,
 * statistics and every gradient, and what they hold and send is what it should be. */
#include "passes/tensor/tensor.h"

#include "passes/lockstep.h"

enum { ROWS = 4, TOKENS = 4, WIDTH = 16, HEADS = 4, WORDS = 96 };

/* ---- networks whose sizes divide ---- */

static tutti_graph *mlp(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_relu(g, tutti_linear(g, net_x(g), 16, "fc1"));
    x = tutti_dropout(g, x, 0.3, "drop");
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc2"));
}

static tutti_graph *lenet(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_conv2d_desc conv1 = {.n_out = 4, .kernel = 3, .pad = 1};
    tutti_conv2d_desc conv2 = {.n_out = 8, .kernel = 3, .pad = 1};
    tutti_value *x = tutti_relu(g, tutti_conv2d(g, net_image(g, 1), &conv1, "conv1"));
    x = tutti_max_pool2d(g, x, 2);
    x = tutti_relu(g, tutti_conv2d(g, x, &conv2, "conv2"));
    x = tutti_max_pool2d(g, x, 2);
    x = tutti_relu(g, tutti_linear(g, tutti_flatten(g, x), 8, "fc1"));
    x = tutti_dropout(g, x, 0.25, "drop1");
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc2"));
}

static tutti_graph *blocks(bool training) { return net_blocks_of(8, training, false); }

static tutti_graph *finish_tokens(tutti_graph *g, tutti_value *logits, double smoothing) {
    tutti_value *target = tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(ROWS, TOKENS));
    logits = tutti_reshape(g, logits, &TUTTI_SHAPE(ROWS * TOKENS, WORDS));
    target = tutti_reshape(g, target, &TUTTI_SHAPE(ROWS * TOKENS));
    tutti_loss loss = tutti_cross_entropy(g, logits, target, smoothing, 3);
    tutti_output(g, "loss_sum", loss.sum);
    tutti_output(g, "count", loss.count);
    tutti_output(g, "correct", loss.correct);
    T_OK(tutti_graph_check(g));
    return g;
}

static tutti_value *tokens(tutti_graph *g) {
    return tutti_input(g, "x", TUTTI_I32, &TUTTI_SHAPE(ROWS, TOKENS));
}

static tutti_value *mlp_branch(tutti_graph *g, tutti_value *x, const char *fc, const char *proj) {
    x = tutti_gelu_tanh(g, tutti_linear(g, x, 4 * WIDTH, fc));
    return tutti_linear(g, x, WIDTH, proj);
}

/* Two blocks as GPT-2's: packed queries, keys and values, a tied head, dropout. */
static tutti_graph *gpt(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_init init = {.kind = TUTTI_INIT_NORMAL, .b = 0.3};
    tutti_value *wte = tutti_param(g, "wte", &TUTTI_SHAPE(WORDS, WIDTH), &init, true);
    tutti_value *wpe = tutti_param(g, "wpe", &TUTTI_SHAPE(2 * TOKENS, WIDTH), &init, true);
    tutti_value *x = tutti_lookup(g, wte, tokens(g));
    x = tutti_dropout(g, tutti_add(g, x, tutti_slice(g, wpe, 0, 0, TOKENS)), 0.1, "drop");
    for (int i = 0; i < 2; i++) {
        char name[7][16];
        static const char *const kinds[] = {"ln1", "qkv", "proj", "drop1", "ln2", "fc", "fcproj"};
        for (int k = 0; k < 7; k++) snprintf(name[k], sizeof name[k], "h%d.%s", i, kinds[k]);
        tutti_value *y = tutti_linear(g, tutti_layer_norm(g, x, NULL, name[0]), 3 * WIDTH, name[1]);
        y = tutti_attention(g, y, NULL, &(tutti_attention_desc){.heads = HEADS, .causal = true});
        y = tutti_dropout(g, tutti_linear(g, y, WIDTH, name[2]), 0.2, name[3]);
        x = tutti_add(g, x, y);
        y = mlp_branch(g, tutti_layer_norm(g, x, NULL, name[4]), name[5], name[6]);
        x = tutti_add(g, x, y);
    }
    x = tutti_layer_norm(g, x, NULL, "ln_f");
    return finish_tokens(g, tutti_matmul_with(g, x, wte, false, true), 0.1);
}

/* A block as BERT's: a layer each for queries, keys and values, lengths, norms after sums. */
static tutti_graph *bert(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x =
        tutti_embedding(g, tokens(g), &(tutti_embedding_desc){WORDS, WIDTH, NULL}, "w");
    tutti_value *rows = tutti_input(g, "rows", TUTTI_I32, &TUTTI_SHAPE(ROWS)), *qkv[3];
    static const char *const names[] = {"query", "key", "value"};
    x = tutti_layer_norm(g, x, NULL, "ln0");
    for (int i = 0; i < 3; i++) qkv[i] = tutti_linear(g, x, WIDTH, names[i]);
    tutti_value *y = tutti_attention(g, tutti_concat(g, qkv, 3, 2), rows,
                                     &(tutti_attention_desc){.heads = HEADS});
    y = tutti_dropout(g, tutti_linear(g, y, WIDTH, "out"), 0.1, "drop");
    x = tutti_layer_norm(g, tutti_add(g, x, y), NULL, "ln1");
    x = tutti_layer_norm(g, tutti_add(g, x, mlp_branch(g, x, "fc", "proj")), NULL, "ln2");
    return finish_tokens(g, tutti_linear(g, x, WORDS, "head"), 0);
}

/* A block as Llama's: a layer each for queries, keys and values, rotary positions; kv heads of
 * keys.
 */
static tutti_graph *llama(bool training, int kv) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x =
        tutti_embedding(g, tokens(g), &(tutti_embedding_desc){WORDS, WIDTH, NULL}, "w");
    static const char *const names[] = {"query", "key", "value"};
    tutti_value *qkv[3], *y = tutti_rms_norm(g, x, NULL, "norm1");
    for (int i = 0; i < 3; i++)
        qkv[i] = tutti_linear(g, y, i == 0 ? WIDTH : kv * WIDTH / HEADS, names[i]);
    y = tutti_rotary(g, tutti_concat(g, qkv, 3, 2), NULL,
                     &(tutti_rotary_desc){.heads = HEADS + kv, .dim = WIDTH / HEADS});
    y = tutti_attention(g, y, NULL,
                        &(tutti_attention_desc){.heads = HEADS, .kv_heads = kv, .causal = true});
    x = tutti_add(g, x, tutti_linear(g, y, WIDTH, "out"));
    x = tutti_add(g, x, mlp_branch(g, tutti_rms_norm(g, x, NULL, "norm2"), "fc", "proj"));
    return finish_tokens(g, tutti_linear(g, x, WORDS, "head"), 0);
}
static tutti_graph *shared_keys(bool training) { return llama(training, HEADS / 2); }
static tutti_graph *own_keys(bool training) { return llama(training, HEADS); }

/* ---- together ---- */

/* cuts [n]: of each worker's first graph, for those after; NULL: none are kept. */
static lockstep cut(net_fn net, bool training, int n, tti_cuts *cuts) {
    lockstep l = {.n = n};
    for (int w = 0; w < n; w++) {
        tti_target target = {.n_tensor = n, .tensor = w, .cuts = cuts ? &cuts[w] : NULL};
        l.g[w] = net(training);
        T_OK(tti_pass_tensor(&l.g[w], &target));
        T_OK(tti_graph_verify(l.g[w]));
        T_OK(tti_pass_autodiff(&l.g[w], &target));
        T_OK(tti_graph_verify(l.g[w]));
        l.r[w] = t_reference_create(l.g[w]);
    }
    return l;
}

static void expect_whole(net_fn net, bool training, const lockstep *l) {
    tutti_graph *g = net(training);
    T_OK(tti_pass_autodiff(&g, &net_plain));
    t_reference *whole = net_evaluate(g);
    lockstep_fill(l, whole);
    lockstep_run(l, &net_run);
    for (int w = 0; w < l->n; w++) {
        T_EQ(l->g[w]->n_outputs, g->n_outputs);
        for (int k = 0; k < g->n_outputs; k++) lockstep_compare(l, w, k, whole, 1e-9);
    }
    t_reference_destroy(whole);
    tutti_graph_destroy(g);
}

static int64_t n_params(const tutti_graph *g) {
    int64_t n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op->traits & TTI_PARAM) n += tti_value_n_elems(g->nodes[i]->out[0]);
    return n;
}

/* A value that looks like packed queries and is sliced again, many times. */
static tutti_graph *apart(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_linear(g, net_x(g), 8, "in"), *wide[6], *sum = NULL;
    for (int i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof name, "wide%d", i);
        wide[i] = tutti_linear(g, x, 24, name);
    }
    for (int i = 0; i < 6; i++) {
        tutti_value *part = tutti_slice(g, wide[i], 1, 8, 8);
        sum = sum ? tutti_add(g, sum, part) : part;
    }
    return net_finish(g, tutti_linear(g, sum, NET_CLASSES, "out"));
}

static const net_fn nets[] = {mlp, lenet, blocks, gpt, bert, apart, shared_keys, own_keys};

T_CASE(workers_together_are_the_whole) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(nets); i++)
        for (int n = 2; n <= 4; n *= 2) {
            tti_cuts cuts[4] = {{0}};
            lockstep l = cut(nets[i], true, n, cuts), eval = cut(nets[i], false, n, cuts);
            for (int w = 0; w < n; w++) tti_cuts_fini(&cuts[w]);
            expect_whole(nets[i], true, &l);
            expect_whole(nets[i], false, &eval);
            for (int k = 0; k < l.g[0]->n_nodes; k++) {
                const tti_node *node = l.g[0]->nodes[k];
                if (!(node->op->traits & (TTI_PARAM | TTI_BUFFER))) continue;
                const tti_node *twin = tti_graph_find_source(eval.g[0], node->name);
                T_EQ(tti_tensor_shard_of(node).dim, tti_tensor_shard_of(twin).dim);
                T_EQ(tti_tensor_shard_of(node).groups, tti_tensor_shard_of(twin).groups);
            }
            lockstep_destroy(&l);
            lockstep_destroy(&eval);
        }
}

static int cut_dim(const lockstep *l, const char *name) {
    return tti_tensor_shard_of(tti_graph_find_source(l->g[0], name)).dim;
}

/* Columns and then rows, heads apart, the table by words: as in Shoeybi et al. 2019. */
T_CASE(a_transformer_is_cut_as_one_would_by_hand) {
    T_UNUSED;
    lockstep l = cut(gpt, true, 4, NULL);
    T_EQ(cut_dim(&l, "h0.qkv.weight"), 0);
    T_EQ(cut_dim(&l, "h0.qkv.bias"), 0);
    T_EQ(tti_tensor_shard_of(tti_graph_find_source(l.g[0], "h0.qkv.weight")).groups, 3);
    T_EQ(cut_dim(&l, "h0.proj.weight"), 1);
    T_EQ(cut_dim(&l, "h1.fc.weight"), 0);
    T_EQ(cut_dim(&l, "h1.fcproj.weight"), 1);
    T_EQ(cut_dim(&l, "wte"), 0);
    T_EQ(cut_dim(&l, "ln_f.weight"), -1);
    T_EQ(tti_attr_int(net_find(l.g[0], "attention", ""), "heads"), 1);
    T_EQ(net_count_ops(l.g[0], "entropy_part"), 1);
    tutti_graph *g = gpt(true);
    int64_t all = n_params(g), least = all / 4;
    assert_true(n_params(l.g[0]) < least + all / 10);
    tutti_graph_destroy(g);
    lockstep_destroy(&l);
}

static size_t arena_bytes(net_fn net, int n) {
    tti_target target = net_fast;
    target.n_tensor = n;
    tti_plan *plan = net_plan(net, &target, 1 << 20);
    size_t n_bytes = plan->shard.arena_bytes;
    tti_plan_destroy(plan);
    return n_bytes;
}

/* Norms, dropouts and sums between two layers are of some tokens of each sample: a sum gives each
 * worker its own, a gather brings them together, and the same backwards (Korthikanti et al. 2022).
 */
/* Rotary positions and shared keys do not keep heads from being divided. */
T_CASE(heads_that_share_keys_are_divided) {
    T_UNUSED;
    static const net_fn llamas[] = {shared_keys, own_keys};
    static const char *const ops[] = {"sdpa", "attention"};
    for (int i = 0; i < 2; i++) {
        lockstep l = cut(llamas[i], true, 2, NULL);
        T_EQ(tti_attr_int(net_find(l.g[1], ops[i], ""), "heads"), HEADS / 2);
        T_EQ(cut_dim(&l, "query.weight"), 0);
        T_EQ(cut_dim(&l, "key.weight"), 0);
        T_EQ(cut_dim(&l, "value.weight"), 0);
        T_EQ(cut_dim(&l, "out.weight"), 1);
        lockstep_destroy(&l);
        tutti_graph *g = llamas[i](true);
        T_EQ(tti_tensor_whole_heads(g, 2), 0);
        T_EQ(tti_tensor_whole_heads(g, HEADS), i == 0 ? HEADS : 0);
        tutti_graph_destroy(g);
    }
}

T_CASE(between_layers_each_has_some_of_the_tokens) {
    T_UNUSED;
    enum { N = 2 };
    lockstep l = cut(gpt, true, N, NULL);
    const tutti_graph *g = l.g[0];
    static const char *const norms[] = {"h0.ln1", "h0.ln2", "h1.ln1", "h1.ln2", "ln_f"};
    for (size_t i = 0; i < TTI_COUNT(norms); i++) {
        const tti_node *norm = net_find(g, "layer_norm", norms[i]);
        T_EQ(norm->out[0]->type.shape.dim[1], TOKENS / N);
    }
    T_EQ(tti_attr_int(net_find(g, "dropout", "h0.drop1"), "cut_dim"), 1);
    int n_sums = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        if (strcmp(node->op->name, "tensor_all_reduce") != 0) continue;
        n_sums += tti_value_n_elems(node->out[0]) >= ROWS * TOKENS * WIDTH;
    }
    T_EQ(n_sums, 1); /* of the table of words, which is cut by them */
    /* four layers read what is gathered, and as many give what is summed, forwards and backwards */
    assert_true(net_count_ops(g, "tensor_reduce_scatter") >= 8);
    assert_true(4 * arena_bytes(gpt, N) < 3 * arena_bytes(gpt, 1));
    lockstep_destroy(&l);
}

T_CASE(channels_are_cut_and_then_summed) {
    T_UNUSED;
    lockstep l = cut(blocks, true, 2, NULL);
    T_EQ(cut_dim(&l, "conv1.weight") >= 0, true);
    T_EQ(cut_dim(&l, "conv0.weight"), 0);
    T_EQ(cut_dim(&l, "bn0.weight"), 0);
    T_EQ(cut_dim(&l, "bn0.running_mean"), 0);
    lockstep_destroy(&l);
}

T_CASE(one_worker_changes_nothing) {
    T_UNUSED;
    tutti_graph *g = gpt(true);
    int n = g->n_nodes;
    T_OK(tti_pass_tensor(&g, &(tti_target){.n_tensor = 1}));
    T_EQ(g->n_nodes, n);
    tutti_graph_destroy(g);
}

T_CASE(what_cannot_be_cut_is_refused_with_what_can) {
    T_UNUSED;
    tutti_graph *g = mlp(true); /* 6 inputs, 16 hidden, 5 classes */
    T_FAILS(tti_pass_tensor(&g, &(tti_target){.n_tensor = 7}), TUTTI_E_INVALID,
            "parallel.tensor=7: 7 must divide the features, channels, heads or classes");
    T_FAILS(tti_pass_tensor(&g, &(tti_target){.n_tensor = 7}), TUTTI_E_INVALID,
            "does so for 0 % of the parameters only; numbers that work: 2, 4, 8, 16; with some "
            "layers whole: 3, 5, 6");
    tutti_graph_destroy(g);
}

T_CASE(all_passes_take_the_graph) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(nets); i++) {
        tti_target target = net_fast;
        target.n_tensor = 2, target.tensor = 1, target.compute_dtype = TUTTI_BF16;
        tutti_graph *g = nets[i](true);
        T_OK(tti_pipeline_run(&g, &target, NULL));
        tutti_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_together_are_the_whole),
        cmocka_unit_test(a_transformer_is_cut_as_one_would_by_hand),
        cmocka_unit_test(heads_that_share_keys_are_divided),
        cmocka_unit_test(between_layers_each_has_some_of_the_tokens),
        cmocka_unit_test(channels_are_cut_and_then_summed),
        cmocka_unit_test(one_worker_changes_nothing),
        cmocka_unit_test(what_cannot_be_cut_is_refused_with_what_can),
        cmocka_unit_test(all_passes_take_the_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
