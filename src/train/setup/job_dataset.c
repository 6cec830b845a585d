/* job_dataset.c - tutti_job_open_dataset: opens the samples of a job as training would. */
#include <string.h>

#include "data/dataset.h"
#include "train/job/job_data.h"
#include "train/model/model_file.h"

static tutti_status open_dataset(tutti_job *job, tutti_data_split split, tutti_dataset **out) {
    *out = NULL;
    TTI_TRY(tutti_job_check(job));
    tutti_dataset *train;
    tti_job_config c = *tti_job_config_of(job);
    TTI_TRY(tti_job_check_samples(&c));
    tti_import *import = NULL; /* a model file may need fields, as in training */
    if (strcmp(c.data.fields, "auto") == 0) TTI_TRY(tti_model_file_open(job, &import));
    tti_model_file_fields(import, &c);
    tti_import_close(import);
    tutti_dataset_desc desc = tti_job_dataset_desc(&c, TUTTI_TRAIN, NULL);
    TTI_TRY(tutti_dataset_open(&desc, &train));
    if (split == TUTTI_TRAIN) {
        *out = train;
        return TUTTI_OK;
    }
    const tti_data_spec *spec = tti_data_spec_share(tti_dataset_spec(train));
    tutti_dataset_destroy(train);
    desc = tti_job_dataset_desc(&c, split, spec);
    tutti_status st = tutti_dataset_open(&desc, out);
    tti_data_spec_release(spec);
    return st;
}

tutti_status tutti_job_open_dataset(tutti_job *job, tutti_data_split split, tutti_dataset **out) {
    TTI_TRY(tti_need(job, __func__, "job"));
    TTI_TRY(tti_need(out, __func__, "out"));
    return tti_job_say_where(job, open_dataset(job, split, out));
}
