/* worker_set.h - sets of the workers of a parameter server, as bits of their numbers.  Messages
 * have only as many words as the number of workers needs. */
#ifndef TTI_PS_WORKER_SET_H
#define TTI_PS_WORKER_SET_H

#include <stdbool.h>
#include <stdint.h>

/* TTI_MAX_SERVED: the largest number of workers of a server.  The limit is one host: the first
 * process of a server has a thread for each worker, or the workers are its threads.  A set has 512
 * bytes in a job of any size; larger jobs sum without a server. */
enum { TTI_MAX_SERVED = 4096, TTI_SET_WORDS = TTI_MAX_SERVED / 64, TTI_MAX_SERVER_THREADS = 256 };

typedef struct tti_worker_set {
    uint64_t words[TTI_SET_WORDS];
} tti_worker_set;

/* Words of a set of n_workers. */
static inline int tti_set_n_words(int n_workers) { return (n_workers + 63) / 64; }

static inline void tti_set_add(tti_worker_set *set, int worker) {
    set->words[worker / 64] |= UINT64_C(1) << worker % 64;
}

static inline bool tti_set_has(const tti_worker_set *set, int worker) {
    return set->words[worker / 64] >> worker % 64 & 1;
}

/* Number of members with a lower number than this one. */
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
