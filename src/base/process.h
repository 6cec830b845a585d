/* process.h - reads what another process of this machine is doing. */
#ifndef TTI_BASE_PROCESS_H
#define TTI_BASE_PROCESS_H

#include <stdint.h>

/* The state in /proc/PID/stat: 'R', 'S', 'D', 'T' (stopped by a signal), 't' (by a debugger), 'Z',
 * ...; 0: there is no such process, or it is not visible. */
char tti_process_state(int pid);
char tti_thread_state(int pid, int tid); /* the same of one of its threads */

/* Bytes that the process has read and written so far, of this process without those of the calling
 * thread; 0: not known. */
uint64_t tti_process_io(int pid);

#endif /* TTI_BASE_PROCESS_H */
