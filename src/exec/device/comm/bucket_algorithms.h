/* bucket_algorithms.h - the algorithm of each bucket's sum between devices, from the table of
 * `tutti doctor`.
 *
 * Only if parallel.algorithm is auto, all workers are on one machine, and each has the whole state
 * and model: the table has no other sums. */
#ifndef TTI_EXEC_BUCKET_ALGORITHMS_H
#define TTI_EXEC_BUCKET_ALGORITHMS_H

#include "exec/device/bench/sum_table.h"
#include "exec/worker/worker.h"

typedef struct tti_bucket_algorithms {
    tti_cache_found found; /* of rank 0; also ABSENT if none is looked for */
    tti_sum_table table;   /* GOOD */
    bool *by_library;      /* [n_buckets]: faster than over peers' memory; NULL: none is */
    int n_by_library;
} tti_bucket_algorithms;

/* Rank 0 reads the table and sends it to the others.  Collective. out is released by _forget, also
 * after a failure. */
TUTTI_NODISCARD tutti_status tti_bucket_algorithms_init(tti_exec *x, tti_bucket_algorithms *out);

/* From here on no bucket uses the library; frees the table. */
void tti_bucket_algorithms_forget(tti_bucket_algorithms *algorithms);

/* Describes the result, for the start line, after the default algorithm. */
void tti_bucket_algorithms_describe(const tti_bucket_algorithms *algorithms, int n_buckets,
                                    tti_str *str);

#endif /* TTI_EXEC_BUCKET_ALGORITHMS_H */
