/* image_resize_test.c - resizing gives PIL's bytes; windows and flips are parts of the whole. */
#include "base/error.h"
#include "data/image.h"
#include "data/image_files.h"
#include "data/image_passes.h"
#include "golden/images_golden.h"
#include "t.h"

T_CASE(as_pil) {
    T_UNUSED;
    tti_workspace ws = {0};
    for (size_t i = 0; i < TTI_COUNT(t_resizes); i++) {
        const t_resize *r = &t_resizes[i];
        uint8_t *rgb = t_picture(r->h, r->w), *out = malloc((size_t)(r->to_h * r->to_w * 3));
        tti_image image = {r->h, r->w, rgb};
        tti_resize how = {r->box, r->to_h, r->to_w, {0, 0, r->to_h, r->to_w}, false};
        T_OK(tti_image_resize_with(&tti_passes_plain, &image, &how, &ws, out));
        if (t_hash(out, (size_t)(r->to_h * r->to_w * 3)) != r->hash)
            fail_msg("case %zu: other pixels than PIL's", i);
        free(rgb);
        free(out);
    }
    tti_workspace_free(&ws);
}

/* The vectors give the bytes of plain C, for sizes of all kinds. */
T_CASE(vectors_as_plain) {
    T_UNUSED;
    const tti_passes *vector = tti_passes_vector();
    if (!vector) skip();
    tti_workspace ws = {0};
    for (int i = 0; i < 300; i++) {
        int h = 1 + i * 7 % 90, w = 1 + i * 13 % 110, to_h = 1 + i * 3 % 50, to_w = 1 + i * 5 % 70;
        uint8_t *rgb = t_picture(h, w);
        uint8_t *a = malloc((size_t)(to_h * to_w * 3)), *b = malloc((size_t)(to_h * to_w * 3));
        if (i % 5 == 0) memset(rgb, 255, (size_t)(h * w * 3));
        tti_image image = {h, w, rgb};
        tti_resize how = {{0, 0, h, w}, to_h, to_w, {0, 0, to_h, to_w}, i % 2};
        T_OK(tti_image_resize_with(&tti_passes_plain, &image, &how, &ws, a));
        T_OK(tti_image_resize_with(vector, &image, &how, &ws, b));
        assert_memory_equal(a, b, (size_t)(to_h * to_w * 3));
        T_OK(tti_image_resize(&image, &how, &ws, b));
        assert_memory_equal(a, b, (size_t)(to_h * to_w * 3));
        free(rgb);
        free(a);
        free(b);
    }
    tti_workspace_free(&ws);
}

T_CASE(window_and_flip) {
    T_UNUSED;
    enum { H = 57, W = 83 };
    tti_workspace ws = {0};
    uint8_t *rgb = t_picture(H, W), all[40 * 30 * 3], part[11 * 13 * 3];
    tti_image image = {H, W, rgb};
    tti_resize how = {{1, 2, 50, 70}, 40, 30, {0, 0, 40, 30}, false};
    T_OK(tti_image_resize(&image, &how, &ws, all));
    for (int flip = 0; flip < 2; flip++) {
        how.window = (tti_box){7, 9, 11, 13};
        how.flip = flip;
        T_OK(tti_image_resize(&image, &how, &ws, part));
        for (int y = 0; y < 11; y++)
            for (int x = 0; x < 13; x++)
                assert_memory_equal(part + (y * 13 + (flip ? 12 - x : x)) * 3,
                                    all + ((y + 7) * 30 + x + 9) * 3, 3);
    }
    free(rgb);
    tti_workspace_free(&ws);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_pil),
        cmocka_unit_test(vectors_as_plain),
        cmocka_unit_test(window_and_flip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
