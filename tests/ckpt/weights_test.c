/* weights_test.c - folders of weights: one file, several with an index, and what is no folder of
 * weights. */
#include "ckpt/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dtype.h"
#include "t.h"

static float a[6] = {1, 2, 3, 4, 5, 6}, b[2] = {-1, -2}, c[4] = {7, 8, 9, 10};
static uint16_t half[2];
static int64_t counter = 5;

static const tti_ckpt_tensor tensors[] = {
    {"z.weight", {TUTTI_F32, {2, {2, 3}}}, a}, {"b", {TUTTI_F32, {1, {2}}}, b},
    {"c", {TUTTI_F32, {2, {4, 1}}}, c},        {"half", {TUTTI_BF16, {1, {2}}}, half},
    {"counter", {TUTTI_I64, {0}}, &counter},
};
enum { N = sizeof tensors / sizeof tensors[0] };

static int enter(void **state) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/tutti-weights-XXXXXX");
    *state = path;
    half[0] = tti_f32_to_bf16(0.5f);
    half[1] = tti_f32_to_bf16(-3);
    return mkdtemp(path) && chdir(path) == 0 && mkdir("w", 0777) == 0 ? 0 : -1;
}

static int leave(void **state) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", (char *)*state);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static void save_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
}

static void expect_all(const char *path) {
    tti_weights *w;
    float got[6];
    T_OK(tti_weights_open(path, &w));
    T_EQ(tti_weights_n(w), N);
    int64_t at = tti_weights_find(w, "z.weight");
    assert_true(at >= 0);
    T_EQ(tti_weights_at(w, (size_t)at)->type.shape.dim[1], 3);
    T_OK(tti_weights_read(w, (size_t)at, got));
    assert_memory_equal(got, a, sizeof a);
    T_OK(tti_weights_read(w, (size_t)tti_weights_find(w, "half"), got));
    assert_true(got[0] == 0.5f && got[1] == -3);
    T_FAILS(tti_weights_read(w, (size_t)tti_weights_find(w, "counter"), got), TUTTI_E_CHECKPOINT,
            "has the dtype I64");
    T_EQ(tti_weights_find(w, "weight"), -1);
    tti_weights_close(w);
}

T_CASE(one_file) {
    T_UNUSED;
    tti_weights_written done;
    T_OK(tti_weights_write("w", tensors, N, 0, &done));
    T_EQ(done.n_files, 1);
    T_EQ(done.n_bytes, 24 + 8 + 16 + 4 + 8);
    T_EQ(access("w/model.safetensors.index.json", F_OK), -1);
    expect_all("w");
    expect_all("w/model.safetensors");
    T_EQ(symlink("w/model.safetensors", "link.safetensors"), 0);
    expect_all("link.safetensors");
}

T_CASE(several_files) {
    T_UNUSED;
    tti_weights_written done;
    T_OK(tti_weights_write("w", tensors, N, 25, &done));
    T_EQ(done.n_files, 3); /* 24 | 8 + 16 | 4 + 8 */
    T_EQ(access("w/model-00003-of-00003.safetensors", F_OK), 0);
    expect_all("w");
    tti_weights *w;
    T_EQ(system("cp w/model-00001-of-00003.safetensors w/model.safetensors"), 0);
    T_FAILS(tti_weights_open("w", &w), TUTTI_E_CHECKPOINT,
            "w: has both model.safetensors and model.safetensors.index.json");
    T_EQ(unlink("w/model.safetensors"), 0);
    T_EQ(unlink("w/model-00002-of-00003.safetensors"), 0);
    T_FAILS(tti_weights_open("w", &w), TUTTI_E_CHECKPOINT, "model-00002-of-00003");
    assert_null(w);
}

T_CASE(bad_indices) {
    T_UNUSED;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"[]", "not a JSON object"},
        {"{}", "weight_map"},
        {"{\"weight_map\":{\"b\":1}}", "not the name of a file"},
        {"{\"weight_map\":{\"b\":\"../w/model.safetensors\"}}", "of this folder"},
        {"{\"weight_map\":{\"b\":\"/etc/passwd\"}}", "of this folder"},
        {"{\"weight_map\":{\"nobody\":\"model.safetensors\"}}", "'nobody' is not in"},
        {"{\"weight_map\":{\"b\":\"model.safetensors\",\"c\":\"copy.safetensors\"}}",
         "is in two files"},
    };
    tti_weights_written done;
    tti_weights *w;
    T_OK(tti_weights_write("w", tensors, N, 0, &done));
    T_EQ(system("cp w/model.safetensors w/copy.safetensors"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        save_text("w/model.safetensors.index.json", cases[i].text);
        T_FAILS(tti_weights_open("w", &w), TUTTI_E_CHECKPOINT, cases[i].message);
        assert_null(w);
    }
}

