/* blocked.h - finds out in which system call a thread is blocked. */
#ifndef TTI_BASE_BLOCKED_H
#define TTI_BASE_BLOCKED_H

#include <stddef.h>

/* The path of the file that thread tid of process pid (0: this one) reads or writes, or "" if it
 * does neither.  A guess: the thread may continue meanwhile. */
void tti_blocked_file(int pid, int tid, char *out, size_t n_bytes);

#endif /* TTI_BASE_BLOCKED_H */
