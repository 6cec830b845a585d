/* link.c - the link over MPI, a separate module for each implementation.
 *
 * MPI only moves bytes here, with non-blocking point-to-point calls, so that every wait has a
 * deadline and failures are received while waiting.  MPI's reductions are not used, because their
 * bits depend on the number of ranks.  One receive for "a rank has failed" is always posted.
 *
 * MPI_Init and MPI_Comm_dup wait for all ranks without a limit, so a dedicated thread calls them
 * and the caller waits for that thread with its own timeout. */
#include <mpi.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/link.h"

enum { SUBGROUPS_OF_ONE = 256, CHUNK_BYTES = 1 << 30, FINALIZE_S = 30, PARTING_MS = 200 };

typedef struct failure_report {
    int32_t status;
    char text[TTI_FAILURE_BYTES - 4];
} failure_report;

typedef struct mpi_state {
    MPI_Comm comm;
    int rank, n_ranks;
    uint32_t id;   /* number of the subgroup, 0: the whole; determines the tags, so that messages of
                      subgroups do not mix */
    int *world_of; /* [n_ranks], owned: ranks in comm, also used in messages */
    tti_message *batch;
    MPI_Request *requests; /* requests of the chunks in flight */
    int *owners;           /* index of each request's message */
    bool *receives;        /* true for each request that is a receive */
    int *done;             /* output of MPI_Testsome */
    MPI_Status *statuses;
    int n_requests, cap_requests, n_open;
    int64_t sleep_ns; /* grows while nothing arrives */
    MPI_Request hears;
    failure_report received, sent; /* sent.status 0: this rank has reported no failure */
    MPI_Request *report_sends;     /* [n_ranks], owned */
    int n_report_sends;
    bool *has_exchanged; /* [n_ranks], owned: true for ranks with which a message was exchanged;
                      NULL: the link is not sparse */
    tutti_status cause;
} mpi_state;

/* MPI belongs to the process: it is initialized once and finalized when the process ends. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool begun, ready, failed; /* failed: a communicator was not closed in order */
    int error, level;          /* level: thread support of MPI */
    MPI_Comm comm;             /* the last duplicate */
    pthread_mutex_t calls;     /* serializes calls of MPI, because other threads use subgroups */
} mpi = {.lock = PTHREAD_MUTEX_INITIALIZER, .calls = PTHREAD_MUTEX_INITIALIZER};

static tutti_status fail_mpi(const char *what, int error) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;
    MPI_Error_string(error, text, &n);
    return tti_fail(TUTTI_E_PEER, "comm: %s: %s", what, text);
}

static const char *library_name(char text[MPI_MAX_LIBRARY_VERSION_STRING]) {
    int n = 0;
    MPI_Get_library_version(text, &n);
    text[strcspn(text, ",\n")] = '\0';
    for (char *tab = text; (tab = strchr(tab, '\t'));) *tab = ' ';
    return text;
}

/* ---- begin and end ---- */

/* All ranks must call MPI_Finalize together; a rank that hangs must not block the others. */
static void finalize(void) {
    int over = 0;
    MPI_Finalized(&over);
    if (over || mpi.failed) return; /* the launcher sees the exit code and ends the other ranks */
    signal(SIGALRM, SIG_DFL);
    alarm(FINALIZE_S);
    MPI_Finalize();
    alarm(0);
}

static int begin_mpi(void) {
    int is_there = 0;
    MPI_Initialized(&is_there);
    if (is_there) return MPI_Query_thread(&mpi.level);
    int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &mpi.level);
    if (error == MPI_SUCCESS) atexit(finalize);
    return error;
}

static void *begin(void *unused) {
    (void)unused;
    MPI_Comm comm = MPI_COMM_NULL;
    int error = begin_mpi();
    if (error == MPI_SUCCESS) error = MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    pthread_mutex_lock(&mpi.lock);
    mpi.error = error;
    mpi.comm = comm;
    mpi.ready = true;
    pthread_cond_broadcast(&mpi.changed);
    pthread_mutex_unlock(&mpi.lock);
    return NULL;
}

