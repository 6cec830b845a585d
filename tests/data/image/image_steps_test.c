/* image_steps_test.c - shifting, colours as PIL, and the way to floats. */
#include <stdbool.h>

#include "base/error.h"
#include "data/image/augment.h"
#include "data/image_files.h"
#include "golden/images_golden.h"
#include "t.h"

enum { S = 24 };

static const double zeros[3] = {0, 0, 0}, ones[3] = {1, 1, 1};

T_CASE(jitter_as_pil) {
    T_UNUSED;
    uint8_t *rgb = t_image(S, S), out[S * S * 3];
    tti_transform *step;
    T_OK(tti_colour_jitter_create(S, 0.4, &step));
    for (size_t i = 0; i < TTI_COUNT(t_jitters); i++) {
        tti_sample_key key = {.seed = 5, .epoch = t_jitters[i].epoch, .index = t_jitters[i].index};
        step->apply(step, &key, rgb, out);
        if (t_hash(out, sizeof out) != t_jitters[i].hash)
            fail_msg("case %zu: other pixels than PIL's", i);
    }
    step->destroy(step);
    free(rgb);
}

/* Every shift of -2 .. 2 comes, and what comes in from outside is black. */
T_CASE(pad_crop_shifts) {
    T_UNUSED;
    uint8_t *rgb = t_image(S, S), out[S * S * 3];
    bool seen[5][5] = {{false}};
    int n_seen = 0;
    tti_transform *step;
    T_OK(tti_pad_crop_create(S, 2, &step));
    for (uint64_t i = 0; i < 400; i++) {
        step->apply(step, &(tti_sample_key){.index = i}, rgb, out);
        int found = 0;
        for (int dy = -2; dy <= 2; dy++)
            for (int dx = -2; dx <= 2; dx++) {
                bool same = true;
                for (int y = 0; y < S && same; y++)
                    for (int x = 0; x < S && same; x++)
                        for (int c = 0; c < 3; c++) {
                            int from_y = y + dy, from_x = x + dx;
                            bool in = from_y >= 0 && from_y < S && from_x >= 0 && from_x < S;
                            same &= out[(y * S + x) * 3 + c] ==
                                    (in ? rgb[(from_y * S + from_x) * 3 + c] : 0);
                        }
                found += same;
                if (same && !seen[dy + 2][dx + 2]) seen[dy + 2][dx + 2] = true, n_seen++;
            }
        T_EQ(found, 1);
    }
    T_EQ(n_seen, 25);
    step->destroy(step);
    free(rgb);
}

/* More padding than image. */
T_CASE(pad_crop_may_lose_everything) {
    T_UNUSED;
    uint8_t in[3 * 3 * 3], out[3 * 3 * 3];
    memset(in, 9, sizeof in);
    tti_transform *step;
    T_OK(tti_pad_crop_create(3, 50, &step));
    int n_black = 0;
    for (uint64_t i = 0; i < 50; i++) {
        step->apply(step, &(tti_sample_key){.index = i}, in, out);
        int sum = 0;
        for (size_t k = 0; k < sizeof out; k++) sum += out[k];
        n_black += sum == 0;
    }
    assert_true(n_black > 30);
    step->destroy(step);
}

T_CASE(to_float_is_planes) {
    T_UNUSED;
    uint8_t *rgb = t_image(S, S);
    static float x[3 * S * S];
    const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};
    tti_transform *step;
    T_OK(tti_to_float_create(S, mean, std, 0, &step));
    tutti_type out;
    T_OK(step->infer(step, &(tutti_type){TUTTI_U8, TUTTI_SHAPE(S, S, 3)}, &out));
    T_EQ(out.dtype, TUTTI_F32);
    T_EQ(out.shape.dim[0], 3);
    T_FAILS(step->infer(step, &(tutti_type){TUTTI_U8, TUTTI_SHAPE(3, S, S)}, &out), TUTTI_E_INVALID,
            "takes u8 images [24,24,3]");
    step->apply(step, &(tti_sample_key){0}, rgb, x);
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < S * S; i++)
            T_NEAR(x[c * S * S + i], (rgb[3 * i + c] / 255.0 - mean[c]) / std[c], 1e-6);
    step->destroy(step);
    free(rgb);
}

T_CASE(cutout_is_a_square) {
    T_UNUSED;
    uint8_t in[S * S * 3];
    static float x[3 * S * S];
    int n_whole = 0;
    memset(in, 255, sizeof in);
    tti_transform *step;
    T_OK(tti_to_float_create(S, zeros, ones, 6, &step));
    for (uint64_t i = 0; i < 100; i++) {
        step->apply(step, &(tti_sample_key){.index = i}, in, x);
        int n[3] = {0};
        for (int k = 0; k < 3 * S * S; k++) n[k / (S * S)] += x[k] == 0.0f;
        T_EQ(n[0], n[1]);
        T_EQ(n[0], n[2]);
        assert_true(n[0] >= 9 && n[0] <= 36); /* a quarter at least is inside */
        n_whole += n[0] == 36;
    }
    assert_true(n_whole > 40);
    step->destroy(step);
}

T_CASE(bad_normalisation) {
    T_UNUSED;
    tti_transform *step;
    T_FAILS(tti_to_float_create(S, zeros, zeros, 0, &step), TUTTI_E_INVALID, "std > 0");
    assert_null(step);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jitter_as_pil),
        cmocka_unit_test(pad_crop_shifts),
        cmocka_unit_test(pad_crop_may_lose_everything),
        cmocka_unit_test(to_float_is_planes),
        cmocka_unit_test(cutout_is_a_square),
        cmocka_unit_test(bad_normalisation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
