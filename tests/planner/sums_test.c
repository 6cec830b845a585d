/* sums_test.c - the closed forms of what travels instead of whole sums of f32. */
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

/* Each worker has 3/4 of the bytes for others of its host, then half of a quarter for the rack. */
T_CASE(parts_go_one_way_at_a_time) {
    T_UNUSED;
    tti_network n = network();
    tti_sums parts = {.zero = 3, .of_sum = 1, .n_fetches = 4, .mean_every = 1};
    double sent[TTI_N_LEVELS] = {0}, once = 6e9 / 100e9 + 1e9 / 10e9;
    near(tti_sums_bucket_s(&parts, &n, members, n_bytes, sent), once);
    near(sent[0], 6e9);
    near(sent[1], 1e9);
    near(tti_sums_fetch_s(&parts, &n, members, n_bytes, sent), 4 * once);
    near(sent[0], 5 * 6e9);
    near(sent[1], 5 * 1e9);
    assert_true(tti_sums_mean_s(&parts, &n, members, sent) == 0);
}

/* Rounded gradients to the owners, or all that is compressed to all; parameters come back as f32.
 */
T_CASE(parts_of_what_is_compressed) {
    T_UNUSED;
    tti_network n = network();
    tti_sums parts = {.zero = 1, .of_sum = 0.5, .n_fetches = 1, .mean_every = 1}, whole = parts;
    double sent[TTI_N_LEVELS] = {0}, once = 6e9 / 100e9 + 1e9 / 10e9;
    near(tti_sums_bucket_s(&parts, &n, members, n_bytes, sent), once / 2);
    near(sent[0], 3e9);
    whole.whole = true;
    near(tti_sums_bucket_s(&whole, &n, members, n_bytes, sent), once);
    near(tti_sums_fetch_s(&whole, &n, members, n_bytes, sent), once);
    near(sent[1], 2.5e9);
}

/* Pairs go to 3 others of the host, and to the 4 of the other one over the rack. */
T_CASE(pairs_go_to_each) {
    T_UNUSED;
    tti_network n = network();
    tti_sums pairs = {.of_pairs = 0.5, .mean_every = 1};
    double sent[TTI_N_LEVELS] = {0};
    near(tti_sums_bucket_s(&pairs, &n, members, n_bytes, sent), 12e9 / 100e9 + 16e9 / 10e9);
    near(sent[0], 12e9);
    near(sent[1], 16e9);
    assert_true(tti_sums_fetch_s(&pairs, &n, members, n_bytes, sent) == 0);
}

T_CASE(half_of_the_bytes) {
    T_UNUSED;
    tti_network n = network();
    tti_sums whole = {.of_sum = 1, .mean_every = 1}, half = {.of_sum = 0.5, .mean_every = 1};
    double a[TTI_N_LEVELS] = {0}, b[TTI_N_LEVELS] = {0};
    near(tti_sums_bucket_s(&whole, &n, members, n_bytes, a),
         2 * tti_sums_bucket_s(&half, &n, members, n_bytes, b));
    near(a[0], 2 * b[0]);
    near(a[0], 12e9);
}

/* No gradients, and a mean of its own bytes in one step of five. */
T_CASE(a_mean_now_and_then) {
    T_UNUSED;
    tti_network n = network();
    tti_sums local = {.of_sum = 1, .mean_bytes = n_bytes, .mean_every = 5};
    double sent[TTI_N_LEVELS] = {0};
    assert_true(tti_sums_bucket_s(&local, &n, members, n_bytes, sent) == 0 && sent[0] == 0);
    near(tti_sums_mean_s(&local, &n, members, sent), 2 * (6e9 / 100e9 + 1e9 / 10e9) / 5);
    near(sent[0], 12e9 / 5);
}

/* One server has the gradient of each host, after its own members'; as many as workers are parts.
 */
T_CASE(a_few_servers) {
    T_UNUSED;
    tti_network n = network();
    tti_sums sums = {.of_sum = 1, .mean_every = 1};
    double sent[TTI_N_LEVELS] = {0}, none[TTI_N_LEVELS] = {0};
    double one = 24e9 / 100e9 + 8e9 / 10e9, all = 6e9 / 100e9 + 1e9 / 10e9;
    tti_sums_serve(&sums, 1);
    near(tti_sums_bucket_s(&sums, &n, members, n_bytes, none), one);
    near(tti_sums_fetch_s(&sums, &n, members, n_bytes, sent), one);
    near(sent[0], 24e9);
    near(sent[1], 8e9);
    assert_true(none[0] == 0);
    sums.of_sum = 0.5;
    near(tti_sums_bucket_s(&sums, &n, members, n_bytes, none), one / 2);
    sums.of_sum = 1;
    tti_sums_serve(&sums, 64);
    near(tti_sums_bucket_s(&sums, &n, members, n_bytes, sent), all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_go_one_way_at_a_time), cmocka_unit_test(parts_of_what_is_compressed),
        cmocka_unit_test(pairs_go_to_each),           cmocka_unit_test(half_of_the_bytes),
        cmocka_unit_test(a_mean_now_and_then),        cmocka_unit_test(a_few_servers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
