/* safetensors_write_test.c - the bytes are those of the reference writer, and others can read them.
 */
#include <sys/wait.h>

#include "base/crc32c.h"
#include "base/fault.h"
#include "ckpt/ckpt_fixture.h"

static char path[96];

static int set_up(void **state) {
    int failed = fresh_run(state);
    snprintf(path, sizeof path, "%s/a.safetensors", run_dir);
    return failed;
}

static void check_bytes(const void *expected, size_t n_expected) {
    size_t n_bytes;
    const uint8_t *bytes = read_whole(path, &n_bytes);
    T_EQ(n_bytes, n_expected);
    assert_memory_equal(bytes, expected, n_bytes);
}

T_CASE(exact_bytes) {
    T_UNUSED;
    float w[] = {1, 2};
    int64_t n = 3;
    uint8_t u = 9;
    uint16_t h = 0x3F80;
    tti_ckpt_tensor tensors[] = {
        {"u", {TUTTI_U8, {0}}, &u},
        {"w", {TUTTI_F32, TUTTI_SHAPE(1, 2)}, w},
        {"h", {TUTTI_BF16, TUTTI_SHAPE(1)}, &h},
        {"a\"", {TUTTI_F32, TUTTI_SHAPE(0)}, NULL},
        {"n", {TUTTI_I64, {0}}, &n},
    };
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"a\\\"\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[8,16]},"
        "\"h\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[16,18]},"
        "\"u\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[18,19]}}";
    uint8_t expected[1000];
    size_t n_header = (sizeof header - 1 + 7) / 8 * 8, at = 8;
    memset(expected, ' ', sizeof expected);
    for (int i = 0; i < 8; i++) expected[i] = (uint8_t)(n_header >> (8 * i));
    memcpy(expected + at, header, sizeof header - 1);
    at += n_header;
    memcpy(expected + at, &n, 8);
    memcpy(expected + at + 8, w, 8);
    memcpy(expected + at + 16, &h, 2);
    expected[at + 18] = u;
    tti_safetensors *file;
    T_OK(tti_safetensors_write(path, tensors, 5, &file));
    check_bytes(expected, at + 19);
    T_EQ(file->n_bytes, at + 19);
    T_EQ(file->n_header_bytes, at);
    T_EQ(file->crc, tti_crc32c(0, expected, at + 19));
    T_EQ(file->header_crc, tti_crc32c(0, expected, at));
    T_EQ(file->entries[2].crc, tti_crc32c(0, w, 8));
    T_EQ(file->entries[2].offset, at + 8);
    tti_safetensors_close(file);
}

T_CASE(no_tensors) {
    T_UNUSED;
    tti_safetensors *file;
    T_OK(tti_safetensors_write(path, NULL, 0, &file));
    tti_safetensors_close(file);
    T_OK(tti_safetensors_open(path, &file));
    T_EQ(file->n_entries, 0);
    T_EQ(file->n_bytes % 8, 0);
    tti_safetensors_close(file);
}

T_CASE(reads_back) {
    T_UNUSED;
    small_state s;
    state_init(&s, 4);
    tti_safetensors *file, *back;
    T_OK(tti_safetensors_write(path, s.params, 5, &file));
    T_OK(tti_safetensors_open(path, &back));
    T_EQ(back->n_entries, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(back->entries[i].name, file->entries[i].name);
        T_EQ(back->entries[i].offset, file->entries[i].offset);
        T_EQ(back->entries[i].type.dtype, file->entries[i].type.dtype);
        uint32_t crc;
        T_OK(tti_safetensors_read(back, &back->entries[i], NULL, &crc));
        T_EQ(crc, file->entries[i].crc);
    }
    tti_safetensors_close(file);
    tti_safetensors_close(back);
}

T_CASE(refuses) {
    T_UNUSED;
    float x = 0;
    tti_safetensors *file;
    tti_ckpt_tensor twice[] = {{"a", {TUTTI_F32, {0}}, &x}, {"a", {TUTTI_F64, {0}}, NULL}};
    T_FAILS(tti_safetensors_write(path, twice, 2, &file), TUTTI_E_INVALID,
            "two tensors are named 'a'");
    static const char *const names[] = {"", "\x01", "\xC3", "__metadata__"};
    for (size_t i = 0; i < 4; i++) {
        tti_ckpt_tensor bad = {names[i], {TUTTI_F32, {0}}, &x};
        if (tti_safetensors_write(path, &bad, 1, &file) == TUTTI_OK) fail_msg("name %zu", i);
    }
    tti_ckpt_tensor huge = {"h", {TUTTI_F32, TUTTI_SHAPE(1ll << 40, 1ll << 30)}, &x};
    T_FAILS(tti_safetensors_write(path, &huge, 1, &file), TUTTI_E_CHECKPOINT, "too many elements");
    tti_ckpt_tensor dtype = {"d", {(tutti_dtype)99, {0}}, &x};
    T_FAILS(tti_safetensors_write(path, &dtype, 1, &file), TUTTI_E_CHECKPOINT, "no such dtype");
    T_OK(tti_fault_set("file.write:fail=ENOSPC@2"));
    T_FAILS(tti_safetensors_write(path, twice, 1, &file), TUTTI_E_IO, "bytes needed");
    T_OK(tti_fault_set(NULL));
    assert_null(file);
    T_EQ(rmdir(run_dir), 0); /* nothing was left */
    T_EQ(mkdir(run_dir, 0777), 0);
}

/* An independent reader: Python, its struct and its json. */
static const char script[] =
    "import json, struct, sys\n"
    "f = open(sys.argv[1], 'rb').read()\n"
    "n, = struct.unpack('<Q', f[:8])\n"
    "h = json.loads(f[8:8 + n])\n"
    "assert n % 8 == 0 and h.pop('__metadata__') == {'format': 'pt'}\n"
    "data, w = f[8 + n:], h['fc1.weight']\n"
    "assert sorted(h) == ['empty', 'fc1.bias', 'fc1.weight', 'half', 'mask']\n"
    "assert max(t['data_offsets'][1] for t in h.values()) == len(data)\n"
    "b, e = w['data_offsets']\n"
    "assert w['shape'] == [2, 3] and w['dtype'] == 'F32' and (8 + n + b) % 4 == 0\n"
    "assert struct.unpack('<6f', data[b:e]) == tuple(4 + 0.25 * i for i in range(6))\n";

T_CASE(python_reads_it) {
    T_UNUSED;
    small_state s;
    state_init(&s, 4);
    tti_safetensors *file;
    T_OK(tti_safetensors_write(path, s.params, 5, &file));
    tti_safetensors_close(file);
    pid_t pid = fork();
    if (pid == 0) {
        execlp("python3", "python3", "-c", script, path, (char *)NULL);
        _exit(77);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();
    T_EQ(status, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, remove_run)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(exact_bytes), CASE(no_tensors), CASE(reads_back), CASE(refuses), CASE(python_reads_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
