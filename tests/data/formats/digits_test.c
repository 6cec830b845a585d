/* digits_test.c - the drawn data set: lazily drawn, cached, the same from any number of threads. */
#include "data/dataset.h"
#include "data/formats/digit_pen.h"
#include "t.h"

static tutti_dataset *open_digits(int64_t n, tutti_data_split split) {
    tutti_dataset *ds;
    T_OK(tutti_dataset_open(
        &(tutti_dataset_desc){.format = "digits", .n_samples = n, .split = split, .seed = 4}, &ds));
    return ds;
}

T_CASE(same_as_the_pen) {
    T_UNUSED;
    for (int split = 0; split < 2; split++) {
        tutti_dataset *ds = open_digits(50, (tutti_data_split)split);
        uint64_t key = tti_digit_key(4, split);
        for (int pass = 0; pass < 2; pass++) /* drawn, then from the cache */
            for (int64_t i = 49; i >= 0; i--) {
                uint8_t pixel[TTI_DIGIT_PIXELS];
                float x[TTI_DIGIT_PIXELS];
                int32_t y;
                tti_digit_draw(key, (uint64_t)i, pixel);
                T_OK(tutti_dataset_get(ds, i, x, &y));
                T_EQ(y, tti_digit_label(key, (uint64_t)i));
                for (int k = 0; k < TTI_DIGIT_PIXELS; k++)
                    assert_true(x[k] == (float)(pixel[k] / 255.0));
            }
        tutti_dataset_destroy(ds);
    }
}

T_CASE(info) {
    T_UNUSED;
    tutti_dataset *train = open_digits(0, TUTTI_TRAIN), *test = open_digits(0, TUTTI_TEST);
    T_EQ(tutti_dataset_get_info(train)->n_samples, 60000);
    T_EQ(tutti_dataset_get_info(test)->n_samples, 10000);
    T_EQ(tutti_dataset_get_info(test)->n_classes, 10);
    T_EQ(tutti_shape_n_elems(&tutti_dataset_get_info(test)->x.shape), TTI_DIGIT_PIXELS);
    tutti_dataset_destroy(train);
    tutti_dataset_destroy(test);
}

static const char *read_all(int rank, int n_ranks, void *arg) {
    (void)n_ranks;
    const tutti_dataset *ds = arg;
    for (int64_t k = 0; k < 200; k++) {
        int64_t i = rank % 2 ? 199 - k : k;
        uint8_t expected[TTI_DIGIT_PIXELS], got[TTI_DIGIT_PIXELS];
        int32_t y;
        tti_digit_draw(tti_digit_key(4, 0), (uint64_t)i, expected);
        const tti_sample_key key = {.index = (uint64_t)i};
        tti_workspace ws = {0};
        bool skipped;
        if (tti_dataset_read(ds, &key, &ws, got, &y, &skipped) != TUTTI_OK)
            return tutti_last_error();
        if (memcmp(expected, got, sizeof got) != 0) return "another image";
    }
    return NULL;
}

T_CASE(any_number_of_threads) {
    T_UNUSED;
    tutti_dataset *ds = open_digits(200, TUTTI_TRAIN);
    t_ranks(4, read_all, ds);
    tutti_dataset_destroy(ds);
}

T_CASE(bad_desc) {
    T_UNUSED;
    tutti_dataset *ds;
    T_FAILS(tutti_dataset_open(&(tutti_dataset_desc){.format = "digits", .n_classes = 9}, &ds),
            TUTTI_E_DATA, "9 classes are too few");
    T_FAILS(
        tutti_dataset_open(&(tutti_dataset_desc){.format = "digits", .n_samples = INT64_MAX}, &ds),
        TUTTI_E_INVALID, "at most");
    T_FAILS(tutti_dataset_open(&(tutti_dataset_desc){.format = "digits", .std = -1}, &ds),
            TUTTI_E_INVALID, "normalise");
    assert_null(ds);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_the_pen),
        cmocka_unit_test(info),
        cmocka_unit_test(any_number_of_threads),
        cmocka_unit_test(bad_desc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
