/* ckpt_find_test.c - finds the newest valid checkpoint, and reports those that were skipped. */
#include "base/fault.h"
#include "ckpt/ckpt_fixture.h"

static struct {
    int n;
    char text[2][400];
} warnings;

static void warn(void *user, const char *text) {
    assert_ptr_equal(user, &warnings);
    snprintf(warnings.text[warnings.n % 2], sizeof warnings.text[0], "%s", text);
    warnings.n++;
}

static int saved_run(void **state) {
    warnings.n = 0;
    if (fresh_run_in_memory(state)) return -1;
    for (int64_t step = 1; step <= 3; step++) {
        small_state s;
        state_init(&s, step);
        tti_ckpt_save_desc desc = state_desc(&s);
        desc.keep = 3;
        if (tti_ckpt_save(&desc) != TUTTI_OK) return -1;
    }
    return 0;
}

static void damage(const char *name) {
    size_t n_bytes;
    uint8_t *bytes = read_whole(in_checkpoints(name), &n_bytes);
    bytes[n_bytes / 2] ^= 4;
    write_whole(in_checkpoints(name), bytes, n_bytes);
}

static int64_t newest(void) {
    tti_ckpt *ckpt;
    T_OK(tti_ckpt_open(run_dir, warn, &warnings, &ckpt));
    int64_t step = tti_ckpt_get_meta(ckpt)->step;
    assert_non_null(strstr(tti_ckpt_dir(ckpt), "/checkpoints/step-00000000"));
    tti_ckpt_close(ckpt);
    return step;
}

T_CASE(falls_back) {
    T_UNUSED;
    T_EQ(newest(), 3);
    T_EQ(warnings.n, 0);
    damage("step-000000003/model.safetensors");
    T_EQ(newest(), 2);
    T_EQ(warnings.n, 1);
    assert_non_null(strstr(warnings.text[0], "skipped: "));
    assert_non_null(strstr(warnings.text[0], "step-000000003/model.safetensors: "));
    damage("step-000000002/manifest.json");
    warnings.n = 0;
    T_EQ(newest(), 1);
    T_EQ(warnings.n, 2);
    assert_non_null(strstr(warnings.text[1], "step-000000002/manifest.json: manifest: damaged"));
    unlink(in_checkpoints("step-000000001/optimizer.safetensors"));
    tti_ckpt *ckpt;
    T_FAILS(tti_ckpt_open(run_dir, NULL, NULL, &ckpt), TUTTI_E_CHECKPOINT,
            "none of its 3 checkpoints is good; the newest: ");
    assert_non_null(strstr(tutti_last_error(), "step-000000003/model.safetensors"));
    assert_null(ckpt);
}

T_CASE(reading_errors_fall_back_too) {
    T_UNUSED;
    T_OK(tti_fault_set("ckpt.read:fail@1"));
    T_EQ(newest(), 2);
    T_OK(tti_fault_set("ckpt.open:fail=EMFILE@2"));
    T_EQ(newest(), 2);
    T_OK(tti_fault_set(NULL));
    assert_non_null(strstr(warnings.text[1], "Too many open files"));
}

T_CASE(lists_newest_first_and_only_checkpoints) {
    T_UNUSED;
    static const char *const others[] = {"step-000000009.tmp",
                                         "step-",
                                         "step-x",
                                         "step-1x",
                                         "latest",
                                         "notes.tmp",
                                         "step-9.tmp",
                                         "removed-x.tmp",
                                         "step-12345678901234567",
                                         "removed-step-000000001.tmp"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_equal(mkdir(in_checkpoints(others[i]), 0777), 0);
    assert_int_equal(mkdir(in_checkpoints("step-12"), 0777), 0);
    int64_t *steps;
    size_t n;
    T_OK(tti_ckpt_list(run_dir, &steps, &n));
    T_EQ(n, 4);
    for (size_t i = 0; i < 4; i++) T_EQ(steps[i], ((int64_t[]){12, 3, 2, 1})[i]);
    free(steps);
    T_EQ(newest(), 3);   /* step-12 is empty */
    T_OK(state_save(4)); /* leftovers go, and what only looks like them stays */
    assert_int_not_equal(access(in_checkpoints("step-000000009.tmp"), F_OK), 0);
    assert_int_not_equal(access(in_checkpoints("removed-step-000000001.tmp"), F_OK), 0);
    for (size_t i = 1; i + 1 < sizeof others / sizeof others[0]; i++)
        assert_int_equal(access(in_checkpoints(others[i]), F_OK), 0);
}

/* A link in the place of the folder is refused, and what it points to stays as it is. */
T_CASE(never_saves_through_a_link) {
    T_UNUSED;
    char folder[256], aside[256], stray[300];
    snprintf(folder, sizeof folder, "%s/checkpoints", run_dir);
    snprintf(aside, sizeof aside, "%s/elsewhere", run_dir);
    snprintf(stray, sizeof stray, "%s/step-000000009.tmp", aside);
    T_EQ(rename(folder, aside), 0);
    T_EQ(mkdir(stray, 0777), 0);
    T_EQ(symlink("elsewhere", folder), 0);
    T_FAILS(state_save(4), TUTTI_E_CHECKPOINT, "checkpoints: is a symbolic link");
    T_EQ(access(stray, F_OK), 0);
    T_EQ(newest(), 3); /* reading may follow */
    T_EQ(unlink(folder), 0);
    T_OK(state_save(4));
}

T_CASE(no_checkpoint) {
    T_UNUSED;
    tti_ckpt *ckpt;
    int64_t *steps;
    size_t n;
    T_FAILS(tti_ckpt_open("/nonexistent", NULL, NULL, &ckpt), TUTTI_E_CHECKPOINT,
            "/nonexistent: no checkpoint");
    T_OK(tti_ckpt_list("/nonexistent", &steps, &n));
    T_EQ(n, 0);
    assert_null(steps);
    T_FAILS(tti_ckpt_list("/dev/null", &steps, &n), TUTTI_E_CHECKPOINT, "Not a directory");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, saved_run, remove_run)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(falls_back),
        CASE(reading_errors_fall_back_too),
        CASE(never_saves_through_a_link),
        CASE(lists_newest_first_and_only_checkpoints),
        CASE(no_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
