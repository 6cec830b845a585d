/* masking_test.c - which tokens are chosen, what becomes of them, and what it depends on. */
#include "data/masking.h"

#include <stdlib.h>

#include "base/error.h"
#include "t.h"

enum { N = 200000, VOCABULARY = 50, MASK = 50 };

static const tti_masking usual = {.prob = 0.15, .token = MASK, .vocabulary = VOCABULARY};

typedef struct sample {
    int32_t x[N], y[N];
} sample;

/* Token i is i % VOCABULARY. */
static sample *masked(const tti_masking *m, tti_sample_key key) {
    sample *s = malloc(sizeof *s);
    assert_non_null(s);
    for (int i = 0; i < N; i++) s->x[i] = i % VOCABULARY, s->y[i] = 99;
    tti_masking_apply(m, &key, N, s->x, s->y);
    return s;
}

/* n of N is share, within 5 sigma. */
static void check_share(int64_t n, int64_t of, double share) {
    double sigma = sqrt(share * (1 - share) / (double)of);
    if (fabs((double)n / (double)of - share) > 5 * sigma)
        fail_msg("%lld of %lld is not a share of %g", (long long)n, (long long)of, share);
}

T_CASE(shares) {
    T_UNUSED;
    sample *s = masked(&usual, (tti_sample_key){1, 2, 3});
    int64_t n_chosen = 0, n_masked = 0, n_same = 0, count[VOCABULARY] = {0}, n_random = 0;
    for (int i = 0; i < N; i++) {
        int32_t was = i % VOCABULARY;
        if (s->y[i] == -1) {
            T_EQ(s->x[i], was);
            continue;
        }
        T_EQ(s->y[i], was);
        n_chosen++;
        n_masked += s->x[i] == MASK;
        n_same += s->x[i] == was;
        if (s->x[i] == MASK || s->x[i] == was) continue;
        assert_in_range(s->x[i], 0, VOCABULARY - 1);
        count[s->x[i]]++;
        n_random++;
    }
    check_share(n_chosen, N, 0.15);
    check_share(n_masked, n_chosen, 0.8);
    check_share(n_same, n_chosen, 0.1 + 0.1 / VOCABULARY); /* a random one may be the same */
    for (int i = 0; i < VOCABULARY; i++) check_share(count[i], n_random, 1.0 / VOCABULARY);
    free(s);
}

/* The same key, the same masks; another seed, epoch or sample, other ones. */
T_CASE(keys) {
    T_UNUSED;
    static const tti_sample_key keys[] = {{1, 2, 3}, {1, 2, 3}, {2, 2, 3}, {1, 3, 3}, {1, 2, 4}};
    sample *first = masked(&usual, keys[0]);
    for (size_t k = 1; k < TTI_COUNT(keys); k++) {
        sample *other = masked(&usual, keys[k]);
        int64_t n_both = 0;
        for (int i = 0; i < N; i++) n_both += first->y[i] >= 0 && other->y[i] >= 0;
        if (k == 1)
            assert_memory_equal(first, other, sizeof *first);
        else
            check_share(n_both, N, 0.15 * 0.15);
        free(other);
    }
    free(first);
}

/* A token's fate is its own: a longer sample begins as the shorter one. */
T_CASE(fates_follow_places) {
    T_UNUSED;
    sample *s = masked(&usual, (tti_sample_key){1, 2, 3});
    int32_t x[100], y[100];
    for (int i = 0; i < 100; i++) x[i] = i % VOCABULARY;
    tti_masking_apply(&usual, &(tti_sample_key){1, 2, 3}, 100, x, y);
    assert_memory_equal(x, s->x, sizeof x);
    assert_memory_equal(y, s->y, sizeof y);
    free(s);
}

T_CASE(none_and_all) {
    T_UNUSED;
    sample *s = masked(&(tti_masking){.prob = 0, .token = 1, .vocabulary = 1}, (tti_sample_key){0});
    for (int i = 0; i < N; i++) T_EQ(s->y[i], -1);
    free(s);
    s = masked(&(tti_masking){.prob = 1, .token = 7, .vocabulary = 1}, (tti_sample_key){0});
    for (int i = 0; i < N; i++) {
        T_EQ(s->y[i], i % VOCABULARY);
        assert_true(s->x[i] == 7 || s->x[i] == 0 || s->x[i] == i % VOCABULARY);
    }
    free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares),
        cmocka_unit_test(keys),
        cmocka_unit_test(fates_follow_places),
        cmocka_unit_test(none_and_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
