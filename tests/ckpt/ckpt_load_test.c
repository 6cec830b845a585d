/* ckpt_load_test.c - every flipped bit and every truncation is found and placed; checkpoints of
 * another model are distinguished by tensor. */
#include "ckpt/ckpt_fixture.h"
#include "ckpt/manifest.h"

static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "manifest.json"};

static const char *in_step(const char *file) {
    char name[64];
    snprintf(name, sizeof name, "step-000000005/%s", file);
    return in_checkpoints(name);
}

static tutti_status open_step(void) {
    tti_ckpt *ckpt;
    char dir[256];
    snprintf(dir, sizeof dir, "%s", in_checkpoints("step-000000005"));
    tutti_status st = tti_ckpt_open_dir(dir, true, &ckpt);
    if (st != TUTTI_OK) assert_null(ckpt);
    tti_ckpt_close(ckpt);
    return st;
}

static int saved_run(void **state) {
    return fresh_run_in_memory(state) == 0 && state_save(5) == TUTTI_OK ? 0 : -1;
}

/* Every bit of every file, one at a time. */
T_CASE(every_flipped_bit) {
    T_UNUSED;
    for (size_t f = 0; f < 3; f++) {
        size_t n_bytes;
        uint8_t *bytes = read_whole(in_step(files[f]), &n_bytes);
        int fd = open(in_step(files[f]), O_WRONLY);
        assert_true(fd >= 0);
        for (size_t bit = 0; bit < 8 * n_bytes; bit++) {
            uint8_t flipped = (uint8_t)(bytes[bit / 8] ^ 1 << bit % 8);
            T_EQ(pwrite(fd, &flipped, 1, (off_t)(bit / 8)), 1);
            tutti_status st = open_step();
            if (st != TUTTI_E_CHECKPOINT) fail_msg("%s: bit %zu: status %d", files[f], bit, st);
            if (!strstr(tutti_last_error(), files[f])) fail_msg("%s", tutti_last_error());
            T_EQ(pwrite(fd, &bytes[bit / 8], 1, (off_t)(bit / 8)), 1);
        }
        close(fd);
    }
    T_OK(open_step());
}

T_CASE(every_truncation_and_a_trailing_byte) {
    T_UNUSED;
    for (size_t f = 0; f < 3; f++) {
        size_t n_bytes;
        const uint8_t *bytes = read_whole(in_step(files[f]), &n_bytes);
        for (size_t n = 0; n < n_bytes; n++) {
            write_whole(in_step(files[f]), bytes, n);
            T_FAILS(open_step(), TUTTI_E_CHECKPOINT, files[f]);
        }
        uint8_t longer[1 << 14];
        assert_true(n_bytes < sizeof longer);
        memcpy(longer, bytes, n_bytes);
        longer[n_bytes] = ' ';
        write_whole(in_step(files[f]), longer, n_bytes + 1);
        T_FAILS(open_step(), TUTTI_E_CHECKPOINT, files[f]);
        write_whole(in_step(files[f]), longer, n_bytes);
        T_OK(open_step());
    }
}

T_CASE(messages_name_place_and_checksums) {
    T_UNUSED;
    size_t n_bytes;
    uint8_t *bytes = read_whole(in_step(files[0]), &n_bytes);
    bytes[n_bytes - 1] ^= 0x10; /* the last byte of "mask" */
    write_whole(in_step(files[0]), bytes, n_bytes);
    T_FAILS(open_step(), TUTTI_E_CHECKPOINT, "model.safetensors: tensor 'mask' at bytes ");
    assert_non_null(strstr(tutti_last_error(), " found, "));
    assert_non_null(strstr(tutti_last_error(), " expected"));
    bytes[n_bytes - 1] ^= 0x10;
    bytes[20] ^= 1;
    write_whole(in_step(files[0]), bytes, n_bytes);
    T_FAILS(open_step(), TUTTI_E_CHECKPOINT, "the header, from byte 0: CRC-32C ");
    bytes[20] ^= 1;
    write_whole(in_step(files[0]), bytes, n_bytes - 3);
    T_FAILS(open_step(), TUTTI_E_CHECKPOINT, "(truncated)");
    unlink(in_step(files[0]));
    T_FAILS(open_step(), TUTTI_E_CHECKPOINT, "model.safetensors: cannot open: No such file");
    unlink(in_step("manifest.json"));
    T_FAILS(open_step(), TUTTI_E_CHECKPOINT, "manifest.json: cannot open: No such file");
}

