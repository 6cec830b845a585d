/* network.h - the links of a cluster from a file: workers in hosts, hosts in racks, racks under a
 * spine. */
#ifndef TTI_PLANNER_NETWORK_H
#define TTI_PLANNER_NETWORK_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "train/setup/bucket_link.h"

enum { TTI_N_LEVELS = 3 };

/* One level: groups of size members each, joined by links. */
typedef struct tti_level {
    int64_t size;      /* members of a group; of the last level any number */
    double gb_s;       /* 1e9 bytes per second out of one worker, and as many into it */
    double latency_us; /* of a message */
} tti_level;

typedef struct tti_network {
    tti_level levels[TTI_N_LEVELS]; /* host, rack, spine */
} tti_network;

extern const char *const tti_level_names[TTI_N_LEVELS];

/* A preset ("h200", "ethernet"), or else a YAML file with the groups host, rack and spine.
 * TUTTI_E_CONFIG with every problem of the file. */
tutti_status tti_network_read(const char *name, tti_network *out);

/* The same from memory; source names the text in messages. */
tutti_status tti_network_parse(const char *text, size_t n_bytes, const char *source,
                               tti_network *out);

/* How many members take part on each level when n workers do, which are apart workers from each
 * other (1: neighbours). */
void tti_network_members(const tti_network *network, int64_t n, int64_t apart, int64_t *members);

/* The level that joins n neighbours, and how many workers there can be. */
int tti_network_level(const tti_network *network, int64_t n);
double tti_network_room(const tti_network *network);

/* Seconds of an all-reduce of n_bytes over members [TTI_N_LEVELS]: halves are exchanged within each
 * level and only a share goes up to the next (Rabenseifner 2004).  sent [TTI_N_LEVELS], bytes per
 * worker, is added to. */
double tti_network_sum_s(const tti_network *network, const int64_t *members, double n_bytes,
                         double *sent);

/* Likewise of its first half, after which each of the members has the sum of its part, and just as
 * well of the second, which brings the parts to all. */
double tti_network_half_s(const tti_network *network, const int64_t *members, double n_bytes,
                          double *sent);

/* Fills latency, speed and name of *link for sums over members; unchanged if there is only one
 * member. */
void tti_network_link(const tti_network *network, const int64_t *members, tti_bucket_link *link);

#endif /* TTI_PLANNER_NETWORK_H */
