/* server_sim_test.c - what a server can be made of no more than: its link, its thread, its bound.
 */
#include "planner/server_sim.h"

#include "t.h"

static tti_network network_of(const char *yaml) {
    tti_network made;
    T_OK(tti_network_parse(yaml, strlen(yaml), "net.yaml", &made));
    return made;
}

/* Links that are no hindrance. */
static tti_network wide(void) { return network_of("host: {size: 64, gb_s: 1e6, latency_us: 0}"); }

static tti_server_sim sim(tti_server_sim_desc desc) {
    tti_server_sim reported;
    double one = 1;
    if (desc.speeds.n == 0) desc.speeds = (tti_speeds){1, &one};
    if (desc.replica_stride == 0) desc.replica_stride = 1;
    if (desc.n_servers == 0) desc.n_servers = 1;
    T_OK(tti_server_sim_run(&desc, &reported));
    return reported;
}

static void near(double a, double b, double within) { T_NEAR(a / b, 1, within); }

T_CASE(a_worker_alone) {
    T_UNUSED;
    tti_network n = wide();
    tti_server_sim p = sim((tti_server_sim_desc){.network = &n,
                                                 .n_workers = 1,
                                                 .staleness = 4,
                                                 .n_bytes = 1e9,
                                                 .compute_s = 3,
                                                 .update_s = 2,
                                                 .copy_s = 1});
    near(p.step_s, 6, 0.01);
    near(p.wait_s, 3, 0.02);
    near(p.thread_busy, 0.5, 0.02);
    assert_true(p.stale_mean == 0 && p.stale_max == 0 && p.link_busy == 0 && p.sent[0] == 0);
}

/* Nobody waits, and each lacks what the others have made meanwhile. */
T_CASE(workers_alike) {
    T_UNUSED;
    tti_network n = wide();
    tti_server_sim p = sim((tti_server_sim_desc){.network = &n,
                                                 .n_workers = 8,
                                                 .staleness = TTI_UNBOUNDED,
                                                 .n_bytes = 1e3,
                                                 .compute_s = 1,
                                                 .update_s = 1e-6});
    near(p.step_s, 1, 0.01);
    near(p.stale_mean, 7, 0.01);
    assert_true(p.stale_max > 7 && p.stale_max < 16 && p.stale[0] == 0);
    near(p.sent[0], 7e3, 1e-9);
}

/* Updates one after the other, each of a range by each server. */
T_CASE(the_thread_is_the_limit) {
    T_UNUSED;
    tti_network n = wide();
    tti_server_sim_desc desc = {.network = &n,
                                .n_workers = 8,
                                .staleness = TTI_UNBOUNDED,
                                .n_bytes = 1e3,
                                .compute_s = 0.1,
                                .update_s = 1};
    tti_server_sim one = sim(desc);
    desc.n_servers = 4;
    tti_server_sim four = sim(desc);
    near(one.step_s, 8, 0.06);
    near(four.step_s, 2, 0.06);
    near(one.thread_busy, 1, 0.02);
}

/* All gradients come over one link, and all parameters go; two servers have half of each. */
T_CASE(the_link_is_the_limit) {
    T_UNUSED;
    tti_network n = network_of(
        "host: {size: 1}\nrack: {size: 2, gb_s: 1, latency_us: 0}\n"
        "spine: {gb_s: 0.5, latency_us: 0}\n");
    tti_server_sim_desc desc = {.network = &n,
                                .n_workers = 9,
                                .staleness = 4,
                                .n_bytes = 1e9,
                                .compute_s = 0.01,
                                .update_s = 1e-6};
    /* one neighbour and seven in other racks; meanwhile the server's own worker makes five */
    double least_s = (1 + 7 * 2) * 9.0 / (8 + 5);
    tti_server_sim one = sim(desc);
    assert_true(one.step_s > 0.99 * least_s && one.step_s < 2 * least_s);
    near(one.sent[1], 1e9, 1e-9);
    near(one.sent[2], 7e9, 1e-9);
    desc.n_servers = 2;
    tti_server_sim two = sim(desc);
    assert_true(two.step_s < 0.75 * one.step_s);
    near(two.sent[1], 1e9, 1e-9);
    near(two.sent[2], 3.5e9, 1e-9);
}

