/* heartbeat_test.c - ranks learn what ranks of other hosts do: they wait for a declared phase with
 * its own limit, in the whole and in subgroups of it, and name it after a timeout. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "comm/mailbox.h"
#include "comm/ranks.h"
#include "comm/subgroup.h"

enum { TIMEOUT_MS = 1000, MAX_RANKS = 12 };

/* Which ranks there are, and how their hosts are connected. */
typedef struct setting {
    int n_ranks;
    const char *hosts;
    bool is_sparse; /* as a group of many ranks */
    int late;       /* the rank that the others wait for */
} setting;

/* In the last two the host of rank 11 is below that of rank 1 in the tree of hosts. */
static const setting settings[] = {{4, "a,b,a,b", false, 1},
                                   {4, "a,b,a,b", true, 1},
                                   {12, "a,b,a,b,c,d,e,f,g,h,i,j", true, 1},
                                   {12, "a,b,a,b,c,d,e,f,g,h,i,j", true, 11}};
static const setting *now;
static const char *more_faults = ""; /* in sparse settings: ";POINT:ACTION" */
static tutti_comm *comms[MAX_RANKS]; /* of the whole, by rank */

typedef struct hosts_case {
    comm_fn fn;
    const char *address;
    int phase_timeout_ms;
} hosts_case;

static atomic_int n_left; /* ranks that have left */

static const char *rank_main(int rank, int n_ranks, void *arg) {
    hosts_case *c = arg;
    tutti_comm *comm;
    COMM_OK(tutti_comm_create(&(tutti_comm_desc){.transport = "tcp",
                                                 .rank = rank,
                                                 .n_ranks = n_ranks,
                                                 .timeout_ms = c->phase_timeout_ms,
                                                 .phase_timeout_ms = c->phase_timeout_ms,
                                                 .address = c->address},
                              &comm));
    comms[rank] = comm;
    const char *failure = c->fn(comm, NULL);
    tutti_comm_destroy(comm);
    n_left++;
    return failure;
}

static void run_on_hosts(comm_fn fn, int phase_timeout_ms) {
    char address[64], faults[160];
    hosts_case c = {.fn = fn, .address = address, .phase_timeout_ms = phase_timeout_ms};
    snprintf(address, sizeof address, "unix:h%d-%p", getpid(), (void *)&c);
    setenv("TUTTI_TEST_HOSTS", now->hosts, 1);
    snprintf(faults, sizeof faults, "link.sparse:fail%s", more_faults);
    if (now->is_sparse) T_OK(tti_fault_set(faults));
    t_ranks(now->n_ranks, rank_main, &c);
    if (now->is_sparse) assert_true(tti_fault_n_fired() >= now->n_ranks);
    if (now->is_sparse) T_OK(tti_fault_set(NULL));
    unsetenv("TUTTI_TEST_HOSTS");
}

#define FOR_EACH_SETTING(n) for (now = settings; now < settings + (n); now++)

static atomic_int n_aware; /* ranks that know of the phase of rank 0 */

/* Ranks other than 0 return when they know that rank 0 is in a phase, and rank 0 after them. */
static void all_learn(tutti_comm *whole) {
    if (tutti_comm_rank(whole) != 0) {
        while (!tti_comm_find_busy(whole, NULL)) tti_sleep_ms(1);
        n_aware++;
    }
    while (tutti_comm_rank(whole) == 0 && n_aware < now->n_ranks - 1) tti_sleep_ms(1);
}

/* Rank 0 is in a phase for longer than TIMEOUT_MS.  Reports count for twice that, so that none has
 * to arrive meanwhile. */
static void take_long(tutti_comm *whole, const char *activity) {
    if (tutti_comm_rank(whole) == 0) tti_comm_declare(whole, activity);
    all_learn(whole);
    if (tutti_comm_rank(whole) != 0) return;
    for (int ms = 0; ms < 3 * TIMEOUT_MS / 2; ms += 75) comm_let_time_pass(75);
    tti_comm_declare(whole, NULL);
}

