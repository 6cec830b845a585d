/* safetensors_test.c - what the reader accepts and what it refuses, with the reason. */
#include "ckpt/safetensors.h"

#include "base/crc32c.h"
#include "ckpt/ckpt_fixture.h"

/* Parses a file made of a JSON header, without padding, and n_data bytes. */
static tutti_status parse_json(const char *json, size_t n_json, uint64_t n_data,
                               tti_safetensors **out) {
    uint8_t *bytes = calloc(1, n_json + 8);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(n_json >> (8 * i));
    memcpy(bytes + 8, json, n_json);
    tutti_status st = tti_safetensors_parse("x.st", bytes, n_json + 8, n_json + 8 + n_data, out);
    free(bytes);
    return st;
}

static tutti_status parse_text(const char *json, uint64_t n_data, tti_safetensors **out) {
    return parse_json(json, strlen(json), n_data, out);
}

T_CASE(the_empty_file) {
    T_UNUSED;
    static const char bytes[] = "\x08\0\0\0\0\0\0\0{}      ";
    tti_safetensors *file;
    T_OK(tti_safetensors_parse("x", bytes, 16, 16, &file));
    T_EQ(file->n_entries, 0);
    tti_safetensors_close(file);
}

T_CASE(one_tensor) {
    T_UNUSED;
    tti_safetensors *file;
    T_OK(parse_text("{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,24]}}",
                    24, &file));
    T_EQ(file->n_entries, 1);
    const tti_safetensors_entry *entry = &file->entries[0];
    assert_string_equal(entry->name, "attn.0");
    T_EQ(entry->type.dtype, TUTTI_F32);
    T_EQ(entry->type.shape.n_dims, 3);
    T_EQ(entry->type.shape.dim[2], 3);
    T_EQ(entry->n_bytes, 24);
    T_EQ(entry->offset, file->n_header_bytes);
    tti_safetensors_close(file);
}

T_CASE(any_order_in_the_header) {
    T_UNUSED;
    tti_safetensors *file;
    T_OK(
        parse_text("{\"b\":{\"shape\":[1],\"data_offsets\":[8,10],\"dtype\":\"BF16\"},"
                   "\"__metadata__\":{\"k\":\"v\"},"
                   "\"z\":{\"dtype\":\"U8\",\"shape\":[0,7],\"data_offsets\":[8,8]},"
                   "\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}   ",
                   10, &file));
    T_EQ(file->n_entries, 3);
    assert_string_equal(file->entries[0].name, "a");
    assert_string_equal(file->entries[1].name, "z");
    assert_string_equal(file->entries[2].name, "b");
    tti_safetensors_close(file);
}

