/* network_test.c - the closed forms of an all-reduce, levels that fill up, files that are wrong. */
#include "planner/network.h"

#include "t.h"

static tti_network parse(const char *yaml) {
    tti_network network;
    T_OK(tti_network_parse(yaml, strlen(yaml), "net.yaml", &network));
    return network;
}

static void near(double a, double b) { T_NEAR(a / b, 1, 1e-9); }

T_CASE(levels_fill_from_the_inside) {
    T_UNUSED;
    static const struct {
        int64_t n, members[TTI_N_LEVELS];
    } rows[] = {{1, {1, 1, 1}},  {3, {3, 1, 1}},  {8, {8, 1, 1}},     {9, {8, 2, 1}},
                {32, {8, 4, 1}}, {64, {8, 4, 2}}, {4096, {8, 4, 128}}};
    tti_network network = parse("host: {size: 8}\nrack: {size: 4}\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t members[TTI_N_LEVELS];
        tti_network_members(&network, rows[i].n, 1, members);
        for (int k = 0; k < TTI_N_LEVELS; k++) T_EQ(members[k], rows[i].members[k]);
    }
}

/* Copies of a model of four workers: two of them on a host, the others as hosts and racks go. */
T_CASE(members_that_are_apart) {
    T_UNUSED;
    static const struct {
        int64_t n, replica_stride, members[TTI_N_LEVELS];
    } rows[] = {{1, 4, {1, 1, 1}},  {2, 4, {2, 1, 1}},  {8, 4, {2, 4, 1}},
                {16, 4, {2, 4, 2}}, {8, 16, {1, 2, 4}}, {8, 64, {1, 1, 8}}};
    tti_network network = parse("host: {size: 8}\nrack: {size: 4}\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t members[TTI_N_LEVELS];
        tti_network_members(&network, rows[i].n, rows[i].replica_stride, members);
        for (int k = 0; k < TTI_N_LEVELS; k++) T_EQ(members[k], rows[i].members[k]);
    }
    T_EQ(tti_network_level(&network, 8), 0);
    T_EQ(tti_network_level(&network, 9), 1);
    T_EQ(tti_network_level(&network, 33), 2);
    near(tti_network_capacity(&network), 8.0 * 4 * 4096);
}

/* 2 (k-1)/k of the bytes at the level's speed, and two messages for each halving. */
T_CASE(one_level_is_the_known_formula) {
    T_UNUSED;
    tti_network network = parse("host: {size: 64, gb_s: 10, latency_us: 5}");
    for (int64_t k = 2; k <= 64; k *= 2) {
        int64_t members[TTI_N_LEVELS] = {k, 1, 1};
        double sent[TTI_N_LEVELS] = {0}, moved = 2.0 * (double)(k - 1) / (double)k * 1e9;
        double s = tti_network_sum_s(&network, members, 1e9, sent);
        near(s, moved / 10e9 + 2 * log2((double)k) * 5e-6);
        near(sent[0], moved);
        assert_true(sent[1] == 0 && sent[2] == 0);
    }
}

/* The traffic of a level is a share of that of the level below. */
T_CASE(shares_go_up) {
    T_UNUSED;
    tti_network network = parse(
        "host: {gb_s: 100, latency_us: 0}\nrack: {gb_s: 10, latency_us: 0}\n"
        "spine: {gb_s: 1, latency_us: 0}\n");
    int64_t members[TTI_N_LEVELS] = {8, 4, 2};
    double sent[TTI_N_LEVELS] = {0};
    double s = tti_network_sum_s(&network, members, 64e6, sent);
    near(sent[0], 2 * 7.0 / 8 * 64e6);
    near(sent[1], 2 * 3.0 / 4 * 8e6);
    near(sent[2], 2 * 1.0 / 2 * 2e6);
    near(s, sent[0] / 100e9 + sent[1] / 10e9 + sent[2] / 1e9);
}

T_CASE(alone_costs_nothing) {
    T_UNUSED;
    tti_network network = parse("{}");
    int64_t members[TTI_N_LEVELS];
    double sent[TTI_N_LEVELS] = {0};
    tti_network_members(&network, 1, 1, members);
    assert_true(tti_network_sum_s(&network, members, 1e9, sent) == 0);
}

/* One level: twice the halvings, and 2 (k-1)/k of the bytes; a single rank sends nothing. */
T_CASE(links_of_buckets) {
    T_UNUSED;
    tti_network network = parse("host: {size: 4, gb_s: 12, latency_us: 7}");
    int64_t members[TTI_N_LEVELS] = {4, 1, 1}, alone[TTI_N_LEVELS] = {1, 1, 1};
    tti_bucket_link link = {.name = "mine", .latency_s = 1, .bytes_s = 2, .taken_s = 3};
    tti_network_link(&network, alone, &link);
    assert_true(link.latency_s == 1 && link.bytes_s == 2);
    assert_string_equal(link.name, "mine");
    tti_network_link(&network, members, &link);
    near(link.latency_s, 2 * 2 * 7e-6);
    near(link.bytes_s, 12e9 / 1.5);
    assert_true(link.taken_s == 3 && strstr(link.name, "described"));
}

T_CASE(bad_files) {
    T_UNUSED;
    static const char *const bad[] = {"host: {size: 0}",          "host: {gb_s: -1}",
                                      "rack: {speed: 3}",         "host: 7",
                                      "spine: {latency_us: nan}", "[1, 2"};
    tti_network network;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(tti_network_parse(bad[i], strlen(bad[i]), "net.yaml", &network) ==
                    TUTTI_E_CONFIG);
    assert_true(tti_network_read("/nowhere/net.yaml", &network) != TUTTI_OK);
    T_OK(tti_network_read("ethernet", &network));
    assert_true(network.levels[0].size == 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_fill_from_the_inside),
        cmocka_unit_test(members_that_are_apart),
        cmocka_unit_test(one_level_is_the_known_formula),
        cmocka_unit_test(shares_go_up),
        cmocka_unit_test(alone_costs_nothing),
        cmocka_unit_test(links_of_buckets),
        cmocka_unit_test(bad_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
