/* mailbox_test.c - slots between ranks: in order, in place, and no wait for ever. */
#include "comm/mailbox.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "comm/ranks.h"

enum { N_ROUNDS = 200, N_WORDS = 1000 };

/* A ring with two slots between neighbours; each rank adds one to what comes round. */
static const char *ring(tutti_comm *comm, void *arg) {
    (void)arg;
    int rank = tutti_comm_rank(comm), n = tutti_comm_n_ranks(comm), next = (rank + 1) % n;
    tti_mailbox_slot slots[16];
    for (int i = 0; i < 2 * n; i++)
        slots[i] =
            (tti_mailbox_slot){i / 2, (size_t)(i / 2 + N_WORDS) * sizeof(int), (i / 2 + n - 1) % n};
    tti_mailbox *box;
    COMM_OK(tti_mailbox_create(comm, slots, 2 * n, &box));
    COMM_TRUE(tti_mailbox_bytes(box) >= 2 * (size_t)(rank + N_WORDS) * sizeof(int));
    size_t n_own;
    const char *own = tti_mailbox_memory(box, &n_own);
    static _Thread_local int words[N_WORDS + 16];
    for (int round = 0; round < N_ROUNDS; round++) {
        const void *data = NULL;
        if (rank > 0) {
            COMM_OK(tti_mailbox_wait(box, 2 * rank + round % 2, &data));
            COMM_TRUE((const char *)data >= own && (const char *)data < own + n_own);
            COMM_TRUE(((const int *)data)[0] == round + rank - 1);
            COMM_TRUE(((const int *)data)[N_WORDS - 1] == round + rank - 1);
            tti_mailbox_free(box, 2 * rank + round % 2);
        }
        for (int i = 0; i < N_WORDS + 16; i++) words[i] = round + rank;
        COMM_OK(tti_mailbox_put(box, 2 * next + round % 2, words));
        if (rank > 0) continue;
        COMM_OK(tti_mailbox_wait(box, round % 2, &data));
        COMM_TRUE(((const int *)data)[0] == round + n - 1);
        tti_mailbox_free(box, round % 2);
    }
    COMM_OK(tutti_comm_barrier(comm)); /* who leaves ends the others' waits */
    tti_mailbox_destroy(box);
    return NULL;
}

T_CASE(messages_come_in_order) {
    T_UNUSED;
    comm_run(2, ring, NULL);
    comm_run(5, ring, NULL);
}

T_CASE(processes_see_the_same_slots) {
    T_UNUSED;
    comm_run_with(3, true, 0, ring, NULL);
}

static const char *late_reader(tutti_comm *comm, void *arg) {
    (void)arg;
    tti_mailbox_slot slot = {1, sizeof(int), 0};
    tti_mailbox *box;
    COMM_OK(tti_mailbox_create(comm, &slot, 1, &box));
    int word = 1;
    if (tutti_comm_rank(comm) == 0) {
        COMM_OK(tti_mailbox_put(box, 0, &word));
        word = 2; /* what was put is a copy, and the next waits until it is freed */
        COMM_OK(tti_mailbox_put(box, 0, &word));
    } else {
        for (int i = 1; i <= 2; i++) {
            const void *data;
            COMM_OK(tti_mailbox_wait(box, 0, &data));
            COMM_TRUE(tti_mailbox_is_full(box, 0));
            COMM_TRUE(t_wait_asleep()); /* the writer waits */
            COMM_TRUE(*(const int *)data == i);
            tti_mailbox_free(box, 0);
        }
    }
    COMM_OK(tutti_comm_barrier(comm));
    tti_mailbox_destroy(box);
    return NULL;
}

T_CASE(a_full_slot_is_not_written) {
    T_UNUSED;
    comm_run(2, late_reader, NULL);
}

