/* tp_waits_test.c - who waits for collectives overlapped with the program: readers of what they
 * give, and writers over what they read or over rows that leave. */
#include "exec/program/collective.h"

#include "ops/rules.h"
#include "passes/nets.h"

enum { N_STEPS = 6, BYTES = 64 };

/* x -> a -> collective -> c, and beside it x -> b -> d; a second collective of d; places are given.
 */
typedef struct plan_of_places {
    tti_program program;
    tti_node *steps[N_STEPS];
    tti_buf bufs[16];
} plan_of_places;

enum { A, EXCHANGE, B, D, SECOND, C };

static tutti_value *collective(tutti_graph *g, tutti_value *x) {
    const tti_attr_arg attrs[] = {TTI_INT("n", 2), TTI_INT("index", 0), {0}};
    return tti_emit(g, "tensor_all_reduce", "sum", &x, 1, attrs);
}

static plan_of_places make(void) {
    static const tutti_shape shape = {.n_dims = 1, .dim = {16}};
    plan_of_places p = {0};
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &shape);
    tutti_value *a = tutti_tanh(g, x), *s = collective(g, a), *b = tutti_exp(g, x);
    tutti_value *d = tutti_neg(g, b), *t = collective(g, d), *c = tutti_tanh(g, s);
    tutti_output(g, "loss_sum", tutti_add(g, c, t));
    T_OK(tutti_graph_check(g));
    tutti_value *const order[N_STEPS] = {a, s, b, d, t, c};
    for (int i = 0; i < N_STEPS; i++) {
        p.steps[i] = order[i]->node;
        p.bufs[order[i]->id] = (tti_buf){TTI_SPACE_ARENA, (size_t)i * BYTES};
    }
    p.bufs[x->id] = (tti_buf){TTI_SPACE_INPUT, 0};
    p.program = (tti_program){.graph = g, .n_steps = N_STEPS};
    return p;
}

static void place(plan_of_places *p, int step, tti_space space, size_t offset) {
    p->bufs[p->steps[step]->out[0]->id] = (tti_buf){space, offset};
}

/* waits: a letter for each step, 'w' or '.'; with norms between collectives. */
static void expect_with(plan_of_places *p, const tti_joint_step *joints, const char *text) {
    bool waits[N_STEPS];
    char got[N_STEPS + 1] = {0};
    p->program.steps = p->steps;
    p->program.bufs = p->bufs;
    tti_tp_waits(&p->program, joints, waits);
    for (int i = 0; i < N_STEPS; i++) got[i] = waits[i] ? 'w' : '.';
    assert_string_equal(got, text);
    tutti_graph_destroy(p->program.graph);
}

static void expect(plan_of_places *p, const char *text) { expect_with(p, NULL, text); }

T_CASE(the_first_reader_waits) {
    T_UNUSED;
    plan_of_places p = make();
    expect(&p, ".....w");
}

T_CASE(who_writes_over_what_is_read_waits) {
    T_UNUSED;
    plan_of_places p = make();
    place(&p, B, TTI_SPACE_ARENA, 0);
    expect(&p, "..w..."); /* and nobody need wait for it again */
}

T_CASE(who_writes_over_a_part_of_what_is_given_waits) {
    T_UNUSED;
    plan_of_places p = make();
    place(&p, EXCHANGE, TTI_SPACE_ARENA, 40 * BYTES);
    place(&p, D, TTI_SPACE_ARENA, 40 * BYTES + BYTES / 2);
    expect(&p, "...w..");
}

T_CASE(other_memory_at_the_same_offset_does_not_matter) {
    T_UNUSED;
    plan_of_places p = make();
    place(&p, B, TTI_SPACE_GRAD, BYTES);
    expect(&p, ".....w");
}

/* The second one is made after the first in any case. */
T_CASE(exchanges_do_not_wait_for_each_other) {
    T_UNUSED;
    plan_of_places p = make();
    place(&p, SECOND, TTI_SPACE_ARENA, BYTES);
    expect(&p, ".....w");
}

/* The norm of A and the collective, whose rows B pulls; nobody else waits before the end. */
static tti_joint_step pulled_by_b(const plan_of_places *p) {
    return (tti_joint_step){.norm = {.gather = p->steps[EXCHANGE], .n_steps = 2}, .pulls = true};
}

T_CASE(who_writes_over_rows_that_leave_waits) {
    T_UNUSED;
    for (int pulls = 0; pulls < 2; pulls++) {
        plan_of_places p = make();
        tti_joint_step joints[N_STEPS] = {[A] = pulled_by_b(&p)};
        joints[A].pulls = pulls;
        place(&p, SECOND, TTI_SPACE_ARENA, EXCHANGE * BYTES + BYTES / 2);
        expect_with(&p, joints, pulls ? "....ww" : ".....w");
    }
}

/* One that is a part of a norm, or pulls that one's rows, waits in front of the norm. */
T_CASE(the_first_of_steps_that_are_one_waits) {
    T_UNUSED;
    for (int pulls = 0; pulls < 2; pulls++) {
        plan_of_places p = make();
        tti_joint_step joints[N_STEPS] = {[A] = pulled_by_b(&p)};
        joints[D] = (tti_joint_step){.norm = {.gather = p.steps[D], .n_steps = 2 - pulls}};
        joints[D].pulls = pulls;
        place(&p, SECOND, TTI_SPACE_ARENA, EXCHANGE * BYTES + BYTES / 2);
        expect_with(&p, joints, "...w.w");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_reader_waits),
        cmocka_unit_test(who_writes_over_what_is_read_waits),
        cmocka_unit_test(who_writes_over_a_part_of_what_is_given_waits),
        cmocka_unit_test(other_memory_at_the_same_offset_does_not_matter),
        cmocka_unit_test(exchanges_do_not_wait_for_each_other),
        cmocka_unit_test(who_writes_over_rows_that_leave_waits),
        cmocka_unit_test(the_first_of_steps_that_are_one_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