T_CASE(no_weights) {
    T_UNUSED;
    tti_weights *w;
    T_FAILS(tti_weights_open("w", &w), TUTTI_E_CHECKPOINT, "has neither");
    T_FAILS(tti_weights_open("nothing", &w), TUTTI_E_CHECKPOINT, "nothing");
    T_FAILS(tti_weights_open("", &w), TUTTI_E_INVALID, "the path is empty");
    save_text("w/model.safetensors", "no header");
    T_FAILS(tti_weights_open("w", &w), TUTTI_E_CHECKPOINT, "model.safetensors");
}

T_CASE(config_of_the_folder) {
    T_UNUSED;
    tti_weights_written done;
    tti_weights *w;
    json_t *root;
    T_OK(tti_weights_write("w", tensors, N, 0, &done));
    T_OK(tti_weights_open("w", &w));
    T_OK(tti_weights_config(w, &root));
    assert_null(root);
    save_text("w/config.json", "{\"n_head\": 4, \"eps\": 1e-5}");
    T_OK(tti_weights_config(w, &root));
    T_EQ(json_integer_value(json_object_get(root, "n_head")), 4);
    json_decref(root);
    save_text("w/config.json", "{");
    T_FAILS(tti_weights_config(w, &root), TUTTI_E_CHECKPOINT, "config.json");
    T_EQ(unlink("w/config.json"), 0);
    T_EQ(symlink("nowhere", "w/config.json"), 0); /* a lost file is not an absent one */
    T_FAILS(tti_weights_config(w, &root), TUTTI_E_CHECKPOINT, "config.json");
    T_EQ(unlink("w/config.json"), 0);
    T_EQ(mkfifo("w/config.json", 0600), 0);
    T_FAILS(tti_weights_config(w, &root), TUTTI_E_CHECKPOINT, "not a regular file");
    tti_weights_close(w);
}

/* A safetensors file of this header and n_bytes of zeros. */
static void save_safetensors(const char *path, const char *header, size_t n_bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    uint64_t n = strlen(header);
    fwrite(&n, 8, 1, file);
    fwrite(header, n, 1, file);
    for (size_t i = 0; i < n_bytes; i++) fputc(0, file);
    fclose(file);
}

/* As safetensors.torch.save_model writes tied tensors. */
T_CASE(aliases_in_metadata) {
    T_UNUSED;
    tti_weights *w;
    save_safetensors("a.safetensors",
                     "{\"__metadata__\":{\"format\":\"pt\",\"wte\":\"head\",\"x\":\"gone\"},"
                     "\"head\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
                     8);
    T_OK(tti_weights_open("a.safetensors", &w));
    T_EQ(tti_weights_n(w), 1);
    T_EQ(tti_weights_find(w, "head"), 0);
    T_EQ(tti_weights_find(w, "wte"), 0);
    T_EQ(tti_weights_find(w, "x"), -1);
    T_EQ(tti_weights_find(w, "format"), -1);
    tti_weights_close(w);
}

/* A file opens although it has tensors of unsupported types, as long as they are not read. */
T_CASE(numbers_beyond_floats) {
    T_UNUSED;
    static double wide[3] = {0.5, -1e300, 1e-300};
    static const tti_ckpt_tensor tensor = {"wide", {TUTTI_F64, {1, {3}}}, wide};
    tti_weights *w;
    float got[3];
    tti_weights_written done;
    T_OK(tti_weights_write("w", &tensor, 1, 0, &done));
    T_OK(tti_weights_open("w", &w));
    T_FAILS(tti_weights_read(w, 0, got), TUTTI_E_CHECKPOINT,
            "tensor 'wide': element 1, -1e+300, is too large for the 32-bit floats of the model");
    tti_weights_close(w);
}

T_CASE(foreign_dtypes) {
    T_UNUSED;
    tti_weights *w;
    float x[8];
    save_safetensors("f.safetensors",
                     "{\"c\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                     "\"f4\":{\"dtype\":\"F4\",\"shape\":[2,2],\"data_offsets\":[8,10]},"
                     "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[1,4],\"data_offsets\":[10,14]},"
                     "\"w\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[14,18]}}",
                     18);
    T_OK(tti_weights_open("f.safetensors", &w));
    T_OK(tti_weights_read(w, (size_t)tti_weights_find(w, "w"), x));
    T_FAILS(tti_weights_read(w, (size_t)tti_weights_find(w, "mask"), x), TUTTI_E_CHECKPOINT,
            "tensor 'mask' has the dtype BOOL");
    tti_weights_close(w);
    save_safetensors("f.safetensors",
                     "{\"f4\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2);
    T_FAILS(tti_weights_open("f.safetensors", &w), TUTTI_E_CHECKPOINT, "whole bytes");
    save_safetensors("f.safetensors",
                     "{\"q\":{\"dtype\":\"Q4_K\",\"shape\":[4],\"data_offsets\":[0,2]}}", 2);
    T_FAILS(tti_weights_open("f.safetensors", &w), TUTTI_E_CHECKPOINT, "tensor 'q': its dtype");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(one_file),       CASE(several_files),        CASE(bad_indices),
        CASE(no_weights),     CASE(config_of_the_folder), CASE(aliases_in_metadata),
        CASE(foreign_dtypes), CASE(numbers_beyond_floats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
