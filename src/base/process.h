/* process.h - reads what another process of this machine is doing. */
#ifndef TTI_BASE_PROCESS_H
#define TTI_BASE_PROCESS_H

/* The state in /proc/PID/stat: 'R', 'S', 'D', 'T' (stopped by a signal), 't' (by a debugger), 'Z',
 * ...; 0: there is no such process, or it is not visible. */
char tti_process_state(int pid);

#endif /* TTI_BASE_PROCESS_H */
