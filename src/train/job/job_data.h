/* job_data.h - the data set of a job. */
#ifndef TTI_TRAIN_JOB_DATA_H
#define TTI_TRAIN_JOB_DATA_H

#include "data/data_spec.h"
#include "train/job/job.h"
#include "tutti/data.h"

/* data.tokenizer for a description of a data set; NULL: none is named. */
const char *tti_job_tokenizer(const tti_job_config *config);

/* "class", "value", or "auto", which depends on the labels: data.target, else by train.loss. */
const char *tti_job_target(const tti_job_config *config);

/* The split of the job's data set.  spec: of the training split, for the test split; NULL for the
 * training split.  Borrows spec, and texts of config. */
tutti_dataset_desc tti_job_dataset_desc(const tti_job_config *config, tutti_data_split split,
                                        tti_data_spec *spec);

#endif /* TTI_TRAIN_JOB_DATA_H */
