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
    m.number[0] = 64; /* workers are 0 .. 63 */
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
    static const int64_t kinds[] = {TTI_WIRE_FAIL, TTI_WIRE_LEAVE, TTI_WIRE_WHY};
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
        cmocka_unit_test(what_cannot_be),
        cmocka_unit_test(texts_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
