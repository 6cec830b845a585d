/* join_test.c - a rank of another version, wire format or program is refused, with both sides'. */
#include "base/fault.h"
#include "comm/net/net.h"
#include "comm/ranks.h"
#include "t.h"

/* Rank 1's hello, as it is but for what change does to it. */
static tutti_status connect_two(void (*change)(net_hello *)) {
    net_hello peers[2];
    tti_net_fill_hello(0, &peers[0]);
    tti_net_fill_hello(1, &peers[1]);
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

static const char *join_in_vain(int rank, int n_ranks, void *address) {
    tutti_comm *comm;
    const tutti_comm_desc desc = {.transport = "tcp",
                                  .rank = rank,
                                  .n_ranks = n_ranks,
                                  .timeout_ms = 60000,
                                  .address = address};
    tutti_status st = tutti_comm_create(&desc, &comm);
    COMM_TRUE(st == TUTTI_E_CONFIG || st == TUTTI_E_PEER);
    bool is_near = rank == 11 || rank == 1;
    COMM_TRUE(!is_near || strstr(tutti_last_error(), "install the same version on every host"));
    return NULL;
}

/* Also where ranks greet only those above and below them in a tree: then rank 11 is below rank 1.
 */
T_CASE(all_end_if_one_is_of_another_version) {
    T_UNUSED;
    static const char *const faults[] = {"net.version:fail@rank=11",
                                         "net.version:fail@rank=11;link.sparse:fail"};
    for (size_t i = 0; i < TTI_COUNT(faults); i++) {
        char address[64];
        snprintf(address, sizeof address, "unix:v%d-%zu", getpid(), i);
        T_OK(tti_fault_set(faults[i]));
        t_ranks(12, join_in_vain, address);
        T_OK(tti_fault_set(NULL));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_end_if_one_is_of_another_version),
        cmocka_unit_test(the_same_version),
        cmocka_unit_test(another_version),
        cmocka_unit_test(texts_that_do_not_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
