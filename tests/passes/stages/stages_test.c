/* stages_test.c - a model cut into ranks has the losses and gradients of the whole one. */
#include "passes/stages/stages.h"

#include <stdio.h>

#include "passes/nets.h"

enum { MAX_STAGES = 4 };

typedef struct ranks {
    int n_stages, n_chunks;
    tti_stages stages[MAX_STAGES];
    tutti_graph *g[MAX_STAGES];
    t_reference *r[MAX_STAGES];
} ranks;

static void cut(ranks *k, net_fn net, bool training) {
    for (int s = 0; s < k->n_stages; s++) {
        tti_target target = net_plain;
        k->stages[s] = (tti_stages){.stage = s, .n_stages = k->n_stages, .n_chunks = k->n_chunks};
        target.stages = &k->stages[s];
        k->g[s] = net(true);
        T_OK(tti_pipeline_run(&k->g[s], &target, "stages"));
        if (training) continue;
        tutti_graph_destroy(k->g[s]); /* the cuts are those of training */
        k->g[s] = net(false);
        T_OK(tti_pipeline_run(&k->g[s], &target, "stages"));
    }
}

static void ranks_fini(ranks *k) {
    for (int s = 0; s < k->n_stages; s++) {
        if (k->r[s]) t_reference_destroy(k->r[s]);
        tutti_graph_destroy(k->g[s]);
        tti_stages_fini(&k->stages[s]);
    }
}

/* Copies the values that rank `to` reads from the ranks that computed them. */
static void receive(ranks *k, int to) {
    for (int i = 0; i < k->g[to]->n_nodes; i++) {
        const tti_node *node = k->g[to]->nodes[i];
        if (!(node->op->traits & TTI_INPUT) || tti_stage_boundary_number(node->name) < 0) continue;
        const tutti_value *sent = NULL;
        for (int s = 0; s < k->n_stages && !sent; s++)
            if (s != to) sent = tti_graph_output(k->g[s], node->name);
        assert_non_null(sent);
        int from = 0;
        while (tti_graph_output(k->g[from], node->name) != sent) from++;
        memcpy(t_reference_of(k->r[to], node->out[0]), t_reference_of(k->r[from], sent),
               (size_t)tti_value_n_elems(sent) * sizeof(double));
    }
}

/* Each run of all ranks moves the messages on by one schedule slot. */
static void run_ranks(ranks *k) {
    int n_sched_slots = 2 * k->n_stages * k->n_chunks;
    for (int s = 0; s < k->n_stages; s++) {
        k->r[s] = t_reference_create(k->g[s]);
        net_fill(k->r[s]);
    }
    for (int m = 0; m < n_sched_slots; m++)
        for (int s = 0; s < k->n_stages; s++) {
            receive(k, s);
            t_reference_run(k->r[s], &net_run);
        }
}

/* The sum over the ranks that have the output, and how many have. */
static double sum_of(const ranks *k, const char *name, int64_t e, int *n) {
    double sum = 0;
    *n = 0;
    for (int s = 0; s < k->n_stages; s++) {
        const tutti_value *value = tti_graph_output(k->g[s], name);
        if (!value) continue;
        sum += t_reference_of(k->r[s], value)[e];
        ++*n;
    }
    return sum;
}

static int count_holders(const ranks *k, const char *param) {
    int n = 0;
    for (int s = 0; s < k->n_stages; s++) n += tti_graph_find_source(k->g[s], param) != NULL;
    return n;
}

static void expect_same(const ranks *k, const tutti_graph *whole) {
    t_reference *r = net_evaluate(whole);
    for (int i = 0; i < whole->n_outputs; i++) {
        const tutti_value *value = whole->outputs[i].value;
        const char *name = whole->outputs[i].name;
        for (int64_t e = 0; e < tti_value_n_elems(value); e++) {
            int n;
            double got = sum_of(k, name, e, &n);
            T_EQ(n, strncmp(name, "grad.", 5) == 0 ? count_holders(k, name + 5) : 1);
            T_NEAR(got, t_reference_of(r, value)[e], 1e-12);
        }
    }
    t_reference_destroy(r);
}

