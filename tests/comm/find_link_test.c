/* find_link_test.c - links by name: the built-in one, unknown names, and the modules of MPI, which
 * do not lie beside this program. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/link.h"
#include "t.h"
#include "tutti/comm.h"

static char own_folder[PATH_MAX];

static int find_own_folder(void **state) {
    T_UNUSED;
    if (!realpath("/proc/self/exe", own_folder)) return -1;
    *strrchr(own_folder, '/') = '\0';
    return 0;
}

/* Whether `make install` has put one onto this machine, which is found then. */
static bool is_installed(const char *name) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/tutti/tutti-%s.so", TUTTI_TEST_LIBDIR, name);
    return access(path, F_OK) == 0;
}

T_CASE(names) {
    T_UNUSED;
    const tti_link *link;
    tutti_comm *comm;
    char missing[2 * PATH_MAX];
    T_OK(tti_link_find("tcp", &link));
    assert_ptr_equal(link, &tti_link_tcp);
    T_FAILS(tti_link_find("mpi", &link), TUTTI_E_INVALID, "no transport \"mpi\"");
    assert_null(link);
    if (is_installed("mpi-mpich") || is_installed("mpi-openmpi")) return;
    snprintf(missing, sizeof missing, "tried:\n  %s/tutti-mpi-mpich.so: not there\n", own_folder);
    T_FAILS(tti_link_find("mpi-mpich", &link), TUTTI_E_CONFIG, missing);
    T_FAILS(tutti_comm_create(&(tutti_comm_desc){.transport = "mpi-openmpi", .n_ranks = 2}, &comm),
            TUTTI_E_CONFIG, "libopenmpi-dev");
    assert_null(comm);
}

T_CASE(description) {
    T_UNUSED;
    static const char *const names[] = {"mpi-openmpi", "mpi-mpich"};
    tti_str text = {0};
    char missing[2 * PATH_MAX];
    tti_link_describe(&text);
    for (size_t i = 0; i < TTI_COUNT(names); i++) {
        if (is_installed(names[i])) continue;
        snprintf(missing, sizeof missing, "%s: not loaded; tried:\n  %s/tutti-%s.so: not there\n",
                 names[i], own_folder, names[i]);
        if (!strstr(tti_str_text(&text), missing)) fail_msg("'%s' lacks '%s'", text.text, missing);
    }
    tti_str_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(description)};
    return cmocka_run_group_tests(tests, find_own_folder, NULL);
}