/* Rank 0 saves for a while in a phase that the others, in a call of comm, wait for. */
static const char *save_slowly(tutti_comm *whole, tutti_comm *comm) {
    COMM_OK(tutti_comm_barrier(whole));
    n_aware = 0;
    COMM_OK(tutti_comm_barrier(whole));
    tti_comm_set_timeout(whole, TIMEOUT_MS);
    tti_comm_set_timeout(comm, TIMEOUT_MS);
    take_long(whole, "saving a checkpoint");
    COMM_OK(tutti_comm_barrier(comm));
    COMM_OK(tutti_comm_barrier(whole)); /* none leaves before */
    return NULL;
}

static const char *wait_in_whole(tutti_comm *comm, void *arg) {
    (void)arg;
    return save_slowly(comm, comm);
}

/* Ranks 0 and 1, of two hosts; the others have nothing to do with it. */
static const char *wait_in_part(tutti_comm *comm, void *arg) {
    tutti_comm *subgroup;
    (void)arg;
    COMM_OK(tti_comm_split(comm, tutti_comm_rank(comm) / 2, &subgroup));
    const char *failure = save_slowly(comm, subgroup);
    tutti_comm_destroy(subgroup);
    return failure;
}

/* Rank 1 waits for a message of rank 0, in a subgroup that is like the whole. */
static const char *wait_for_message(tutti_comm *comm, void *arg) {
    const tti_mailbox_slot slot = {.to = 1, .from = 0, .n_bytes = 8};
    const void *data;
    uint64_t value = 17;
    tutti_comm *subgroup;
    tti_mailbox *box;
    (void)arg;
    COMM_OK(tti_comm_split(comm, 0, &subgroup));
    n_aware = 0;
    COMM_OK(tutti_comm_barrier(comm));
    tti_comm_set_timeout(subgroup, TIMEOUT_MS);
    COMM_OK(tti_mailbox_create(subgroup, &slot, 1, &box));
    take_long(comm, "evaluating");
    if (tutti_comm_rank(comm) == 0) COMM_OK(tti_mailbox_put(box, 0, &value));
    if (tutti_comm_rank(comm) == 1) COMM_OK(tti_mailbox_wait(box, 0, &data));
    COMM_OK(tutti_comm_barrier(comm)); /* none leaves before */
    tti_mailbox_destroy(box);
    tutti_comm_destroy(subgroup);
    return NULL;
}

T_CASE(a_phase_on_another_host_is_waited_for) {
    T_UNUSED;
    FOR_EACH_SETTING(TTI_COUNT(settings) - 1) {
        run_on_hosts(wait_in_whole, 60000);
        run_on_hosts(wait_in_part, 60000);
        run_on_hosts(wait_for_message, 60000);
    }
}

enum { PHASE_TIMEOUT_MS = 1900 }; /* reports count for longer */

static atomic_int n_given_up; /* ranks whose wait for rank 0 has ended */

/* Rank 0 is too long in its phase. */
static const char *time_out(tutti_comm *comm, void *arg) {
    (void)arg;
    COMM_OK(tutti_comm_barrier(comm));
    tti_comm_set_timeout(comm, TIMEOUT_MS);
    if (tutti_comm_rank(comm) == 0) tti_comm_declare(comm, "saving a checkpoint");
    all_learn(comm);
    if (tutti_comm_rank(comm) == 0) {
        while (n_given_up < now->n_ranks - 1) comm_let_time_pass(75);
        return NULL;
    }
    tutti_status st = tutti_comm_barrier(comm);
    n_given_up++;
    COMM_FAILS(st, TUTTI_E_TIMEOUT, ", which has been saving a checkpoint for ");
    COMM_FAILS(st, TUTTI_E_TIMEOUT, "ms (parallel.phase_timeout_ms=1900) for rank 0");
    while (n_given_up < now->n_ranks - 1) tti_sleep_ms(1); /* who leaves ends the wait */
    return NULL;
}

