/* collective_norm_test.c - which steps are a norm between two collectives, and that what others
 * read and write meanwhile has places of its own. */
#include "passes/tensor/collective_norm.h"

#include "passes/nets.h"

enum { POSITIONS = 6 };

/* Readers of a norm: a layer; a layer and tanh; or tanh alone, whose result the layer reads. */
typedef enum norm_readers { LAYER, LAYER_AND_TANH, TANH } norm_readers;

/* Blocks of two layers each, whose norms are of the positions of one worker. */
static tutti_graph *net_of(bool training, int64_t width, norm_readers readers) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_linear(g, net_x(g), POSITIONS * width, "embed");
    x = tutti_reshape(g, x, &TUTTI_SHAPE(NET_ROWS, POSITIONS, width));
    for (int i = 0; i < 3; i++) {
        char name[3][32];
        static const char *const parts[] = {"ln", "up", "down"};
        for (int k = 0; k < 3; k++) snprintf(name[k], sizeof name[k], "h%d.%s", i, parts[k]);
        tutti_value *y = tutti_layer_norm(g, x, NULL, name[0]);
        if (readers != LAYER) x = tutti_add(g, x, tutti_tanh(g, y));
        if (readers == TANH) y = x;
        y = tutti_gelu(g, tutti_linear(g, y, 1024, name[1]));
        x = tutti_add(g, x, tutti_linear(g, y, width, name[2]));
    }
    return net_finish(g, tutti_linear(g, tutti_flatten(g, x), NET_CLASSES, "out"));
}

static tutti_graph *rows(bool training) { return net_of(training, 16, LAYER); }
static tutti_graph *odd_rows(bool training) { return net_of(training, 12, LAYER); }
static tutti_graph *shared_rows(bool training) { return net_of(training, 16, LAYER_AND_TANH); }
static tutti_graph *own_rows(bool training) { return net_of(training, 16, TANH); }

static tti_plan *plan_of(net_fn net, bool joins, int grads, tutti_dtype dtype, bool sums) {
    static const tti_attr_arg attrs[] = {TTI_FLOAT("momentum", 0.9), {0}};
    tti_target target = net_fast;
    tti_plan *plan = NULL;
    target.n_tensor = 2, target.collectives = true, target.joins_norms = joins;
    target.joins_grads = grads, target.fuse_sums = sums;
    target.fuse_residual_norm = true, target.compute_dtype = dtype,
    target.low_precision_residual = true;
    target.keeps_low_copies = true; /* else casts of biases stand between the steps */
    T_OK(tti_plan_create(&(tti_plan_desc){.train = net(true),
                                          .eval = net(false),
                                          .target = &target,
                                          .optimizer = "sgd",
                                          .optimizer_attrs = attrs,
                                          .bucket_bytes = 1 << 20},
                         &plan));
    return plan;
}

static int count(const tti_program *program, bool grads) {
    tti_collective_norm joint;
    int n = 0;
    for (int s = 0; s < program->n_steps; s++)
        n += tti_collective_norm_at(program, s, &joint) && joint.is_grad == grads;
    return n;
}

static int count_sums(const tti_program *program) {
    tti_collective_norm joint;
    int n = 0;
    for (int s = 0; s < program->n_steps; s++)
        n += tti_collective_norm_at(program, s, &joint) &&
             strcmp(joint.norm->op->name, "layer_norm_grads_sums") == 0;
    return n;
}

/* Products whose result only a collective reads. */
static int count_products(const tti_program *program) {
    tti_collective_norm joint;
    int n = 0;
    for (int s = 0; s < program->n_steps; s++) {
        if (!tti_collective_norm_at(program, s, &joint)) continue;
        int p = tti_collective_norm_product(program, s);
        if (p < 0) continue;
        const char *op = program->steps[p]->op->name;
        assert_true(strcmp(op, "linear") == 0 || strcmp(op, "matmul") == 0);
        T_EQ(tti_value_n_bytes(program->steps[p]->out[0]), tti_value_n_bytes(joint.scatter->in[0]));
        for (int i = p + 1; i < s; i++)
            assert_false(program->steps[i]->op->traits & TTI_COLLECTIVE);
        n++;
    }
    return n;
}

static bool overlap(const tti_program *program, const tutti_value *a, const tutti_value *b) {
    tti_buf x = program->bufs[a->id], y = program->bufs[b->id];
    return x.space == y.space && x.offset < y.offset + tti_value_n_bytes(b) &&
           y.offset < x.offset + tti_value_n_bytes(a);
}

