/* root_folder.h - the folder of a test's data set, which goes with the test. */
#ifndef TTI_TESTS_DATA_ROOT_FOLDER_H
#define TTI_TESTS_DATA_ROOT_FOLDER_H

#include "data/idx_files.h"

static char root[256];

static inline int root_enter(void **state) {
    T_UNUSED;
    snprintf(root, sizeof root, "%s", t_make_dir());
    return 0;
}

static inline int root_leave(void **state) {
    T_UNUSED;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

/* Static, until the next call. */
static inline const char *below_root(const char *below) { return t_path(root, below); }

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, root_enter, root_leave)

#endif /* TTI_TESTS_DATA_ROOT_FOLDER_H */
