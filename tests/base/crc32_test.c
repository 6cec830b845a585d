/* crc32_test.c - known values, every length around the block sizes, joining. */
#include "base/crc32.h"

#include <stdlib.h>

#include "base/philox.h"
#include "t.h"

T_CASE(known_values) {
    T_UNUSED;
    uint8_t bytes[32] = {0};
    T_EQ(tti_crc32(0, "123456789", 9), 0xCBF43926u);
    T_EQ(tti_crc32(0, bytes, 32), 0x190A55ADu);
    memset(bytes, 0xFF, 32);
    T_EQ(tti_crc32(0, bytes, 32), 0xFF6CAB0Bu);
    for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)i;
    T_EQ(tti_crc32(0, bytes, 32), 0x91267E8Au);
    T_EQ(tti_crc32_portable(0, bytes, 32), 0x91267E8Au);
    T_EQ(tti_crc32(0, NULL, 0), 0);
    T_EQ(tti_crc32(7, NULL, 0), 7);
}

static uint8_t *noise(size_t n_bytes) {
    uint8_t *bytes = malloc(n_bytes);
    assert_non_null(bytes);
    for (size_t i = 0; i < n_bytes; i++) bytes[i] = (uint8_t)tti_philox_draw(1, 2, i).v[0];
    return bytes;
}

T_CASE(fast_equals_portable) {
    T_UNUSED;
    enum { N = 20000 };
    uint8_t *bytes = noise(N);
    for (size_t n = 0; n < 1700; n++)
        T_EQ(tti_crc32(0, bytes + n % 8, n), tti_crc32_portable(0, bytes + n % 8, n));
    for (size_t n = 6100; n < N - 8; n += 97)
        T_EQ(tti_crc32(0x1234567u, bytes + n % 8, n),
             tti_crc32_portable(0x1234567u, bytes + n % 8, n));
    free(bytes);
}

T_CASE(pieces_and_joins) {
    T_UNUSED;
    enum { N = 13000 };
    uint8_t *bytes = noise(N);
    uint32_t whole = tti_crc32(0, bytes, N);
    for (size_t n = 0; n <= N; n += 61) {
        uint32_t a = tti_crc32(0, bytes, n), b = tti_crc32(0, bytes + n, N - n);
        T_EQ(tti_crc32(a, bytes + n, N - n), whole);
        T_EQ(tti_crc32_join(a, b, N - n), whole);
    }
    free(bytes);
}

T_CASE(every_flipped_bit_shows) {
    T_UNUSED;
    enum { N = 900 };
    uint8_t *bytes = noise(N);
    uint32_t whole = tti_crc32(0, bytes, N);
    for (size_t bit = 0; bit < 8 * N; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(tti_crc32(0, bytes, N), whole);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(fast_equals_portable),
        cmocka_unit_test(pieces_and_joins),
        cmocka_unit_test(every_flipped_bit_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