T_CASE(a_phase_that_takes_too_long_is_named) {
    T_UNUSED;
    FOR_EACH_SETTING(TTI_COUNT(settings) - 1) {
        n_aware = n_given_up = 0;
        run_on_hosts(time_out, PHASE_TIMEOUT_MS);
    }
}

static pthread_barrier_t given_up;
static atomic_int n_named; /* ranks that named the late one; one that gives up is in no call too */

/* Whether every other rank knows that it waits for this one, and what this one does. */
static bool all_know(int rank) {
    bool all = true;
    for (int r = 0; r < now->n_ranks && all; r++) {
        tti_str what = {0};
        all = r == rank || tti_comm_find_culprit(comms[r], -1, &what) == rank;
        all = all && (r == rank || strstr(tti_str_text(&what), "is in no call; its last was "));
        tti_str_free(&what);
    }
    return all;
}

/* The phase of a rank on another host is known after its page has arrived. */
static const char *compute(tutti_comm *comm, void *arg) {
    char late[32];
    int rank = tutti_comm_rank(comm);
    (void)arg;
    snprintf(late, sizeof late, "for rank %d", now->late);
    tti_comm_note(comm, 12, "compute");
    COMM_OK(tutti_comm_barrier(comm));
    tti_comm_set_timeout(comm, 20 * TIMEOUT_MS);
    if (rank == now->late) {
        while (!all_know(rank)) tti_sleep_ms(1);
        while (n_given_up < now->n_ranks - 1) comm_let_time_pass(1500);
        pthread_barrier_wait(&given_up);
        return NULL;
    }
    tutti_status st = tutti_comm_barrier(comm);
    n_given_up++;
    n_named += strstr(tutti_last_error(), late) &&
               strstr(tutti_last_error(), "is in no call; its last was barrier() (step 12, ");
    pthread_barrier_wait(&given_up);
    COMM_TRUE(st == TUTTI_E_TIMEOUT);
    return n_named > 0 ? NULL : comm_text("%s", tutti_last_error());
}

T_CASE(a_rank_that_computes_is_named) {
    T_UNUSED;
    FOR_EACH_SETTING(TTI_COUNT(settings)) {
        n_given_up = n_named = 0;
        pthread_barrier_init(&given_up, NULL, (unsigned)now->n_ranks);
        run_on_hosts(compute, 60000);
        pthread_barrier_destroy(&given_up);
    }
}

/* One rank leaves after the others have left, at the latest after a minute. */
static const char *leave_last(tutti_comm *comm, void *arg) {
    (void)arg;
    COMM_OK(tutti_comm_barrier(comm));
    for (int i = 0; tutti_comm_rank(comm) == now->late && n_left < now->n_ranks - 1; i++) {
        COMM_TRUE(i < 60000);
        tti_sleep_ms(1);
    }
    return NULL;
}

T_CASE(leaving_waits_for_no_rank) {
    T_UNUSED;
    FOR_EACH_SETTING(TTI_COUNT(settings) - 1) {
        n_left = 0;
        run_on_hosts(leave_last, 120000);
        T_EQ(n_left, now->n_ranks);
    }
}

/* Waits until comm knows, or knows no more, of a rank in a long phase, at most half a minute.
 */
static bool learns(tutti_comm *comm, bool is_busy) {
    int64_t end_ns = tti_now_ns() + 30000 * TTI_NS_PER_MS;
    while (tti_comm_find_busy(comm, NULL) != is_busy) {
        if (tti_now_ns() >= end_ns) return false;
        tti_sleep_ms(1);
    }
    return true;
}

