/* host_file.h - reads the number of workers of a host from a file, again whenever the file changes.
 *
 * Each line is "HOST" or "HOST slots=N", as in Open MPI and DeepSpeed; "#" begins a comment.  The
 * slots of all lines with a host's name, its name without domain, or its address are added up. */
#ifndef TTI_LAUNCH_HOST_FILE_H
#define TTI_LAUNCH_HOST_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef struct tti_host_file {
    const char *path; /* borrowed */
    int64_t looked_ns;
    uint64_t inode; /* inode, time and size of the version that was read last */
    struct timespec changed;
    int64_t n_bytes;
} tti_host_file;

/* Reads the file if it has changed since the last call.  Returns 1: *text is its text, owned by the
 * caller; 0: it has not changed or does not exist; -1: it cannot be read, with the error text set.
 * Checks the file at most four times a second. */
int tti_host_file_read(tti_host_file *file, char **text);

/* Returns the number of slots of this host, also from lines with "localhost", if the file has
 * changed; 0: it has not changed; -1: it is invalid or has no slots for this host, with the error
 * text set. */
int tti_host_file_look(tti_host_file *file);

/* The allowed numbers of workers of a run: multiples of step from least to most. */
typedef struct tti_host_file_range {
    int least, most, step;
} tti_host_file_range;

/* The same, limited to the allowed numbers. text [n_bytes]: a warning, or "". */
int tti_host_file_workers(tti_host_file *file, const tti_host_file_range *may, char *text,
                          size_t n_bytes);

/* The names by which lines may refer to a host. */
typedef struct tti_host_names {
    const char *host, *address; /* "": unknown */
    bool is_local;              /* localhost and 127.0.0.1 are this host */
} tti_host_names;

/* Returns the number of slots for a host in text; -1: a line is invalid, with the error text
 * set. */
int tti_host_file_slots(const char *text, const tti_host_names *names);

/* Copies the first name in a line with slots that is not one of n hosts; "": there is none.  All
 * lines must be valid. */
void tti_host_file_find_unknown(const char *text, const tti_host_names *hosts, int n, char *name,
                                size_t n_bytes);

#endif /* TTI_LAUNCH_HOST_FILE_H */
