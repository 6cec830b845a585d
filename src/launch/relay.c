/* relay.c - copies the workers' pipes to lines and log files without ever blocking.
 *
 * The supervisor must notice a death in milliseconds even if the user pressed Ctrl-S in its
 * terminal, so every write goes through a buffer and happens only when poll reports room for
 * PIPE_BUF bytes.  O_NONBLOCK cannot be used, because it would change the terminal for all its
 * processes. */
#include "launch/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/plain_file.h"
#include "base/str.h"

enum { READ_BYTES = 64 << 10, SINK_MAX_BYTES = 1 << 20 };

typedef struct sink {
    int fd;
    bool clears_line; /* the output is a terminal shared with rank 0's progress line */
    bool broken;      /* the reader has closed it */
    tti_str buffer;
    size_t n_sent;
} sink;

typedef struct rank_io {
    int fd[TTI_N_OUTPUTS]; /* read ends; -1: closed */
    int log_fd;            /* -1: none */
} rank_io;

struct tti_relay {
    int n_ranks;
    rank_io *ranks;
    tti_line_merge *merge;
    sink sinks[TTI_N_OUTPUTS];
    char buffer[READ_BYTES];
};

static void add_lines(void *user, int output, const char *bytes, size_t n_bytes) {
    tti_relay *relay = user;
    sink *s = &relay->sinks[output];
    if (s->broken) return;
    if (s->clears_line) tti_str_add(&s->buffer, "\r\033[K");
    tti_str_add_bytes(&s->buffer, bytes, n_bytes);
}

static tutti_status open_logs(tti_relay *relay, const char *dir) {
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return tti_fail(TUTTI_E_IO, "launch: cannot make the log folder '%s': %s", dir,
                        strerror(errno));
    int folder;
    TTI_TRY(tti_plain_folder_open(dir, &folder));
    close(folder);
    for (int r = 0; r < relay->n_ranks; r++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s/rank-%d.txt", dir, r) >= (int)sizeof path)
            return tti_fail(TUTTI_E_IO, "launch: the path of the log folder is too long");
        TTI_TRY(tti_plain_file_open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW,
                                    &relay->ranks[r].log_fd));
    }
    return TUTTI_OK;
}

tutti_status tti_relay_create(const tti_relay_desc *desc, tti_relay **out) {
    *out = NULL;
    tutti_status st = TUTTI_OK;
    tti_relay *relay = calloc(1, sizeof *relay);
    rank_io *ranks = calloc((size_t)desc->n_ranks, sizeof *ranks);
    if (!relay || !ranks) {
        free(relay);
        free(ranks);
        return tti_fail(TUTTI_E_NOMEM, "launch: out of memory for %d workers", desc->n_ranks);
    }
    relay->n_ranks = desc->n_ranks;
    relay->ranks = ranks;
    for (int r = 0; r < desc->n_ranks; r++) ranks[r] = (rank_io){{-1, -1}, -1};
    for (int o = 0; o < TTI_N_OUTPUTS; o++) {
        relay->sinks[o].fd = desc->fd[o];
        relay->sinks[o].clears_line = isatty(desc->fd[TTI_STDERR]) && isatty(desc->fd[o]);
    }
    TTI_TRY_GOTO(tti_line_merge_create(desc->n_ranks, add_lines, relay, &relay->merge), cleanup);
    if (desc->log_dir) TTI_TRY_GOTO(open_logs(relay, desc->log_dir), cleanup);
    *out = relay;
    return TUTTI_OK;
cleanup:
    tti_relay_destroy(relay);
    return st;
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void tti_relay_destroy(tti_relay *relay) {
    if (!relay) return;
    for (int r = 0; r < relay->n_ranks; r++) {
        close_fd(&relay->ranks[r].log_fd);
        for (int o = 0; o < TTI_N_OUTPUTS; o++) close_fd(&relay->ranks[r].fd[o]);
    }
    for (int o = 0; o < TTI_N_OUTPUTS; o++) tti_str_free(&relay->sinks[o].buffer);
    tti_line_merge_destroy(relay->merge);
    free(relay->ranks);
    free(relay);
}

/* True for a terminal to which a background process may write; with TOSTOP the process would be
 * stopped. */
static bool can_share_terminal(int fd) {
    struct termios t;
    return tcgetattr(fd, &t) == 0 && !(t.c_lflag & TOSTOP);
}

tutti_status tti_relay_open(tti_relay *relay, int rank, int write_fd[TTI_N_OUTPUTS]) {
    bool direct = rank == 0 && can_share_terminal(relay->sinks[TTI_STDERR].fd);
    write_fd[TTI_STDOUT] = write_fd[TTI_STDERR] = -1;
    for (int o = 0; o < TTI_N_OUTPUTS; o++) {
        int ends[2];
        if (o == TTI_STDERR && direct) break;
        if (pipe2(ends, O_CLOEXEC) != 0) {
            close_fd(&write_fd[TTI_STDOUT]);
            return tti_fail(TUTTI_E_IO, "launch: cannot create a pipe for rank %d: %s", rank,
                            strerror(errno));
        }
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        close_fd(&relay->ranks[rank].fd[o]); /* pipes of an earlier process with this rank */
        relay->ranks[rank].fd[o] = ends[0];
        write_fd[o] = ends[1];
    }
    return TUTTI_OK;
}

static size_t unsent(const sink *s) { return s->buffer.n_bytes - s->n_sent; }

static bool is_full(const tti_relay *relay) {
    return unsent(&relay->sinks[TTI_STDOUT]) > SINK_MAX_BYTES ||
           unsent(&relay->sinks[TTI_STDERR]) > SINK_MAX_BYTES;
}

int tti_relay_poll_fds(const tti_relay *relay, struct pollfd *fds) {
    int n = 0;
    for (int o = 0; o < TTI_N_OUTPUTS; o++)
        if (unsent(&relay->sinks[o]) > 0)
            fds[n++] = (struct pollfd){.fd = relay->sinks[o].fd, .events = POLLOUT};
    if (is_full(relay)) return n;
    for (int r = 0; r < relay->n_ranks; r++)
        for (int o = 0; o < TTI_N_OUTPUTS; o++)
            if (relay->ranks[r].fd[o] >= 0)
                fds[n++] = (struct pollfd){.fd = relay->ranks[r].fd[o], .events = POLLIN};
    return n;
}

static void write_log(rank_io *io, const char *bytes, size_t n_bytes) {
    while (io->log_fd >= 0 && n_bytes > 0) {
        ssize_t n = write(io->log_fd, bytes, n_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            close_fd(&io->log_fd); /* disk full: training continues without this log */
            return;
        }
        bytes += n;
        n_bytes -= (size_t)n;
    }
}

/* Reads one pipe once; returns false if it was empty.  All lines of one round get the same time
 * now_ns, so that equal lines that are in the pipes at the same time are merged. */
static bool read_pipe(tti_relay *relay, int rank, int output, int64_t now_ns) {
    rank_io *io = &relay->ranks[rank];
    ssize_t n = read(io->fd[output], relay->buffer, sizeof relay->buffer);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
        close_fd(&io->fd[output]);
        tti_line_merge_end(relay->merge, rank, output, now_ns);
        return false;
    }
    write_log(io, relay->buffer, (size_t)n);
    tti_line_merge_feed(relay->merge, rank, output, relay->buffer, (size_t)n, now_ns);
    return true;
}

