/* instance_test.c - a program bound to kernels gives what its graph means, every step in order. */
#include "exec/program/instance.h"

#include <stdlib.h>

#include "passes/nets.h"

typedef struct bound {
    tti_plan *plan;
    const tti_program *program;
    tti_instance *instance;
    void *arena, *params, *grads, *x;
    int32_t *target;
} bound;

static void *memory(size_t n_bytes) {
    void *made = tti_backend_cpu.alloc(n_bytes + 64);
    assert_non_null(made);
    return made;
}

/* The data of net_fill, so that the interpreter has the same. */
static void fill(bound *b) {
    t_reference *r = t_reference_create(b->program->graph);
    net_fill(r);
    for (int i = 0; i < b->program->graph->n_nodes; i++) {
        const tti_node *node = b->program->graph->nodes[i];
        if (!(node->op->traits & (TTI_PARAM | TTI_INPUT))) continue;
        const double *data = t_reference_of(r, node->out[0]);
        float *at = strcmp(node->name, "x") == 0
                        ? b->x
                        : (float *)b->params + b->program->bufs[node->out[0]->id].offset / 4;
        for (int64_t e = 0; e < tti_value_n_elems(node->out[0]); e++)
            if (strcmp(node->name, "target") == 0)
                b->target[e] = (int32_t)data[e];
            else
                at[e] = (float)data[e];
    }
    t_reference_destroy(r);
}

static bound bind(net_fn net, const tti_target *target, bool reference, bool eval) {
    bound b = {.plan = net_plan(net, target, 1 << 20)};
    b.program = eval ? &b.plan->eval : &b.plan->shard;
    b.arena = memory(b.program->arena_bytes);
    b.params = memory(b.plan->n_flat * sizeof(float));
    b.grads = memory(b.plan->n_flat * sizeof(float));
    b.x = memory(1 << 16);
    b.target = memory(1 << 10);
    fill(&b);
    tti_prepared *prepared = NULL; /* of some they are there already */
    if (eval) T_OK(tti_prepared_create(b.program, &tti_backend_cpu, reference, &prepared));
    T_OK(tti_instance_create(&(tti_instance_desc){.program = b.program,
                                                  .backend = &tti_backend_cpu,
                                                  .reference = reference,
                                                  .arena = b.arena,
                                                  .params = b.params,
                                                  .prepared = prepared},
                             &b.instance));
    const tti_kernel *kernel;
    void *state;
    for (int s = 0; s < b.program->n_steps; s++)
        assert_false(tti_prepared_take(prepared, s, &kernel, &state)); /* taken */
    tti_prepared_destroy(prepared);
    tti_instance_set_input(b.instance, tti_program_input(b.program, "x"), b.x);
    tti_instance_set_input(b.instance, tti_program_input(b.program, "target"), b.target);
    tti_instance_set_grads(b.instance, b.grads);
    return b;
}

static void unbind(bound *b) {
    tti_instance_destroy(b->instance);
    tti_backend_cpu.release(b->arena, b->program->arena_bytes + 64);
    tti_backend_cpu.release(b->params, b->plan->n_flat * sizeof(float) + 64);
    tti_backend_cpu.release(b->grads, b->plan->n_flat * sizeof(float) + 64);
    tti_backend_cpu.release(b->x, (1 << 16) + 64);
    tti_backend_cpu.release(b->target, (1 << 10) + 64);
    tti_plan_destroy(b->plan);
}

