/* metrics.c - one line, one write; of a line that a full disk has cut nothing stays. */
#include "train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/append.h"
#include "base/error.h"

tutti_status tti_metrics_open(tti_metrics *m, const char *run_dir) {
    char path[700];
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    *m = (tti_metrics){.fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)};
    if (m->fd < 0) return tti_fail(TUTTI_E_IO, "%s: %s", path, strerror(errno));
    return tti_cut_torn_line(m->fd, path);
}

void tti_metrics_close(tti_metrics *m) {
    if (m->fd >= 0) close(m->fd);
    m->fd = -1;
    tti_str_free(&m->line);
}

void tti_metrics_begin(tti_metrics *m, const char *event) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    tti_str_clear(&m->line);
    m->json = tti_json_begin(&m->line, 0);
    tti_json_object(&m->json, NULL);
    tti_json_text(&m->json, "event", event);
    tti_json_double(&m->json, "time", (double)now.tv_sec + (double)(now.tv_nsec / 1000000) * 1e-3);
}

tutti_status tti_metrics_end(tti_metrics *m) {
    tti_json_end(&m->json);
    tti_str_add(&m->line, "\n");
    if (m->line.failed) return tti_fail(TUTTI_E_NOMEM, "metrics.jsonl: out of memory");
    return tti_append(m->fd, "metrics.jsonl", m->line.text, m->line.n_bytes);
}
