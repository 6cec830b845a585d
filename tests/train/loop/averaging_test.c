/* averaging_test.c - averages every N steps, and where the parameters are read. */
#include "train/loop/averaging.h"

#include <stdio.h>

#include "t.h"

static tti_blueprint local(int64_t every, int64_t checkpoint_every, const char *average) {
    tti_blueprint b = {.n_steps = 50, .steps_per_epoch = 20};
    snprintf(b.config.parallel.sync, sizeof b.config.parallel.sync, "local");
    snprintf(b.config.parallel.average, sizeof b.config.parallel.average, "%s", average);
    b.config.parallel.average_every = every;
    b.config.run.checkpoint_every = checkpoint_every;
    return b;
}

/* 2: with state; 1: parameters alone. */
static int due(const tti_blueprint *b, int64_t n_steps) {
    bool state;
    return tti_averaging_is_due(b, n_steps, &state) ? 1 + state : 0;
}

T_CASE(every_so_many_and_at_stops) {
    T_UNUSED;
    tti_blueprint rare = local(8, -1, "parameters"), often = local(8, 10, "parameters"),
                  epochs = local(8, 0, "parameters"), all = local(8, -1, "all");
    for (int64_t n = 1; n <= 50; n++) {
        T_EQ(due(&rare, n), n == 50 ? 2 : n % 8 == 0);
        T_EQ(due(&often, n), n % 10 == 0 ? 2 : n % 8 == 0);
        T_EQ(due(&epochs, n), n % 20 == 0 || n == 50 ? 2 : n % 8 == 0);
        T_EQ(due(&all, n), n % 8 == 0 || n == 50 ? 2 : 0);
    }
}

T_CASE(others_never_do) {
    T_UNUSED;
    tti_blueprint b = local(1, 0, "all");
    snprintf(b.config.parallel.sync, sizeof b.config.parallel.sync, "all-reduce");
    for (int64_t n = 1; n <= 50; n++) T_EQ(due(&b, n), 0);
    assert_false(tti_job_is_local(&b.config));
}

/* Parameters alone, or with state, and with averages of parameters where there are any. */
T_CASE(what_goes) {
    T_UNUSED;
    const tti_plan plan = {.n_flat = 10, .n_states = 2};
    tti_blueprint alone = local(8, 0, "parameters"), all = local(8, 0, "all");
    T_EQ(tti_averaging_bytes(&alone.config, &plan), 40);
    T_EQ(tti_averaging_bytes(&all.config, &plan), 120);
    alone.config.train.ema = all.config.train.ema = 0.9;
    T_EQ(tti_averaging_bytes(&alone.config, &plan), 40);
    T_EQ(tti_averaging_bytes(&all.config, &plan), 160);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_so_many_and_at_stops),
                                       cmocka_unit_test(others_never_do),
                                       cmocka_unit_test(what_goes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
