/* line_merge.h - merges the output of many ranks into one readable stream of lines.
 *
 * Each line gets a prefix "[rank 1] "; a line that several ranks write within 100 ms is written
 * once, with the prefix "[rank 0-3] ".  The lines of one rank and stream keep their order.  With a
 * single rank there is no prefix and no delay.  The code does no I/O: it gets bytes and times and
 * emits complete lines.  Used by one thread.
 *
 * A carriage return restarts the line, as on a terminal.  Lines above 64 KiB are split.  Memory is
 * bounded: above 1 MiB or 1024 waiting lines the oldest lines are written early. */
#ifndef TTI_LAUNCH_LINE_MERGE_H
#define TTI_LAUNCH_LINE_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/status.h"

typedef struct tti_line_merge tti_line_merge;

enum { TTI_STDOUT, TTI_STDERR, TTI_N_OUTPUTS };

/* Receives one or more complete lines with prefix and newline. output: TTI_STDOUT or TTI_STDERR. */
typedef void (*tti_line_fn)(void *user, int output, const char *bytes, size_t n_bytes);

/* On success *out is owned by the caller. */
TUTTI_NODISCARD tutti_status tti_line_merge_create(int n_ranks, tti_line_fn emit, void *user,
                                                   tti_line_merge **out);
void tti_line_merge_destroy(tti_line_merge *merge);

/* Adds n_bytes that rank wrote to output; they may end anywhere in a line. */
void tti_line_merge_feed(tti_line_merge *merge, int rank, int output, const char *bytes,
                         size_t n_bytes, int64_t now_ns);

/* Call when the rank closes output: remaining text without a newline becomes a line. */
void tti_line_merge_end(tti_line_merge *merge, int rank, int output, int64_t now_ns);

/* The time at which tick must be called; INT64_MAX: no line is waiting. */
int64_t tti_line_merge_deadline_ns(const tti_line_merge *merge);

/* Emits the lines that have waited 100 ms; with now_ns INT64_MAX, all lines. */
void tti_line_merge_tick(tti_line_merge *merge, int64_t now_ns);

#endif /* TTI_LAUNCH_LINE_MERGE_H */
