/* stream_test.c - what a rank hears of others beside its messages: who is to blame, and nonsense.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/tcp/tcp.h"
#include "t.h"

enum { N_RANKS = 3 };

static int global_ranks[N_RANKS] = {0, 1, 2};

/* Rank 0, and what each other rank has of its connection to it. */
typedef struct group {
    tcp_state here, there[N_RANKS];
} group;

static tcp_peer *peer(tcp_state *s, int rank) {
    tcp_peer *p = tti_tcp_add_peer(s, rank);
    assert_non_null(p);
    return p;
}

static tutti_status push(tcp_state *s, tti_message *m) {
    return tti_tcp_push(s, peer(s, m->peer), m);
}

static tutti_status pull(tcp_state *s, tti_message *m) {
    return tti_tcp_pull(s, peer(s, m->peer), m);
}

static void begin(group *g) {
    memset(g, 0, sizeof *g);
    g->here.desc = (tti_link_desc){.rank = 0, .n_ranks = N_RANKS};
    g->here.global_ranks = global_ranks;
    for (int r = N_RANKS - 1; r > 0; r--) { /* in any order */
        int pair[2];
        T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
        peer(&g->here, r)->fd = pair[0];
        g->there[r].desc = (tti_link_desc){.rank = r, .n_ranks = N_RANKS};
        peer(&g->there[r], 0)->fd = pair[1];
        g->there[r].global_ranks = global_ranks;
    }
}

static void hang_up(group *g, int rank) {
    tcp_peer *p = peer(&g->there[rank], 0);
    if (p->fd >= 0) close(p->fd);
    p->fd = -1;
}

static void end(group *g) {
    for (int r = 1; r < N_RANKS; r++) {
        hang_up(g, r);
        close(peer(&g->here, r)->fd);
        tti_tcp_drop_bytes(peer(&g->here, r));
        tti_tcp_drop_bytes(peer(&g->there[r], 0));
        tti_tcp_free_peers(&g->there[r]);
    }
    tti_tcp_free_peers(&g->here);
}

static tutti_status wait_for_rank_1(group *g) {
    char bytes[64];
    tti_message m = {.peer = 1, .in = bytes, .n_bytes = sizeof bytes};
    tutti_status st = TUTTI_OK;
    for (int i = 0; i < 5 && st == TUTTI_OK; i++) st = pull(&g->here, &m);
    return st;
}

/* Rank 1 broke off in the middle of a message, since rank 2 had failed. */
T_CASE(the_first_cause_is_seen) {
    T_UNUSED;
    group g;
    begin(&g);
    assert_true(
        tti_tcp_send_failure(peer(&g.there[2], 0), TUTTI_E_IO, "rank 2 failed: the disk is full"));
    hang_up(&g, 1);
    T_FAILS(wait_for_rank_1(&g), TUTTI_E_IO, "rank 2 failed: the disk is full");
    end(&g);
    begin(&g);
    hang_up(&g, 1);
    T_FAILS(wait_for_rank_1(&g), TUTTI_E_PEER,
            "rank 1 died, or failed in the middle of a message: its connection ended");
    end(&g);
    begin(&g);
    assert_true(tti_tcp_send_leave(peer(&g.there[1], 0)));
    hang_up(&g, 1);
    T_FAILS(wait_for_rank_1(&g), TUTTI_E_PEER, "rank 1, which left the group");
    end(&g);
}

/* Behind a network that is cut a rank may be alive. */
T_CASE(a_rank_that_is_cut_off_has_not_died) {
    T_UNUSED;
    group g;
    begin(&g);
    peer(&g.here, 1)->gone = true;
    peer(&g.here, 1)->error = ETIMEDOUT;
    T_FAILS(wait_for_rank_1(&g), TUTTI_E_PEER,
            "rank 1 cannot be reached any more: Connection timed out");
    T_FAILS(tti_tcp_check(&g.here, false), TUTTI_E_PEER, "rank 1 cannot be reached any more");
    end(&g);
}

/* Two ranks have left in unknown order: both are named. */
T_CASE(all_who_went_without_a_word_are_named) {
    T_UNUSED;
    group g;
    begin(&g);
    hang_up(&g, 1);
    hang_up(&g, 2);
    T_FAILS(wait_for_rank_1(&g), TUTTI_E_PEER, "rank 1, rank 2 died");
    end(&g);
}

/* The messages of a failed batch are freed before the cause is reported. */
T_CASE(a_batch_that_failed_is_not_looked_at) {
    T_UNUSED;
    group g;
    begin(&g);
    char byte = 0;
    tti_message gone = {.peer = 0, .out = &byte, .n_bytes = 2, .done = 1};
    g.there[1].batch = &gone;
    g.there[1].n_batch = 1;
    assert_true(
        tti_tcp_send_failure(peer(&g.there[1], 0), TUTTI_E_IO, "rank 1 failed: the disk is full"));
    T_FAILS(wait_for_rank_1(&g), TUTTI_E_IO, "the disk is full");
    end(&g);
}

