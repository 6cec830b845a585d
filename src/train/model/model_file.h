/* model_file.h - a model that another framework exported (model.file), and its copy in a run
 * folder, by which the run can be used when the file is gone. */
#ifndef TTI_TRAIN_MODEL_FILE_H
#define TTI_TRAIN_MODEL_FILE_H

#include "import/import.h"
#include "train/job/job.h"

/* The copy in a run folder. */
#define TTI_MODEL_FILE_KEPT "model.pt2"

/* The file that the job means: model.file, or the run folder's copy where the job is that of a run
 * and names no other.  *out is "" where the job has no model.file.  TUTTI_E_CONFIG if the path is
 * too long. */
tutti_status tti_model_file_path(const tutti_job *job, char out[TTI_TEXT_MAX]);

/* Opens that file; *out stays NULL where the job has none.  Owned by the caller. */
tutti_status tti_model_file_open(const tutti_job *job, tti_import **out);

/* Copies it into a new run folder. */
tutti_status tti_model_file_keep(const tutti_job *job, const char *run_dir);

/* Adds the model to g: *logits is its result for x. */
tutti_status tti_model_file_build(const tti_import *import, tutti_graph *g, tutti_value *x,
                                  tutti_value **logits);

#endif /* TTI_TRAIN_MODEL_FILE_H */
