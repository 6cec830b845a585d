/* sums.h - costs instructions between the replicas of a model, on the links of a network. Times are
 * in seconds. */
#ifndef TTI_PLANNER_SUMS_H
#define TTI_PLANNER_SUMS_H

#include "exec/exec.h"
#include "planner/network.h"

typedef struct tti_sums {
    int zero;          /* ZeRO stage. 1 .. 3: gradients are reduced to the owners of partitions, and
                          parameters are gathered */
    int64_t n_servers; /* number of workers that own parameters of a server; 0: no server */
    double reduced_share; /* bytes of a bucket that are reduced, relative to f32 */
    double pair_share;    /* bytes that each worker sends to each other one, relative to f32 */
} tti_sums;

/* Sets *out for the workers of desc. n_servers: number of workers that own ranges of a synchronous
 * parameter server; 0: no server. */
void tti_sums_of(const tti_exec_desc *desc, int64_t n_servers, tti_sums *out);

/* Seconds of a reduction, gather or average of a range of f32 over members [TTI_N_LEVELS], on each
 * worker. Adds the bytes that a worker sends to sent [TTI_N_LEVELS]; with a server, the bytes of
 * parameters that one server sends, which equal the gradients that it receives. */
double tti_sums_instr_s(const tti_sums *sums, const tti_network *network, const int64_t *members,
                        const tti_instr *instr, tti_range range, double *sent);

/* Traffic of a step of the simulated job in addition to the reduction of gradients. */
typedef struct tti_sums_extent {
    double gathered;       /* number of times that all parameters are gathered */
    double averaged_bytes; /* local SGD: bytes averaged in one of `average_every` steps */
    double average_every;
} tti_sums_extent;

/* Prints a line for a strategy that is not a plain sum of f32 gradients, else nothing. */
void tti_sums_text(const tti_sums *sums, const tti_sums_extent *extent, tti_str *out);

#endif /* TTI_PLANNER_SUMS_H */
