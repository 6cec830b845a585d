/* synthetic_test.c - drawn samples: the same on every opening, in their ranges, unlike others. */
#include "tutti/data.h"

#include <stdlib.h>

#include "t.h"

static tutti_dataset *open_set(const char *format, uint64_t seed, tutti_data_split split) {
    tutti_dataset *set;
    tutti_dataset_desc desc = {.format = format,
                               .seed = seed,
                               .split = split,
                               .context = 16,
                               .image_size = 8,
                               .n_classes = 97};
    T_OK(tutti_dataset_open(&desc, &set));
    return set;
}

T_CASE(tokens_and_what_follows_are_in_the_vocabulary) {
    T_UNUSED;
    tutti_dataset *set = open_set("random_tokens", 1, TUTTI_TRAIN);
    int32_t x[16], y[16], again[16], n_distinct = 0;
    T_EQ(tutti_dataset_get_info(set)->n_classes, 97);
    for (int64_t i = 0; i < 200; i++) {
        T_OK(tutti_dataset_get(set, i, x, y));
        for (int k = 0; k < 16; k++) {
            assert_in_range(x[k], 0, 96);
            assert_in_range(y[k], 0, 96);
            n_distinct += k > 0 && x[k] != x[k - 1];
        }
    }
    assert_true(n_distinct > 2500);
    tutti_dataset *other = open_set("random_tokens", 1, TUTTI_TRAIN);
    T_OK(tutti_dataset_get(other, 199, again, y));
    assert_memory_equal(x, again, sizeof x);
    tutti_dataset_destroy(other);
    other = open_set("random_tokens", 2, TUTTI_TRAIN);
    T_OK(tutti_dataset_get(other, 199, again, y));
    assert_memory_not_equal(x, again, sizeof x);
    tutti_dataset_destroy(other);
    tutti_dataset_destroy(set);
}

T_CASE(images_have_mean_0_and_variance_1) {
    T_UNUSED;
    tutti_dataset *set = open_set("random_images", 3, TUTTI_TEST);
    float x[3 * 8 * 8];
    double sum = 0, squares = 0;
    int32_t y, n_labels[97] = {0};
    T_EQ(tutti_dataset_get_info(set)->n_samples, 1024);
    for (int64_t i = 0; i < 1024; i++) {
        T_OK(tutti_dataset_get(set, i, x, &y));
        assert_in_range(y, 0, 96);
        n_labels[y]++;
        for (int k = 0; k < 192; k++) sum += x[k], squares += (double)x[k] * x[k];
    }
    T_NEAR(sum / (1024 * 192), 0, 0.03);
    T_NEAR(squares / (1024 * 192), 1, 0.03);
    for (int c = 0; c < 97; c++) assert_true(n_labels[c] > 0);
    tutti_dataset_destroy(set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_and_what_follows_are_in_the_vocabulary),
        cmocka_unit_test(images_have_mean_0_and_variance_1)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
