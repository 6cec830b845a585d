/* slow_worker.h - runs in which one worker is kept, until rank 0 says so.
 *
 * Each step of that worker is late by far more than a busy machine makes others, and a run goes on
 * until it was named or many steps are over: what is asked is whether it is named, and not when. */
#ifndef TTI_TESTS_TRAIN_SLOW_WORKER_H
#define TTI_TESTS_TRAIN_SLOW_WORKER_H

#include <signal.h>
#include <string.h>

#include "base/fault.h"
#include "train/small_job.h"
#include "tutti/train.h"

typedef struct slow_worker {
    int rank;
    const char *why;
    bool named;
    int n_reported; /* events that name anybody */
} slow_worker;

/* The run has reported what the test needs: it stops, as for a user. */
static inline void slow_worker_look(void *user, const tutti_event *e) {
    slow_worker *w = user;
    if (e->kind != TUTTI_EVENT_STEP || !e->slowest_why) return;
    w->n_reported++;
    if (w->named || e->slowest_rank != w->rank || strcmp(e->slowest_why, w->why) != 0) return;
    w->named = e->slowest_late_share >= 0.05 && e->slowest_late_share <= 1;
    raise(SIGTERM);
}

/* Forty steps of two workers, with assignments up to NULL; no evaluations between. */
static inline tutti_job *slow_worker_job(const char *const *assignments) {
    tutti_job *job = small_job(NULL);
    static const char *const own[] = {"parallel.workers=2", "parallel.devices=cpu",
                                      "data.n_train=3200",  "run.checkpoint_every=-1",
                                      "train.eval_every=0", "train.steps=40"};
    for (size_t i = 0; i < TTI_COUNT(own); i++) tutti_job_set(job, own[i], "test");
    for (; *assignments; assignments++) tutti_job_set(job, *assignments, "test");
    return job;
}

/* The result of a run in which faults delay the worker. */
static inline slow_worker slow_worker_run(const char *const *assignments, const char *faults,
                                          int rank, const char *why) {
    slow_worker w = {.rank = rank, .why = why};
    tutti_train_result r;
    tutti_job *job = slow_worker_job(assignments);
    T_OK(tti_fault_set(faults));
    T_OK(tutti_train(job, &(tutti_train_desc){.on_event = slow_worker_look, .user = &w}, &r));
    T_OK(tti_fault_set(NULL));
    tutti_job_destroy(job);
    return w;
}

/* Whether the record of a run names it. */
static inline bool slow_worker_is_recorded(const char *run_dir, int rank, const char *why) {
    char path[128], line[4096], said[96];
    bool found = false;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    snprintf(said, sizeof said,
             "\"slowest_rank\":%d,\"slowest_why\":\"%s\",\"slowest_late_share\":", rank, why);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) found = found || strstr(line, said);
    fclose(file);
    return found;
}

#define SLOW_WORKER(rank, why, faults, ...)                                                     \
    do {                                                                                        \
        slow_worker w_ =                                                                        \
            slow_worker_run((const char *const[]){__VA_ARGS__, NULL}, (faults), (rank), (why)); \
        if (!w_.named)                                                                          \
            fail_msg("rank %d, %s was never named, another rank %d times", (rank), (why),       \
                     w_.n_reported);                                                            \
    } while (0)

#endif /* TTI_TESTS_TRAIN_SLOW_WORKER_H */