#define TENSOR(dtype, shape, offsets) \
    "{\"t\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static const struct {
    const char *json;
    uint64_t n_data;
    const char *message;
} bad_headers[] = {
    {"[]", 0, "not a JSON object padded"},
    {" {}", 0, "not a JSON object padded"},
    {"{}\n", 0, "not a JSON object padded"},
    {"{}{}", 0, "not valid JSON"},
    {"{\"a\":}", 0, "not valid JSON"},
    {"{\"a\xFF\":1}", 0, "not valid JSON"},
    {"{\"a\\u0000b\":1}", 0, "not valid JSON"},
    {"{\"a\":1e999}", 0, "not valid JSON"},
    {"{\"e-9\":[\"\\\"1e-999\",0e-999,1e-999]}", 0, "byte 26: 1e-999 is too small and would be"},
    {"{\"a\":-0.1E-999}", 0, "byte 5: -0.1E-999 is too small"},
    {"{\"a\":1}", 0, "not an object of"},
    {"{\"a\":{}}", 0, "not an object of"},
    {"{\"\":{}}", 0, "no bytes"},
    {"{\"a\\nb\":{}}", 0, "control characters"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "not an object of texts"},
    {"{\"__metadata__\":[]}", 0, "not an object of texts"},
    {"{}", 1, "trailing bytes"},
    {TENSOR("F31", "[1]", "[0,4]"), 4, "tensor 't': its dtype"},
    {TENSOR("f32", "[1]", "[0,4]"), 4, "tensor 't': its dtype"},
    {TENSOR("F32", "[1]", "[0,4]"), 3, "truncated"},
    {TENSOR("F32", "[1]", "[0,4]"), 5, "trailing bytes"},
    {TENSOR("F32", "[1]", "[0,8]"), 8, "span 8 bytes, dtype and shape need 4"},
    {TENSOR("F32", "[1]", "[4,8]"), 8, "begins at 4"},
    {TENSOR("F32", "[1]", "[4,0]"), 8, "is not [begin,end]"},
    {TENSOR("F32", "[1]", "[-4,0]"), 8, "is not [begin,end]"},
    {TENSOR("F32", "[1]", "[0]"), 4, "is not [begin,end]"},
    {TENSOR("F32", "[1]", "[0,4,8]"), 4, "is not [begin,end]"},
    {TENSOR("F32", "[1]", "[0,4.0]"), 4, "is not [begin,end]"},
    {TENSOR("F32", "[1]", "[0,9223372036854775807]"), 4, "is not [begin,end]"},
    {TENSOR("F32", "[1]", "[0,18446744073709551616]"), 4, "not valid JSON"},
    {TENSOR("F32", "[1]", "\"04\""), 4, "\"data_offsets\" is text, not a list"},
    {TENSOR("F32", "1", "[0,4]"), 4, "\"shape\" is an integer, not a list"},
    {TENSOR("F32", "[-1]", "[0,4]"), 4, "dimension 0 is not in"},
    {TENSOR("F32", "[1.0]", "[0,4]"), 4, "dimension 0 is not in"},
    {TENSOR("F32", "[1,true]", "[0,4]"), 4, "dimension 1 is not in"},
    {TENSOR("U8", "[1099511627777]", "[0,1]"), 1, "dimension 0 is not in"},
    {TENSOR("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "9 dimensions"},
    {TENSOR("F32", "[1099511627776,1099511627776]", "[0,4]"), 4, "too many elements"},
    {TENSOR("F32", "[0,1099511627776,1099511627776]", "[0,0]"), 0, "too many elements"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
     "not an object of"},
    {"{\"t\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
     "\"u\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
     2, "tensor 'u': begins at 0"},
    {"{\"t\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
     "\"u\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[2,3]}}",
     3, "tensor 'u': begins at 2"},
    {"{\"t\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"u\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}",
     2, "tensor 'u': begins at 1"},
    {"{\"t\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
     "\"t\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[1,2]}}",
     2, "duplicate object key"},
};

T_CASE(refuses_bad_headers) {
    T_UNUSED;
    for (size_t i = 0; i < sizeof bad_headers / sizeof bad_headers[0]; i++) {
        tti_safetensors *file;
        tutti_status st = parse_text(bad_headers[i].json, bad_headers[i].n_data, &file);
        if (st == TUTTI_OK) fail_msg("accepted: %s", bad_headers[i].json);
        assert_null(file);
        if (!strstr(tutti_last_error(), bad_headers[i].message))
            fail_msg("%s: '%s' lacks '%s'", bad_headers[i].json, tutti_last_error(),
                     bad_headers[i].message);
        assert_int_equal(strncmp(tutti_last_error(), "x.st: ", 6), 0);
    }
}

T_CASE(refuses_bad_lengths) {
    T_UNUSED;
    static const struct {
        uint64_t n;
        const char *message;
    } lengths[] = {{0, "does not fit"},          {1, "does not fit"},
                   {UINT64_MAX, "does not fit"}, {UINT64_MAX - 7, "does not fit"},
                   {1ull << 40, "does not fit"}, {(16 << 20) + 1, "at most 16777216"}};
    tti_safetensors *file;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint8_t head[10] = {0};
        for (int k = 0; k < 8; k++) head[k] = (uint8_t)(lengths[i].n >> (8 * k));
        T_FAILS(tti_safetensors_parse("x", head, 10, 1ull << 30, &file), TUTTI_E_CHECKPOINT,
                lengths[i].message);
    }
    for (size_t n = 0; n < 8; n++)
        T_FAILS(tti_safetensors_parse("x", "\0\0\0\0\0\0\0", n, n, &file), TUTTI_E_CHECKPOINT,
                "too few");
}

T_CASE(refuses_depth_and_long_names) {
    T_UNUSED;
    tti_safetensors *file;
    char deep[2000] = "{\"a\":";
    memset(deep + 5, '[', 1000);
    deep[1005] = '}';
    T_FAILS(parse_text(deep, 0, &file), TUTTI_E_CHECKPOINT, "nested more than 64 deep");
    T_FAILS(
        parse_text("{\"[[[\\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
                   "[[\":1}",
                   0, &file),
        TUTTI_E_CHECKPOINT, "not an object of");
    char name[600];
    snprintf(name, sizeof name, "{\"%0513d\":{}}", 0);
    T_FAILS(parse_text(name, 0, &file), TUTTI_E_CHECKPOINT, "too many");
}

