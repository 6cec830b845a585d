/* hello_test.c - who is let in: every field of a hello is checked, and no message serves twice. */
#include "comm/tcp/tcp.h"
#include "t.h"

static const bool all_wanted[4] = {true, true, true, true};

static tti_link_desc desc_of(int rank, const char *token) {
    return (tti_link_desc){
        .rank = rank, .n_ranks = 4, .timeout_ms = 1000, .token = token, .job = "j/0"};
}

/* The result of rank 2 when rank 1 connects, each with its description. */
static tutti_status connect_two(const tti_link_desc *one, const tti_link_desc *two,
                                const bool *wanted) {
    tcp_challenge challenge;
    tcp_hello hello;
    tcp_answer answer;
    tti_tcp_challenge(&challenge);
    tti_tcp_hello(two, 1, 1234, &challenge, &hello);
    tti_tcp_answer_hello(one, wanted, &challenge, &hello, &answer);
    return tti_tcp_check_answer(two, &hello, &answer);
}

T_CASE(those_who_belong_together) {
    T_UNUSED;
    tti_link_desc one = desc_of(1, "a secret"), two = desc_of(2, "a secret");
    T_OK(connect_two(&one, &two, all_wanted));
    one.token = two.token = NULL;
    T_OK(connect_two(&one, &two, all_wanted));
}

T_CASE(those_who_do_not) {
    T_UNUSED;
    bool nobody[4] = {false};
    tti_link_desc one = desc_of(1, "a secret"), two = desc_of(2, "another secret");
    T_FAILS(connect_two(&one, &two, all_wanted), TUTTI_E_CONFIG,
            "the token of rank 1 is not that of");
    two = desc_of(2, NULL);
    T_FAILS(connect_two(&one, &two, all_wanted), TUTTI_E_CONFIG, "the token of rank 1");
    two = desc_of(2, "a secret");
    two.job = "j/1";
    T_FAILS(connect_two(&one, &two, all_wanted), TUTTI_E_MISMATCH, "it is of job 'j/1', not 'j/0'");
    two = desc_of(2, "a secret");
    two.n_ranks = 5;
    T_FAILS(connect_two(&one, &two, all_wanted), TUTTI_E_MISMATCH,
            "rank 2 of 5 and looks for rank 1; this is");
    two = desc_of(1, "a secret");
    T_FAILS(connect_two(&one, &two, all_wanted), TUTTI_E_MISMATCH, "it is rank 1 of 4");
    two = desc_of(-1, "a secret");
    T_FAILS(connect_two(&one, &two, all_wanted), TUTTI_E_MISMATCH, "it is rank -1 of 4");
    two = desc_of(2, "a secret");
    T_FAILS(connect_two(&one, &two, nobody), TUTTI_E_MISMATCH, "there is a rank 2 already");
}

/* A recorded hello is worth nothing against a new challenge, nor a changed one against its own. */
T_CASE(replays_and_changes) {
    T_UNUSED;
    tti_link_desc one = desc_of(1, "a secret"), two = desc_of(2, "a secret");
    tcp_challenge first, second;
    tcp_hello hello;
    tcp_answer answer;
    tti_tcp_challenge(&first);
    tti_tcp_challenge(&second);
    tti_tcp_hello(&two, 1, 1234, &first, &hello);
    tti_tcp_answer_hello(&one, all_wanted, &second, &hello, &answer);
    T_EQ(answer.status, TUTTI_E_CONFIG);
    const unsigned char no_mac[TCP_MAC_BYTES] = {0}; /* nothing to guess a token from */
    assert_memory_equal(answer.mac, no_mac, sizeof no_mac);
    T_OK(tti_tcp_check_challenge(&first));
    first.wire++;
    T_FAILS(tti_tcp_check_challenge(&first), TUTTI_E_MISMATCH, "or of another version");
    first.wire--;
    for (size_t i = 0; i < sizeof hello; i++) {
        tcp_hello changed = hello;
        ((unsigned char *)&changed)[i] ^= 1;
        tti_tcp_answer_hello(&one, all_wanted, &first, &changed, &answer);
        assert_true(answer.status == TUTTI_E_CONFIG || answer.status == TUTTI_E_MISMATCH);
    }
    tti_tcp_answer_hello(&one, all_wanted, &first, &hello, &answer);
    T_OK(tti_tcp_check_answer(&two, &hello, &answer));
    for (size_t i = 0; i < sizeof answer; i++) {
        tcp_answer changed = answer;
        ((unsigned char *)&changed)[i] ^= 1;
        assert_true(tti_tcp_check_answer(&two, &hello, &changed) != TUTTI_OK);
    }
    memset(&answer, 0, sizeof answer);
    T_FAILS(tti_tcp_check_answer(&two, &hello, &answer), TUTTI_E_MISMATCH, "not rank 1 of a job");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_who_belong_together),
        cmocka_unit_test(those_who_do_not),
        cmocka_unit_test(replays_and_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
