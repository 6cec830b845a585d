/* pipe_schedule_test.c - orders of a pipeline: nobody waits for ever, few micro-batch groups in
 * flight, and the bubble of the books. */
#include "exec/program/pipe_schedule.h"

#include "t.h"

T_CASE(one_forward_one_backward) {
    T_UNUSED;
    tti_pipe_shape shape = {.n_stages = 3, .n_chunks = 1, .n_micro_groups = 4, .training = true};
    static const int first[][2] = {{0, 0}, {1, 0}, {2, 0}, {0, 1}, {3, 0}, {1, 1}, {2, 1}, {3, 1}};
    static const int last[][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {3, 0}, {3, 1}};
    tti_pipe_schedule s;
    for (int stage = 0; stage < 3; stage += 2) {
        T_OK(tti_pipe_schedule_init(&shape, stage, &s));
        T_EQ(s.n_actions, 8);
        for (int i = 0; i < 8; i++) {
            T_EQ(s.actions[i].micro_group, stage ? last[i][0] : first[i][0]);
            T_EQ(s.actions[i].segment, stage ? last[i][1] : first[i][1]);
        }
        T_EQ(s.n_in_flight, 3 - stage);
        tti_pipe_schedule_fini(&s);
    }
}

/* Each segment of each micro-batch group once; forward in order of micro-batch groups, and each
 * chunk's backward too. */
static void check_complete(const tti_pipe_shape *shape, const tti_pipe_schedule *s) {
    int n_segments = (shape->training ? 2 : 1) * shape->n_chunks, next[16] = {0};
    T_EQ(s->n_actions, n_segments * shape->n_micro_groups);
    for (int i = 0; i < s->n_actions; i++) {
        assert_in_range(s->actions[i].segment, 0, n_segments - 1);
        T_EQ(s->actions[i].micro_group, next[s->actions[i].segment]++);
    }
}

T_CASE(every_order_comes_to_its_end) {
    T_UNUSED;
    int n = 0;
    for (int p = 2; p <= 8; p++)
        for (int v = 1; v <= 4; v++)
            for (int m = 1; m <= 24; m++)
                for (int training = 0; training < 2; training++) {
                    tti_pipe_shape shape = {p, v, m, training, false};
                    tti_pipe_schedule s;
                    double bubble;
                    if (v > 1 && m % p != 0) {
                        T_FAILS(tti_pipe_schedule_init(&shape, 0, &s), TUTTI_E_INVALID,
                                "parallel.pipeline_chunks");
                        continue;
                    }
                    for (int stage = 0; stage < p; stage++) {
                        T_OK(tti_pipe_schedule_init(&shape, stage, &s));
                        check_complete(&shape, &s);
                        if (v == 1 && training) T_EQ(s.n_in_flight, TTI_MIN(p - stage, m));
                        if (v == 1 && !training) T_EQ(s.n_in_flight, 1);
                        assert_true(v == 1 || s.n_in_flight <= 2 * p + 1);
                        tti_pipe_schedule_fini(&s);
                    }
                    T_OK(tti_pipe_bubble(&shape, NULL, &bubble));
                    assert_true(bubble >= 0 && bubble < 1);
                    n++;
                }
    assert_true(n > 300);
}

T_CASE(the_bubble_is_that_of_the_books) {
    T_UNUSED;
    double bubble;
    for (int p = 2; p <= 8; p *= 2)
        for (int v = 1; v <= 4; v *= 2)
            for (int m = p; m <= 32; m *= 2) {
                tti_pipe_shape shape = {p, v, m, true, false};
                T_OK(tti_pipe_bubble(&shape, NULL, &bubble));
                T_NEAR(bubble, (p - 1.0) / (v * m + p - 1.0), 1e-9);
            }
}

/* All micro-batch groups through a segment before the next: stages take turns, and wait for each
 * other. */
T_CASE(joined_micro_groups_go_part_by_part) {
    T_UNUSED;
    double bubble;
    for (int p = 2; p <= 8; p++)
        for (int v = 1; v <= 2; v++) {
            tti_pipe_shape shape = {p, v, 3 * p, true, true};
            tti_pipe_schedule s;
            T_OK(tti_pipe_schedule_init(&shape, p - 1, &s));
            check_complete(&shape, &s);
            for (int i = 0; i < s.n_actions; i++) T_EQ(s.actions[i].segment, i / (3 * p));
            T_EQ(s.n_in_flight, 3 * p);
            tti_pipe_schedule_fini(&s);
            T_OK(tti_pipe_bubble(&shape, NULL, &bubble));
            T_NEAR(bubble, (p - 1.0) / p, 1e-9);
        }
}

/* A stage that takes twice the time makes the others wait half of theirs. */
T_CASE(slow_stages_cost_more_than_the_bubble) {
    T_UNUSED;
    double bubble, cost[2] = {1, 2};
    tti_pipe_shape shape = {2, 1, 1000, true, false};
    T_OK(tti_pipe_bubble(&shape, cost, &bubble));
    T_NEAR(bubble, 0.25, 0.01);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_forward_one_backward),
        cmocka_unit_test(every_order_comes_to_its_end),
        cmocka_unit_test(the_bubble_is_that_of_the_books),
        cmocka_unit_test(joined_micro_groups_go_part_by_part),
        cmocka_unit_test(slow_stages_cost_more_than_the_bubble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
