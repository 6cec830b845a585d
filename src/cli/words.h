/* words.h - options that one command has beside those of a job: taken out of argv before the rest
 * is read. */
#ifndef TUTTI_CLI_WORDS_H
#define TUTTI_CLI_WORDS_H

#include <stdbool.h>

/* Takes "NAME VALUE" out of argv; NULL: it is not there. */
const char *take_option(int *argc, char **argv, const char *name);

/* The same for an option without a value. */
bool take_flag(int *argc, char **argv, const char *name);

/* A number of bytes such as 80GB, 512MiB or 1e9 into *n_bytes; false: it is none. */
bool read_bytes(const char *text, double *n_bytes);

/* A number above 0, and at most 1e9, with nothing behind it; false: it is none. */
bool read_positive(const char *text, double *x);

/* A whole number from low to high, with nothing behind it; false: it is none. */
bool read_count(const char *text, int low, int high, int *n);

/* Writes text to a file, which is whole or as it was; 0, or 1 after a message that names the
 * command. */
int save_text(const char *command, const char *path, const char *text);

#endif /* TUTTI_CLI_WORDS_H */
