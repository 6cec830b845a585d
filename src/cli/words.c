/* words.c - takes options out of argv and parses their numbers. */
#include "cli/words.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

const char *parse_option(int *argc, char **argv, const char *name) {
    for (int i = 1; i + 1 < *argc; i++) {
        if (strcmp(argv[i], name) != 0) continue;
        const char *value = argv[i + 1];
        memmove(argv + i, argv + i + 2, (size_t)(*argc - i - 1) * sizeof *argv);
        *argc -= 2;
        return value;
    }
    return NULL;
}

bool parse_flag(int *argc, char **argv, const char *name) {
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], name) != 0) continue;
        memmove(argv + i, argv + i + 1, (size_t)(*argc - i) * sizeof *argv);
        *argc -= 1;
        return true;
    }
    return false;
}

bool read_number(const char *text, double *x) {
    char *end;
    if (text[strspn(text, "+-.0123456789eE")]) return false; /* hexadecimal, inf, nan */
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end || errno == ERANGE) return false;
    *x = value;
    return true;
}

bool read_bytes(const char *text, double *n_bytes) {
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1},      {"B", 1},
                 {"kB", 1e3},  {"KiB", 1024},
                 {"MB", 1e6},  {"MiB", 1048576.0},
                 {"GB", 1e9},  {"GiB", 1073741824.0},
                 {"TB", 1e12}, {"TiB", 1099511627776.0}};
    char *end;
    double x = strtod(text, &end);
    if (end == text || !(x > 0) || x > 1e18) return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcasecmp(end, units[i].unit) != 0) continue;
        *n_bytes = x * units[i].factor;
        return true;
    }
    return false;
}

bool read_positive(const char *text, double *x) {
    double value;
    if (!read_number(text, &value) || value <= 0 || value > 1e9) return false;
    *x = value;
    return true;
}

bool read_count(const char *text, int low, int high, int *n) {
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < low || value > high) return false;
    *n = (int)value;
    return true;
}

/* Returns false on failure, with errno set. */
static bool write_all(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    bool good = file && fputs(text, file) >= 0;
    int why = errno;
    if (file && fclose(file) != 0 && good) return false;
    errno = why;
    return good;
}

int save_text(const char *command, const char *path, const char *text) {
    char beside[4096];
    struct stat info;
    bool is_new =
        lstat(path, &info) != 0 || S_ISREG(info.st_mode); /* else it is a link, a terminal, ... */
    if (snprintf(beside, sizeof beside, "%s.tmp", path) >= (int)sizeof beside) is_new = false;
    bool good =
        is_new ? write_all(beside, text) && rename(beside, path) == 0 : write_all(path, text);
    int why = errno;
    if (!good && is_new) remove(beside);
    if (!good) fprintf(stderr, "tutti %s: cannot write %s: %s\n", command, path, strerror(why));
    return good ? 0 : 1;
}