/* One worker far away, whose gradient and parameters follow each other on the link. */
T_CASE(less_of_a_gradient_travels) {
    T_UNUSED;
    tti_network n = network_of("host: {size: 1}\nrack: {gb_s: 1, latency_us: 0}\n");
    tti_server_sim_desc desc = {.network = &n,
                                .n_workers = 2,
                                .staleness = 1,
                                .n_bytes = 1e9,
                                .compute_s = 0.001,
                                .update_s = 1e-6};
    tti_server_sim whole = sim(desc);
    desc.gradient_ratio = 0.5;
    near(sim(desc).step_s / whole.step_s, 1.5 / 2, 0.03);
    desc.n_servers = 2;
    near(sim(desc).sent[1], 0.75e9, 1e-9);
}

/* While a slow one computes, another makes the one that it had begun and staleness more. */
T_CASE(the_bound_holds_back) {
    T_UNUSED;
    tti_network n = wide();
    tti_server_sim_desc desc = {.network = &n,
                                .n_workers = 2,
                                .n_bytes = 1,
                                .compute_s = 1,
                                .update_s = 1e-6,
                                .speeds = {2, (double[]){1, 0.1}}};
    for (int64_t s = 1; s <= 4; s++) {
        desc.staleness = s;
        tti_server_sim p = sim(desc);
        near(p.step_s, 2 * 10.0 / (double)(s + 2), 0.05);
        T_EQ(p.stale_max, s + 1);
    }
    desc.staleness = TTI_UNBOUNDED;
    near(sim(desc).step_s, 2 * 10.0 / 11, 0.03);
}

T_CASE(steps_without_the_slowest) {
    T_UNUSED;
    tti_network n = wide();
    tti_server_sim p = sim((tti_server_sim_desc){.network = &n,
                                                 .n_workers = 4,
                                                 .n_backup = 1,
                                                 .n_bytes = 1,
                                                 .compute_s = 1,
                                                 .update_s = 1e-6,
                                                 .speeds = {4, (double[]){1, 1, 1, 0.1}}});
    near(p.step_s, 1.025, 0.01); /* the last of three */
    near(p.dropped, 1.0 / 31, 0.1);
}

/* Copies of four workers: two of them on a host of eight, each with its own link to the state
 * owner. */
T_CASE(copies_of_a_divided_model) {
    T_UNUSED;
    tti_network n = network_of("host: {size: 8}\nrack: {size: 4}\n");
    tti_server_sim p = sim((tti_server_sim_desc){.network = &n,
                                                 .n_workers = 4,
                                                 .replica_stride = 4,
                                                 .staleness = TTI_UNBOUNDED,
                                                 .n_bytes = 1e6,
                                                 .compute_s = 1,
                                                 .update_s = 1e-6});
    near(p.sent[0], 1e6, 1e-9);
    near(p.sent[1], 2e6, 1e-9);
    assert_true(p.sent[2] == 0);
}

T_CASE(speeds) {
    T_UNUSED;
    static const char *const bad[] = {"", "1,", ",1", "0", "-1", "1,x", "nan", "1e9", "1 ,2"};
    tti_speeds s;
    T_OK(tti_speeds_parse("1,0.5,2", &s));
    T_EQ(s.n, 3);
    near(tti_speeds_slowest(&s, 1), 1, 1e-12);
    near(tti_speeds_slowest(&s, 7), 0.5, 1e-12);
    near(tti_speeds_sum(&s, 7), 8, 1e-12);
    tti_speeds_fini(&s);
    char many[2 * 100];
    for (size_t i = 0; i < sizeof many; i += 2) many[i] = '2', many[i + 1] = ',';
    many[sizeof many - 1] = '\0';
    T_OK(tti_speeds_parse(many, &s));
    T_EQ(s.n, 100);
    near(tti_speeds_sum(&s, 100), 200, 1e-12);
    tti_speeds_fini(&s);
    T_OK(tti_speeds_parse(NULL, &s));
    near(tti_speeds_sum(&s, 7), 7, 1e-12);
    tti_speeds_fini(&s);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        T_FAILS(tti_speeds_parse(bad[i], &s), TUTTI_E_CONFIG, "numbers");
    tti_network n = wide();
    tti_server_sim reported;
    tti_server_sim_desc desc = {.network = &n, .n_workers = TTI_MAX_SIMULATED + 1};
    T_FAILS(tti_server_sim_run(&desc, &reported), TUTTI_E_CONFIG, "one by one");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_worker_alone),
                                       cmocka_unit_test(workers_alike),
                                       cmocka_unit_test(the_thread_is_the_limit),
                                       cmocka_unit_test(the_link_is_the_limit),
                                       cmocka_unit_test(less_of_a_gradient_travels),
                                       cmocka_unit_test(the_bound_holds_back),
                                       cmocka_unit_test(steps_without_the_slowest),
                                       cmocka_unit_test(copies_of_a_divided_model),
                                       cmocka_unit_test(speeds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
