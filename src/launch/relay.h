/* relay.h - forwards the output of workers to the supervisor's output and to log files.
 *
 * Each worker has two pipes (output, error).  The relay writes prefixed, merged lines to two
 * descriptors, and the raw bytes to LOG_DIR/rank-N.txt.  It never blocks: a slow reader delays the
 * workers (after 1 MiB), not the supervisor.  If a reader closes, its output is lost but training
 * continues.  The caller must block SIGPIPE.  Used by one thread. */
#ifndef TTI_LAUNCH_RELAY_H
#define TTI_LAUNCH_RELAY_H

#include <poll.h>
#include <stdbool.h>

#include "launch/line_merge.h"

typedef struct tti_relay tti_relay;

typedef struct tti_relay_desc {
    int n_ranks;
    int fd[TTI_N_OUTPUTS]; /* destinations of the lines; borrowed */
    const char *log_dir;   /* created if its parent exists; NULL: no log files */
} tti_relay_desc;

/* On success *out is owned by the caller.  TUTTI_E_IO: the log folder cannot be written. */
TUTTI_NODISCARD tutti_status tti_relay_create(const tti_relay_desc *desc, tti_relay **out);

/* Closes the pipes and log files.  NULL is a no-op. */
void tti_relay_destroy(tti_relay *relay);

/* Creates the pipes of a rank. write_fd are the worker's ends, close-on-exec, owned by the caller,
 * which closes them after the worker has started.  Fails with TUTTI_E_IO.  If the error output is a
 * terminal, rank 0 writes to it directly (write_fd is -1), so that a progress line can redraw
 * itself. */
TUTTI_NODISCARD tutti_status tti_relay_open(tti_relay *relay, int rank,
                                            int write_fd[TTI_N_OUTPUTS]);

/* Fills fds (room for 2*n_ranks + 2) with the descriptors to poll and returns their number. */
int tti_relay_poll_fds(const tti_relay *relay, struct pollfd *fds);

/* Moves all bytes that can be moved without blocking, and writes the lines that are due. */
void tti_relay_move(tti_relay *relay);

/* The time at which move must be called even if no descriptor is ready; INT64_MAX: never. */
int64_t tti_relay_deadline_ns(const tti_relay *relay);

/* Call when all workers have ended: reads the rest of the pipes and writes everything, for at most
 * timeout_ms. */
void tti_relay_finish(tti_relay *relay, int timeout_ms);

#endif /* TTI_LAUNCH_RELAY_H */
