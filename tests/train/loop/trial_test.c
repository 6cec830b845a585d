/* trial_test.c - a job's training for a moment: figures, the job as it was, nothing left behind. */
#include "train/loop/trial.h"

#include <dirent.h>

#include "train/small_job.h"

/* Entries of the current folder, which is also where trials have their folders. */
static int n_entries(void) {
    int n = 0;
    DIR *folder = opendir(".");
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) n += e->d_name[0] != '.';
    closedir(folder);
    return n;
}

static tutti_status try_here(tutti_job *job, tti_trial *out) {
    setenv("TMPDIR", ".", 1);
    tutti_status st = tti_trial_run(job, 30, out);
    unsetenv("TMPDIR");
    T_EQ(n_entries(), 0);
    return st;
}

T_CASE(figures_of_a_moment) {
    T_UNUSED;
    static const char *const requested[] = {"parallel.workers=1", "parallel.workers=2"};
    for (int i = 0; i < 2; i++) {
        /* Samples are drawn in the step, so training must wait for them. */
        tutti_job *job = SMALL_JOB(requested[i], "data.threads=0", "run.dir=mine",
                                   "parallel.place=processes", "data.n_train=20000");
        tti_trial trial = {0};
        T_OK(try_here(job, &trial));
        T_EQ(trial.n_workers, i + 1);
        assert_true(trial.per_s > 0);
        assert_true(trial.wait_share > 0.001 && trial.wait_share < 1);
        assert_string_equal(tutti_job_get(job, "run.dir"), "mine");
        assert_string_equal(tutti_job_get(job, "train.steps"), "10");
        assert_string_equal(tutti_job_get(job, "parallel.place"), "processes");
        tutti_job_destroy(job);
    }
}

static tutti_value *nothing(tutti_graph *g, tutti_value *x, const void *user) {
    (void)g, (void)x, (void)user;
    return NULL;
}

T_CASE(a_job_that_cannot_be_trained) {
    T_UNUSED;
    tti_trial trial;
    tutti_job *job = SMALL_JOB("train.seed=1");
    tutti_job_set_model(job, nothing, NULL);
    T_FAILS(try_here(job, &trial), TUTTI_E_INVALID, "the builder returned NULL");
    setenv("TMPDIR", "/nowhere/at/all", 1);
    T_FAILS(tti_trial_run(job, 30, &trial), TUTTI_E_IO, "cannot make a folder in /nowhere");
    unsetenv("TMPDIR");
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(figures_of_a_moment),
        IN_FOLDER(a_job_that_cannot_be_trained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