/* Texts call ranks as they are called in the whole. */
static const char *nobody_writes(tutti_comm *comm, void *arg) {
    static const int global_ranks[] = {5, 7};
    _Atomic bool *has_waited = arg;
    tti_mailbox_slot slot = {1, sizeof(int), 0};
    tti_mailbox *box;
    const void *data;
    COMM_OK(tti_mailbox_create(comm, &slot, 1, &box));
    tti_mailbox_set_global_ranks(box, global_ranks);
    if (tutti_comm_rank(comm) == 1) {
        tti_comm_set_timeout(comm, 300);
        tutti_status st = tti_mailbox_wait(box, 0, &data);
        *has_waited = true;
        COMM_TRUE(comm_waited_ms() >= 300);
        COMM_FAILS(st, TUTTI_E_TIMEOUT, "rank 7 waited ");
        COMM_FAILS(st, TUTTI_E_TIMEOUT, "ms (parallel.timeout_ms=300) for rank 5 to fill slot 0");
    }
    while (!*has_waited) tti_sleep_ms(10); /* who leaves ends the wait */
    tti_mailbox_destroy(box);
    return NULL;
}

static const char *writer_fails(tutti_comm *comm, void *arg) {
    _Atomic bool *has_heard = arg;
    tti_mailbox_slot slot = {1, sizeof(int), 0};
    tti_mailbox *box;
    const void *data;
    COMM_OK(tti_mailbox_create(comm, &slot, 1, &box));
    if (tutti_comm_rank(comm) == 1) {
        tutti_status st = tti_mailbox_wait(box, 0, &data);
        *has_heard = true;
        COMM_FAILS(st, TUTTI_E_NUMERICS, "no number");
    } else {
        tti_mailbox_fail(box, tti_fail(TUTTI_E_NUMERICS, "no number"));
        while (!*has_heard) tti_sleep_ms(1);
    }
    tti_mailbox_destroy(box);
    return NULL;
}

T_CASE(no_wait_is_for_ever) {
    T_UNUSED;
    _Atomic bool has_waited = false, has_heard = false;
    comm_run(2, nobody_writes, &has_waited);
    comm_run(2, writer_fails, &has_heard);
}

/* To another host: what was given to the proxy thread while it looked elsewhere goes out first, and
 * is there for one who looks only when the sender has left. */
static const char *last_word(tutti_comm *comm, void *arg) {
    (void)arg;
    tti_mailbox_slot slot = {1, sizeof(int), 0};
    tti_mailbox *box;
    const void *data;
    int word = 7;
    COMM_OK(tti_mailbox_create(comm, &slot, 1, &box));
    if (tutti_comm_rank(comm) == 0) {
        COMM_TRUE(t_wait_asleep()); /* the proxy thread has found nothing to do */
        COMM_OK(tti_mailbox_put(box, 0, &word));
    } else {
        COMM_OK(tti_mailbox_wait(box, 0, &data));
        COMM_TRUE(*(const int *)data == 7);
        tti_mailbox_free(box, 0);
    }
    tti_mailbox_destroy(box);
    return NULL;
}

T_CASE(who_leaves_has_said_all) {
    T_UNUSED;
    if (getenv("TUTTI_TEST_TRANSPORT")) return;
    setenv("TUTTI_TEST_TRANSPORT", "tcp", 1);
    setenv("TUTTI_TEST_HOSTS", "a,b", 1);
    T_OK(tti_fault_set("proxy.turn:delay_ms=300@1,rank=0;mailbox.wait:delay_ms=600@1,rank=1"));
    comm_run(2, last_word, NULL);
    T_OK(tti_fault_set(NULL));
    unsetenv("TUTTI_TEST_HOSTS");
    unsetenv("TUTTI_TEST_TRANSPORT");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_come_in_order),
        cmocka_unit_test(processes_see_the_same_slots),
        cmocka_unit_test(a_full_slot_is_not_written),
        cmocka_unit_test(no_wait_is_for_ever),
        cmocka_unit_test(who_leaves_has_said_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
