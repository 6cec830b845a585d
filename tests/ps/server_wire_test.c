/* server_wire_test.c - what workers and their server say: whole messages, and others. */
#include "ps/server_state.h"

#include <math.h>

#include "t.h"

static tti_wire_message message(int64_t kind) { return (tti_wire_message){.kind = kind}; }

T_CASE(whole_messages) {
    T_UNUSED;
    for (int64_t kind = TTI_WIRE_NONE + 1; kind < TTI_N_WIRE_KINDS; kind++) {
        tti_wire_message m = message(kind);
        size_t n = tti_wire_bytes(&m);
        T_OK(tti_wire_check(&m, n));
        T_FAILS(tti_wire_check(&m, n - 1), TUTTI_E_MISMATCH, "not one of its messages");
        T_FAILS(tti_wire_check(&m, n + 1), TUTTI_E_MISMATCH, "not one of its messages");
        T_FAILS(tti_wire_check(&m, 0), TUTTI_E_MISMATCH, "0 bytes");
    }
    tti_wire_message m = message(TTI_WIRE_COMBINE);
    m.number[0] = 3;
    T_EQ(tti_wire_bytes(&m), 5 * sizeof(int64_t) + 3 * sizeof(int64_t));
    T_OK(tti_wire_check(&m, tti_wire_bytes(&m)));
}

/* Sets travel as the words that the workers need, after the values. */
T_CASE(sets_of_workers) {
    T_UNUSED;
    tti_members sent = {0}, got;
    tti_wire_message m = message(TTI_WIRE_COMBINE);
    m.number[0] = 3;
    m.more.values[2] = 77;
    for (int w = 0; w < 130; w += 3) tti_set_add(&sent.all, w);
    tti_set_add(&sent.live, 129);
    tti_wire_put_members(&m, &sent, 130);
    T_EQ(tti_wire_bytes(&m), (5 + 3 + 2 * 3) * sizeof(int64_t));
    T_OK(tti_wire_check(&m, tti_wire_bytes(&m)));
    tti_wire_get_members(&m, &got);
    assert_memory_equal(&got, &sent, sizeof got);
    T_EQ(m.more.values[2], 77);
    T_EQ(tti_set_count(&got.all), 44);
    T_EQ(tti_set_count_below(&got.all, 64), 22);
    T_EQ(tti_set_count_below(&got.all, 129), 43);
    assert_true(tti_set_is_within(&got.live, &got.all) && !tti_set_is_within(&got.all, &got.live));
    m.number[2] = TTI_SET_WORDS + 1;
    T_FAILS(tti_wire_check(&m, sizeof m), TUTTI_E_MISMATCH, "not one of its messages");
    m = message(TTI_WIRE_UPDATE);
    m.number[2] = 2;
    T_OK(tti_wire_check(&m, tti_wire_bytes(&m)));
    m.number[2] = -1;
    T_FAILS(tti_wire_check(&m, tti_wire_bytes(&m)), TUTTI_E_MISMATCH, "not one of its messages");
}

static void refuse(tti_wire_message *m) {
    T_FAILS(tti_wire_check(m, tti_wire_bytes(m)), TUTTI_E_MISMATCH, "not one of its messages");
}

T_CASE(what_cannot_be) {
    T_UNUSED;
    static const int64_t kinds[] = {TTI_WIRE_NONE, -1, TTI_N_WIRE_KINDS, INT64_MAX};
    for (size_t i = 0; i < TTI_COUNT(kinds); i++) {
        tti_wire_message m = message(kinds[i]);
        refuse(&m);
    }
    tti_wire_message m = message(TTI_WIRE_COMBINE);
    m.number[0] = TTI_COMBINE_VALUES + 1;
    refuse(&m);
    m.number[0] = -1;
    refuse(&m);
    m = message(TTI_WIRE_OPEN);
    m.number[0] = 2, m.number[1] = 1;
    refuse(&m);
    m = message(TTI_WIRE_GRADIENT);
    m.number[0] = 1; /* more own rows than rows */
    refuse(&m);
    m.number[0] = 0;
    m.more.arrival.result.count = NAN;
    refuse(&m);
    m.more.arrival.result.count = -1;
    refuse(&m);
    m.more.arrival.result.count = 0;
    m.more.arrival.result.bubble = NAN;
    refuse(&m);
    m = message(TTI_WIRE_COPY);
    m.number[0] = TTI_MAX_SERVED; /* workers are 0 .. TTI_MAX_SERVED - 1 */
    refuse(&m);
    m.number[0] = -1;
    refuse(&m);
    for (int i = 1; i < 3; i++) {
        m = message(TTI_WIRE_FETCH);
        m.number[i] = -1;
        refuse(&m);
    }
}

T_CASE(texts_end) {
    T_UNUSED;
    static const int64_t kinds[] = {TTI_WIRE_FAIL, TTI_WIRE_LEAVE, TTI_WIRE_REPORT};
    for (size_t i = 0; i < TTI_COUNT(kinds); i++) {
        tti_wire_message m = message(kinds[i]);
        memset(m.more.text, 'x', sizeof m.more.text);
        T_OK(tti_wire_check(&m, tti_wire_bytes(&m)));
        T_EQ(strlen(m.more.text), TTI_WIRE_TEXT - 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_messages),
        cmocka_unit_test(sets_of_workers),
        cmocka_unit_test(what_cannot_be),
        cmocka_unit_test(texts_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
