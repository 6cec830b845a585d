/* similar_names.h - finds classes whose names differ so little that they may be meant as one. */
#ifndef TTI_DATA_SIMILAR_NAMES_H
#define TTI_DATA_SIMILAR_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* Appends one line to out if some of the n names (UTF-8) differ only in case, accents, blanks, or
 * in the Unicode form of the same letters: the first such pair and the number of pairs. */
void tti_note_similar_names(const char *const *names, int64_t n, tti_str *out);

/* Whether two names (UTF-8) differ in nothing else, or not at all.  False without memory. */
bool tti_names_look_alike(const char *a, const char *b);

#endif /* TTI_DATA_SIMILAR_NAMES_H */
