/* network.h - the links of a cluster, from a preset or a file: workers in hosts, hosts in racks,
 * racks under a spine. */
#ifndef TTI_PLANNER_NETWORK_H
#define TTI_PLANNER_NETWORK_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "train/setup/bucket_link.h"

enum { TTI_N_LEVELS = 3 };

/* One level: groups of size members each, joined by links. */
typedef struct tti_level {
    int64_t size;      /* members of a group; unlimited on the last level */
    double gb_s;       /* bandwidth of one worker in each direction, in 1e9 bytes per second */
    double latency_us; /* latency of a message */
} tti_level;

typedef struct tti_network {
    tti_level levels[TTI_N_LEVELS]; /* host, rack, spine */
} tti_network;

extern const char *const tti_level_names[TTI_N_LEVELS];

/* Reads a preset ("h200", "ethernet") or else a YAML file with the groups host, rack and spine.
 * TUTTI_E_CONFIG: the file is invalid; the message lists every problem. */
tutti_status tti_network_read(const char *name, tti_network *out);

/* The same from text [n_bytes] in memory; source names the text in messages. */
tutti_status tti_network_parse(const char *text, size_t n_bytes, const char *source,
                               tti_network *out);

/* Sets members [TTI_N_LEVELS] to the number of participants on each level, for n workers of which
 * each is `stride` ranks after the previous one (1: neighbours). */
void tti_network_members(const tti_network *network, int64_t n, int64_t stride, int64_t *members);

/* Level: the lowest level that joins n neighbours. Capacity: the largest number of workers. */
int tti_network_level(const tti_network *network, int64_t n);
double tti_network_capacity(const tti_network *network);

/* Seconds of an all-reduce of n_bytes over members [TTI_N_LEVELS], by recursive halving within each
 * level; only the reduced partition is sent to the next level (Rabenseifner 2004). Adds the bytes
 * that a worker sends to sent [TTI_N_LEVELS]. */
double tti_network_sum_s(const tti_network *network, const int64_t *members, double n_bytes,
                         double *sent);

/* Likewise of one half of it: a reduce-scatter or an all-gather, which take equally long. */
double tti_network_half_sum_s(const tti_network *network, const int64_t *members, double n_bytes,
                              double *sent);

/* Sets latency, speed and name of *link for reductions over members. Leaves *link unchanged if
 * there is only one member. */
void tti_network_link(const tti_network *network, const int64_t *members, tti_bucket_link *link);

#endif /* TTI_PLANNER_NETWORK_H */
