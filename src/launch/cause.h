/* cause.h - classifies how a worker ended, and finds the failure that caused the others. */
#ifndef TTI_LAUNCH_CAUSE_H
#define TTI_LAUNCH_CAUSE_H

#include <signal.h>
#include <stdbool.h>

#include "base/str.h"
#include "launch/supervisor.h"

/* In ascending order of how well they explain a failure.  A later, better explanation replaces a
 * victim (a worker that lost a peer); otherwise the first failure is reported. */
typedef enum tti_severity {
    TTI_FINE,    /* exit code 0 */
    TTI_ORDERLY, /* stopped on request: 75, 130, 143 */
    TTI_VICTIM,  /* exit code 5, peer lost */
    TTI_FAILED,  /* any other exit code */
    TTI_KILLED   /* by a signal, or stopped by one */
} tti_severity;

/* Returns the severity of a waitid record. */
tti_severity tti_cause_severity(const siginfo_t *info);

/* True if the worker ended because its device failed. */
bool tti_cause_is_device(const siginfo_t *info);

/* Fills rank, pid, worker_code, worker_signal, exit_code and text of a report from a record. */
void tti_cause_fill(const siginfo_t *info, int rank, tti_supervisor_report *report);

/* Returns the number of processes that the kernel's out-of-memory killer has ended since boot; -1:
 * not known. */
int64_t tti_cause_oom_kills(void);

/* For a worker killed by a SIGKILL that this process did not send: if the kernel's OOM killer has
 * counted a victim since oom_before was read, adds this to the report and sets exit_code to the
 * code for out of memory. */
void tti_cause_name_killer(tti_supervisor_report *report, int64_t oom_before, int64_t oom_now);

/* Appends the report as a JSON object in one line. */
void tti_cause_json(const tti_supervisor_report *report, tti_str *out);

/* Writes the same to a file, atomically. */
TUTTI_NODISCARD tutti_status tti_cause_write(const tti_supervisor_report *report, const char *path);

#endif /* TTI_LAUNCH_CAUSE_H */