/* Rank 11 begins or ends a phase, and ranks 1 and 3 of another host learn of it. */
static const char *learn_of_rank_11(tutti_comm *comm, int nth, bool is_busy) {
    if (tutti_comm_rank(comm) == 11) {
        tti_comm_declare(comm, is_busy ? "evaluating" : NULL);
        while (n_aware < 2 * nth) tti_sleep_ms(1);
        return NULL;
    }
    bool has_learnt = learns(comm, is_busy);
    n_aware += has_learnt ? 1 : 100; /* rank 11 does not wait for a rank that fails */
    COMM_TRUE(has_learnt);
    return NULL;
}

static bool stays(int rank) { return rank == 1 || rank == 3 || rank == 11; }

/* Hosts leave before the others, at last that of rank 0: after seven ranks of the other hosts have
 * ended their connections. */
static void leave_in_turn(int rank) {
    if (stays(rank))
        while (n_left < 9) tti_sleep_ms(1);
    else if (rank == 0 || rank == 2)
        while (n_left < 7) tti_sleep_ms(1);
}

/* The hosts of ranks 1 and 11, of which one is above the other in the tree, outlast the rest. */
static const char *outlast(tutti_comm *comm, void *arg) {
    int rank = tutti_comm_rank(comm);
    const char *failure = NULL;
    tutti_comm *part;
    (void)arg;
    COMM_OK(tti_comm_split(comm, stays(rank), &part));
    COMM_OK(tutti_comm_barrier(comm));
    leave_in_turn(rank);
    for (int i = 1; i <= 4 && stays(rank) && !failure; i++)
        failure = learn_of_rank_11(comm, i, i % 2);
    if (stays(rank) && !failure) COMM_OK(tutti_comm_barrier(part));
    tutti_comm_destroy(part);
    return failure;
}

/* A rank that leaves in order has not died, and the heartbeat between the others continues, also
 * where sending fails twice in a row, because several hosts leave at once.  Host 0 may leave at the
 * same moment, and is the one more that a host with two neighbors in the tree may find. */
T_CASE(hosts_that_leave_stop_no_other) {
    T_UNUSED;
    setting both[2] = {settings[2], settings[2]};
    both[1].is_sparse = false;
    more_faults = ";heartbeat.move:fail@3,rank=1;heartbeat.move:fail@4,rank=1";
    for (now = both; now < both + 2; now++) {
        n_left = n_aware = 0;
        run_on_hosts(outlast, 60000);
    }
    more_faults = "";
}

/* Rank 0 leaves without a last report.  Then rank 11 ends its phase: ranks 1 and 3 learn of it from
 * the heartbeat of their host, or because it has ended, since rank 0 no longer answers it. */
static const char *miss_last_report(tutti_comm *comm, void *arg) {
    int rank = tutti_comm_rank(comm);
    tutti_comm *part;
    (void)arg;
    COMM_OK(tti_comm_split(comm, stays(rank), &part));
    COMM_OK(tutti_comm_barrier(comm));
    const char *failure = stays(rank) ? learn_of_rank_11(comm, 1, true) : NULL;
    if (!failure) COMM_OK(tutti_comm_barrier(comm));
    leave_in_turn(rank);
    if (rank == 11) tti_comm_declare(comm, NULL);
    if (rank == 1 || rank == 3) COMM_TRUE(learns(comm, false));
    if (stays(rank) && !failure) COMM_OK(tutti_comm_barrier(part));
    tutti_comm_destroy(part);
    return failure;
}

T_CASE(a_rank_without_a_last_report_has_not_died) {
    T_UNUSED;
    now = &settings[2];
    n_left = n_aware = 0;
    more_faults = ";heartbeat.last:fail@rank=0";
    run_on_hosts(miss_last_report, 60000);
    more_faults = "";
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_phase_on_another_host_is_waited_for),
        cmocka_unit_test(a_phase_that_takes_too_long_is_named),
        cmocka_unit_test(a_rank_that_computes_is_named),
        cmocka_unit_test(leaving_waits_for_no_rank),
        cmocka_unit_test(hosts_that_leave_stop_no_other),
        cmocka_unit_test(a_rank_without_a_last_report_has_not_died),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
