/* mixup_test.c - weights of the right distribution, symmetric pairs, rows that stay alone. */
#include "data/loader/mixup.h"

#include <stdlib.h>

#include "base/error.h"
#include "t.h"

enum { ELEMS = 3, MOST = 40 };

typedef struct shard {
    float x[MOST * ELEMS];
    int32_t y[MOST * TTI_MIXUP_LABELS];
} shard;

/* Row i is {10 i, 10 i + 1, 10 i + 2} with label i. */
static void fill(shard *s) {
    for (int i = 0; i < MOST; i++) {
        for (int k = 0; k < ELEMS; k++) s->x[i * ELEMS + k] = (float)(10 * i + k);
        s->y[i * TTI_MIXUP_LABELS] = i;
        s->y[i * TTI_MIXUP_LABELS + 1] = s->y[i * TTI_MIXUP_LABELS + 2] = 77;
    }
}

static tti_mixup mixup_of(shard *s, int64_t n_rows) {
    return (tti_mixup){.alpha = 0.5,
                       .seed = 3,
                       .epoch = 2,
                       .position = 1000,
                       .n_rows = n_rows,
                       .row_elems = ELEMS,
                       .x = s->x,
                       .y = s->y};
}

T_CASE(two_rows_by_hand) {
    T_UNUSED;
    shard s;
    fill(&s);
    tti_mixup m = mixup_of(&s, 2);
    tti_mixup_apply(&m);
    for (int i = 0; i < 2; i++) {
        int32_t w = tti_mixup_weight(0.5, 3, 2, 1000 + (uint64_t)i);
        double own = w / 16777216.0;
        assert_true(w > 0 && w < TTI_MIXUP_ONE);
        T_EQ(s.y[i * 3], i);
        T_EQ(s.y[i * 3 + 1], 1 - i);
        T_EQ(s.y[i * 3 + 2], w);
        for (int k = 0; k < ELEMS; k++)
            T_NEAR(s.x[i * ELEMS + k], own * (10 * i + k) + (1 - own) * (10 * (1 - i) + k), 1e-6);
    }
    for (int i = 2 * ELEMS; i < MOST * ELEMS; i++) T_NEAR(s.x[i], 10 * (i / 3) + i % 3, 0);
    T_EQ(s.y[2 * 3 + 1], 77); /* beyond the rows nothing is touched */
}

/* Everyone has one partner, whose partner it is; of an odd number one stays alone. */
T_CASE(pairs) {
    T_UNUSED;
    for (int64_t n = 0; n <= MOST; n++) {
        shard s;
        int n_alone = 0;
        fill(&s);
        tti_mixup m = mixup_of(&s, n);
        tti_mixup_apply(&m);
        for (int64_t i = 0; i < n; i++) {
            int32_t other = s.y[i * 3 + 1];
            T_EQ(s.y[i * 3], i);
            assert_in_range(other, 0, n - 1);
            T_EQ(s.y[other * 3 + 1], i);
            if (other != i) continue;
            n_alone++;
            T_EQ(s.y[i * 3 + 2], TTI_MIXUP_ONE);
            T_NEAR(s.x[i * ELEMS], 10 * i, 0);
        }
        T_EQ(n_alone, n % 2);
    }
}

T_CASE(pairs_change_with_seed_epoch_and_place) {
    T_UNUSED;
    int32_t other[4][MOST];
    for (int c = 0; c < 4; c++) {
        shard s;
        fill(&s);
        tti_mixup m = mixup_of(&s, MOST);
        m.seed += c == 1;
        m.epoch += c == 2;
        m.position += c == 3;
        tti_mixup_apply(&m);
        for (int i = 0; i < MOST; i++) other[c][i] = s.y[i * 3 + 1];
    }
    for (int c = 1; c < 4; c++) assert_memory_not_equal(other[0], other[c], sizeof other[0]);
}

/* A sample that was skipped keeps its zeros, and its partner stays as it is. */
T_CASE(skipped_rows_are_not_mixed) {
    T_UNUSED;
    shard s;
    fill(&s);
    tti_mixup m = mixup_of(&s, 2);
    s.y[0] = -1;
    for (int k = 0; k < ELEMS; k++) s.x[k] = 0;
    tti_mixup_apply(&m);
    T_EQ(s.y[0], -1);
    T_EQ(s.y[1], -1);
    T_EQ(s.y[2], -1); /* a missing row has no label at all */
    T_EQ(s.y[3], 1);
    T_EQ(s.y[4], 1);
    T_EQ(s.y[5], TTI_MIXUP_ONE);
    for (int k = 0; k < ELEMS; k++) T_NEAR(s.x[k], 0, 0);
    for (int k = 0; k < ELEMS; k++) T_NEAR(s.x[ELEMS + k], 10 + k, 0);
}

/* Mean 1/2 and variance 1 / (4 (2 alpha + 1)); a mean of n draws is off by at most 5 sigma. */
T_CASE(weights_are_of_beta) {
    T_UNUSED;
    enum { N = 40000 };
    static const double alphas[] = {0.05, 0.2, 1, 4, 100};
    for (size_t a = 0; a < TTI_COUNT(alphas); a++) {
        double sum = 0, squares = 0, variance = 1 / (4 * (2 * alphas[a] + 1));
        for (uint64_t i = 0; i < N; i++) {
            int32_t w = tti_mixup_weight(alphas[a], 1, 0, i);
            assert_in_range(w, 0, TTI_MIXUP_ONE);
            double from_mean = w / 16777216.0 - 0.5;
            sum += from_mean;
            squares += from_mean * from_mean;
        }
        T_NEAR(sum / N, 0, 5 * sqrt(variance / N));
        T_NEAR(squares / N / variance, 1, 0.04); /* its own sigma is below 0.7 % */
    }
}

/* alpha 1 is uniform: every tenth has its share. */
T_CASE(alpha_one_is_uniform) {
    T_UNUSED;
    enum { N = 20000 };
    int count[10] = {0};
    for (uint64_t i = 0; i < N; i++)
        count[TTI_MIN(9, (int)(tti_mixup_weight(1, 5, 7, i) / 16777216.0 * 10))]++;
    for (int i = 0; i < 10; i++) assert_in_range(count[i], N / 10 - 220, N / 10 + 220);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_rows_by_hand),
        cmocka_unit_test(pairs),
        cmocka_unit_test(pairs_change_with_seed_epoch_and_place),
        cmocka_unit_test(skipped_rows_are_not_mixed),
        cmocka_unit_test(weights_are_of_beta),
        cmocka_unit_test(alpha_one_is_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
