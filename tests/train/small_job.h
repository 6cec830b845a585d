/* small_job.h - a job of a few milliseconds, and a folder for its runs. */
#ifndef TTI_TESTS_TRAIN_SMALL_JOB_H
#define TTI_TESTS_TRAIN_SMALL_JOB_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "t.h"
#include "train/job/job.h"

/* Ten steps of a small mlp, 5 to an epoch, the last one short; then more assignments up to NULL. */
static inline tutti_job *small_job(const char *const *more) {
    static const char *const assignments[] = {
        "model.name=mlp",    "model.hidden=[8]",   "data.n_train=140",
        "data.n_test=50",    "train.batch=32",     "train.steps=10",
        "parallel.shards=4", "parallel.workers=1", "run.log_every=1"};
    tutti_job *job = NULL;
    T_OK(tutti_job_create(&job));
    for (size_t i = 0; i < sizeof assignments / sizeof assignments[0]; i++)
        tutti_job_set(job, assignments[i], "test");
    for (; more && *more; more++) tutti_job_set(job, *more, "test");
    T_OK(tutti_job_check(job));
    return job;
}

#define SMALL_JOB(...) small_job((const char *const[]){__VA_ARGS__, NULL})

/* Whether runs of several tests may lie in memory; many containers have little there. */
static inline bool has_room_in_memory(void) {
    struct statvfs reported;
    return statvfs("/dev/shm", &reported) == 0 &&
           (double)reported.f_bavail * (double)reported.f_frsize > 1e9;
}

/* A new folder, which becomes the current one; left there for remove_folder.  In memory where that
 * is possible: runs that save wait for the disk most of their time. */
static inline int enter_folder(void **state) {
    static const char *const parents[] = {"/dev/shm", "/tmp"};
    static char path[64];
    *state = path;
    for (size_t i = !has_room_in_memory(); i < TTI_COUNT(parents); i++) {
        snprintf(path, sizeof path, "%s/tutti-train-XXXXXX", parents[i]);
        if (mkdtemp(path)) return chdir(path);
    }
    return -1;
}

static inline int remove_folder(void **state) {
    char command[128];
    snprintf(command, sizeof command, "chmod -R u+w '%s'; rm -rf '%s'", (char *)*state,
             (char *)*state);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, enter_folder, remove_folder)

#endif /* TTI_TESTS_TRAIN_SMALL_JOB_H */
