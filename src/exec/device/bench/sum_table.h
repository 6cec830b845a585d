/* sum_table.h - times of all-reduce between devices by size and algorithm, and the table that
 * stores them. */
#ifndef TTI_EXEC_SUM_TABLE_H
#define TTI_EXEC_SUM_TABLE_H

#include "backend/backend.h"
#include "base/files/cache.h"
#include "tutti/bench.h"

/* Implements tutti_bench_devices (tutti/bench.h). */
tutti_status tti_bench_devices(const tti_backend *backend, const tutti_bench_devices_desc *desc,
                               tutti_bench_devices_fn report, void *user);

/* ---- the fastest measured reduction algorithm by size ----
 *
 * `tutti doctor` measures and stores it; a run with parallel.algorithm=auto uses its fastest
 * algorithm for each bucket (bucket_algorithms.c). */

/* The names are those of parallel.algorithm. */
typedef enum tti_sum_algorithm {
    TTI_SUM_DIRECT, /* kernels read the memory of peers, in a fixed order */
    TTI_SUM_TREE,   /* the library moves data, a kernel adds in the same order */
    TTI_SUM_RING,   /* the library adds, in its own order */
    TTI_N_SUM_ALGORITHMS
} tti_sum_algorithm;

enum { TTI_SUM_ROWS = 16, TTI_SUM_DEVICES = 16, TTI_SUM_KIND = 128, TTI_SUM_KEY = 1024 };

typedef struct tti_sum_row {
    int64_t n_bytes;                 /* bytes per rank of one all-reduce */
    double us[TTI_N_SUM_ALGORITHMS]; /* time of one sum, on the slowest device; 0: not available */
} tti_sum_row;

/* Plain data; may be copied between processes of one machine. */
typedef struct tti_sum_table {
    char library[64]; /* "NCCL 2.28.9"; "": no library */
    int n_rows;
    tti_sum_row rows[TTI_SUM_ROWS]; /* in ascending order of n_bytes */
} tti_sum_table;

/* Prints and parses the table. TUTTI_E_INVALID: the text is not a table; the message names the
 * line. */
void tti_sum_table_print(const tti_sum_table *table, tti_str *text);
TUTTI_NODISCARD tutti_status tti_sum_table_parse(const char *text, size_t n_bytes,
                                                 tti_sum_table *out);

/* True if the library adds so many bytes faster than direct: in its own order in fast mode, else in
 * the fixed order.  Times are interpolated between rows; beyond the last one they grow with the
 * bytes. */
bool tti_sum_table_prefers_library(const tti_sum_table *table, int64_t n_bytes, bool fast);

/* The properties that determine the speed of a device. */
typedef struct tti_sum_kind {
    char text[TTI_SUM_KIND];
} tti_sum_kind;

void tti_sum_table_kind(const tti_backend *backend, int index, tti_sum_kind *kind);

/* The key of a table: version, libraries, driver and kinds of the n devices. */
void tti_sum_table_key(const tti_backend *backend, const tti_sum_kind *kinds, int n,
                       char key[TTI_SUM_KEY]);

/* The cache file for n devices. */
void tti_sum_table_name(int n, char name[64]);

tti_cache_found tti_sum_table_load(const char *key, int n, tti_sum_table *out);

/* False: the file could not be written. */
bool tti_sum_table_save(const char *key, int n, const tti_sum_table *table);

/* Measures the first n devices, which must not be open. n_most: bytes of the largest sum. Fails as
 * tti_bench_devices does. */
TUTTI_NODISCARD tutti_status tti_sum_table_measure(const tti_backend *backend, int n, size_t n_most,
                                                   tti_sum_table *out);

#endif /* TTI_EXEC_SUM_TABLE_H */