T_CASE(every_truncation_of_a_file) {
    T_UNUSED;
    char path[80], cut[80];
    snprintf(path, sizeof path, "%s/a.safetensors", run_dir);
    snprintf(cut, sizeof cut, "%s/cut", run_dir);
    small_state s;
    state_init(&s, 9);
    tti_safetensors *file;
    T_OK(tti_safetensors_write(path, s.params, 5, &file));
    tti_safetensors_close(file);
    size_t n_bytes;
    const uint8_t *bytes = read_whole(path, &n_bytes);
    for (size_t n = 0; n < n_bytes; n++) {
        write_whole(cut, bytes, n);
        tutti_status st = tti_safetensors_open(cut, &file);
        if (st != TUTTI_E_CHECKPOINT) fail_msg("%zu bytes: status %d", n, st);
        assert_null(file);
    }
}

T_CASE(reads_with_checksums) {
    T_UNUSED;
    enum { N = 300001 }; /* more than one chunk */
    char path[80];
    snprintf(path, sizeof path, "%s/big.safetensors", run_dir);
    uint8_t *data = malloc(N), *back = calloc(1, N);
    assert_true(data && back);
    for (size_t i = 0; i < N; i++) data[i] = (uint8_t)(i * i >> 3);
    tti_ckpt_tensor tensor = {"t", {TUTTI_U8, TUTTI_SHAPE(N)}, data};
    tti_safetensors *file;
    T_OK(tti_safetensors_write(path, &tensor, 1, &file));
    T_EQ(file->entries[0].crc, tti_crc32c(0, data, N));
    tti_safetensors_close(file);
    T_OK(tti_safetensors_open(path, &file));
    uint32_t crc = 0;
    T_OK(tti_safetensors_read(file, &file->entries[0], back, &crc));
    T_EQ(crc, tti_crc32c(0, data, N));
    assert_memory_equal(data, back, N);
    crc = 0;
    T_OK(tti_safetensors_read(file, &file->entries[0], NULL, &crc));
    T_EQ(crc, tti_crc32c(0, data, N));
    assert_int_equal(truncate(path, N), 0); /* while it is open: an error, no signal */
    T_FAILS(tti_safetensors_read(file, &file->entries[0], back, &crc), TUTTI_E_CHECKPOINT,
            "ends at");
    tti_safetensors_close(file);
    free(data);
    free(back);
}

T_CASE(only_regular_files) {
    T_UNUSED;
    char path[80], link_path[80];
    snprintf(path, sizeof path, "%s/fifo", run_dir);
    snprintf(link_path, sizeof link_path, "%s/link", run_dir);
    assert_int_equal(mkfifo(path, 0666), 0);
    assert_int_equal(symlink("/dev/zero", link_path), 0);
    tti_safetensors *file;
    T_FAILS(tti_safetensors_open(path, &file), TUTTI_E_CHECKPOINT, "not a regular file");
    T_FAILS(tti_safetensors_open(link_path, &file), TUTTI_E_CHECKPOINT,
            "cannot open: a symbolic link, which is not followed here");
    T_FAILS(tti_safetensors_open("/dev/zero", &file), TUTTI_E_CHECKPOINT, "not a regular file");
    T_FAILS(tti_safetensors_open(run_dir, &file), TUTTI_E_CHECKPOINT, "not a regular file");
    T_FAILS(tti_safetensors_open("/nonexistent", &file), TUTTI_E_CHECKPOINT, "No such file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_empty_file),
        cmocka_unit_test(one_tensor),
        cmocka_unit_test(any_order_in_the_header),
        cmocka_unit_test(refuses_bad_headers),
        cmocka_unit_test(refuses_bad_lengths),
        cmocka_unit_test(refuses_depth_and_long_names),
        cmocka_unit_test_setup_teardown(every_truncation_of_a_file, fresh_run, remove_run),
        cmocka_unit_test_setup_teardown(reads_with_checksums, fresh_run, remove_run),
        cmocka_unit_test_setup_teardown(only_regular_files, fresh_run, remove_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
