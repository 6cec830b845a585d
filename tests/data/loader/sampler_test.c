/* sampler_test.c - the epoch's order is a permutation, its bits are frozen, its steps add up. */
#include "data/loader/sampler.h"

#include <stdlib.h>

#include "t.h"

static void assert_bijection(uint64_t n, uint64_t seed, uint64_t epoch) {
    uint8_t *seen = calloc(n, 1);
    assert_non_null(seen);
    tti_permutation perm = tti_sampler_epoch(n, seed, epoch);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = tti_permutation_at(&perm, i);
        assert_true(at < n);
        assert_false(seen[at]);
        seen[at] = 1;
    }
    free(seen);
}

T_CASE(every_sample_once) {
    T_UNUSED;
    for (uint64_t n = 1; n <= 300; n++)
        for (uint64_t epoch = 0; epoch < 3; epoch++) assert_bijection(n, 7, epoch);
    const uint64_t more[] = {511, 512, 513, 1000, 4095, 4097, 60000, 65536, 65537, 100003};
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) assert_bijection(more[i], i, 5);
}

static int n_equal(uint64_t n, const uint64_t a[2], const uint64_t b[2]) {
    int equal = 0;
    for (uint64_t i = 0; i < n; i++)
        equal += tti_sampler_at(n, a[0], a[1], i) == tti_sampler_at(n, b[0], b[1], i);
    return equal;
}

/* Two random orders agree at about one place. */
T_CASE(differs_by_epoch_and_seed) {
    T_UNUSED;
    for (uint64_t k = 0; k < 10; k++) {
        assert_true(n_equal(1000, (uint64_t[]){1, k}, (uint64_t[]){1, k + 1}) < 12);
        assert_true(n_equal(1000, (uint64_t[]){k, 0}, (uint64_t[]){k + 1, 0}) < 12);
    }
}

/* Over many epochs each sample is first equally often: chi-squared, 99.99 % bound for 9 degrees. */
T_CASE(uniform_over_epochs) {
    T_UNUSED;
    for (uint64_t position = 0; position < 10; position++) {
        int n_hits[10] = {0};
        for (uint64_t epoch = 0; epoch < 10000; epoch++)
            n_hits[tti_sampler_at(10, 3, epoch, position)]++;
        double chi2 = 0;
        for (int i = 0; i < 10; i++) chi2 += (n_hits[i] - 1000.0) * (n_hits[i] - 1000.0) / 1000.0;
        assert_true(chi2 < 33.7);
    }
}

/* Neighbours in the order are not neighbours in the file: the correlation of order and place. */
T_CASE(no_trend) {
    T_UNUSED;
    const uint64_t n = 60000;
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        tti_permutation perm = tti_sampler_epoch(n, 1, epoch);
        double sum = 0, mean = (double)(n - 1) / 2;
        for (uint64_t i = 0; i + 1 < n; i++)
            sum += ((double)tti_permutation_at(&perm, i) - mean) *
                   ((double)tti_permutation_at(&perm, i + 1) - mean);
        double variance = ((double)n * (double)n - 1) / 12;
        assert_true(fabs(sum / ((double)n * variance)) < 0.02);
    }
}

/* A change here changes every result that anybody has: a run could not be resumed. */
T_CASE(known_orders) {
    T_UNUSED;
    static const struct {
        uint64_t n, seed, epoch, position, sample;
    } known[] = {
        {1u, 1u, 0u, 0u, 0u},
        {2u, 1u, 0u, 0u, 0u},
        {3u, 1u, 0u, 0u, 2u},
        {3u, 1u, 0u, 2u, 1u},
        {10u, 1u, 0u, 0u, 9u},
        {10u, 1u, 1u, 0u, 2u},
        {60000u, 1u, 0u, 0u, 52141u},
        {60000u, 1u, 0u, 1u, 11708u},
        {60000u, 1u, 0u, 59999u, 57385u},
        {60000u, 1u, 4u, 0u, 49699u},
        {60000u, 2u, 0u, 0u, 53543u},
        {1000003u, 12345u, 678u, 90123u, 912046u},
        {1099511627776u, 9u, 9u, 9u, 809579692690u},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_int_equal(
            tti_sampler_at(known[i].n, known[i].seed, known[i].epoch, known[i].position),
            known[i].sample);
}

T_CASE(steps_add_up) {
    T_UNUSED;
    for (int64_t n = 1; n < 50; n++)
        for (int64_t batch = 1; batch < 60; batch++) {
            int64_t steps = tti_steps_per_epoch(n, batch), n_rows = 0;
            for (int64_t t = 0; t < steps; t++) {
                int64_t rows = tti_batch_n_rows(n, batch, t);
                assert_true(rows >= 1 && rows <= batch);
                n_rows += rows;
            }
            T_EQ(n_rows, n);
        }
    T_EQ(tti_steps_per_epoch(60000, 128), 469);
    T_EQ(tti_batch_n_rows(60000, 128, 468), 96);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_once),   cmocka_unit_test(differs_by_epoch_and_seed),
        cmocka_unit_test(uniform_over_epochs), cmocka_unit_test(no_trend),
        cmocka_unit_test(known_orders),        cmocka_unit_test(steps_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
