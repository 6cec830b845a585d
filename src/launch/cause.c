/* cause.c - writes the text, exit code and error file for the end of a worker.  It handles no
 * processes: its input is a siginfo_t from waitid. */
#include "launch/cause.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/json.h"

enum { EXIT_PEER = 5, EXIT_PREEMPTED = 75 };

static bool is_exit(const siginfo_t *info) { return info->si_code == CLD_EXITED; }

tti_severity tti_cause_severity(const siginfo_t *info) {
    if (!is_exit(info)) return TTI_KILLED;
    switch (info->si_status) {
        case 0:
            return TTI_FINE;
        case EXIT_PREEMPTED:
        case 128 + SIGINT:
        case 128 + SIGTERM:
            return TTI_ORDERLY;
        case EXIT_PEER:
            return TTI_VICTIM;
        default:
            return TTI_FAILED;
    }
}

bool tti_cause_is_device(const siginfo_t *info) {
    return is_exit(info) && info->si_status == tutti_status_exit_code(TUTTI_E_DEVICE);
}

void tti_cause_fill(const siginfo_t *info, int rank, tti_supervisor_report *report) {
    int n = info->si_status;
    report->rank = rank;
    report->pid = info->si_pid;
    report->worker_code = is_exit(info) ? n : -1;
    report->worker_signal = is_exit(info) ? 0 : n;
    report->exit_code = is_exit(info) ? n : EXIT_PEER;
    if (is_exit(info))
        snprintf(report->text, sizeof report->text, "rank %d (pid %d) exited with code %d", rank,
                 (int)info->si_pid, n);
    else if (info->si_code == CLD_STOPPED)
        snprintf(report->text, sizeof report->text, "rank %d (pid %d) was stopped (signal %d)",
                 rank, (int)info->si_pid, n);
    else
        snprintf(report->text, sizeof report->text,
                 "rank %d (pid %d) was killed by signal %d (%s)%s", rank, (int)info->si_pid, n,
                 strsignal(n), info->si_code == CLD_DUMPED ? ", core dumped" : "");
}

/* The kernel counts the victims of its OOM killer, in any cgroup, in one line of /proc/vmstat. */
int64_t tti_cause_oom_kills(void) {
    FILE *file = fopen("/proc/vmstat", "re");
    char line[128];
    long long n = -1;
    while (file && n < 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "oom_kill %lld", &n) != 1) n = -1;
    if (file) fclose(file);
    return n;
}

void tti_cause_name_killer(tti_supervisor_report *report, int64_t oom_before, int64_t oom_now) {
    size_t n = strlen(report->text);
    if (report->worker_signal != SIGKILL) return;
    if (oom_before < 0 || oom_now <= oom_before) return;
    report->exit_code = tutti_status_exit_code(TUTTI_E_NOMEM);
    snprintf(report->text + n, sizeof report->text - n,
             ": out of memory: the kernel's OOM killer has just ended a process; use fewer "
             "workers, a smaller train.batch, or more memory (dmesg names the process)");
}

void tti_cause_json(const tti_supervisor_report *report, tti_str *out) {
    tti_json j = tti_json_begin(out, 0);
    tti_json_object(&j, NULL);
    tti_json_text(&j, "event", "failure");
    tti_json_text(&j, "text", report->text);
    tti_json_int(&j, "rank", report->rank);
    tti_json_int(&j, "pid", report->pid);
    if (report->worker_code >= 0) tti_json_int(&j, "worker_exit_code", report->worker_code);
    if (report->worker_signal > 0) tti_json_int(&j, "worker_signal", report->worker_signal);
    tti_json_int(&j, "exit_code", report->exit_code);
    tti_json_int(&j, "last_step", (int64_t)report->last_step);
    tti_json_int(&j, "noticed_ns", report->noticed_ns);
    tti_json_int(&j, "gone_ns", report->gone_ns);
    tti_json_end(&j);
    tti_str_add(out, "\n");
}

tutti_status tti_cause_write(const tti_supervisor_report *report, const char *path) {
    tti_str text = {0};
    tti_cause_json(report, &text);
    tutti_status st = text.failed ? tti_fail(TUTTI_E_NOMEM, "launch: out of memory")
                                  : tti_atomic_file_save(path, text.text, text.n_bytes);
    tti_str_free(&text);
    return st;
}