static bool is_writable(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLOUT | POLLERR | POLLHUP | POLLNVAL));
}

static void write_sink(sink *s) {
    while (unsent(s) > 0 && is_writable(s->fd)) {
        ssize_t n = write(s->fd, s->buffer.text + s->n_sent, TTI_MIN(unsent(s), PIPE_BUF));
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
        if (n < 0) {
            s->broken = true;
            s->n_sent = 0;
            tti_str_clear(&s->buffer);
            return;
        }
        s->n_sent += (size_t)n;
    }
    if (unsent(s) > 0 && s->n_sent < SINK_MAX_BYTES) return;
    size_t n_left = unsent(s);
    if (n_left > 0) memmove(s->buffer.text, s->buffer.text + s->n_sent, n_left);
    s->buffer.n_bytes = n_left;
    s->n_sent = 0;
}

void tti_relay_move(tti_relay *relay) {
    int64_t now_ns = tti_now_ns();
    for (int r = 0; r < relay->n_ranks; r++)
        for (int o = TTI_N_OUTPUTS;
             o-- > 0;) /* errors first, because stdio buffers output longer */
            if (relay->ranks[r].fd[o] >= 0 && !is_full(relay)) read_pipe(relay, r, o, now_ns);
    tti_line_merge_tick(relay->merge, tti_now_ns());
    for (int o = 0; o < TTI_N_OUTPUTS; o++) write_sink(&relay->sinks[o]);
}

int64_t tti_relay_deadline_ns(const tti_relay *relay) {
    return tti_line_merge_deadline_ns(relay->merge);
}

void tti_relay_finish(tti_relay *relay, int timeout_ms) {
    int64_t now_ns = tti_now_ns(), deadline_ns = now_ns + timeout_ms * TTI_NS_PER_MS;
    for (int r = 0; r < relay->n_ranks; r++)
        for (int o = TTI_N_OUTPUTS; o-- > 0;) {
            /* A dead worker writes nothing more, so an empty pipe is complete even if it has not
             * ended. */
            while (relay->ranks[r].fd[o] >= 0 && tti_now_ns() < deadline_ns &&
                   read_pipe(relay, r, o, now_ns))
                for (int s = 0; s < TTI_N_OUTPUTS; s++) write_sink(&relay->sinks[s]);
            tti_line_merge_end(relay->merge, r, o, now_ns);
        }
    tti_line_merge_tick(relay->merge, INT64_MAX);
    for (int s = 0; s < TTI_N_OUTPUTS; s++) {
        sink *out = &relay->sinks[s];
        while (write_sink(out), unsent(out) > 0 && tti_now_ns() < deadline_ns)
            poll(&(struct pollfd){.fd = out->fd, .events = POLLOUT}, 1, tti_ms_until(deadline_ns));
    }
}
