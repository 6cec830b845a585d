/* cache.h - files that save later processes from measuring or compiling again.
 *
 * They may be removed at any time.  Any thread; if two write one file the later one wins. */
#ifndef TTI_BASE_CACHE_H
#define TTI_BASE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

typedef enum tti_cache_found {
    TTI_CACHE_GOOD,
    TTI_CACHE_ABSENT,
    TTI_CACHE_FOREIGN, /* whole, but made for another key */
    TTI_CACHE_DAMAGED  /* changed, cut, or not of this kind */
} tti_cache_found;

/* The folder, "" when there is none; it exists.  Owned by this file, found once in a process:
 * $TUTTI_CACHE, else $XDG_CACHE_HOME/tutti, else ~/.cache/tutti. */
const char *tti_cache_dir(void);

/* Reads a file of the cache. key: everything on which the contents depend.  If it is valid, *data
 * has n_bytes and is owned by the caller; else *data is NULL. */
tti_cache_found tti_cache_find(const char *name, const char *key, char **data, size_t *n_bytes);

/* The same for whom only a good one counts: NULL if it is not. */
char *tti_cache_read(const char *name, const char *key, size_t *n_bytes);

/* Replaces the file atomically.  False: it could not be written; this is not a failure, and no
 * error is set. */
bool tti_cache_write(const char *name, const char *key, const void *data, size_t n_bytes);

/* Makes sure that one worker of the host at a time measures or compiles one thing, whether workers
 * are threads or processes: lock, look in the cache again, and only then measure.  name: of the
 * thing, as a file of the cache; what distinguishes things of one file.  Waits up to timeout_ms for
 * another worker's unlock or end.  -1: no lock, and the caller measures for itself. */
int tti_cache_lock(const char *name, uint64_t what, int timeout_ms);
void tti_cache_unlock(int lock); /* takes -1 */

/* Appends the names of files in the cache that are damaged, separated by ", ", at most 10; returns
 * their number. */
int tti_cache_find_damaged(tti_str *names);

#endif /* TTI_BASE_CACHE_H */
