/* host_file.h - the number of workers of this host, from a file that is read again when it changes.
 *
 * Each line is "HOST" or "HOST slots=N", as Open MPI and DeepSpeed read it; "#" begins a comment.
 * Lines of this host (its name, its name without a domain, or localhost) are added up, and those of
 * other hosts are ignored. */
#ifndef TTI_LAUNCH_HOST_FILE_H
#define TTI_LAUNCH_HOST_FILE_H

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

/* Reads the file if it is another one than at the last call.  The number of slots of this host; 0:
 * nothing is new, or there is no such file; -1: it cannot be understood, and the text of the error
 * is set.  Looks at most four times a second. */
int tti_host_file_look(tti_host_file *file);

/* How many workers a run may have: multiples of step from least to most. */
typedef struct tti_host_file_range {
    int least, most, step;
} tti_host_file_range;

/* The same within what the run may have; text [n_bytes] is a warning, or "". */
int tti_host_file_workers(tti_host_file *file, const tti_host_file_range *may, char *text,
                          size_t n_bytes);

/* The number of slots that text has for the host of this name; -1 as above. */
int tti_host_file_slots(const char *text, const char *host);

#endif /* TTI_LAUNCH_HOST_FILE_H */
