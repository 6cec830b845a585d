/* ckpt_describe_test.c - files, checkpoints and runs as text; damage is a failure. */
#include "tutti/ckpt.h"

#include "ckpt/ckpt_fixture.h"

static char path[256];

static const char *at(const char *name) {
    snprintf(path, sizeof path, "%s", in_checkpoints(name));
    return path;
}

static void check_describes(const char *what, const char *first, const char *second) {
    char *text;
    T_OK(tutti_ckpt_describe(what, &text));
    if (!strstr(text, first)) fail_msg("no '%s' in: %s", first, text);
    if (!strstr(text, second)) fail_msg("no '%s' in: %s", second, text);
    free(text);
}

static int saved_run(void **state) {
    if (fresh_run_in_memory(state) || state_save(1) != TUTTI_OK) return -1;
    return state_save(2) == TUTTI_OK ? 0 : -1;
}

T_CASE(good_ones) {
    T_UNUSED;
    check_describes(at("step-000000001/model.safetensors"), "model.safetensors: 5 tensors, ",
                    "F32 [2,3]  24 bytes, CRC-32C ");
    check_describes(at("step-000000001"), "good, every checksum compared\nstep 1, epoch 3, ",
                    "state.fc1.weight.exp_avg");
    check_describes(run_dir, "step-000000002: good\nstep-000000001: good\n", "\nstep 2, epoch 3");
}

T_CASE(damaged_ones) {
    T_UNUSED;
    size_t n_bytes;
    const char *model = at("step-000000002/model.safetensors");
    uint8_t *bytes = read_whole(model, &n_bytes);
    bytes[n_bytes - 1] ^= 1;
    write_whole(model, bytes, n_bytes);
    check_describes(run_dir, "model.safetensors: tensor 'mask' at bytes", "\nstep 1, epoch 3");
    char *text;
    T_FAILS(tutti_ckpt_describe(at("step-000000002"), &text), TUTTI_E_CHECKPOINT, "tensor 'mask'");
    assert_null(text);
    T_EQ(unlink(at("step-000000001/manifest.json")), 0);
    T_FAILS(tutti_ckpt_describe(run_dir, &text), TUTTI_E_CHECKPOINT, "no good checkpoint");
    T_FAILS(tutti_ckpt_describe("/nonexistent", &text), TUTTI_E_CHECKPOINT,
            "/nonexistent: No such file");
    T_FAILS(tutti_ckpt_describe("/dev/null", &text), TUTTI_E_CHECKPOINT, "not a regular file");
    T_FAILS(tutti_ckpt_describe("/", &text), TUTTI_E_CHECKPOINT, "no good checkpoint");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, saved_run, remove_run)

int main(void) {
    const struct CMUnitTest tests[] = {CASE(good_ones), CASE(damaged_ones)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