/* Waits until the initializing thread is done.  Called with the lock held. */
static tutti_status await_begin(int timeout_ms) {
    struct timespec until;
    int64_t begin_ns = tti_now_ns(), ns = begin_ns + timeout_ms * TTI_NS_PER_MS;
    until = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    while (!mpi.ready)
        if (pthread_cond_timedwait(&mpi.changed, &mpi.lock, &until) == ETIMEDOUT)
            return tti_fail(TUTTI_E_TIMEOUT,
                            "comm_create: MPI_Init has not connected all ranks after %lld ms "
                            "(parallel.timeout_ms=%d): one was not started, or is stopped",
                            (long long)((tti_now_ns() - begin_ns) / TTI_NS_PER_MS), timeout_ms);
    if (mpi.error != MPI_SUCCESS) return fail_mpi("MPI_Init", mpi.error);
    if (mpi.level >= MPI_THREAD_SERIALIZED) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "comm_create: this MPI supports a single thread, and several threads of a rank "
                    "use it; use one that is built with thread support, or TUTTI_TRANSPORT=tcp");
}

static tutti_status begin_in_time(int timeout_ms, MPI_Comm *out) {
    pthread_t thread;
    pthread_condattr_t attr;
    pthread_mutex_lock(&mpi.lock);
    if (mpi.begun && !mpi.ready) {
        pthread_mutex_unlock(&mpi.lock);
        return tti_fail(TUTTI_E_TIMEOUT, "comm_create: an earlier MPI_Init has not ended yet");
    }
    if (!mpi.begun) {
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&mpi.changed, &attr);
        pthread_condattr_destroy(&attr);
    }
    mpi.begun = true;
    mpi.ready = false;
    int error = pthread_create(&thread, NULL, begin, NULL);
    tutti_status st = error ? tti_fail(TUTTI_E_NOMEM, "comm_create: no thread: %s", strerror(error))
                            : await_begin(timeout_ms);
    if (!error) pthread_detach(thread);
    *out = mpi.comm;
    pthread_mutex_unlock(&mpi.lock);
    return st;
}

/* A launcher that does not match the MPI library starts N jobs of one rank; only the rank and size
 * of MPI reveal this. */
static tutti_status check_place(const tti_link_desc *desc, MPI_Comm comm) {
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int rank, n_ranks;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &n_ranks);
    if (rank == desc->rank && n_ranks == desc->n_ranks) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "comm_create: %s was started as rank %d of %d, but the launcher says rank %d "
                    "of %d: they do not fit. Open MPI goes with its own mpirun or srun "
                    "--mpi=pmix, MPICH with its own mpiexec or srun --mpi=pmi2; TUTTI_TRANSPORT "
                    "chooses (mpi-openmpi, mpi-mpich, tcp)",
                    library_name(library), rank, n_ranks, desc->rank, desc->n_ranks);
}

static int data_tag(const mpi_state *s) { return (int)(2 * s->id + 1); }
static int failure_tag(const mpi_state *s) { return (int)(2 * s->id + 2); }

/* Posts the receive for a failure. */
static tutti_status post_failure_receive(mpi_state *s) {
    pthread_mutex_lock(&mpi.calls);
    int error = MPI_Irecv(&s->received, sizeof s->received, MPI_BYTE, MPI_ANY_SOURCE,
                          failure_tag(s), s->comm, &s->hears);
    pthread_mutex_unlock(&mpi.calls);
    return error == MPI_SUCCESS ? TUTTI_OK : fail_mpi("MPI_Irecv", error);
}

static void free_state(mpi_state *s) {
    free(s->has_exchanged);
    free(s->world_of);
    free(s->report_sends);
    free(s);
}

