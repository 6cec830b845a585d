/* braces.h - brace expansion in names of shards, as shells and WebDataset do it:
 * "train-{000..146}.tar", "{a,b}-{0..9}.tar". */
#ifndef TTI_DATA_BRACES_H
#define TTI_DATA_BRACES_H

#include <stddef.h>

#include "tutti/status.h"

enum { TTI_MAX_EXPANSIONS = 1 << 16 };

/* Every text that pattern stands for, leftmost brace slowest; one without braces stands for itself.
 * Numbers keep the zeros in front of the first one.  *out is an array of *n texts, each freed with
 * free(), and so is the array.  TUTTI_E_INVALID for unbalanced or nested braces, a range that is
 * none, more than TTI_MAX_EXPANSIONS. */
tutti_status tti_expand_braces(const char *pattern, char ***out, size_t *n);

#endif /* TTI_DATA_BRACES_H */
