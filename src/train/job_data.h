/* job_data.h - which data set a job means. */
#ifndef TTI_TRAIN_JOB_DATA_H
#define TTI_TRAIN_JOB_DATA_H

#include "train/job.h"
#include "tutti/data.h"

/* The split of the job's data set.  n_classes: what the training split has, for the test split; 0
 * for the training split.  Texts are borrowed from config. */
tutti_dataset_desc tti_job_dataset_desc(const tti_job_config *config, tutti_data_split split,
                                        int64_t n_classes);

#endif /* TTI_TRAIN_JOB_DATA_H */
