/* host_file.h - the number of workers of a host, from a file that is read again when it changes.
 *
 * Each line is "HOST" or "HOST slots=N", as Open MPI and DeepSpeed read it; "#" begins a comment.
 * Lines of a host (its name, its name without a domain, or its address) are added up. */
#ifndef TTI_LAUNCH_HOST_FILE_H
#define TTI_LAUNCH_HOST_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef struct tti_host_file {
    const char *path; /* borrowed */
    int64_t looked_ns;
    uint64_t inode; /* of the version that was read last, with its time and size */
    struct timespec changed;
    int64_t n_bytes;
} tti_host_file;

/* Reads the file if it is another one than at the last call.  1: *text is its text, owned by the
 * caller; 0: nothing is new, or there is no such file; -1: it cannot be read, and the text of the
 * error is set.  Looks at most four times a second. */
int tti_host_file_read(tti_host_file *file, char **text);

/* The number of slots of this host, whose lines may also say localhost, if the file is new; 0:
 * nothing is new; -1: it cannot be understood, or has none for this host, likewise. */
int tti_host_file_look(tti_host_file *file);

/* How many workers a run may have: multiples of step from least to most. */
typedef struct tti_host_file_range {
    int least, most, step;
} tti_host_file_range;

/* The same within what the run may have; text [n_bytes] is a warning, or "". */
int tti_host_file_workers(tti_host_file *file, const tti_host_file_range *may, char *text,
                          size_t n_bytes);

/* How lines may name a host. */
typedef struct tti_host_names {
    const char *host, *address; /* "": unknown */
    bool is_local;              /* localhost and 127.0.0.1 are this host */
} tti_host_names;

/* The number of slots that text has for a host; -1: a line is invalid, and the text of the
 * error is set. */
int tti_host_file_slots(const char *text, const tti_host_names *names);

/* Copies the first name of a line with slots that is none of n hosts; "": there is none.  The lines
 * make sense. */
void tti_host_file_find_unknown(const char *text, const tti_host_names *hosts, int n, char *name,
                                size_t n_bytes);

#endif /* TTI_LAUNCH_HOST_FILE_H */
