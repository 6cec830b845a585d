/* digit_pen_test.c - drawn digits: frozen bits, balanced labels, and images that look like some.
 */
#include "data/formats/digit_pen.h"

#include <stdbool.h>

#include "data/formats/digit_glyphs.h"
#include "t.h"

/* Other bits mean another data set, whose accuracies are not comparable. */
T_CASE(bits_are_frozen) {
    T_UNUSED;
    uint64_t key = tti_digit_key(1, 0), hash = 0xCBF29CE484222325u;
    for (uint64_t i = 0; i < 200; i++) {
        uint8_t pixel[TTI_DIGIT_PIXELS];
        tti_digit_draw(key, i, pixel);
        hash = (hash ^ (unsigned)tti_digit_label(key, i)) * 0x100000001B3u;
        for (int j = 0; j < TTI_DIGIT_PIXELS; j++) hash = (hash ^ pixel[j]) * 0x100000001B3u;
    }
    assert_true(hash == 0x958041b16ae89c47u);
}

T_CASE(labels_are_balanced) {
    T_UNUSED;
    for (int split = 0; split < 2; split++)
        for (uint64_t block = 0; block < 100; block++) {
            unsigned seen = 0;
            for (uint64_t i = 0; i < 10; i++)
                seen |= 1u << tti_digit_label(tti_digit_key(3, split), block * 10 + i);
            T_EQ(seen, 1023);
        }
}

/* Within a block of ten every digit is anywhere: chi-squared, 99.99 % bound for 9 degrees. */
T_CASE(labels_are_shuffled) {
    T_UNUSED;
    int n_hits[10] = {0};
    for (uint64_t i = 0; i < 10000; i++) n_hits[tti_digit_label(tti_digit_key(3, 0), i * 10)]++;
    double chi2 = 0;
    for (int i = 0; i < 10; i++) chi2 += (n_hits[i] - 1000.0) * (n_hits[i] - 1000.0) / 1000.0;
    assert_true(chi2 < 33.7);
}

T_CASE(all_differ) {
    T_UNUSED;
    uint8_t a[TTI_DIGIT_PIXELS], b[TTI_DIGIT_PIXELS];
    const uint64_t keys[] = {tti_digit_key(1, 0), tti_digit_key(1, 1), tti_digit_key(2, 0)};
    tti_digit_draw(keys[0], 0, a);
    for (int k = 0; k < 3; k++)
        for (uint64_t i = 0; i < 50; i++) {
            if (k == 0 && i == 0) continue;
            tti_digit_draw(keys[k], i, b);
            assert_true(memcmp(a, b, sizeof a) != 0);
        }
    tti_digit_draw(keys[0], 0, b);
    assert_memory_equal(a, b, sizeof a);
}

/* The middle of an image has ink, its border hardly any, and neither is all of it. */
T_CASE(ink_is_where_it_belongs) {
    T_UNUSED;
    double border = 0, inside = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        uint8_t pixel[TTI_DIGIT_PIXELS];
        tti_digit_draw(tti_digit_key(5, 0), i, pixel);
        int n_bright = 0;
        for (int y = 0; y < TTI_DIGIT_SIDE; y++)
            for (int x = 0; x < TTI_DIGIT_SIDE; x++) {
                int v = pixel[y * TTI_DIGIT_SIDE + x];
                n_bright += v > 64;
                bool edge = x < 2 || y < 2 || x > 25 || y > 25;
                *(edge ? &border : &inside) += v;
            }
        assert_in_range(n_bright, 8, 350);
    }
    assert_true(border / (4 * 26 * 2 * 1000.0) < 8); /* noise alone is about 2 */
    assert_true(inside / (24 * 24 * 1000.0) > 25);
}

/* Nearest mean image: far above chance, far below certain. */
T_CASE(classes_can_be_distinguished) {
    T_UNUSED;
    static double mean[10][TTI_DIGIT_PIXELS];
    uint8_t pixel[TTI_DIGIT_PIXELS];
    uint64_t key = tti_digit_key(1, 0);
    for (uint64_t i = 0; i < 2000; i++) {
        tti_digit_draw(key, i, pixel);
        for (int j = 0; j < TTI_DIGIT_PIXELS; j++)
            mean[tti_digit_label(key, i)][j] += pixel[j] / 200.0;
    }
    int n_right = 0;
    for (uint64_t i = 2000; i < 3000; i++) {
        tti_digit_draw(key, i, pixel);
        int best = 0;
        double best_d = 1e30;
        for (int c = 0; c < 10; c++) {
            double d = 0;
            for (int j = 0; j < TTI_DIGIT_PIXELS; j++)
                d += (pixel[j] - mean[c][j]) * (pixel[j] - mean[c][j]);
            if (d < best_d) best_d = d, best = c;
        }
        n_right += best == tti_digit_label(key, i);
    }
    assert_in_range(n_right, 400, 900);
}

T_CASE(glyphs_are_complete) {
    T_UNUSED;
    for (int digit = 0; digit < 10; digit++)
        for (int style = 0; style < TTI_GLYPH_STYLES; style++)
            for (int k = 0; k < TTI_GLYPH_STROKES; k++) {
                const tti_glyph_stroke *stroke = &tti_glyphs[digit][style].stroke[k];
                assert_in_range(stroke->n_points, k == 0 ? 3 : 0, TTI_GLYPH_POINTS);
                for (int i = 0; i < stroke->n_points; i++)
                    for (int axis = 0; axis < 2; axis++)
                        assert_in_range(stroke->point[i][axis], 0, 100);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_frozen),         cmocka_unit_test(labels_are_balanced),
        cmocka_unit_test(labels_are_shuffled),     cmocka_unit_test(all_differ),
        cmocka_unit_test(ink_is_where_it_belongs), cmocka_unit_test(classes_can_be_distinguished),
        cmocka_unit_test(glyphs_are_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
