/* runner.h - the tests of one room, in one program. */
#ifndef TTI_TESTS_RUNNER_H
#define TTI_TESTS_RUNNER_H

/* One test file; its main is one of the two. */
typedef struct t_program {
    const char *name;
    int (*run)(void);
    int (*run_with)(int argc, char **argv);
} t_program;

extern const t_program t_programs[]; /* the last one has no name; tests/CMakeLists.txt writes it */

#endif /* TTI_TESTS_RUNNER_H */
