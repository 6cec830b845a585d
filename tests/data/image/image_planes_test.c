/* image_planes_test.c - pixels become the floats of their tables, in every place and to the bit. */
#include "data/image/image_planes.h"

#include <stdlib.h>
#include <string.h>

#include "t.h"

/* Any bits at all: not a number of some kind, too. */
static void fill_tables(tti_plane_table table[3]) {
    uint32_t bits = 1;
    for (int c = 0; c < 3; c++) {
        for (int i = 0; i < 256; i++) {
            bits = bits * 1664525u + 1013904223u;
            memcpy(&table[c].value[i], &bits, sizeof bits);
        }
        tti_plane_table_split(&table[c]);
    }
}

T_CASE(as_the_tables_say) {
    T_UNUSED;
    enum { MOST = 64 * 64 * 2 + 130 };
    static tti_plane_table table[3];
    static const int sizes[] = {1, 63, 64, 65, 1024, 64 * 64, MOST};
    fill_tables(table);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int n = sizes[k];
        uint8_t *rgb = malloc((size_t)n * 3);
        float *want = malloc((size_t)n * 3 * sizeof *want);
        float *x = malloc((size_t)n * 3 * sizeof *x), *plain = malloc((size_t)n * 3 * sizeof *x);
        for (int i = 0; i < 3 * n; i++) rgb[i] = (uint8_t)(i * 7 + i / 256);
        for (int i = 0; i < n; i++)
            for (int c = 0; c < 3; c++) want[c * n + i] = table[c].value[rgb[3 * i + c]];
        tti_to_planes(rgb, n, table, x);
        tti_to_planes_plain(rgb, n, table, plain);
        assert_memory_equal(x, want, (size_t)n * 3 * sizeof *x);
        assert_memory_equal(plain, want, (size_t)n * 3 * sizeof *x);
        free(rgb);
        free(want);
        free(x);
        free(plain);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_tables_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
