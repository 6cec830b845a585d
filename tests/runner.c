/* runner.c - main of a program that has all tests of a room.  Each test file has a hard link to it
 * under its own name, such as build/tests/conv_test, which runs the main of that file.  The name
 * comes from the system and not from argv, which tests that start themselves again choose. */
#include "runner.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    for (const t_program *t = t_programs; t->name; t++)
        if (strcmp(name, t->name) == 0) return t->run ? t->run() : t->run_with(argc, argv);
    fprintf(stderr, "%s: run it by the name of a test:\n", name);
    for (const t_program *t = t_programs; t->name; t++) fprintf(stderr, "  %s\n", t->name);
    return 2;
}
