/* forked.h - a check that a process of its own makes, since it changes what all of it has. */
#ifndef TTI_TESTS_FORKED_H
#define TTI_TESTS_FORKED_H

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "t.h"

enum { FORKED_SKIPPED = 77 }; /* what fn returns where it is not allowed to try */

/* fn returns 0, or another code that says where it failed, such as __LINE__ & 127. */
static inline void t_forked(int (*fn)(void)) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) _exit(fn());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == FORKED_SKIPPED) skip();
    T_EQ(WEXITSTATUS(status), 0);
}

#endif /* TTI_TESTS_FORKED_H */
