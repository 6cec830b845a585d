/* resolved.h - prints a job for its run folder, with a value for every "auto". */
#ifndef TTI_TRAIN_RESOLVED_H
#define TTI_TRAIN_RESOLVED_H

#include "train/setup/blueprint.h"

/* Prints a resolved job with absolute paths, so that its text is valid in any directory.  With the
 * blueprint, which knows the data, and the run folder, no key stays "auto", and the text reproduces
 * the run.  Does not change the job.  The caller frees *yaml with free(). */
TUTTI_NODISCARD tutti_status tti_job_print_resolved(tutti_job *job, const tti_blueprint *blueprint,
                                                    const char *run_dir, char **yaml);

#endif /* TTI_TRAIN_RESOLVED_H */
