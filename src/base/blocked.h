/* blocked.h - finds out in which system call a thread of this process is blocked. */
#ifndef TTI_BASE_BLOCKED_H
#define TTI_BASE_BLOCKED_H

#include <stddef.h>

/* The path of the file that thread tid is reading, or "" if it is in no read.  A guess: the thread
 * may go on meanwhile. */
void tti_blocked_file(int tid, char *out, size_t n_bytes);

#endif /* TTI_BASE_BLOCKED_H */