T_CASE(a_folder_of_another_step) {
    T_UNUSED;
    char to[256];
    snprintf(to, sizeof to, "%s", in_checkpoints("step-000000006"));
    assert_int_equal(rename(in_checkpoints("step-000000005"), to), 0);
    tti_ckpt *ckpt;
    T_FAILS(tti_ckpt_open_dir(to, true, &ckpt), TUTTI_E_CHECKPOINT, "is of step 5");
}

/* A file that is whole but does not belong to this manifest. */
T_CASE(files_of_another_checkpoint) {
    T_UNUSED;
    T_OK(state_save(6));
    size_t n_bytes;
    const uint8_t *bytes = read_whole(in_checkpoints("step-000000006/model.safetensors"), &n_bytes);
    write_whole(in_step(files[0]), bytes, n_bytes);
    T_FAILS(open_step(), TUTTI_E_CHECKPOINT, "model.safetensors: tensor ");
}

T_CASE(damage_between_open_and_read) {
    T_UNUSED;
    tti_ckpt *ckpt;
    T_OK(tti_ckpt_open(run_dir, NULL, NULL, &ckpt));
    size_t n_bytes;
    const uint8_t *bytes = read_whole(in_step(files[0]), &n_bytes);
    uint8_t flipped = bytes[n_bytes - 1] ^ 1;
    int fd = open(in_step(files[0]), O_WRONLY);
    T_EQ(pwrite(fd, &flipped, 1, (off_t)n_bytes - 1), 1);
    close(fd);
    small_state s;
    state_init(&s, 0);
    T_FAILS(tti_ckpt_read(ckpt, TTI_CKPT_MODEL, s.params, 5), TUTTI_E_CHECKPOINT, "tensor 'mask'");
    tti_ckpt_close(ckpt);
}

T_CASE(another_model) {
    T_UNUSED;
    tti_ckpt *ckpt;
    T_OK(tti_ckpt_open(run_dir, NULL, NULL, &ckpt));
    small_state s, untouched;
    state_init(&s, 0);
    state_init(&untouched, 0);
    tti_ckpt_tensor wanted[] = {
        {"fc1.bias", {TUTTI_F32, TUTTI_SHAPE(3)}, s.bias},
        {"fc1.weight", {TUTTI_F32, TUTTI_SHAPE(3, 2)}, s.weight},
        {"fc2.weight", {TUTTI_F32, TUTTI_SHAPE(1)}, s.exp_avg},
        {"mask", {TUTTI_U8, TUTTI_SHAPE(5, 1)}, s.mask},
        {"half", {TUTTI_F16, TUTTI_SHAPE(1, 2)}, s.half},
    };
    T_FAILS(tti_ckpt_read(ckpt, TTI_CKPT_MODEL, wanted, 5), TUTTI_E_CHECKPOINT,
            "is of another model: 5 tensors differ\n"
            "  empty: not wanted, F32 [0,4] in the checkpoint\n"
            "  fc1.weight: F32 [3,2] wanted, F32 [2,3] in the checkpoint\n"
            "  fc2.weight: F32 [1] wanted, not in the checkpoint\n"
            "  half: F16 [1,2] wanted, BF16 [1,2] in the checkpoint\n"
            "  mask: U8 [5,1] wanted, U8 [5] in the checkpoint");
    assert_memory_equal(s.bias, untouched.bias, sizeof s.bias);
    T_FAILS(tti_ckpt_read(ckpt, TTI_CKPT_MODEL, NULL, 0), TUTTI_E_CHECKPOINT, "5 tensors differ");
    tti_ckpt_tensor many[30];
    char names[30][8];
    for (int i = 0; i < 30; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i % 29);
        many[i] = (tti_ckpt_tensor){names[i], {TUTTI_F32, {0}}, s.bias};
    }
    T_FAILS(tti_ckpt_read(ckpt, TTI_CKPT_MODEL, many, 30), TUTTI_E_CHECKPOINT, "35 tensors differ");
    assert_non_null(strstr(tutti_last_error(), "\n  ..."));
    tti_ckpt_close(ckpt);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, saved_run, remove_run)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(every_flipped_bit),
        CASE(every_truncation_and_a_trailing_byte),
        CASE(messages_name_place_and_checksums),
        CASE(a_folder_of_another_step),
        CASE(files_of_another_checkpoint),
        CASE(damage_between_open_and_read),
        CASE(another_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