static void expect_results(const bound *b, net_fn net, bool eval) {
    tutti_graph *g = net(!eval);
    T_OK(tti_pipeline_run(&g, &net_plain, "autodiff"));
    t_reference *r = net_evaluate(g);
    for (int i = 0; i < g->n_outputs; i++) {
        const double *want = t_reference_of(r, g->outputs[i].value);
        const char *name = g->outputs[i].name;
        const float *got = strncmp(name, "grad.", 5)
                               ? tti_instance_output(b->instance, name)
                               : (const float *)b->grads +
                                     b->plan->slots[tti_plan_find_slot(b->plan, name + 5)].first;
        for (int64_t e = 0; e < tti_value_n_elems(g->outputs[i].value); e++)
            T_NEAR(got[e], want[e], 2e-5);
    }
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

static void note_step(int step, void *user) {
    int *next = user;
    T_EQ(step, (*next)++);
}

T_CASE(a_run_is_what_the_graph_means) {
    T_UNUSED;
    for (size_t n = 0; n < TTI_COUNT(net_all); n++)
        for (int reference = 0; reference < 2; reference++)
            for (int eval = 0; eval < 2; eval++) {
                bound b = bind(net_all[n], reference ? &net_plain : &net_fast, reference, eval);
                for (int times = 0; times < 2; times++) { /* nothing is left behind by a run */
                    int n_steps = 0;
                    T_OK(tti_instance_run(b.instance, &net_run, note_step, &n_steps));
                    T_EQ(n_steps, b.program->n_steps);
                    expect_results(&b, net_all[n], eval);
                }
                unbind(&b);
            }
}

T_CASE(kernels_are_those_that_were_asked_for) {
    T_UNUSED;
    for (int reference = 0; reference < 2; reference++) {
        bound b = bind(net_lenet, reference ? &net_plain : &net_fast, reference, false);
        int n_reference = 0;
        for (int s = 0; s < b.program->n_steps; s++)
            n_reference += strcmp(tti_instance_kernel(b.instance, s), "reference") == 0;
        if (reference)
            T_EQ(n_reference, b.program->n_steps);
        else
            assert_true(n_reference < b.program->n_steps);
        unbind(&b);
    }
}

T_CASE(inputs_and_gradients_may_move) {
    T_UNUSED;
    bound b = bind(net_mlp, &net_fast, false, false);
    T_OK(tti_instance_run(b.instance, &net_run, NULL, NULL));
    float loss = *(const float *)tti_instance_output(b.instance, "loss_sum");
    size_t n_bytes = b.plan->n_flat * sizeof(float);
    float *other = memory(n_bytes), *zeros = memory(1 << 16);
    memset(b.x, 0x7f, 4); /* the old places are not looked at any more */
    tti_instance_set_input(b.instance, tti_program_input(b.program, "x"), zeros);
    tti_instance_set_grads(b.instance, other);
    float *kept = malloc(n_bytes);
    memcpy(kept, b.grads, n_bytes);
    T_OK(tti_instance_run(b.instance, &net_run, NULL, NULL));
    assert_true(*(const float *)tti_instance_output(b.instance, "loss_sum") != loss);
    assert_memory_equal(kept, b.grads, n_bytes);
    assert_memory_not_equal(kept, other, n_bytes);
    free(kept);
    tti_backend_cpu.release(other, n_bytes + 64);
    tti_backend_cpu.release(zeros, (1 << 16) + 64);
    unbind(&b);
}

/* Its name, "": none; from step first on. */
static const char *bad_node(bound *b, int first) {
    const tti_program *program = &b->plan->shard;
    int step;
    T_OK(tti_instance_find_nonfinite(b->instance, &net_run, first, program->n_steps, &step));
    return step < 0 ? "" : program->steps[step]->name;
}

T_CASE(the_first_bad_node_is_found) {
    T_UNUSED;
    bound b = bind(net_mlp, &net_plain, false, false);
    assert_string_equal(bad_node(&b, 0), "");
    int slot = tti_plan_find_slot(b.plan, "fc2.bias");
    ((float *)b.params)[b.plan->slots[slot].first] = INFINITY;
    assert_string_equal(bad_node(&b, 0), "fc2");
    ((float *)b.x)[0] = NAN;
    assert_string_equal(bad_node(&b, 0), "fc1");
    assert_string_equal(bad_node(&b, b.plan->shard.n_steps), "");
    unbind(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_what_the_graph_means),
        cmocka_unit_test(kernels_are_those_that_were_asked_for),
        cmocka_unit_test(inputs_and_gradients_may_move),
        cmocka_unit_test(the_first_bad_node_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
