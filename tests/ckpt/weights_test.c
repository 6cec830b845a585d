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
            "not floats");
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
    T_EQ(unlink("w/model-00002-of-00003.safetensors"), 0);
    tti_weights *w;
    T_FAILS(tti_weights_open("w", &w), TUTTI_E_IO, "model-00002-of-00003");
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
    T_FAILS(tti_weights_open("nothing", &w), TUTTI_E_IO, "nothing");
    T_FAILS(tti_weights_open("", &w), TUTTI_E_INVALID, "no path");
    save_text("w/model.safetensors", "no header");
    T_FAILS(tti_weights_open("w", &w), TUTTI_E_CHECKPOINT, "model.safetensors");
}

T_CASE(numbers_of_config) {
    T_UNUSED;
    tti_weights_written done;
    tti_weights *w;
    int64_t n;
    bool is_so;
    T_OK(tti_weights_write("w", tensors, N, 0, &done));
    T_OK(tti_weights_open("w", &w));
    T_OK(tti_weights_config_int(w, "n_head", 12, &n));
    T_EQ(n, 12);
    save_text("w/config.json", "{\"n_head\": 4, \"eps\": 1e-5}");
    T_OK(tti_weights_config_int(w, "n_head", 12, &n));
    T_EQ(n, 4);
    T_OK(tti_weights_config_int(w, "eps", 9, &n));
    T_EQ(n, 9);
    save_text("w/config.json", "{");
    T_FAILS(tti_weights_config_int(w, "n_head", 12, &n), TUTTI_E_CHECKPOINT, "config.json");
    T_FAILS(tti_weights_config_bool(w, "v1", false, &is_so), TUTTI_E_CHECKPOINT, "config.json");
    save_text("w/config.json", "{\"v1\": true, \"v2\": false, \"v3\": 1}");
    T_OK(tti_weights_config_bool(w, "v1", false, &is_so));
    T_EQ(is_so, true);
    T_OK(tti_weights_config_bool(w, "v2", true, &is_so));
    T_EQ(is_so, false);
    for (int i = 0; i < 2; i++) { /* a number is no truth value */
        T_OK(tti_weights_config_bool(w, i ? "v3" : "v4", true, &is_so));
        T_EQ(is_so, true);
    }
    tti_weights_close(w);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void) {
    const struct CMUnitTest tests[] = {CASE(one_file), CASE(several_files), CASE(bad_indices),
                                       CASE(no_weights), CASE(numbers_of_config)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
