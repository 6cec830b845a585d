/* blocked.h - what a thread of this process is blocked in, as far as the kernel says. */
#ifndef TTI_BASE_BLOCKED_H
#define TTI_BASE_BLOCKED_H

#include <stddef.h>

/* The path of the file that thread tid is reading, or "" if it is in no read.  A guess: the thread
 * may go on meanwhile. */
void tti_blocked_file(int tid, char *out, size_t n_bytes);

#endif /* TTI_BASE_BLOCKED_H */