/* All that is written from all that is read, and from each other. */
static void check_apart(const tti_program *program, int s) {
    tti_collective_norm joint;
    if (!tti_collective_norm_at(program, s, &joint)) return;
    const tti_node *norm = joint.norm;
    const tutti_value *in[6] = {joint.scatter->in[0], norm->in[1 - joint.branch]}, *out[6];
    int n_in = 2, n_out = 0;
    for (int i = 2; joint.is_grad && i < norm->n_in; i++) in[n_in++] = norm->in[i];
    int first = joint.gather && !joint.is_grad;
    for (int k = first; k < norm->op->n_out; k++) out[n_out++] = norm->out[k];
    if (joint.is_grad) out[n_out++] = joint.scatter->out[0];
    if (joint.gather) out[n_out++] = joint.gather->out[0];
    T_EQ(program->steps[s], joint.scatter);
    T_EQ(program->steps[s + joint.n_steps - 1], joint.gather ? joint.gather : joint.norm);
    T_EQ(joint.n_blocks * joint.n_rows * joint.width, tti_value_n_elems(norm->out[0]));
    assert_true(joint.n_rows == POSITIONS / 2 && (joint.bias || joint.is_grad));
    for (int k = 0; k < n_out; k++) {
        for (int i = 0; i < n_in; i++) assert_false(overlap(program, in[i], out[k]));
        for (int i = 0; i < k; i++) assert_false(overlap(program, out[i], out[k]));
    }
}

T_CASE(norms_are_found_and_have_places_of_their_own) {
    T_UNUSED;
    for (int sums = 0; sums < 2; sums++) { /* of dx too, for the bias in front */
        tti_plan *plan = plan_of(rows, true, 16, TUTTI_BF16, sums);
        T_EQ(count(&plan->shard, false), 2);
        T_EQ(count(&plan->shard, true), 2);
        T_EQ(count_sums(&plan->shard), 2 * sums);
        T_EQ(count_products(&plan->shard), 4);
        T_EQ(count(&plan->eval, false), 0); /* the casts of its biases stand between the steps */
        for (int s = 0; s < plan->shard.n_steps; s++) check_apart(&plan->shard, s);
        tti_plan_destroy(plan);
    }
}

/* Norms whose rows stay, and gathers that belong to no norm. */
T_CASE(rows_that_stay_or_come_alone) {
    T_UNUSED;
    tti_collective_norm joint;
    for (int alone = 0; alone < 2; alone++) {
        tti_plan *plan = plan_of(alone ? own_rows : rows, true, 16, TUTTI_BF16, false);
        const tti_program *program = &plan->shard;
        int n_stay = 0, n_alone = 0;
        for (int s = 0; s < program->n_steps; s++) {
            if (tti_collective_norm_at(program, s, &joint) && !joint.gather) {
                T_EQ(joint.n_steps, joint.is_grad ? 2 : 3);
                n_stay += !joint.is_grad;
                check_apart(program, s);
            }
            if (!tti_rows_gather_at(program, s, &joint)) continue;
            assert_true(!joint.norm && !joint.scatter && joint.gather == program->steps[s]);
            T_EQ(tti_value_n_elems(joint.gather->in[0]),
                 joint.n_blocks * joint.n_rows * joint.width);
            n_alone++;
        }
        T_EQ(n_stay, 2 * alone);
        assert_true(alone ? n_alone >= 3 : n_alone > 0);
        tti_plan_destroy(plan);
    }
}

T_CASE(others_are_not_taken) {
    T_UNUSED;
    static const struct {
        net_fn net;
        bool joins;
        tutti_dtype dtype;
    } cases[] = {{rows, false, TUTTI_BF16},    /* not requested */
                 {rows, true, TUTTI_F32},      /* rows of other floats */
                 {odd_rows, true, TUTTI_BF16}, /* no whole vectors */
                 {shared_rows, true, TUTTI_BF16}};
    for (size_t i = 0; i < TTI_COUNT(cases); i++) {
        tti_plan *plan = plan_of(cases[i].net, cases[i].joins, 0, cases[i].dtype, false);
        T_EQ(count(&plan->shard, false) + count(&plan->shard, true), 0);
        tti_plan_destroy(plan);
    }
}

T_CASE(short_rows_have_gradients_of_their_own) {
    T_UNUSED;
    tti_plan *plan = plan_of(rows, true, 17, TUTTI_BF16, false);
    T_EQ(count(&plan->shard, false), 2);
    T_EQ(count(&plan->shard, true), 0);
    tti_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_rows_have_gradients_of_their_own),
        cmocka_unit_test(norms_are_found_and_have_places_of_their_own),
        cmocka_unit_test(rows_that_stay_or_come_alone),
        cmocka_unit_test(others_are_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
