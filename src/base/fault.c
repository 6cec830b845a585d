/* fault.c - reads TUTTI_FAULT and acts at the points.  A release build contains none of this.
 *
 * The table is written before the program's own threads pass a point (once, under pthread_once, or
 * by a test), and afterwards only the counters change, atomically.  It is global state on purpose:
 * a fault belongs to the process, not to an object. */
#include "base/fault.h"

#if TUTTI_FAULTS

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

enum { MAX_FAULTS = 16, MAX_NAME = 64, MAX_SPEC = 256 };

typedef enum action {
    ACTION_KILL,
    ACTION_VANISH,
    ACTION_STOP,
    ACTION_DELAY,
    ACTION_SPIN,
    ACTION_LOCK,
    ACTION_ADVANCE,
    ACTION_PASS,
    ACTION_FAIL
} action;

typedef struct fault {
    char point[MAX_NAME];
    action action;
    int64_t value;      /* ACTION_FAIL: errno; of the others that have one: ms */
    int64_t first;      /* the time it acts, from 1; 0: every time */
    bool and_later;     /* and all later times */
    int64_t rank, step; /* -1: any */
} fault;

static struct {
    pthread_once_t once;
    fault faults[MAX_FAULTS];
    atomic_llong n_hits[MAX_FAULTS];
    atomic_int n_faults;
    atomic_llong n_fired;
} table = {.once = PTHREAD_ONCE_INIT};

static const struct {
    const char *name;
    int code;
} errnos[] = {
    {"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EACCES", EACCES},
    {"EMFILE", EMFILE}, {"EROFS", EROFS},   {"ENOMEM", ENOMEM},
};

static bool parse_number(const char *text, int64_t *out, const char **end) {
    char *stop;
    errno = 0;
    long long x = strtoll(text, &stop, 10);
    if (stop == text || errno || x < 0) return false;
    *out = x;
    *end = stop;
    return true;
}

static bool parse_errno(const char *text, int64_t *out) {
    for (size_t i = 0; i < TTI_COUNT(errnos); i++)
        if (strcmp(text, errnos[i].name) == 0) {
            *out = errnos[i].code;
            return true;
        }
    return false;
}

/* Actions that take a time. */
static const struct {
    const char *name; /* with '=' */
    action action;
} timed[] = {{"delay_ms=", ACTION_DELAY},
             {"spin_ms=", ACTION_SPIN},
             {"lock_ms=", ACTION_LOCK},
             {"advance_ms=", ACTION_ADVANCE},
             {"pass_ms=", ACTION_PASS}};

/* "rank=1", "step=10", "3" or "3+" */
static bool parse_condition(const char *text, fault *out) {
    const char *end;
    int64_t *field = &out->first;
    if (strncmp(text, "rank=", 5) == 0)
        field = &out->rank, text += 5;
    else if (strncmp(text, "step=", 5) == 0)
        field = &out->step, text += 5;
    if (!parse_number(text, field, &end)) return false;
    if (field == &out->first && *end == '+') {
        out->and_later = true;
        end++;
    }
    return *end == '\0' && !(field == &out->first && out->first == 0);
}

static bool parse_action(const char *text, fault *out) {
    const char *end;
    out->value = EIO;
    for (size_t i = 0; i < TTI_COUNT(timed); i++) {
        size_t n = strlen(timed[i].name);
        if (strncmp(text, timed[i].name, n) != 0) continue;
        out->action = timed[i].action;
        return parse_number(text + n, &out->value, &end) && *end == '\0';
    }
    if (strcmp(text, "kill") == 0)
        out->action = ACTION_KILL;
    else if (strcmp(text, "vanish") == 0)
        out->action = ACTION_VANISH;
    else if (strcmp(text, "stop") == 0)
        out->action = ACTION_STOP;
    else if (strcmp(text, "fail") == 0)
        out->action = ACTION_FAIL;
    else if (strncmp(text, "fail=", 5) == 0) {
        out->action = ACTION_FAIL;
        return parse_errno(text + 5, &out->value);
    } else
        return false;
    return true;
}

static bool parse_fault(char *text, fault *out) {
    *out = (fault){.rank = -1, .step = -1};
    char *conditions = strchr(text, '@');
    if (conditions) *conditions++ = '\0';
    char *verb = strchr(text, ':');
    if (!verb || verb == text || (size_t)(verb - text) >= sizeof out->point) return false;
    *verb++ = '\0';
    memcpy(out->point, text, strlen(text) + 1);
    if (!parse_action(verb, out)) return false;
    char *rest = conditions, *one;
    while ((one = strsep(&rest, ",")) != NULL)
        if (!parse_condition(one, out)) return false;
    return true;
}

