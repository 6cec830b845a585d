/* model_copy.c - the thread that copies the file of a model into the run folder. */
#include "train/model/model_copy.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/plain_file.h"
#include "base/thread.h"
#include "data/files/byte_reader.h"

struct tti_model_copy {
    char *from, *to;
    pthread_t thread;
    bool runs;
    tutti_status st; /* status of the thread, valid once it has ended */
    char error[1024];
};

static tutti_status copy_bytes(int from, const char *path, uint64_t n_bytes, tti_atomic_file *to) {
    enum { BLOCK = 1 << 20 };
    char *block = malloc(BLOCK);
    tutti_status st = block ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "out of memory");
    for (uint64_t at = 0; st == TUTTI_OK && at < n_bytes;) {
        size_t n = (size_t)TTI_MIN(n_bytes - at, (uint64_t)BLOCK);
        st = tti_pread_all(from, path, block, n, at);
        if (st == TUTTI_OK) st = tti_atomic_file_write(to, block, n);
        at += n;
    }
    free(block);
    return st;
}

static tutti_status copy_file(const char *path, const char *kept) {
    int from = -1;
    uint64_t n_bytes = 0;
    tti_atomic_file *to;
    TTI_TRY(tti_open_regular(path, &from, &n_bytes));
    tutti_status st = tti_atomic_file_create(kept, n_bytes, &to);
    if (st == TUTTI_OK) st = copy_bytes(from, path, n_bytes, to);
    if (st == TUTTI_OK) st = tti_atomic_file_commit(to);
    tti_atomic_file_destroy(to);
    close(from);
    return st;
}

static void *run(void *arg) {
    tti_model_copy *copy = arg;
    copy->st = copy_file(copy->from, copy->to);
    if (copy->st != TUTTI_OK)
        snprintf(copy->error, sizeof copy->error, "model.file: %s", tutti_last_error());
    return NULL;
}

tutti_status tti_model_copy_start(const char *from, const char *to, tti_model_copy **out) {
    tti_model_copy *copy = calloc(1, sizeof *copy);
    *out = NULL;
    if (copy) copy->from = strdup(from), copy->to = strdup(to);
    if (!copy || !copy->from || !copy->to) {
        tti_model_copy_destroy(copy);
        return tti_fail(TUTTI_E_NOMEM, "model.file: out of memory");
    }
    copy->runs = tti_thread_start(&copy->thread, NULL, run, copy) == 0;
    if (!copy->runs) run(copy);
    *out = copy;
    return TUTTI_OK;
}

tutti_status tti_model_copy_wait(tti_model_copy *copy) {
    if (!copy) return TUTTI_OK;
    if (copy->runs) pthread_join(copy->thread, NULL);
    copy->runs = false;
    return copy->st == TUTTI_OK ? TUTTI_OK : tti_fail(copy->st, "%s", copy->error);
}

void tti_model_copy_destroy(tti_model_copy *copy) {
    if (!copy) return;
    if (copy->runs) pthread_join(copy->thread, NULL);
    free(copy->from);
    free(copy->to);
    free(copy);
}
