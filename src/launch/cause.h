/* cause.h - how a worker ended, and which of several failures caused the others. */
#ifndef TTI_LAUNCH_CAUSE_H
#define TTI_LAUNCH_CAUSE_H

#include <signal.h>
#include <stdbool.h>

#include "base/str.h"
#include "launch/supervisor.h"

/* Rising: a better explanation.  Within one failure a victim (it lost a peer) gives way to anything
 * better; otherwise the first one counts. */
typedef enum tti_severity {
    TTI_FINE,    /* exit code 0 */
    TTI_ORDERLY, /* asked to stop, and did: 75, 130, 143 */
    TTI_VICTIM,  /* exit code 5, peer lost */
    TTI_FAILED,  /* any other exit code */
    TTI_KILLED   /* by a signal, or stopped by one */
} tti_severity;

/* The severity of a waitid record. */
tti_severity tti_cause_severity(const siginfo_t *info);

/* Whether the worker ended because its device failed. */
bool tti_cause_is_device(const siginfo_t *info);

/* Fills rank, pid, worker_code, worker_signal, exit_code and text of a report from a record. */
void tti_cause_fill(const siginfo_t *info, int rank, tti_supervisor_report *report);

/* Processes that the kernel's out-of-memory killer has ended since this machine started; -1: not
 * known. */
int64_t tti_cause_oom_kills(void);

/* For a worker killed by a SIGKILL that this process did not send: if the kernel's OOM killer has
 * counted a victim since oom_before was read, reports it and sets exit_code to "out of memory". */
void tti_cause_name_killer(tti_supervisor_report *report, int64_t oom_before, int64_t oom_now);

/* The report as a JSON object in one line. */
void tti_cause_json(const tti_supervisor_report *report, tti_str *out);

/* The same as a file, complete or not at all. */
TUTTI_NODISCARD tutti_status tti_cause_write(const tti_supervisor_report *report, const char *path);

#endif /* TTI_LAUNCH_CAUSE_H */