static tutti_status parse_table(const char *text) {
    int n = 0;
    atomic_store(&table.n_faults, 0);
    atomic_store(&table.n_fired, 0);
    while (text && *text) {
        size_t n_bytes = strcspn(text, ";");
        char one[MAX_SPEC];
        if (n == MAX_FAULTS || n_bytes >= sizeof one)
            return tti_fail(TUTTI_E_INVALID, "TUTTI_FAULT: more than %d faults, or one too long",
                            MAX_FAULTS);
        memcpy(one, text, n_bytes);
        one[n_bytes] = '\0';
        if (!parse_fault(one, &table.faults[n]))
            return tti_fail(TUTTI_E_INVALID, "TUTTI_FAULT: cannot understand '%.*s'", (int)n_bytes,
                            text);
        atomic_store(&table.n_hits[n++], 0);
        text += n_bytes + (text[n_bytes] == ';');
    }
    atomic_store(&table.n_faults, n);
    return TUTTI_OK;
}

static void read_environment(void) {
    bool understood = parse_table(getenv("TUTTI_FAULT")) == TUTTI_OK;
    TTI_ASSERT(understood && "the environment variable TUTTI_FAULT, see base/fault.h");
}

static void ignore_environment(void) {}

tutti_status tti_fault_set(const char *faults) {
    pthread_once(&table.once, ignore_environment);
    return parse_table(faults);
}

int64_t tti_fault_n_fired(void) { return atomic_load(&table.n_fired); }

static bool matches(const fault *f, const char *point, int rank, int64_t step) {
    return (strcmp(f->point, "*") == 0 || strcmp(f->point, point) == 0) &&
           (f->rank < 0 || f->rank == rank) && (f->step < 0 || f->step == step);
}

/* noinline: their names are looked for in stacks. */

static void __attribute__((noinline)) sleep_in_fault(int64_t t_ms) {
    struct timespec left = {t_ms / 1000, t_ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0) continue; /* a signal asks for the stack */
}

/* Waits of this process count this time; a single jump would count as one look (patience.h). */
static void pass_in_fault(int64_t t_ms) {
    enum { STEP_MS = 75, SLEEP_MS = 5 };
    for (int64_t ms = 0; ms < t_ms; ms += STEP_MS) {
        sleep_in_fault(SLEEP_MS);
        tti_clock_advance_ms(STEP_MS - SLEEP_MS);
    }
}

static void __attribute__((noinline)) spin_in_fault(int64_t t_ms) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t end_ms = now.tv_sec * 1000 + now.tv_nsec / 1000000 + t_ms;
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < end_ms);
}

/* A lock whose owner does not let it go. */
static void __attribute__((noinline)) lock_in_fault(int64_t t_ms) {
    pthread_mutex_t mutex;
    struct timespec end;
    pthread_mutex_init(&mutex, NULL);
    pthread_mutex_lock(&mutex);
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += t_ms / 1000;
    pthread_mutex_timedlock(&mutex, &end);
    pthread_mutex_unlock(&mutex);
    pthread_mutex_destroy(&mutex);
}

/* The process dies, but a child keeps its descriptors open for 20 s, as a lost host does: its peers
 * see no connection end. */
static void vanish(void) {
    pid_t child = fork();
    if (child == 0) {
        setsid(); /* a supervisor kills the group of a dead worker */
        nanosleep(&(struct timespec){20, 0}, NULL);
        _exit(0);
    }
    kill(getpid(), SIGKILL);
}

static bool act(const fault *f) {
    switch (f->action) {
        case ACTION_KILL:
            kill(getpid(), SIGKILL);
            return false;
        case ACTION_VANISH:
            vanish();
            return false;
        case ACTION_SPIN:
            spin_in_fault(f->value);
            return false;
        case ACTION_LOCK:
            lock_in_fault(f->value);
            return false;
        case ACTION_STOP:
            kill(getpid(), SIGSTOP);
            return false;
        case ACTION_DELAY:
            sleep_in_fault(f->value);
            return false;
        case ACTION_ADVANCE:
            tti_clock_advance_ms(f->value);
            return false;
        case ACTION_PASS:
            pass_in_fault(f->value);
            return false;
        case ACTION_FAIL:
            errno = (int)f->value;
            return true;
    }
    return false;
}

bool tti_fault_hit(const char *point, int rank, int64_t step) {
    pthread_once(&table.once, read_environment);
    bool failed = false;
    for (int i = 0; i < atomic_load(&table.n_faults); i++) {
        const fault *f = &table.faults[i];
        if (!matches(f, point, rank, step)) continue;
        int64_t hit = atomic_fetch_add(&table.n_hits[i], 1) + 1;
        if (f->first && hit != f->first && !(f->and_later && hit > f->first)) continue;
        atomic_fetch_add(&table.n_fired, 1);
        failed |= act(f);
    }
    return failed;
}

#endif
