/* process.h - reads what another process of this machine is doing. */
#ifndef TTI_BASE_PROCESS_H
#define TTI_BASE_PROCESS_H

/* As /proc/PID/stat has it: 'R', 'S', 'D', 'T' (stopped by a signal), 't' (by a debugger), 'Z',
 * ...; 0: there is none, or it is not to be seen. */
char tti_process_state(int pid);

#endif /* TTI_BASE_PROCESS_H */
