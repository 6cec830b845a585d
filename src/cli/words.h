/* words.h - takes a command's own options out of argv before the job's arguments are parsed. */
#ifndef TUTTI_CLI_WORDS_H
#define TUTTI_CLI_WORDS_H

#include <stdbool.h>

/* Removes "NAME VALUE" from argv and returns the value; NULL: not given. */
const char *parse_option(int *argc, char **argv, const char *name);

/* Removes an option without a value; false: not given. */
bool parse_flag(int *argc, char **argv, const char *name);

/* Parses a decimal number; false if text is not exactly such a number, or is too large or too small
 * for a double. */
bool read_number(const char *text, double *x);

/* Parses a number of bytes such as 80GB, 512MiB or 1e9; false if text is not exactly such a number.
 */
bool read_bytes(const char *text, double *n_bytes);

/* Parses a number above 0 and at most 1e9; false if text is not exactly such a number. */
bool read_positive(const char *text, double *x);

/* Parses a whole number from low to high; false if text is not exactly such a number. */
bool read_count(const char *text, int low, int high, int *n);

/* Writes text to a file.  On failure the file is unchanged.  Returns 0, or 1 after a message that
 * names the command. */
int save_text(const char *command, const char *path, const char *text);

#endif /* TUTTI_CLI_WORDS_H */
