/* sums_test.c - instructions between replicas, each against its closed form. */
#include "planner/sums.h"

#include "t.h"

enum { HOST = 4, RACK = 2 };

static const int64_t members[TTI_N_LEVELS] = {HOST, RACK, 1};
static const double n_bytes = 8e9;

static tti_network network(void) {
    static const char yaml[] =
        "host: {size: 4, gb_s: 100, latency_us: 0}\n"
        "rack: {size: 2, gb_s: 10, latency_us: 0}\n";
    tti_network made;
    T_OK(tti_network_parse(yaml, sizeof yaml - 1, "net.yaml", &made));
    return made;
}

static void near(double a, double b) { T_NEAR(a / b, 1, 1e-9); }

/* Seconds of an instruction of 8 GB. */
static double instr_s(const tti_sums *sums, const tti_network *n, tti_instr_kind kind,
                      tti_reduce_method method, double *sent) {
    const tti_instr in = {.kind = kind, .method = method};
    const tti_range range = {100, 100 + (size_t)(n_bytes / sizeof(float))};
    return tti_sums_instr_s(sums, n, members, &in, range, sent);
}

/* Each worker has 3/4 of the bytes for others of its host, then half of a quarter for the rack. */
T_CASE(parts_go_one_way_at_a_time) {
    T_UNUSED;
    tti_network n = network();
    tti_sums parts = {.zero = 3, .reduced_share = 1};
    double sent[TTI_N_LEVELS] = {0}, once = 6e9 / 100e9 + 1e9 / 10e9;
    near(instr_s(&parts, &n, TTI_REDUCE_SCATTER, TTI_REDUCE_TREE, sent), once);
    near(sent[0], 6e9);
    near(sent[1], 1e9);
    near(instr_s(&parts, &n, TTI_ALL_GATHER, TTI_REDUCE_TREE, sent), once);
    near(sent[0], 2 * 6e9);
    near(sent[1], 2 * 1e9);
    assert_true(instr_s(&parts, &n, TTI_RUN, TTI_REDUCE_TREE, sent) == 0);
    assert_true(instr_s(&parts, &n, TTI_UPDATE_BLOCKS, TTI_REDUCE_TREE, sent) == 0);
}

/* Rounded gradients to the owners, or all that is compressed to all; parameters come back as f32.
 */
T_CASE(parts_of_what_is_compressed) {
    T_UNUSED;
    tti_network n = network();
    tti_sums half = {.zero = 1, .reduced_share = 0.5};
    double sent[TTI_N_LEVELS] = {0}, once = 6e9 / 100e9 + 1e9 / 10e9;
    near(instr_s(&half, &n, TTI_REDUCE_SCATTER, TTI_REDUCE_ROUNDED, sent), once / 2);
    near(sent[0], 3e9);
    near(instr_s(&half, &n, TTI_REDUCE_SCATTER, TTI_REDUCE_COMPRESS, sent), once);
    near(instr_s(&half, &n, TTI_ALL_GATHER, TTI_REDUCE_COMPRESS, sent), once);
    near(sent[1], 2.5e9);
}

/* Pairs go to 3 others of the host, and to the 4 of the other one over the rack. */
T_CASE(pairs_go_to_each) {
    T_UNUSED;
    tti_network n = network();
    tti_sums pairs = {.pair_share = 0.5};
    double sent[TTI_N_LEVELS] = {0};
    near(instr_s(&pairs, &n, TTI_ALL_REDUCE, TTI_REDUCE_COMPRESS, sent),
         12e9 / 100e9 + 16e9 / 10e9);
    near(sent[0], 12e9);
    near(sent[1], 16e9);
}

T_CASE(half_of_the_bytes) {
    T_UNUSED;
    tti_network n = network();
    tti_sums whole = {.reduced_share = 1}, half = {.reduced_share = 0.5};
    double a[TTI_N_LEVELS] = {0}, b[TTI_N_LEVELS] = {0};
    near(instr_s(&whole, &n, TTI_ALL_REDUCE, TTI_REDUCE_TREE, a),
         2 * instr_s(&half, &n, TTI_ALL_REDUCE, TTI_REDUCE_ROUNDED, b));
    near(a[0], 2 * b[0]);
    near(a[0], 12e9);
}

/* Averages of parameters are f32, whatever gradients are. */
T_CASE(averages_are_whole) {
    T_UNUSED;
    tti_network n = network();
    tti_sums local = {.reduced_share = 0.5};
    double sent[TTI_N_LEVELS] = {0};
    near(instr_s(&local, &n, TTI_AVERAGE, TTI_REDUCE_TREE, sent), 2 * (6e9 / 100e9 + 1e9 / 10e9));
    near(sent[0], 12e9);
}

/* One server has the gradient of each host, after its own members'; as many as workers are parts.
 */
T_CASE(a_few_servers) {
    T_UNUSED;
    tti_network n = network();
    tti_sums sums = {.n_servers = 1, .reduced_share = 1};
    double sent[TTI_N_LEVELS] = {0}, none[TTI_N_LEVELS] = {0};
    double one = 24e9 / 100e9 + 8e9 / 10e9, all = 6e9 / 100e9 + 1e9 / 10e9;
    near(instr_s(&sums, &n, TTI_REDUCE_SCATTER, TTI_REDUCE_TREE, none), one);
    near(instr_s(&sums, &n, TTI_ALL_GATHER, TTI_REDUCE_TREE, sent), one);
    near(sent[0], 24e9);
    near(sent[1], 8e9);
    assert_true(none[0] == 0);
    sums.reduced_share = 0.5;
    near(instr_s(&sums, &n, TTI_REDUCE_SCATTER, TTI_REDUCE_ROUNDED, none), one / 2);
    sums.reduced_share = 1;
    sums.n_servers = 64;
    near(instr_s(&sums, &n, TTI_REDUCE_SCATTER, TTI_REDUCE_TREE, sent), all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_go_one_way_at_a_time), cmocka_unit_test(parts_of_what_is_compressed),
        cmocka_unit_test(pairs_go_to_each),           cmocka_unit_test(half_of_the_bytes),
        cmocka_unit_test(averages_are_whole),         cmocka_unit_test(a_few_servers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
