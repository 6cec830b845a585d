/* trial.c - runs tutti_train and stops it early.
 *
 * The speed of the loader alone does not show whether it is fast enough, because training uses the
 * same cores.  So both run as usual, and the time that training waits is measured. */
#include "train/loop/trial.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "train/job/job.h"
#include "tutti/train.h"

typedef struct sums {
    int n_events;
    double batch, n_samples, spent_s, wait_s;
} sums;

static void on_event(void *user, const tutti_event *e) {
    sums *s = user;
    if (e->kind != TUTTI_EVENT_STEP || e->samples_per_s <= 0) return;
    if (s->n_events++ == 0) return; /* the first step also allocates memory and starts threads */
    double spent_s = s->batch / e->samples_per_s;
    s->n_samples += s->batch;
    s->spent_s += spent_s;
    s->wait_s += e->wait_share * spent_s;
}

/* ---- the folder ---- */

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *ftw) {
    (void)info, (void)kind, (void)ftw;
    (void)remove(path);
    return 0;
}

/* ---- the job ---- */

/* Copies the job, with a temporary run folder and no end. */
static tutti_status copy_job(const tutti_job *job, const char *run_dir, tutti_job **out) {
    static const char *const changes[] = {"train.steps=1000000000", "run.log_every=1",
                                          "parallel.place=threads"};
    char dir[600];
    TTI_TRY(tti_job_copy(job, out));
    for (size_t i = 0; i < TTI_COUNT(changes); i++) tutti_job_set(*out, changes[i], "trial");
    snprintf(dir, sizeof dir, "run.dir=%s", run_dir);
    tutti_job_set(*out, dir, "trial");
    return TUTTI_OK;
}

tutti_status tti_trial_run(const tutti_job *job, int ms, tti_trial *out) {
    char folder[512];
    tutti_job *copy;
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(folder, sizeof folder, "%s/tutti-trial-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (n < 0 || (size_t)n >= sizeof folder || !mkdtemp(folder))
        return tti_fail(TUTTI_E_IO, "trial: cannot make a folder in %s", tmp ? tmp : "/tmp");
    tutti_status st = copy_job(job, folder, &copy);
    if (st == TUTTI_OK) {
        sums s = {.batch = (double)copy->config.train.batch};
        tutti_train_result result;
        st = tutti_train(
            copy, &(tutti_train_desc){.trial_ms = ms, .on_event = on_event, .user = &s}, &result);
        if (st == TUTTI_OK)
            *out = (tti_trial){.n_workers = result.n_workers,
                               .per_s = s.spent_s > 0 ? s.n_samples / s.spent_s : 0,
                               .wait_share = s.spent_s > 0 ? s.wait_s / s.spent_s : 0};
        tutti_job_destroy(copy);
    }
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return st;
}
