/* image_resize_test.c - resizing gives PIL's bytes; windows and flips are parts of the whole. */
#include "base/error.h"
#include "data/image/image.h"
#include "data/image/image_passes.h"
#include "data/image_files.h"
#include "golden/images_golden.h"
#include "t.h"

typedef struct t_size {
    int h, w, to_h, to_w;
} t_size;

T_CASE(as_pil) {
    T_UNUSED;
    tti_workspace ws = {0};
    for (size_t i = 0; i < TTI_COUNT(t_resizes); i++) {
        const t_resize *r = &t_resizes[i];
        uint8_t *rgb = t_image(r->h, r->w), *out = malloc((size_t)(r->to_h * r->to_w * 3));
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

/* Vectors give the bytes of plain C, for sizes of all kinds. */
static void check_as_plain(const tti_passes *vector, const t_size *size, bool flip, bool white) {
    tti_workspace ws = {0};
    uint8_t *rgb = t_image(size->h, size->w);
    size_t n_bytes = (size_t)(size->to_h * size->to_w * 3);
    uint8_t *a = malloc(n_bytes), *b = malloc(n_bytes);
    if (white) memset(rgb, 255, (size_t)(size->h * size->w * 3));
    tti_image image = {size->h, size->w, rgb};
    tti_resize how = {{0, 0, size->h, size->w}, size->to_h, size->to_w, {0}, flip};
    how.window = (tti_box){0, 0, size->to_h, size->to_w};
    T_OK(tti_image_resize_with(&tti_passes_plain, &image, &how, &ws, a));
    T_OK(tti_image_resize_with(vector, &image, &how, &ws, b));
    assert_memory_equal(a, b, n_bytes);
    T_OK(tti_image_resize(&image, &how, &ws, b));
    assert_memory_equal(a, b, n_bytes);
    free(rgb);
    free(a);
    free(b);
    tti_workspace_free(&ws);
}

T_CASE(vectors_as_plain) {
    T_UNUSED;
    const tti_passes *const all[] = {tti_passes_avx2(), tti_passes_avx512()};
    const t_size large[] = {{375, 500, 224, 224}, {900, 40, 3, 90}, {40, 900, 90, 2},
                            {300, 301, 299, 300}, {1, 1, 70, 70},   {700, 700, 1, 1}};
    if (!all[0]) skip();
    for (int v = 0; v < 2 && all[v]; v++) {
        for (int i = 0; i < 300; i++) {
            t_size size = {1 + i * 7 % 90, 1 + i * 13 % 110, 1 + i * 3 % 50, 1 + i * 5 % 70};
            check_as_plain(all[v], &size, i % 2, i % 5 == 0);
        }
        for (size_t i = 0; i < 2 * TTI_COUNT(large); i++)
            check_as_plain(all[v], &large[i / 2], i % 2, false);
    }
}

T_CASE(window_and_flip) {
    T_UNUSED;
    enum { H = 57, W = 83 };
    tti_workspace ws = {0};
    uint8_t *rgb = t_image(H, W), all[40 * 30 * 3], part[11 * 13 * 3];
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
