/* job_data.h - the data set of a job. */
#ifndef TTI_TRAIN_JOB_DATA_H
#define TTI_TRAIN_JOB_DATA_H

#include "data/data_spec.h"
#include "train/job/job.h"
#include "tutti/data.h"

/* data.dir of a job whose samples are in memory (tutti_job_set_samples). */
#define TTI_MEMORY_DIR "the memory of the program"

/* Returns TUTTI_E_DATA if the samples of a run were in the memory of another program. */
tutti_status tti_job_check_samples(const tti_job_config *config);

/* Returns the tokenizer for a data set description, from data.tokenizer; NULL: none is named. */
const char *tti_job_tokenizer(const tti_job_config *config);

/* Returns "class", "value" or "auto" (decided by the labels), from data.target or else from
 * train.loss. */
const char *tti_job_target(const tti_job_config *config);

/* The field with the target of train.loss: data.label, or the field of a table's label columns; "":
 * the default one (tti_field_find_target). */
const char *tti_job_target_field(const tti_job_config *config);

/* Describes a split of the job's data set. spec: the specification of the training split when
 * describing the test split, else NULL.  Borrows spec and texts of config. */
tutti_dataset_desc tti_job_dataset_desc(const tti_job_config *config, tutti_data_split split,
                                        const tti_data_spec *spec);

#endif /* TTI_TRAIN_JOB_DATA_H */
