/* shares.h - what parallel.shares says: which worker has how many of the shards. */
#ifndef TTI_TRAIN_SHARES_H
#define TTI_TRAIN_SHARES_H

#include "base/str.h"
#include "comm/deal.h"
#include "train/job/job.h"

typedef enum tti_shares_kind {
    TTI_SHARES_AUTO, /* not decided yet */
    TTI_SHARES_EQUAL,
    TTI_SHARES_MEASURED,
    TTI_SHARES_GIVEN
} tti_shares_kind;

typedef struct tti_shares {
    tti_shares_kind kind;
    int n;                          /* GIVEN: workers that divide the batch */
    double weight[TTI_MAX_WORKERS]; /* [n] > 0 */
} tti_shares;

/* Takes "auto", "equal", "measured", or weights such as "3,1".  NULL, or what is wrong with it in
 * words that go on from the key. */
const char *tti_shares_parse(const char *text, tti_shares *out);

tti_shares_kind tti_shares_kind_of(const tti_job_config *config);

/* The runs that a job gives n_workers workers; false: it gives none, they are equal or measured.
 * The job has been checked. */
bool tti_shares_given(const tti_job_config *config, int n_workers, int n_shards, tti_deal *out);

/* "6 and 2", "5, 1, 1 and 1": shards of each worker. */
void tti_shares_print(const tti_deal *deal, tti_str *out);

#endif /* TTI_TRAIN_SHARES_H */