/* A rank that has reported its failure ends its connections; a thread of it that still sends fails
 * for the same reason, and blames no rank. */
T_CASE(a_rank_that_failed_accuses_nobody) {
    T_UNUSED;
    group g;
    char byte = 0;
    tti_message message = {.peer = 1, .out = &byte, .n_bytes = 1};
    begin(&g);
    tti_link_tcp.report_failure(&g.here, TUTTI_E_TIMEOUT, "rank 1 (pid 7) said nothing");
    T_FAILS(tti_link_tcp.post(&g.here, &message, 1), TUTTI_E_TIMEOUT, "rank 1 (pid 7) said");
    end(&g);
}

/* Rank 1 waits too, and rank 2 says nothing; a message that is not taken yet may hide more. */
T_CASE(who_waits_is_heard) {
    T_UNUSED;
    const int64_t long_ago_ns = 60 * INT64_C(1000000000);
    int64_t quiet[N_RANKS];
    char bytes[4] = "abc", got[4] = "";
    tti_message out = {.peer = 0, .out = bytes, .n_bytes = sizeof bytes},
                in = {.peer = 2, .in = got, .n_bytes = sizeof got};
    group g;
    begin(&g);
    g.there[1].desc.timeout_ms = g.there[2].desc.timeout_ms = 80000;
    for (int i = 0; i < 3; i++) tti_tcp_send_keepalive(&g.there[1]); /* once: no second is over */
    T_OK(tti_tcp_check(&g.here, true));
    T_EQ(peer(&g.here, 1)->in_last, 16);
    tti_link_tcp.get_silence(&g.here, long_ago_ns, quiet);
    assert_true(!quiet[0] && !quiet[1] && quiet[2]);
    tti_link_tcp.get_silence(&g.here, 0, quiet);
    assert_true(!quiet[0] && quiet[1] && quiet[2]);
    T_OK(push(&g.there[2], &out));
    T_OK(tti_tcp_check(&g.here, true));
    tti_link_tcp.get_silence(&g.here, 0, quiet);
    assert_true(quiet[1] && !quiet[2]);
    tti_tcp_send_keepalive(&g.there[2]); /* between messages */
    T_OK(pull(&g.here, &in));
    assert_string_equal(got, "abc");
    T_OK(tti_tcp_check(&g.here, true));
    tti_link_tcp.get_silence(&g.here, long_ago_ns, quiet);
    assert_true(!quiet[1] && !quiet[2]);
    end(&g);
}

/* A socket that is nearly full takes a part of it: what follows comes after the rest. */
T_CASE(half_a_word_is_ended_first) {
    T_UNUSED;
    static const uint32_t alive[4] = {0x4d465454, 4};
    char bytes[64] = "after it", got[64] = "";
    tti_message out = {.peer = 0, .out = bytes, .n_bytes = sizeof bytes},
                in = {.peer = 1, .in = got, .n_bytes = sizeof got};
    group g;
    begin(&g);
    for (int i = 0; i < 2; i++) {
        tcp_peer *p = peer(&g.there[1], 0);
        T_EQ(write(p->fd, alive, 5), 5);
        p->out_alive = 5;
        if (i == 0) {
            T_OK(push(&g.there[1], &out));
            T_OK(pull(&g.here, &in));
            assert_string_equal(got, bytes);
        } else {
            assert_true(tti_tcp_send_leave(peer(&g.there[1], 0)));
            T_OK(tti_tcp_handle_control(&g.here, peer(&g.here, 1)));
            assert_true(peer(&g.here, 1)->has_left);
        }
        T_EQ(p->out_alive, 0);
    }
    end(&g);
}

/* ---- ahead of receives ---- */

/* Rank 1 has sent a message that is not asked for; the data after it is read after a while. */
static void be_early(group *g) {
    static char bytes[100];
    tti_message out = {.peer = 0, .out = bytes, .n_bytes = sizeof bytes};
    T_OK(push(&g->there[1], &out));
    T_OK(tti_tcp_check(&g->here, false));
    T_OK(tti_tcp_check(&g->here, false));
    assert_true(peer(&g->here, 1)->has_header && peer(&g->here, 1)->untaken_ns > 0);
}

static void let_time_pass(group *g) {
    peer(&g->here, 1)->untaken_ns -= TCP_AHEAD_MS * INT64_C(1000000);
}

