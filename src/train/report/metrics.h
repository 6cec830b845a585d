/* metrics.h - metrics.jsonl, the authoritative record of a run: one JSON object per line.
 *
 * Records: start, pipeline, step, times, staleness, eval, checkpoint, warning, failed, end,
 * distinguished by "event".  A record is written with one write(2), so a killed run leaves only
 * complete lines. */
#ifndef TTI_TRAIN_METRICS_H
#define TTI_TRAIN_METRICS_H

#include "base/json.h"
#include "tutti/status.h"

typedef struct tti_metrics {
    int fd;       /* -1: closed */
    tti_str line; /* the record being written */
    tti_json json;
} tti_metrics;

/* Opens run_dir/metrics.jsonl for appending, and removes an incomplete last line. */
tutti_status tti_metrics_open(tti_metrics *metrics, const char *run_dir);
void tti_metrics_close(tti_metrics *metrics);

/* Removes the records of steps after `step`, which a resumed run repeats; warnings and failures
 * stay. evaluates_again: the run also repeats the evaluation of `step`; *had_evaluation: there was
 * one.  The file is replaced atomically: TUTTI_E_IO leaves it unchanged. */
tutti_status tti_metrics_rewind(tti_metrics *metrics, const char *run_dir, int64_t step,
                                bool evaluates_again, bool *had_evaluation);

/* Starts a record: {"event":EVENT,"time":seconds since 1970, ...}; fields go to metrics->json. */
void tti_metrics_begin(tti_metrics *metrics, const char *event);

/* Ends the record and writes it.  After TUTTI_E_IO no part of it is in the file. */
tutti_status tti_metrics_end(tti_metrics *metrics);

#endif /* TTI_TRAIN_METRICS_H */
