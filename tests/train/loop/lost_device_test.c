/* lost_device_test.c - the message for a failed device: existing checkpoints, and one being
 * written.  tests/cli/device_train_test.py loses devices of the program. */
#include "train/loop/lost_device.h"

#include "base/error.h"
#include "base/fault.h"
#include "ckpt/ckpt.h"
#include "train/small_job.h"
#include "tutti/train.h"

static const char none[] =
    "There is no checkpoint yet, so the run starts again: tutti train --resume";

/* The failure's text after the advice. */
static const char *advise(int64_t saving) {
    (void)tti_fail(TUTTI_E_DEVICE, "it burns");
    tti_lost_device_advise("run", "run", true, saving, TUTTI_E_DEVICE);
    const char *text = tutti_last_error();
    assert_non_null(strstr(text, "it burns.  The"));
    return text;
}

static void has(const char *text, const char *part, bool wanted) {
    if ((strstr(text, part) != NULL) != wanted)
        fail_msg("'%s' is %s in '%s'", part, wanted ? "not" : "there", text);
}

T_CASE(which_checkpoint_is_good) {
    T_UNUSED;
    has(advise(-1), none, true);
    has(advise(4),
        "The checkpoint of step 4 was still being written: the run continues from it if it is "
        "complete, else it starts again: tutti train --resume run",
        true);
    tutti_train_result result;
    tutti_job *job = SMALL_JOB("run.dir=run", "train.steps=4", "parallel.devices=cpu");
    T_OK(tutti_train(job, NULL, &result));
    tutti_job_destroy(job);
    for (int64_t saving = -1; saving <= 4; saving += 5) {
        has(advise(saving), "The checkpoint of step 4 is good: tutti train --resume run", true);
        has(advise(saving), "being written", false);
    }
    has(advise(8), "step 8 was still being written: the run continues from it", true);
    has(advise(8), "else from that of step 4: tutti train --resume run", true);
    (void)tti_fail(TUTTI_E_DATA, "no samples");
    tti_lost_device_advise("run", "run", true, 8, TUTTI_E_DATA);
    assert_string_equal(tutti_last_error(), "no samples");
}

T_CASE(the_same_bits_are_promised_in_exact_mode_alone) {
    T_UNUSED;
    has(advise(-1), "--resume run gives the same bits.  If", true);
    (void)tti_fail(TUTTI_E_DEVICE, "it burns");
    tti_lost_device_advise("run", "run", false, -1, TUTTI_E_DEVICE);
    has(tutti_last_error(), "--resume run.  If", true);
}

/* Worker 1 loses its device in the step after the checkpoint, which worker 0 takes long to write:
 * on a machine that is not very busy there is none when it looks. */
T_CASE(lost_after_a_checkpoint_on_its_way) {
    T_UNUSED;
    int64_t *steps;
    size_t n_steps;
    tutti_train_result result;
    T_EQ(setenv("TUTTI_TEST_DEVICE", "devices=2,lost=5,on=1", 1), 0);
    tutti_job *job = SMALL_JOB("run.dir=run", "parallel.workers=2", "parallel.devices=0,1",
                               "run.checkpoint_every=4", "optimizer.name=sgd");
    T_OK(tti_fault_set("ckpt.rename:delay_ms=300"));
    tutti_status st = tutti_train(job, NULL, &result);
    T_OK(tti_fault_set(NULL));
    T_EQ(unsetenv("TUTTI_TEST_DEVICE"), 0);
    tutti_job_destroy(job);
    T_EQ(st, TUTTI_E_DEVICE);
    has(tutti_last_error(), "The checkpoint of step 4 ", true); /* being written, or good by now */
    has(tutti_last_error(), "There is no checkpoint yet", false);
    T_OK(tti_ckpt_list("run", &steps, &n_steps)); /* and then there it is */
    T_EQ(n_steps, 1);
    T_EQ(steps[0], 4);
    free(steps);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(which_checkpoint_is_good),
                                       IN_FOLDER(the_same_bits_are_promised_in_exact_mode_alone),
                                       IN_FOLDER(lost_after_a_checkpoint_on_its_way)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