/* Rank 0 waits for rank 2, of whose loss it is rank 1 that knows. */
T_CASE(a_failure_after_a_message_is_heard) {
    T_UNUSED;
    group g;
    begin(&g);
    be_early(&g);
    be_early(&g);
    assert_true(
        tti_tcp_send_failure(peer(&g.there[1], 0), TUTTI_E_PEER, "rank 2 was stopped by a signal"));
    hang_up(&g, 1);
    let_time_pass(&g);
    T_FAILS(tti_tcp_check(&g.here, false), TUTTI_E_PEER, "rank 2 was stopped by a signal");
    T_FAILS(tti_tcp_check(&g.here, false), TUTTI_E_PEER, "rank 2 was stopped by a signal");
    end(&g);
}

/* The same where this rank learns by sending that rank 1 has hung up. */
T_CASE(a_failure_after_a_message_is_the_reason) {
    T_UNUSED;
    char byte = 0;
    tti_message out = {.peer = 1, .out = &byte, .n_bytes = 1};
    group g;
    begin(&g);
    be_early(&g);
    assert_true(
        tti_tcp_send_failure(peer(&g.there[1], 0), TUTTI_E_IO, "rank 1 failed: the disk is full"));
    hang_up(&g, 1);
    T_FAILS(push(&g.here, &out), TUTTI_E_IO, "rank 1 failed: the disk is full");
    end(&g);
}

/* A rank that is done may leave while its last message is queued; inside a message it has failed.
 */
T_CASE(a_stream_that_ends_after_a_message) {
    T_UNUSED;
    static const uint32_t data[4] = {0x4d465454, 1, 1000, 0};
    for (size_t n_cut = 0; n_cut <= sizeof data; n_cut += sizeof data / 2) {
        group g;
        begin(&g);
        be_early(&g);
        T_EQ(write(peer(&g.there[1], 0)->fd, data, n_cut), (ssize_t)n_cut);
        hang_up(&g, 1);
        let_time_pass(&g);
        if (n_cut == 0) {
            T_OK(tti_tcp_check(&g.here, true));
            char got[100];
            tti_message in = {.peer = 1, .in = got, .n_bytes = sizeof got};
            T_OK(pull(&g.here, &in));
            T_EQ(in.done, in.n_bytes);
        }
        T_FAILS(tti_tcp_check(&g.here, true), TUTTI_E_PEER,
                "rank 1 died, or failed in the middle of a message");
        end(&g);
    }
}

T_CASE(what_is_no_frame_after_a_message) {
    T_UNUSED;
    static const uint32_t frames[][4] = {{0x4d465454, 5, 0, 0}, {1, 1, 0, 0}};
    static const uint32_t endless[4] = {0x4d465454, 1, UINT32_MAX - 15, UINT32_MAX};
    for (size_t i = 0; i < TTI_COUNT(frames); i++) {
        group g;
        begin(&g);
        be_early(&g);
        T_EQ(write(peer(&g.there[1], 0)->fd, frames[i], 16), 16);
        let_time_pass(&g);
        T_FAILS(tti_tcp_check(&g.here, false), TUTTI_E_INTERNAL, "rank 1 sent an invalid frame");
        end(&g);
    }
    group g;
    begin(&g);
    be_early(&g);
    T_EQ(write(peer(&g.there[1], 0)->fd, endless, sizeof endless), (ssize_t)sizeof endless);
    let_time_pass(&g);
    T_OK(tti_tcp_check(&g.here, false)); /* which ends */
    end(&g);
}

/* Messages that were read ahead, in whatever parts, come as they were sent; and a rank whose
 * socket is full gets them all out, so that it can say something after them. */
T_CASE(what_was_read_ahead_is_taken_later) {
    T_UNUSED;
    enum { N_MESSAGES = 40, LONGEST = 60000 };
    static unsigned char sent[LONGEST + N_MESSAGES], got[LONGEST];
    group g;
    begin(&g);
    for (int i = 0; i < LONGEST + N_MESSAGES; i++) sent[i] = (unsigned char)(i * 7 + i / 256);
    int n_out = 0;
    tti_message out = {.peer = 0};
    for (int turn = 0; turn < 100000 && n_out < N_MESSAGES; turn++) {
        if (out.done == out.n_bytes)
            out = (tti_message){
                .peer = 0, .out = sent + n_out, .n_bytes = 1 + (size_t)n_out * 20011 % LONGEST};
        T_OK(push(&g.there[1], &out));
        n_out += out.done == out.n_bytes;
        T_OK(tti_tcp_check(&g.here, true));
        if (peer(&g.here, 1)->untaken_ns) let_time_pass(&g);
    }
    T_EQ(n_out, N_MESSAGES);
    assert_true(tti_tcp_send_leave(peer(&g.there[1], 0)));
    hang_up(&g, 1);
    T_OK(tti_tcp_check(&g.here, true));
    for (int i = 0; i < N_MESSAGES; i++) {
        tti_message in = {.peer = 1, .in = got, .n_bytes = 1 + (size_t)i * 20011 % LONGEST};
        T_OK(pull(&g.here, &in));
        T_EQ(in.done, in.n_bytes);
        assert_memory_equal(got, sent + i, in.n_bytes);
    }
    T_OK(tti_tcp_check(&g.here, false));
    T_FAILS(tti_tcp_check(&g.here, true), TUTTI_E_PEER, "rank 1, which left the group");
    end(&g);
}

