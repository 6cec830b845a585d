/* onnx_file_test.c - the bytes of a small ONNX model, field by field, as onnx.proto numbers them.
 */
#include "ckpt/onnx_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "t.h"

static const float two[] = {1, 2};

static void build(tti_onnx_file *file) {
    const char *in[] = {"x", "b"}, *out[] = {"y"};
    tti_onnx_attr attrs[] = {
        {.name = "i", .kind = TTI_ONNX_INT, .i = -1},
        {.name = "f", .kind = TTI_ONNX_FLOAT, .f = 0.5},
        {.name = "v", .kind = TTI_ONNX_INTS, .n = 2, .v = {3, 300}},
        {0},
    };
    tutti_type type = {TUTTI_F32, TUTTI_SHAPE(2)};
    tti_onnx_add_node(
        file,
        &(tti_onnx_node){.op = "Add", .in = in, .n_in = 2, .out = out, .n_out = 1, .attrs = attrs});
    tti_onnx_add_tensor(file, "b", &type, two);
    tti_onnx_add_input(file, "x", &type, true);
    tti_onnx_add_output(file, "y", &type, false);
}

static void expect_bytes(const tti_str *part, const void *bytes, size_t n_bytes) {
    T_EQ(part->n_bytes, n_bytes);
    assert_memory_equal(part->text, bytes, n_bytes);
}
#define EXPECT(part, bytes) expect_bytes((part), (bytes), sizeof(bytes) - 1)

T_CASE(fields) {
    T_UNUSED;
    tti_onnx_file file = {0};
    build(&file);
    EXPECT(&file.nodes,
           "\x0a\x3b"
           "\x0a\x01x\x0a\x01"
           "b\x12\x01y\x22\x03"
           "Add"
           "\x2a\x11\x0a\x01i\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\xa0\x01\x02"
           "\x2a\x0b\x0a\x01"
           "f\x15\0\0\0\x3f\xa0\x01\x01"
           "\x2a\x0b\x0a\x01v\x40\x03\x40\xac\x02\xa0\x01\x07");
    EXPECT(&file.tensors,
           "\x2a\x11\x08\x02\x10\x01\x42\x01"
           "b\x4a\x08\0\0\x80\x3f\0\0\0\x40");
    EXPECT(&file.inputs, "\x5a\x10\x0a\x01x\x12\x0b\x0a\x09\x08\x01\x12\x05\x0a\x03\x12\x01N");
    EXPECT(&file.outputs, "\x62\x0f\x0a\x01y\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x02");
    tti_onnx_free(&file);
}

T_CASE(a_file) {
    T_UNUSED;
    tti_onnx_file file = {0};
    char path[64], bytes[512];
    int64_t n_bytes = 0;
    snprintf(path, sizeof path, "/tmp/tutti-onnx-%ld", (long)getpid());
    build(&file);
    T_OK(tti_onnx_save(&file, "g", path, &n_bytes));
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    T_EQ(fread(bytes, 1, sizeof bytes, f), n_bytes);
    fclose(f);
    unlink(path);
    assert_memory_equal(bytes, "\x08\x08\x12\x05tutti\x3a", 10); /* IR version, producer, graph */
    assert_memory_equal(bytes + n_bytes - 4, "\x42\x02\x10\x11", 4); /* operator set 17 */
    T_FAILS(tti_onnx_save(&file, "g", "/nowhere/at/all", &n_bytes), TUTTI_E_IO, "/nowhere");
    tti_onnx_free(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fields), cmocka_unit_test(a_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
