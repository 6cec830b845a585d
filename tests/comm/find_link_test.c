/* find_link_test.c - links by name: the one built in, names that are none, a module that is not
 * there. */
#include <stdlib.h>

#include "comm/link.h"
#include "t.h"
#include "tutti/comm.h"

T_CASE(names) {
    T_UNUSED;
    const tti_link *link;
    tutti_comm *comm;
    T_OK(tti_link_find("tcp", &link));
    assert_ptr_equal(link, &tti_link_tcp);
    T_FAILS(tti_link_find("mpi", &link), TUTTI_E_INVALID, "no transport \"mpi\"");
    assert_null(link);
    T_EQ(setenv("TUTTI_MODULE_PATH", "/nowhere", 1), 0);
    T_FAILS(tti_link_find("mpi-mpich", &link), TUTTI_E_CONFIG,
            "/nowhere/tutti-mpi-mpich.so: not there");
    T_FAILS(tutti_comm_create(&(tutti_comm_desc){.transport = "mpi-openmpi", .n_ranks = 2}, &comm),
            TUTTI_E_CONFIG, "libopenmpi-dev");
    assert_null(comm);
}

T_CASE(description) {
    T_UNUSED;
    tti_str text = {0};
    T_EQ(setenv("TUTTI_MODULE_PATH", "/nowhere", 1), 0);
    tti_link_describe(&text);
    assert_string_equal(tti_str_text(&text),
                        "mpi-openmpi: not loaded; tried:\n"
                        "  /nowhere/tutti-mpi-openmpi.so: not there\n"
                        "mpi-mpich: not loaded; tried:\n"
                        "  /nowhere/tutti-mpi-mpich.so: not there\n");
    tti_str_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(description)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
