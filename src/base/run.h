/* run.h - the only inputs of a random op at run time: never the rank, the thread or the number of
 * workers (design: virtual shards). */
#ifndef TTI_BASE_RUN_H
#define TTI_BASE_RUN_H

#include <stdint.h>

typedef struct tti_run {
    uint64_t seed;    /* of the job                                                */
    uint64_t step;    /* optimizer steps done before this one                      */
    uint64_t sample0; /* position in the global batch of the shard's first sample  */
} tti_run;

#endif /* TTI_BASE_RUN_H */
