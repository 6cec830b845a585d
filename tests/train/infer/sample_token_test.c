/* sample_token_test.c - which tokens can come, how often, and that nothing but the key decides. */
#include "train/infer/sample_token.h"

#include "t.h"

enum { N = 6, DRAWS = 20000 };

/* Shares of the tokens over many positions. */
static void shares(const tti_sampling *how, const float *logits, double *out) {
    tti_candidate room[N];
    memset(out, 0, N * sizeof *out);
    for (uint64_t i = 0; i < DRAWS; i++)
        out[tti_sample_token(how, logits, N, i, room)] += 1.0 / DRAWS;
}

static const float logits[N] = {0, 1, 3, 2, 1, -40};

static double softmax(int i, double t) {
    double sum = 0;
    for (int k = 0; k < N; k++) sum += exp(logits[k] / t);
    return exp(logits[i] / t) / sum;
}

T_CASE(as_often_as_the_softmax_says) {
    T_UNUSED;
    double got[N];
    static const double temperatures[] = {1, 0.5, 3};
    for (int t = 0; t < 3; t++) {
        shares(&(tti_sampling){.temperature = temperatures[t], .seed = 5}, logits, got);
        for (int i = 0; i < N; i++) T_NEAR(got[i], softmax(i, temperatures[t]), 0.012);
    }
}

T_CASE(cut_off) {
    T_UNUSED;
    double got[N];
    shares(&(tti_sampling){.temperature = 1, .top_k = 2}, logits, got);
    T_NEAR(got[2], exp(3) / (exp(3) + exp(2)), 0.012);
    assert_true(got[0] + got[1] + got[4] + got[5] == 0);
    /* Shares .608 .224 .082 .082 .030: the first two have .83, and of equal ones the lower stays.
     */
    shares(&(tti_sampling){.temperature = 1, .top_p = 0.8}, logits, got);
    assert_true(got[2] > 0 && got[3] > 0 && got[1] + got[4] + got[0] == 0);
    shares(&(tti_sampling){.temperature = 1, .top_p = 0.85}, logits, got);
    assert_true(got[1] > 0 && got[4] == 0);
    shares(&(tti_sampling){.temperature = 1, .top_p = 1e-9}, logits, got);
    assert_true(got[2] > 0.9999);
    shares(&(tti_sampling){.temperature = -1}, logits, got);
    assert_true(got[2] > 0.9999);
}

T_CASE(the_key_decides) {
    T_UNUSED;
    tti_candidate room[N];
    int n_other = 0;
    tti_sampling a = {.temperature = 1, .seed = 1}, b = {.temperature = 1, .seed = 2};
    for (uint64_t i = 0; i < 100; i++) {
        int32_t token = tti_sample_token(&a, logits, N, i, room);
        T_EQ(token, tti_sample_token(&a, logits, N, i, room));
        n_other += token != tti_sample_token(&b, logits, N, i, room);
    }
    assert_true(n_other > 20);
}

T_CASE(logits_that_are_none) {
    T_UNUSED;
    double got[N];
    const float bad[N] = {NAN, -INFINITY, 5, NAN, -INFINITY, NAN},
                none[N] = {NAN, NAN, NAN, NAN, NAN, NAN};
    shares(&(tti_sampling){.temperature = 1}, bad, got);
    assert_true(got[2] > 0.9999);
    shares(&(tti_sampling){.temperature = 1}, none, got);
    assert_true(got[0] > 0.9999);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_often_as_the_softmax_says),
                                       cmocka_unit_test(cut_off), cmocka_unit_test(the_key_decides),
                                       cmocka_unit_test(logits_that_are_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
