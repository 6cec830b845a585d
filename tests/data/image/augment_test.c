/* augment_test.c - the words of data.augment, random crops as torchvision's, flips. */
#include "data/image/augment.h"

#include "base/error.h"
#include "golden/images_golden.h"
#include "t.h"

static const tti_augment usual = {.pad = 4, .flip = 0.5};

T_CASE(words) {
    T_UNUSED;
    tti_augment a;
    T_OK(tti_augment_parse("random_resized_crop, flip,colour_jitter=0.3 , cutout=8", &usual, &a));
    assert_true(a.min_area == 0.08 && a.flip == 0.5 && a.jitter == 0.3 && a.cutout == 8 && !a.pad);
    T_OK(tti_augment_parse("pad_crop=2,flip=1,color_jitter", &usual, &a));
    assert_true(a.pad == 2 && a.flip == 1 && a.jitter == 0.4 && a.min_area == 0);
    const char *const nothing[] = {"", "none", " none "};
    for (int i = 0; i < 3; i++) {
        T_OK(tti_augment_parse(nothing[i], &usual, &a));
        assert_true(a.pad == 0 && a.flip == 0);
    }
    T_OK(tti_augment_parse(NULL, &usual, &a));
    T_EQ(a.pad, 4);
    T_OK(tti_augment_parse("auto", &usual, &a));
    T_EQ(a.pad, 4);
}

static void expect_printed(const char *text, const char *want) {
    tti_augment a, again;
    tti_str out = {0};
    T_OK(tti_augment_parse(text, &usual, &a));
    tti_augment_print(&a, &out);
    assert_string_equal(tti_str_text(&out), want);
    T_OK(tti_augment_parse(tti_str_text(&out), &(tti_augment){0}, &again));
    assert_memory_equal(&a, &again, sizeof a);
    tti_str_free(&out);
}

T_CASE(printed_words_read_back) {
    T_UNUSED;
    expect_printed("auto", "flip=0.5, pad_crop=4");
    expect_printed("none", "none");
    expect_printed("cutout, color_jitter=0.1, random_resized_crop=0.30000000000000004",
                   "random_resized_crop=0.30000000000000004, colour_jitter=0.1, cutout=16");
}

T_CASE(bad_words) {
    T_UNUSED;
    tti_augment a = {.pad = 77};
    T_FAILS(tti_augment_parse("flip,rotate", &usual, &a), TUTTI_E_INVALID,
            "unknown step 'rotate' (known: random_resized_crop, flip");
    T_FAILS(tti_augment_parse("flip=2", &usual, &a), TUTTI_E_INVALID,
            "'flip=2': expected a number");
    T_FAILS(tti_augment_parse("flip=", &usual, &a), TUTTI_E_INVALID, "from 0 to 1");
    T_FAILS(tti_augment_parse("cutout=1.5", &usual, &a), TUTTI_E_INVALID,
            "expected a whole number");
    T_FAILS(tti_augment_parse("cutout=nan", &usual, &a), TUTTI_E_INVALID, "cutout=nan");
    T_FAILS(tti_augment_parse("pad_crop, random_resized_crop", &usual, &a), TUTTI_E_INVALID,
            "exclude each other");
    T_EQ(a.pad, 77);
}

T_CASE(channels) {
    T_UNUSED;
    const double imagenet[3] = {0.485, 0.456, 0.406};
    double x[3];
    T_OK(tti_channels_parse("0.5, 0.25,1", "data.channel_mean", imagenet, x));
    assert_true(x[0] == 0.5 && x[1] == 0.25 && x[2] == 1);
    T_OK(tti_channels_parse("auto", "data.channel_mean", imagenet, x));
    assert_true(x[1] == 0.456);
    T_OK(tti_channels_parse(NULL, "data.channel_mean", imagenet, x));
    const char *const bad[] = {"", "1", "1,2", "1,2,3,4", "1,,3", "1,x,3", "0.1 0.2 0.3"};
    for (size_t i = 0; i < TTI_COUNT(bad); i++)
        T_FAILS(tti_channels_parse(bad[i], "data.channel_std", imagenet, x), TUTTI_E_INVALID,
                "data.channel_std: expected three numbers");
}

T_CASE(boxes_as_torchvision) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(t_random_boxes); i++) {
        const t_random_box *b = &t_random_boxes[i];
        tti_sample_key key = {.seed = 9, .epoch = b->epoch, .index = b->index};
        tti_box box = tti_random_box(b->h, b->w, b->min_area, &key);
        T_EQ(box.y, b->box.y);
        T_EQ(box.x, b->box.x);
        T_EQ(box.h, b->box.h);
        T_EQ(box.w, b->box.w);
    }
}

/* Inside, of a fair shape, and other boxes for other epochs and samples. */
T_CASE(boxes_are_inside) {
    T_UNUSED;
    int64_t sum_h = 0;
    for (uint64_t i = 0; i < 2000; i++) {
        tti_sample_key key = {.seed = 1, .epoch = i % 7, .index = i};
        tti_box box = tti_random_box(300, 400, 0.08, &key);
        assert_true(box.y >= 0 && box.x >= 0 && box.y + box.h <= 300 && box.x + box.w <= 400);
        double ratio = (double)box.w / (double)box.h, area = (double)(box.h * box.w) / 120000;
        assert_true(ratio > 0.73 && ratio < 1.37 && area > 0.078 && area <= 1);
        sum_h += box.h;
    }
    assert_true(sum_h > 2000 * 180 && sum_h < 2000 * 260);
}

T_CASE(flips) {
    T_UNUSED;
    int n = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        tti_sample_key key = {.seed = 3, .epoch = 2, .index = i};
        n += tti_random_flip(0.5, &key);
        assert_false(tti_random_flip(0, &key));
        assert_true(tti_random_flip(1, &key));
    }
    assert_in_range(n, 440, 560);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words),
        cmocka_unit_test(printed_words_read_back),
        cmocka_unit_test(bad_words),
        cmocka_unit_test(channels),
        cmocka_unit_test(boxes_as_torchvision),
        cmocka_unit_test(boxes_are_inside),
        cmocka_unit_test(flips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
