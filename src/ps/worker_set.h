/* worker_set.h - sets of the workers of a parameter server, one bit per worker. A message contains
 * only as many words of a set as the number of workers needs. */
#ifndef TTI_PS_WORKER_SET_H
#define TTI_PS_WORKER_SET_H

#include <stdbool.h>
#include <stdint.h>

/* TTI_MAX_SERVED: the largest number of workers of a server. One host must run a thread for each
 * worker, either the worker itself or the thread that serves its process. A set always has 512
 * bytes. Larger jobs need a layout without a server. */
enum { TTI_MAX_SERVED = 4096, TTI_SET_WORDS = TTI_MAX_SERVED / 64, TTI_MAX_SERVER_THREADS = 256 };

typedef struct tti_worker_set {
    uint64_t words[TTI_SET_WORDS];
} tti_worker_set;

/* Number of words that a set of n_workers workers uses. */
static inline int tti_set_n_words(int n_workers) { return (n_workers + 63) / 64; }

static inline void tti_set_add(tti_worker_set *set, int worker) {
    set->words[worker / 64] |= UINT64_C(1) << worker % 64;
}

static inline bool tti_set_has(const tti_worker_set *set, int worker) {
    return set->words[worker / 64] >> worker % 64 & 1;
}

/* Number of members whose number is lower than `worker`. */
static inline int tti_set_count_below(const tti_worker_set *set, int worker) {
    int n = worker % 64
                ? __builtin_popcountll(set->words[worker / 64] & ((UINT64_C(1) << worker % 64) - 1))
                : 0;
    for (int i = 0; i < worker / 64; i++) n += __builtin_popcountll(set->words[i]);
    return n;
}

static inline int tti_set_count(const tti_worker_set *set) {
    int n = 0;
    for (int i = 0; i < TTI_SET_WORDS; i++) n += __builtin_popcountll(set->words[i]);
    return n;
}

/* Keeps only the members that are in both sets. */
static inline void tti_set_intersect(tti_worker_set *set, const tti_worker_set *other) {
    for (int i = 0; i < TTI_SET_WORDS; i++) set->words[i] &= other->words[i];
}

/* True if all members are also in the other set. */
static inline bool tti_set_is_within(const tti_worker_set *set, const tti_worker_set *other) {
    uint64_t missing = 0;
    for (int i = 0; i < TTI_SET_WORDS; i++) missing |= set->words[i] & ~other->words[i];
    return missing == 0;
}

#endif /* TTI_PS_WORKER_SET_H */
