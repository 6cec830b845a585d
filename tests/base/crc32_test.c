/* crc32_test.c - the standard's check value, and sums of pieces. */
#include "base/crc32.h"

#include "t.h"

T_CASE(check_value_is_the_standards) {
    T_UNUSED;
    T_EQ(tti_crc32(0, "123456789", 9), 0xCBF43926u);
    T_EQ(tti_crc32(0, "", 0), 0u);
}

T_CASE(pieces_add_up) {
    T_UNUSED;
    uint32_t first = tti_crc32(0, "1234", 4);
    T_EQ(tti_crc32(first, "56789", 5), 0xCBF43926u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_value_is_the_standards),
        cmocka_unit_test(pieces_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
