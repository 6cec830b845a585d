/* samples_record.h - samples.txt in a run folder: records the samples that the run was trained
 * on. */
#ifndef TTI_TRAIN_SAMPLES_RECORD_H
#define TTI_TRAIN_SAMPLES_RECORD_H

#include "data/dataset.h"

#define TTI_SAMPLES_FILE "samples.txt"

/* Writes the numbers and checksums of the samples (data/loader/fingerprint.h) into folder dir.
 * If dir has different ones from an earlier part of the run, note gets a sentence with both;
 * else "". */
TUTTI_NODISCARD tutti_status tti_samples_record_keep(const char *dir, const tutti_dataset *train,
                                                     const tutti_dataset *test, char *note,
                                                     size_t n_bytes);

#endif /* TTI_TRAIN_SAMPLES_RECORD_H */
