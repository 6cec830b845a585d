/* skip_list.h - samples that could not be read, if the policy is to skip them.
 *
 * Counts each sample once, however often it is read, and keeps the reasons of the first ones.  Any
 * thread may add; the list depends on the order of the threads, the count does not. */
#ifndef TTI_DATA_SKIP_LIST_H
#define TTI_DATA_SKIP_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/status.h"

enum { TTI_MAX_SKIP_TEXTS = 100 };

typedef struct tti_skip_list tti_skip_list;

/* For samples 0 .. n_samples-1. */
tutti_status tti_skip_list_create(int64_t n_samples, tti_skip_list **out);

/* Sample index is left out because of reason. */
void tti_skip_list_add(tti_skip_list *list, int64_t index, const char *reason);

/* Samples so far. */
int64_t tti_skip_list_count(tti_skip_list *list);

/* Reason i, 0 .. TTI_MAX_SKIP_TEXTS-1; NULL past the last.  Borrowed until destroy. */
const char *tti_skip_list_text(tti_skip_list *list, int64_t i);

/* NULL is a no-op. */
void tti_skip_list_destroy(tti_skip_list *list);

#endif /* TTI_DATA_SKIP_LIST_H */
