/* sums.h - instructions between the replicas of a model, on the links of a network. */
#ifndef TTI_PLANNER_SUMS_H
#define TTI_PLANNER_SUMS_H

#include "exec/exec.h"
#include "planner/network.h"

typedef struct tti_sums {
    int zero; /* 1 .. 3: gradients are reduced to the owners of partitions, parameters are gathered
               */
    int64_t n_servers; /* gradients go to so many workers, parameters come back; 0: to all */
    double of_sum;     /* of the bytes of a bucket, those that are summed */
    double of_pairs;   /* likewise, what each worker sends to each of the others */
} tti_sums;

/* n_servers: of a synchronous parameter server, which is as many of the workers; 0: none. */
void tti_sums_of(const tti_exec_desc *desc, int64_t n_servers, tti_sums *out);

/* Seconds of a reduction, gather or average of a range of f32 over members [TTI_N_LEVELS], on each
 * worker.  Adds to sent [TTI_N_LEVELS] the bytes of a worker; for a server, the bytes of the
 * parameters that it sends, which equal the gradients that it receives. */
double tti_sums_instr_s(const tti_sums *sums, const tti_network *network, const int64_t *members,
                        const tti_instr *instr, tti_range range, double *sent);

/* Traffic of a step of the simulated job in addition to the reduction of gradients. */
typedef struct tti_sums_extent {
    double gathered;       /* times that all parameters are gathered */
    double averaged_bytes; /* local SGD: in one step of `average_every` */
    double average_every;
} tti_sums_extent;

/* Prints a line for a strategy that is not a plain sum of f32 gradients, else nothing. */
void tti_sums_text(const tti_sums *sums, const tti_sums_extent *extent, tti_str *out);

#endif /* TTI_PLANNER_SUMS_H */
