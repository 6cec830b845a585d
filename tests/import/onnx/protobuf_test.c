/* protobuf_test.c - fields of every kind, and bytes that are no message. */
#include "import/onnx/protobuf.h"

#include "t.h"

/* The message in bytes[n]. */
static tti_pb message(const uint8_t *bytes, size_t n) { return (tti_pb){bytes, bytes + n}; }

static void reads_fields_of_every_kind(void **state) {
    (void)state;
    static const uint8_t bytes[] = {
        0x08, 0x96, 0x01,                              /* 1: 150             */
        0x12, 0x02, 'h',  'i',                         /* 2: "hi"            */
        0x1d, 0,    0,    0x80, 0x3f,                  /* 3: 1.0f            */
        0x21, 0,    0,    0,    0,    0, 0, 0xf0, 0x3f /* 4: 1.0        */
    };
    tti_pb m = message(bytes, sizeof bytes);
    tti_pb_field f;
    assert_int_equal(tti_pb_read(&m, &f), TTI_PB_FIELD);
    assert_int_equal(f.number, 1);
    assert_int_equal(f.value, 150);
    assert_int_equal(tti_pb_read(&m, &f), TTI_PB_FIELD);
    assert_int_equal(f.wire, TTI_PB_BYTES);
    assert_int_equal(tti_pb_n_bytes(&f.bytes), 2);
    assert_memory_equal(f.bytes.at, "hi", 2);
    assert_int_equal(tti_pb_read(&m, &f), TTI_PB_FIELD);
    assert_true(tti_pb_float(f.value) == 1.0);
    assert_int_equal(tti_pb_read(&m, &f), TTI_PB_FIELD);
    assert_true(f.value == 0x3ff0000000000000); /* 1.0 */
    assert_int_equal(tti_pb_read(&m, &f), TTI_PB_END);
}

static void reads_negative_and_largest_numbers(void **state) {
    (void)state;
    static const uint8_t bytes[] = {0x08, 0xff, 0xff, 0xff, 0xff, 0xff,
                                    0xff, 0xff, 0xff, 0xff, 0x01};
    tti_pb m = message(bytes, sizeof bytes);
    tti_pb_field f;
    assert_int_equal(tti_pb_read(&m, &f), TTI_PB_FIELD);
    assert_int_equal((int64_t)f.value, -1);
}

static void reads_packed_numbers(void **state) {
    (void)state;
    static const uint8_t bytes[] = {0x03, 0x8e, 0x02};
    tti_pb list = message(bytes, sizeof bytes);
    uint64_t x;
    assert_true(tti_pb_read_packed(&list, TTI_PB_VARINT, &x));
    assert_int_equal(x, 3);
    assert_true(tti_pb_read_packed(&list, TTI_PB_VARINT, &x));
    assert_int_equal(x, 270);
    assert_false(tti_pb_read_packed(&list, TTI_PB_VARINT, &x));
    assert_ptr_equal(list.at, list.end);
}

static void refuses_what_is_no_message(void **state) {
    (void)state;
    static const struct {
        const char *what;
        size_t n;
        uint8_t bytes[16];
    } cases[] = {
        {"a key that ends early", 1, {0x80}},
        {"field 0", 2, {0x00, 0x01}},
        {"a field number of 30 bits", 6, {0x80, 0x80, 0x80, 0x80, 0x10, 0x00}},
        {"a group", 2, {0x0b, 0x0c}},
        {"wire type 7", 2, {0x0f, 0x00}},
        {"a number that ends early", 3, {0x08, 0xff, 0xff}},
        {"a number of 11 bytes",
         12,
         {0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}},
        {"a number of 65 bits",
         11,
         {0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}},
        {"bytes that end early", 3, {0x12, 0x02, 'h'}},
        {"2^63 bytes", 11, {0x12, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}},
        {"a float that ends early", 4, {0x1d, 0, 0, 0}},
        {"a double that ends early", 8, {0x21, 0, 0, 0, 0, 0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tti_pb m = message(cases[i].bytes, cases[i].n);
        tti_pb_field f;
        if (tti_pb_read(&m, &f) != TTI_PB_DAMAGED) fail_msg("%s is taken", cases[i].what);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_fields_of_every_kind),
        cmocka_unit_test(reads_negative_and_largest_numbers),
        cmocka_unit_test(reads_packed_numbers),
        cmocka_unit_test(refuses_what_is_no_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
