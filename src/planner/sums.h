/* sums.h - traffic between the replicas of a model in a step, on the links of a network. */
#ifndef TTI_PLANNER_SUMS_H
#define TTI_PLANNER_SUMS_H

#include "planner/network.h"
#include "train/setup/blueprint.h"

typedef struct tti_sums {
    int zero;          /* 1 .. 3: gradients go to the owners of parts, parameters come back */
    bool whole;        /* gradients to all workers, whatever zero is */
    double n_fetches;  /* times that all parameters come in a step; 0: never */
    int64_t n_servers; /* gradients go to so many workers, parameters come back; 0: to all */
    double of_sum;     /* of the bytes of a bucket, those that are summed */
    double of_pairs;   /* likewise, what each worker sends to each of the others */
    double mean_bytes; /* what local SGD makes the mean of; 0: it is none */
    double mean_every; /* in one step of so many; 1 without */
} tti_sums;

/* How often a step fetches the parameters of one pass with zero 3: once for each micro-batch group
 * of shards, or for all of them where they are joined on the way. */
int64_t tti_sums_n_fetched(const tti_plan *plan, int64_t n_shard_groups);

/* n_shard_groups: of shards, one after the other on a worker. */
void tti_sums_of(const tti_blueprint *b, int64_t n_shard_groups, tti_sums *out);

/* The same job with a synchronous parameter server, which is n_servers of its workers. */
void tti_sums_serve(tti_sums *sums, int64_t n_servers);

/* Seconds until a bucket of n_bytes of f32 is reduced over members [TTI_N_LEVELS], on each worker,
 * or sharded over its owners.  Adds to sent [TTI_N_LEVELS] the bytes of a worker; for a server, the
 * bytes of the parameters that it sends, which equal the gradients that it receives. */
double tti_sums_bucket_s(const tti_sums *sums, const tti_network *network, const int64_t *members,
                         double n_bytes, double *sent);

/* Seconds of all fetches of the parameters of a bucket in a step. */
double tti_sums_fetch_s(const tti_sums *sums, const tti_network *network, const int64_t *members,
                        double n_bytes, double *sent);

/* Seconds that the mean of local SGD takes, in the mean over the steps. */
double tti_sums_mean_s(const tti_sums *sums, const tti_network *network, const int64_t *members,
                       double *sent);

/* A line for whatever is no plain sum of f32 gradients, else none. */
void tti_sums_text(const tti_sums *sums, tti_str *out);

#endif /* TTI_PLANNER_SUMS_H */
