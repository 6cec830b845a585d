/* relay.h - forwards the output of workers to the supervisor's output and to log files.
 *
 * Two pipes per worker (output, error) -> prefixed, merged lines on two descriptors, and the raw
 * bytes of both in LOG_DIR/rank-N.txt.  Never blocks: a slow reader makes the workers wait (after 1
 * MiB), not the supervisor; a closed reader loses output but does not end the training.  The caller
 * blocks SIGPIPE. One thread. */
#ifndef TTI_LAUNCH_RELAY_H
#define TTI_LAUNCH_RELAY_H

#include <poll.h>
#include <stdbool.h>

#include "launch/line_merge.h"

typedef struct tti_relay tti_relay;

typedef struct tti_relay_desc {
    int n_ranks;
    int fd[TTI_N_OUTPUTS]; /* where the lines go; borrowed */
    const char *log_dir;   /* made if its parent exists; NULL: no log files */
} tti_relay_desc;

/* On success *out is owned by the caller.  TUTTI_E_IO: the log folder cannot be written. */
TUTTI_NODISCARD tutti_status tti_relay_create(const tti_relay_desc *desc, tti_relay **out);

/* Closes the pipes and log files.  NULL is a no-op. */
void tti_relay_destroy(tti_relay *relay);

/* Makes the pipes of a rank. write_fd are the worker's ends, close-on-exec, owned by the caller,
 * who closes them after the start.  If the error output is a terminal, rank 0 writes to it directly
 * (write_fd is -1), so that a progress line can redraw itself. */
TUTTI_NODISCARD tutti_status tti_relay_open(tti_relay *relay, int rank,
                                            int write_fd[TTI_N_OUTPUTS]);

/* Appends what to wait for to fds (room for 2*n_ranks + 2) and returns how many. */
int tti_relay_poll_fds(const tti_relay *relay, struct pollfd *fds);

/* Moves all bytes that can be moved without waiting, and writes the lines that are due. */
void tti_relay_move(tti_relay *relay);

/* The time at which move must be called even if no descriptor is ready; INT64_MAX: never. */
int64_t tti_relay_deadline_ns(const tti_relay *relay);

/* Call when all workers have ended: reads what is left in the pipes and writes everything, for at
 * most timeout_ms. */
void tti_relay_finish(tti_relay *relay, int timeout_ms);

#endif /* TTI_LAUNCH_RELAY_H */
