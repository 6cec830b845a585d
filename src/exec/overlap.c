/* overlap.c - reduces buckets on a second thread while the last shards compute.  Its one mutex is
 * never held during a collective. */
#include "exec/overlap.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/affinity.h"

struct tti_overlap {
    int n_buckets, core;
    tti_overlap_fn fn;
    void *user;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards everything below */
    pthread_cond_t changed;
    int *n_arrived; /* [n_buckets] */
    int n_lanes;
    int n_done; /* buckets reduced or given up in this step */
    bool stop;
    tutti_status status;
    char error[1024];
};

static bool is_ready(const tti_overlap *o) {
    return o->n_done < o->n_buckets && o->n_lanes > 0 && o->n_arrived[o->n_done] == o->n_lanes;
}

/* Reduces the next bucket with the mutex released; after a failure buckets are only counted, so
 * that finish returns. */
static void reduce_next(tti_overlap *o) {
    int bucket = o->n_done;
    bool give_up = o->status != TUTTI_OK;
    pthread_mutex_unlock(&o->mutex);
    tutti_status st = give_up ? TUTTI_OK : o->fn(bucket, o->user);
    pthread_mutex_lock(&o->mutex);
    if (st != TUTTI_OK) {
        o->status = st;
        snprintf(o->error, sizeof o->error, "%s", tutti_last_error());
    }
    o->n_done++;
    pthread_cond_broadcast(&o->changed);
}

static void *run(void *arg) {
    tti_overlap *o = arg;
    tti_core_pin(o->core);
    pthread_mutex_lock(&o->mutex);
    while (!o->stop) {
        if (is_ready(o))
            reduce_next(o);
        else
            pthread_cond_wait(&o->changed, &o->mutex);
    }
    pthread_mutex_unlock(&o->mutex);
    return NULL;
}

tutti_status tti_overlap_create(int n_buckets, int core, tti_overlap_fn fn, void *user,
                                tti_overlap **out) {
    *out = NULL;
    tti_overlap *o = calloc(1, sizeof *o);
    int *n_arrived = calloc((size_t)n_buckets + 1, sizeof *n_arrived);
    if (!o || !n_arrived) {
        free(o);
        free(n_arrived);
        return tti_fail(TUTTI_E_NOMEM, "overlap: out of memory");
    }
    *o = (tti_overlap){.n_buckets = n_buckets, .core = core, .fn = fn, .user = user};
    o->n_arrived = n_arrived;
    pthread_mutex_init(&o->mutex, NULL);
    pthread_cond_init(&o->changed, NULL);
    if (pthread_create(&o->thread, NULL, run, o) != 0) {
        pthread_mutex_destroy(&o->mutex);
        pthread_cond_destroy(&o->changed);
        free(n_arrived);
        free(o);
        return tti_fail(TUTTI_E_NOMEM, "overlap: cannot start a thread");
    }
    *out = o;
    return TUTTI_OK;
}

void tti_overlap_destroy(tti_overlap *o) {
    if (!o) return;
    pthread_mutex_lock(&o->mutex);
    o->stop = true;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->mutex);
    pthread_join(o->thread, NULL);
    pthread_mutex_destroy(&o->mutex);
    pthread_cond_destroy(&o->changed);
    free(o->n_arrived);
    free(o);
}

void tti_overlap_begin(tti_overlap *o, int n_lanes) {
    pthread_mutex_lock(&o->mutex);
    for (int b = 0; b < o->n_buckets; b++) o->n_arrived[b] = 0;
    o->n_lanes = n_lanes;
    o->n_done = 0;
    o->status = TUTTI_OK;
    pthread_mutex_unlock(&o->mutex);
}

void tti_overlap_arrive(tti_overlap *o, int bucket) {
    pthread_mutex_lock(&o->mutex);
    if (++o->n_arrived[bucket] == o->n_lanes) pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->mutex);
}

tutti_status tti_overlap_finish(tti_overlap *o) {
    pthread_mutex_lock(&o->mutex);
    while (o->n_done < o->n_buckets) pthread_cond_wait(&o->changed, &o->mutex);
    o->n_lanes = 0;
    tutti_status st = o->status;
    pthread_mutex_unlock(&o->mutex);
    return st == TUTTI_OK ? TUTTI_OK : tti_fail(st, "%s", o->error);
}
