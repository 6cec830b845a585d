/* split.h - runs a test program as several processes, each with a part of its cases.  Header only.
 */
#ifndef TTI_TESTS_BACKEND_SPLIT_H
#define TTI_TESTS_BACKEND_SPLIT_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SPLIT_MAX = 12 };

static int split_part,
    split_n = 1;       /* of this process: cases split_part, split_part + split_n, ... */
static int split_next; /* the next case */

/* Whether the next case belongs to this process.  Every process has to ask for the same cases. */
static inline bool split_is_mine(void) { return split_next++ % split_n == split_part; }

/* One process per two cores: a case keeps one busy, and other tests run beside it. */
static inline int split_count(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN) / 2;
    return n < 1 ? 1 : n > SPLIT_MAX ? SPLIT_MAX : (int)n;
}

/* Runs `part` in n processes and prints the output of each in order.  Nothing may have been opened
 * on a GPU before.  Returns 0 or the first exit code of a process that is not 0. */
static inline int split_run(int n, int (*part)(void)) {
    pid_t pids[SPLIT_MAX];
    FILE *texts[SPLIT_MAX];
    int first = 0;
    fflush(stdout);
    for (int i = 0; i < n; i++) {
        texts[i] = tmpfile();
        pids[i] = texts[i] ? fork() : -1;
        if (pids[i] < 0) {
            perror("split_run");
            exit(2);
        }
        if (pids[i] > 0) continue;
        split_part = i, split_n = n;
        dup2(fileno(texts[i]), STDOUT_FILENO);
        dup2(fileno(texts[i]), STDERR_FILENO);
        exit(part());
    }
    for (int i = 0; i < n; i++) {
        int status = 0;
        char line[4096];
        waitpid(pids[i], &status, 0);
        rewind(texts[i]);
        while (fgets(line, sizeof line, texts[i])) fputs(line, stdout);
        fclose(texts[i]);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (code) printf("part %d of %d ended with %d\n", i, n, code);
        if (!first) first = code;
    }
    return first;
}

#endif /* TTI_TESTS_BACKEND_SPLIT_H */
