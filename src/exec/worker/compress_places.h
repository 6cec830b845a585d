/* compress_places.h - the layout of compressed messages between workers on devices.
 *
 * A bucket has two summed messages, one after the other: P of each matrix and the uncompressed
 * values, then Q, which stays there as the start of the next step; and pairs that are gathered.
 * Every vector begins at a multiple of 4 elements, as sums between devices require. */
#ifndef TTI_EXEC_COMPRESS_PLACES_H
#define TTI_EXEC_COMPRESS_PLACES_H

#include "backend/backend.h"
#include "exec/worker/desc.h"

typedef struct tti_compress_places {
    tti_powersgd_slot *powersgd; /* all slots that are summed, bucket by bucket */
    int *first_powersgd;         /* [n_buckets + 1]: of a bucket's */
    size_t *message;             /* [2 n_buckets + 1]: where its messages begin, in elements */
    tti_topk_slot *topk;         /* all slots of which the largest elements are sent */
    int *first_topk;             /* [n_buckets + 1] */
    size_t *pairs;               /* [n_buckets + 1]: where a bucket's pairs begin, in pairs */
    size_t n_longest;            /* elements of the messages of a bucket, at most */
    size_t n_scratch;            /* of a bucket's products, at most */
    size_t n_most_pairs;         /* of a bucket, at most */
} tti_compress_places;

/* On success out is released by _fini. */
TUTTI_NODISCARD tutti_status tti_compress_places_init(const tti_exec_desc *desc,
                                                      tti_compress_places *out);
void tti_compress_places_fini(tti_compress_places *places);

#endif /* TTI_EXEC_COMPRESS_PLACES_H */
