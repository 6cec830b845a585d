/* fingerprint.h - a short digest of a data set, so that ranks can compare what they read. */
#ifndef TTI_DATA_FINGERPRINT_H
#define TTI_DATA_FINGERPRINT_H

#include "data/dataset.h"

/* Two digests of a data set: of the names and sizes that its format lists (classes, files), and of
 * stored samples: all of a small set, else some at fixed positions.  Equal data gives equal digests
 * on every machine; samples are hashed as stored, before decoding. */
typedef struct tti_fingerprint {
    uint32_t names, content;
} tti_fingerprint;

/* A sample that cannot be read counts as such: the run reports it when it needs it.  Fails with
 * TUTTI_E_NOMEM alone. */
TUTTI_NODISCARD tutti_status tti_dataset_fingerprint(const tutti_dataset *ds, tti_fingerprint *out);

#endif /* TTI_DATA_FINGERPRINT_H */
