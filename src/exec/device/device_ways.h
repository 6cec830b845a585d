/* device_ways.h - which way each bucket is summed between devices, as a table of tutti doctor says.
 *
 * Only where parallel.algorithm is auto, all workers are of one machine, and each has the whole
 * state and model: of other sums the table knows nothing. */
#ifndef TTI_EXEC_DEVICE_WAYS_H
#define TTI_EXEC_DEVICE_WAYS_H

#include "exec/device/sum_table.h"
#include "exec/worker/worker.h"

typedef struct tti_device_ways {
    tti_cache_found found; /* of rank 0: ABSENT where none is asked for, too */
    tti_sum_table table;   /* GOOD */
    bool *by_library;      /* [n_buckets]: faster than over peers' memory; NULL: none is */
    int n_by_library;
} tti_device_ways;

/* Rank 0 reads the table and tells the others.  Collective.  out is released by _forget, also after
 * a failure. */
TUTTI_NODISCARD tutti_status tti_device_ways_init(tti_exec *x, tti_device_ways *out);

/* No bucket is summed by the library from here on; nothing of ways is owned any more. */
void tti_device_ways_forget(tti_device_ways *ways);

/* What came of it, behind what the start line says of the way that is taken otherwise. */
void tti_device_ways_describe(const tti_device_ways *ways, int n_buckets, tti_str *str);

#endif /* TTI_EXEC_DEVICE_WAYS_H */
