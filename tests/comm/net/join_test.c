/* join_test.c - a rank of another version, wire format or program is refused, with both sides'. */
#include "comm/net/net.h"
#include "t.h"

/* Rank 1's hello, as it is but for what change does to it. */
static tutti_status connect_two(void (*change)(net_hello *)) {
    net_hello peers[2];
    tti_net_introduce(0, &peers[0]);
    tti_net_introduce(1, &peers[1]);
    change(&peers[1]);
    return tti_net_check_hello(&peers[0], 0, &peers[1], 1);
}

static void leave(net_hello *hello) { (void)hello; }

static void of_another_version(net_hello *hello) {
    strcpy(hello->version, "9.8.7");
    strcpy(hello->host, "elsewhere");
}

static void of_another_wire(net_hello *hello) { hello->wire++; }

static void of_another_program(net_hello *hello) { hello->magic ^= 1; }

static void without_an_end(net_hello *hello) {
    memset(hello->version, 'v', sizeof hello->version);
    memset(hello->host, 'h', sizeof hello->host);
}

T_CASE(the_same_version) {
    T_UNUSED;
    T_OK(connect_two(leave));
}

T_CASE(another_version) {
    T_UNUSED;
    T_FAILS(connect_two(of_another_version), TUTTI_E_CONFIG,
            "rank 1 on elsewhere is of tutti 9.8.7 (wire ");
    T_FAILS(connect_two(of_another_version), TUTTI_E_CONFIG, " of " TUTTI_VERSION " (wire ");
    T_FAILS(connect_two(of_another_version), TUTTI_E_CONFIG,
            "install the same version on every host");
    T_FAILS(connect_two(of_another_wire), TUTTI_E_CONFIG, "rank 1 on ");
    T_FAILS(connect_two(of_another_program), TUTTI_E_CONFIG,
            "rank 1 is another program than rank 0");
}

T_CASE(texts_that_do_not_end) {
    T_UNUSED;
    T_FAILS(connect_two(without_an_end), TUTTI_E_CONFIG, "rank 1 on hhhh");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_version),
        cmocka_unit_test(another_version),
        cmocka_unit_test(texts_that_do_not_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
