/* thread_epochs.c - runs groups of threads one after the other.  A separate thread watches for
 * requests to change the number of threads. */
#include "train/loop/thread_epochs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "launch/host_file.h"
#include "launch/own_signals.h"
#include "train/loop/mirror.h"
#include "train/loop/worker_threads.h"
#include "train/setup/worker_exec.h"

enum { LOOK_MS = 20 };

typedef struct epochs {
    const tti_thread_epochs_desc *desc;
    tti_blueprint b;    /* blueprint for n workers */
    tti_carry *carries; /* [most] */
    tti_mirror *mirror;
    int n;
    tti_host_file_range may;
    tti_host_file hosts;
    pthread_mutex_t mutex; /* guards the following fields and n */
    tutti_comm_group *group;
    int wanted; /* workers of the next epoch */
    bool is_over;
} epochs;

/* Returns the number of threads that the user wants; 0: no change. */
static int wanted_threads(epochs *all, int n_now) {
    char text[800];
    int n = tti_host_file_workers(&all->hosts, &all->may, text, sizeof text);
    int more = tti_signals_counted() * all->may.step;
    if (text[0]) all->desc->warn(all->desc->user, text);
    if (n == 0) n = tti_flight_take_wanted(all->desc->flight);
    if (n == 0 && more != 0) n = n_now + more;
    return n == 0 ? 0 : TTI_MIN(TTI_MAX(n, all->may.least), all->may.most);
}

/* The watching thread: breaks the group when the user wants another number of workers. */
static void *look_for_change(void *arg) {
    epochs *all = arg;
    for (bool is_over = false; !is_over; tti_sleep_ms(LOOK_MS)) {
        pthread_mutex_lock(&all->mutex);
        int n = wanted_threads(all, all->wanted);
        is_over = all->is_over;
        if (n > 0) all->wanted = n;
        if (all->group && all->wanted != all->n)
            tutti_comm_group_abort(all->group, -1, "the number of workers changes");
        pthread_mutex_unlock(&all->mutex);
    }
    return NULL;
}

static void set_group(epochs *all, tutti_comm_group *group) {
    pthread_mutex_lock(&all->mutex);
    all->group = group;
    pthread_mutex_unlock(&all->mutex);
}

static tutti_status run_thread(void *user, int rank) {
    epochs *all = user;
    return all->desc->run(all->desc->user, &all->b, all->group, rank, &all->carries[rank]);
}

static tutti_status run_epoch(epochs *all) {
    tutti_comm_group *group;
    all->b = tti_carry_blueprint(all->desc->blueprint, all->n);
    TTI_TRY(tutti_comm_group_create(all->n, &group));
    set_group(all, group);
    tti_flight_set_members(all->desc->flight, all->n, all->n);
    tutti_status st = tti_worker_threads_run(
        &(tti_worker_threads_desc){.who = "train",
                                   .n = all->n,
                                   .group = group,
                                   .run = run_thread,
                                   .user = all,
                                   .grace_ms = all->b.config.parallel.timeout_ms});
    tti_flight_set_members(all->desc->flight, 0, 0);
    set_group(all, NULL);
    tutti_comm_group_destroy(group);
    return st;
}

/* True if the epoch ended because the user wants another number of workers. */
static bool change(epochs *all, tutti_status st) {
    pthread_mutex_lock(&all->mutex);
    bool changes = st == TUTTI_E_PEER && all->wanted != all->n;
    all->n = all->wanted;
    pthread_mutex_unlock(&all->mutex);
    if (!changes) return false;
    tti_clear_error();
    for (int r = 0; r < all->may.most; r++) {
        tti_carry *carry = &all->carries[r];
        carry->has_changed = true;
        if (r < all->n) continue;
        tti_carry_end(carry); /* the thread is no longer a member */
        carry->at = (tti_carry_position){0};
        carry->recorded = 0;
        carry->group_s = 0;
    }
    return true;
}

static tutti_status open_mirror(epochs *all) {
    const tti_blueprint *b = all->desc->blueprint;
    if (tti_worker_has_partitions(b) && b->config.parallel.mirror) {
        int fd = memfd_create("tutti-mirror", MFD_CLOEXEC);
        tutti_status st = tti_mirror_open(fd, b, &all->mirror);
        if (fd >= 0) close(fd);
        TTI_TRY(st);
    }
    for (int r = 0; r < all->may.most; r++) {
        all->carries[r].has_partitions = tti_worker_has_partitions(b);
        all->carries[r].mirror = all->mirror;
    }
    return TUTTI_OK;
}

static tutti_status run_epochs(epochs *all) {
    pthread_t looks;
    TTI_TRY(open_mirror(all));
    if (tti_thread_start(&looks, NULL, look_for_change, all) != 0)
        return tti_fail(TUTTI_E_NOMEM, "train: cannot start a thread");
    tutti_status st;
    do st = run_epoch(all);
    while (change(all, st));
    pthread_mutex_lock(&all->mutex);
    all->is_over = true;
    pthread_mutex_unlock(&all->mutex);
    pthread_join(looks, NULL);
    return st;
}

tutti_status tti_thread_epochs_run(const tti_thread_epochs_desc *desc) {
    const tti_job_config *c = &desc->blueprint->config;
    tti_flight_workers may = tti_flight_get_workers(desc->flight);
    tti_taken_signals taken;
    epochs *all = calloc(1, sizeof *all);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    all->desc = desc;
    all->n = all->wanted = desc->blueprint->n_workers;
    all->may = (tti_host_file_range){may.least, TTI_MAX(may.most, all->n), may.n_per_replica};
    all->carries = calloc((size_t)all->may.most, sizeof *all->carries);
    if (!all->carries) {
        free(all);
        return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    }
    if (*c->parallel.hostfile) all->hosts.path = c->parallel.hostfile;
    pthread_mutex_init(&all->mutex, NULL);
    tti_signals_count(&taken);
    tutti_status st = run_epochs(all);
    tti_signals_uncount(&taken);
    for (int r = 0; r < all->may.most; r++) tti_carry_end(&all->carries[r]);
    tti_mirror_close(all->mirror);
    pthread_mutex_destroy(&all->mutex);
    free(all->carries);
    free(all);
    return st;
}