/* Creates a state without requests.  NULL: out of memory, with the error text set. */
static mpi_state *new_state(MPI_Comm comm, int rank, int n_ranks) {
    size_t n = (size_t)n_ranks;
    mpi_state *s = calloc(1, sizeof *s);
    int *world_of = calloc(n, sizeof *world_of);
    MPI_Request *report_sends = calloc(n, sizeof *report_sends);
    bool is_sparse = n_ranks > TTI_FULL_RANKS;
    bool *has_exchanged = is_sparse ? calloc(n, sizeof *has_exchanged) : NULL;
    if (!s || !world_of || !report_sends || (is_sparse && !has_exchanged)) {
        free(s);
        free(world_of);
        free(report_sends);
        free(has_exchanged);
        (void)tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory for %zu ranks", n);
        return NULL;
    }
    *s = (mpi_state){.comm = comm,
                     .rank = rank,
                     .n_ranks = n_ranks,
                     .world_of = world_of,
                     .report_sends = report_sends,
                     .has_exchanged = has_exchanged};
    return s;
}

/* Posts the receive for failures.  On success passes s to *state, else frees it. */
static tutti_status hand_over(mpi_state *s, void **state) {
    tutti_status st = post_failure_receive(s);
    if (st != TUTTI_OK) {
        free_state(s);
        return st;
    }
    *state = s;
    return TUTTI_OK;
}

static tutti_status mpi_open(const tti_link_desc *desc, void **state) {
    MPI_Comm comm = MPI_COMM_NULL;
    TTI_TRY(begin_in_time(desc->timeout_ms, &comm));
    TTI_TRY(check_place(desc, comm));
    mpi_state *s = new_state(comm, desc->rank, desc->n_ranks);
    if (!s) return TUTTI_E_NOMEM;
    for (int r = 0; r < desc->n_ranks; r++) s->world_of[r] = r;
    return hand_over(s, state);
}

/* Computes the id of a subgroup.  False: MPI has no tags for it. */
static bool has_tags(const mpi_state *whole, uint32_t serial, uint32_t *id) {
    int *most = NULL, is_there = 0;
    pthread_mutex_lock(&mpi.calls);
    int error = MPI_Comm_get_attr(whole->comm, MPI_TAG_UB, &most, &is_there);
    pthread_mutex_unlock(&mpi.calls);
    int64_t tags = error == MPI_SUCCESS && is_there ? *most : INT16_MAX;
    int64_t wanted = (int64_t)whole->id * SUBGROUPS_OF_ONE + serial;
    *id = (uint32_t)wanted;
    return serial < SUBGROUPS_OF_ONE && 2 * wanted + 2 <= tags;
}

/* The messages of a subgroup have their own tags, so no communication is needed. */
static tutti_status mpi_split(void *state, const tti_link_subgroup *subgroup, void **out) {
    const mpi_state *whole = state;
    uint32_t id;
    if (!has_tags(whole, subgroup->serial, &id))
        return tti_fail(
            TUTTI_E_UNSUPPORTED,
            "comm_split: MPI has no tags for subgroup %u of group %u: at most %d of each",
            subgroup->serial, whole->id, SUBGROUPS_OF_ONE - 1);
    mpi_state *s = new_state(whole->comm, subgroup->index, subgroup->n_members);
    if (!s) return TUTTI_E_NOMEM;
    s->id = id;
    for (int i = 0; i < s->n_ranks; i++) s->world_of[i] = whole->world_of[subgroup->members[i]];
    return hand_over(s, out);
}