static tutti_graph *blocks(bool training) { return net_blocks(training, false); }

/* An embedding that is the last layer's weight too, and a value that all blocks read. */
static tutti_graph *tied(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_init init = {.kind = TUTTI_INIT_NORMAL, .b = 0.5};
    tutti_value *w = tutti_param(g, "w", &TUTTI_SHAPE(NET_CLASSES, 6), &init, true);
    tutti_value *x = tutti_matmul(g, net_x(g), tutti_transpose(g, w, 0, 1));
    x = tutti_linear(g, x, 6, "in");
    tutti_value *first = x;
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "block%d", i);
        x = tutti_add(g, x, tutti_tanh(g, tutti_linear(g, x, 6, name)));
        x = tutti_mul(g, x, first);
    }
    return net_finish(g, tutti_matmul(g, x, tutti_transpose(g, w, 0, 1)));
}

static const net_fn nets[] = {net_mlp, net_lenet, net_knots, blocks, tied};

T_CASE(stages_have_the_gradients_of_the_whole) {
    T_UNUSED;
    int n_cut = 0;
    for (size_t i = 0; i < TTI_COUNT(nets); i++)
        for (int p = 2; p <= MAX_STAGES; p++)
            for (int v = 1; v <= 2; v++) {
                tutti_graph *whole = nets[i](true), *eval = nets[i](false);
                int n_places = i == 0 ? 2 : i == 1 || i == 2 ? 4 : 6;
                if (p * v <= n_places) {
                    T_OK(tti_pipeline_run(&whole, &net_plain, "split"));
                    T_OK(tti_pipeline_run(&eval, &net_plain, "split"));
                    ranks k = {.n_stages = p, .n_chunks = v};
                    cut(&k, nets[i], true);
                    run_ranks(&k);
                    expect_same(&k, whole);
                    ranks_fini(&k);
                    k = (ranks){.n_stages = p, .n_chunks = v};
                    cut(&k, nets[i], false);
                    run_ranks(&k);
                    expect_same(&k, eval);
                    ranks_fini(&k);
                    n_cut++;
                }
                tutti_graph_destroy(whole);
                tutti_graph_destroy(eval);
            }
    T_EQ(n_cut, 1 + 2 * 4 + 2 * 5);
}

/* An input that only autodiff reads: the seed of all gradients. */
T_CASE(the_loss_scale_is_with_the_loss) {
    T_UNUSED;
    for (int stage = 0; stage < 2; stage++) {
        tti_stages s = {.stage = stage, .n_stages = 2, .n_chunks = 1};
        tti_target target = {.compute_dtype = TUTTI_F16, .loss_scale = true, .stages = &s};
        tutti_graph *g = net_lenet(true);
        T_OK(tti_pipeline_run(&g, &target, "stages"));
        T_EQ(tti_graph_find_source(g, "loss_scale") != NULL, stage == 1);
        tutti_graph_destroy(g);
        tti_stages_fini(&s);
    }
}

/* "w@1" beside "w" would be taken for its copy on stage 1. */
T_CASE(names_of_copies_are_refused) {
    T_UNUSED;
    tti_stages s = {.n_stages = 2, .n_chunks = 1};
    tti_target target = {.stages = &s};
    tutti_graph *g = tutti_graph_create(true);
    tutti_init init = {.kind = TUTTI_INIT_NORMAL, .b = 0.5};
    tutti_value *w = tutti_param(g, "w", &TUTTI_SHAPE(6), &init, true);
    tutti_value *x = tutti_linear(g, tutti_add(g, net_x(g), w), 6, "fc1");
    x = tutti_add(g, x, tutti_param(g, "w@1", &TUTTI_SHAPE(6), &init, true));
    (void)net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc2"));
    T_FAILS(tti_pipeline_run(&g, &target, "stages"), TUTTI_E_INVALID, "'w@1'");
    tutti_graph_destroy(g);
    tti_stages_fini(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_have_the_gradients_of_the_whole),
        cmocka_unit_test(the_loss_scale_is_with_the_loss),
        cmocka_unit_test(names_of_copies_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