/* ---- a narrow connection ---- */

static int narrow(int fd) {
    int n_bytes = 4096, on = 1;
    T_EQ(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &n_bytes, sizeof n_bytes), 0);
    T_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &n_bytes, sizeof n_bytes), 0);
    T_EQ(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
    return fd;
}

/* In place of rank 1's: over TCP, with little room. */
static void connect_narrow(group *g) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int listener = narrow(socket(AF_INET, SOCK_STREAM, 0)),
        fd = narrow(socket(AF_INET, SOCK_STREAM, 0));
    T_EQ(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    T_EQ(listen(listener, 1), 0);
    T_EQ(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    T_EQ(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    hang_up(g, 1);
    close(peer(&g->here, 1)->fd);
    peer(&g->there[1], 0)->fd = fd;
    peer(&g->here, 1)->fd = accept(listener, NULL, NULL);
    close(listener);
}

/* Messages of every length, words between them wherever they fit. */
T_CASE(words_in_a_full_socket_break_no_message) {
    T_UNUSED;
    enum { N_MESSAGES = 12000, LONGEST = 9000 };
    static unsigned char sent[LONGEST], got[LONGEST];
    group g;
    begin(&g);
    connect_narrow(&g);
    for (int i = 0; i < LONGEST; i++) sent[i] = (unsigned char)(i * 7);
    int n_out = 0, n_in = 0;
    tti_message out = {.peer = 0}, in = {.peer = 1};
    while (n_in < N_MESSAGES) {
        for (int tries = 0; tries < 3 && n_out < N_MESSAGES; tries++) {
            if (out.done == out.n_bytes)
                out = (tti_message){
                    .peer = 0, .out = sent, .n_bytes = 1 + (size_t)n_out * 977 % LONGEST};
            T_OK(push(&g.there[1], &out));
            n_out += out.done == out.n_bytes;
            g.there[1].keepalive_ns = 0;
            tti_tcp_send_keepalive(&g.there[1]);
        }
        if (in.done == in.n_bytes)
            in = (tti_message){.peer = 1, .in = got, .n_bytes = 1 + (size_t)n_in * 977 % LONGEST};
        T_OK(pull(&g.here, &in));
        if (in.done < in.n_bytes) continue;
        assert_memory_equal(got, sent, in.n_bytes);
        n_in++;
    }
    end(&g);
}

T_CASE(what_is_no_frame) {
    T_UNUSED;
    static const uint32_t kinds[] = {0, 5, UINT32_MAX};
    for (size_t i = 0; i < TTI_COUNT(kinds); i++) {
        group g;
        begin(&g);
        char bytes[64] = {0};
        tti_message m = {.peer = 0, .out = bytes, .n_bytes = sizeof bytes};
        unsigned char frame[80];
        T_OK(push(&g.there[1], &m)); /* a right one, to be changed */
        T_EQ(read(peer(&g.here, 1)->fd, frame, sizeof frame), (ssize_t)sizeof frame);
        memcpy(frame + 4, &kinds[i], sizeof kinds[i]);
        T_EQ(write(peer(&g.there[1], 0)->fd, frame, sizeof frame), (ssize_t)sizeof frame);
        T_FAILS(wait_for_rank_1(&g), TUTTI_E_INTERNAL, "rank 1 sent an invalid frame");
        end(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_cause_is_seen),
        cmocka_unit_test(a_rank_that_is_cut_off_has_not_died),
        cmocka_unit_test(all_who_went_without_a_word_are_named),
        cmocka_unit_test(a_batch_that_failed_is_not_looked_at),
        cmocka_unit_test(a_rank_that_failed_accuses_nobody),
        cmocka_unit_test(who_waits_is_heard),
        cmocka_unit_test(half_a_word_is_ended_first),
        cmocka_unit_test(a_failure_after_a_message_is_heard),
        cmocka_unit_test(a_failure_after_a_message_is_the_reason),
        cmocka_unit_test(a_stream_that_ends_after_a_message),
        cmocka_unit_test(what_is_no_frame_after_a_message),
        cmocka_unit_test(what_was_read_ahead_is_taken_later),
        cmocka_unit_test(words_in_a_full_socket_break_no_message),
        cmocka_unit_test(what_is_no_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