/* Waits until pending reports are sent, if that is still possible. */
static bool finish_reports(mpi_state *s) {
    int64_t deadline_ns = tti_now_ns() + PARTING_MS * TTI_NS_PER_MS;
    for (int i = 0; i < s->n_report_sends;) {
        int is_out = 0;
        if (MPI_Test(&s->report_sends[i], &is_out, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        i += is_out;
        if (!is_out && tti_now_ns() >= deadline_ns) return false;
        if (!is_out) tti_sleep_ms(1);
    }
    return true;
}

/* Cancels a receive.  If its message has begun to arrive, cancelling fails, and the sender may be
 * gone: so the wait has a deadline. */
static void drop_receive(MPI_Request *request, int64_t deadline_ns) {
    int is_over = *request == MPI_REQUEST_NULL;
    if (!is_over) MPI_Cancel(request);
    while (!is_over && MPI_Test(request, &is_over, MPI_STATUS_IGNORE) == MPI_SUCCESS && !is_over &&
           tti_now_ns() < deadline_ns)
        tti_sleep_ms(1);
}

/* Cancels the receives in flight, so that the caller may reuse their memory. */
static void drop_receives(mpi_state *s) {
    int64_t deadline_ns = tti_now_ns() + PARTING_MS * TTI_NS_PER_MS;
    for (int i = 0; i < s->n_requests; i++)
        if (s->receives[i]) drop_receive(&s->requests[i], deadline_ns);
}

static void mpi_cancel(void *state) {
    pthread_mutex_lock(&mpi.calls);
    drop_receives(state);
    pthread_mutex_unlock(&mpi.calls);
}

static void mpi_close(void *state, bool in_order) {
    mpi_state *s = state;
    if (!s) return;
    pthread_mutex_lock(&mpi.calls);
    if (!in_order || s->id == 0) mpi.failed = !in_order;
    drop_receives(s);
    if (in_order)
        drop_receive(&s->hears, INT64_MAX);
    else
        (void)finish_reports(s);
    pthread_mutex_unlock(&mpi.calls);
    if (!in_order)
        return; /* MPI may still use the memory, so it is not freed; the process ends soon */
    free(s->requests);
    free(s->owners);
    free(s->receives);
    free(s->done);
    free(s->statuses);
    free_state(s);
}

/* ---- messages ---- */

/* Resizes an array to n_bytes.  If out of memory, returns the old array and sets *ok to false. */
static void *grow(void *array, size_t n_bytes, bool *ok) {
    void *more = realloc(array, n_bytes);
    *ok = *ok && more;
    return more ? more : array;
}

/* Makes room for n requests and keeps the present ones. */
static tutti_status take_room(mpi_state *s, int n) {
    if (n <= s->cap_requests) return TUTTI_OK;
    size_t k = (size_t)n;
    bool ok = true;
    s->requests = grow(s->requests, k * sizeof *s->requests, &ok);
    s->owners = grow(s->owners, k * sizeof *s->owners, &ok);
    s->receives = grow(s->receives, k * sizeof *s->receives, &ok);
    s->done = grow(s->done, k * sizeof *s->done, &ok);
    s->statuses = grow(s->statuses, k * sizeof *s->statuses, &ok);
    if (!ok) return tti_fail(TUTTI_E_NOMEM, "comm: out of memory for %d requests", n);
    s->cap_requests = n;
    return TUTTI_OK;
}

/* Removes completed requests from the arrays. */
static void close_ranks(mpi_state *s) {
    int n = 0;
    for (int i = 0; i < s->n_requests; i++) {
        if (s->requests[i] == MPI_REQUEST_NULL) continue;
        s->requests[n] = s->requests[i];
        s->receives[n] = s->receives[i];
        s->owners[n++] = s->owners[i];
    }
    s->n_requests = n;
}

/* Starts one message in chunks, because counts in MPI are int. */
static tutti_status start(mpi_state *s, int index) {
    tti_message *m = &s->batch[index];
    int peer = s->world_of[m->peer];
    m->begun = true;
    if (s->has_exchanged) s->has_exchanged[m->peer] = true;
    for (size_t at = 0; at < m->n_bytes; at += CHUNK_BYTES) {
        int n = (int)TTI_MIN(m->n_bytes - at, (size_t)CHUNK_BYTES), error;
        MPI_Request *request = &s->requests[s->n_requests];
        if (m->out)
            error = MPI_Isend((const char *)m->out + at, n, MPI_BYTE, peer, data_tag(s), s->comm,
                              request);
        else
            error = MPI_Irecv((char *)m->in + at, n, MPI_BYTE, peer, data_tag(s), s->comm, request);
        if (error != MPI_SUCCESS) return fail_mpi(m->out ? "MPI_Isend" : "MPI_Irecv", error);
        s->receives[s->n_requests] = !m->out;
        s->owners[s->n_requests++] = index;
        s->n_open++;
    }
    return TUTTI_OK;
}

/* Starts the messages of one direction that have not started. */
static tutti_status start_all(mpi_state *s, int n, bool out) {
    for (int i = 0; i < n; i++)
        if (!s->batch[i].begun && (s->batch[i].out != NULL) == out) TTI_TRY(start(s, i));
    return TUTTI_OK;
}

static tutti_status post(mpi_state *s, tti_message *messages, int n) {
    size_t n_chunks = 0;
    for (int i = 0; i < n; i++) n_chunks += messages[i].n_bytes / CHUNK_BYTES + 1;
    if (n_chunks > INT32_MAX / 2) return tti_fail(TUTTI_E_INVALID, "comm: too many messages");
    close_ranks(s);
    TTI_TRY(take_room(s, s->n_requests + (int)n_chunks));
    s->batch = messages;
    s->sleep_ns = 0;
    TTI_TRY(start_all(
        s, n, false)); /* receives first, so that arriving bytes go directly to their destination */
    return start_all(s, n, true);
}

static tutti_status mpi_post(void *state, tti_message *messages, int n) {
    pthread_mutex_lock(&mpi.calls);
    tutti_status st = post(state, messages, n);
    pthread_mutex_unlock(&mpi.calls);
    return st;
}

static tutti_status check_cry(mpi_state *s) {
    int here = 0;
    if (s->cause == TUTTI_OK && s->hears != MPI_REQUEST_NULL) {
        int error = MPI_Test(&s->hears, &here, MPI_STATUS_IGNORE);
        if (error != MPI_SUCCESS) return fail_mpi("MPI_Test", error);
    }
    if (here) {
        s->received.text[sizeof s->received.text - 1] = '\0';
        bool known = s->received.status > 0 && s->received.status < TUTTI_N_STATUS;
        s->cause = known ? (tutti_status)s->received.status : TUTTI_E_PEER;
    }
    return s->cause == TUTTI_OK ? TUTTI_OK : tti_fail(s->cause, "%s", s->received.text);
}

static tutti_status fail_size(const mpi_state *s, const tti_message *m) {
    return tti_fail(TUTTI_E_MISMATCH,
                    "comm: rank %d sent another number of bytes than the %zu that rank %d expects: "
                    "they are not in the same call",
                    s->world_of[m->peer], m->n_bytes, s->world_of[s->rank]);
}

/* Handles the completion of request i. */
static tutti_status note_done(mpi_state *s, int i, const MPI_Status *status) {
    tti_message *m = &s->batch[s->owners[i]];
    int n = 0;
    s->n_open--;
    if (m->out) { /* chunks may complete in any order; only the total counts */
        m->done += TTI_MIN(m->n_bytes - m->done, (size_t)CHUNK_BYTES);
        return TUTTI_OK;
    }
    MPI_Get_count(status, MPI_BYTE, &n);
    if ((size_t)n != TTI_MIN(m->n_bytes - m->done, (size_t)CHUNK_BYTES)) return fail_size(s, m);
    m->done += (size_t)n;
    return TUTTI_OK;
}

static tutti_status test(mpi_state *s, int *blame) {
    int n = 0;
    TTI_TRY(check_cry(s));
    int error = s->n_open ? MPI_Testsome(s->n_requests, s->requests, &n, s->done, s->statuses)
                          : MPI_SUCCESS;
    for (int k = 0; k < n && error == MPI_ERR_IN_STATUS; k++) {
        int each = s->statuses[k].MPI_ERROR, kind = each;
        if (each == MPI_SUCCESS || each == MPI_ERR_PENDING) continue;
        MPI_Error_class(each, &kind);
        if (kind == MPI_ERR_TRUNCATE) return fail_size(s, &s->batch[s->owners[s->done[k]]]);
        return fail_mpi("MPI_Testsome", each);
    }
    if (error != MPI_SUCCESS) return fail_mpi("MPI_Testsome", error);
    for (int k = 0; k < n; k++) TTI_TRY(note_done(s, s->done[k], &s->statuses[k]));
    if (n > 0) s->sleep_ns = 0;
    *blame = -1;
    for (int i = 0; s->n_open && i < s->n_requests && *blame < 0; i++)
        if (s->requests[i] != MPI_REQUEST_NULL) *blame = s->batch[s->owners[i]].peer;
    return TUTTI_OK;
}

static tutti_status mpi_test(void *state, int *blame) {
    pthread_mutex_lock(&mpi.calls);
    tutti_status st = test(state, blame);
    pthread_mutex_unlock(&mpi.calls);
    return st;
}

/* MPI has no descriptor to wait on.  So this sleeps for a short time, which grows while nothing
 * arrives. */
static void mpi_pause(void *state, int64_t n_ns, int wake_fd) {
    mpi_state *s = state;
    s->sleep_ns = TTI_MIN(TTI_MIN(s->sleep_ns * 2 + 5000, INT64_C(200000)), n_ns);
    struct timespec t = {.tv_nsec = s->sleep_ns};
    struct pollfd wakes = {.fd = wake_fd, .events = POLLIN};
    ppoll(&wakes, 1, &t, NULL);
}

/* Reports only once, because the buffer of the first report may still be in use. */
static void mpi_report_failure(void *state, tutti_status status, const char *text) {
    mpi_state *s = state;
    pthread_mutex_lock(&mpi.calls);
    bool is_first = s->sent.status == TUTTI_OK;
    if (is_first) {
        s->sent.status = (int32_t)status;
        snprintf(s->sent.text, sizeof s->sent.text, "%s", text);
    }
    for (int r = 0; r < s->n_ranks && is_first; r++)
        if (r != s->rank && (!s->has_exchanged || s->has_exchanged[r]) &&
            MPI_Isend(&s->sent, sizeof s->sent, MPI_BYTE, s->world_of[r], failure_tag(s), s->comm,
                      &s->report_sends[s->n_report_sends]) == MPI_SUCCESS)
            s->n_report_sends++;
    (void)finish_reports(s);
    pthread_mutex_unlock(&mpi.calls);
}

static tutti_status mpi_check(void *state, bool left_too) {
    (void)left_too; /* a rank that has left reports nothing */
    pthread_mutex_lock(&mpi.calls);
    tutti_status st = check_cry(state);
    pthread_mutex_unlock(&mpi.calls);
    return st;
}

static tutti_status mpi_check_reported(void *state) { return mpi_check(state, false); }

static char doc[MPI_MAX_LIBRARY_VERSION_STRING]; /* "Open MPI v4.1.4" */

static const tti_link mpi_link = {
    .name = TUTTI_MPI_NAME,
    .doc = doc,
    .open = mpi_open,
    .close = mpi_close,
    .post = mpi_post,
    .test = mpi_test,
    .pause = mpi_pause,
    .report_failure = mpi_report_failure,
    .cancel = mpi_cancel,
    .check = mpi_check,
    .check_reported = mpi_check_reported,
    .split = mpi_split,
    .receives_to_end = true,
};

__attribute__((visibility("default"))) const tti_link *tutti_link_module(const tti_link_host *host);

const tti_link *tutti_link_module(const tti_link_host *host) {
    tti_error_forward(host->fail);
    if (host->abi == TTI_LINK_ABI && strcmp(host->version, TUTTI_VERSION) == 0) {
        library_name(doc);
        return &mpi_link;
    }
    (void)tti_fail(TUTTI_E_UNSUPPORTED, "it is of tutti %s (interface %d), the program of %s (%d)",
                   TUTTI_VERSION, TTI_LINK_ABI, host->version, host->abi);
    return NULL;
}
