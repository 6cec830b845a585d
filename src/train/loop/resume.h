/* resume.h - compares the job of a resumed run with the job in its checkpoint. */
#ifndef TTI_TRAIN_RESUME_H
#define TTI_TRAIN_RESUME_H

#include "base/str.h"
#include "train/job/job.h"

/* Compares a resolved job with the job in the newest checkpoint of run_dir.  TUTTI_E_CONFIG, with
 * both values and a suggestion, if a key differs that a resumed run cannot change. notice: other
 * differences that neither the command line nor the caller set; empty if there are none.  No-op
 * without a readable checkpoint. */
TUTTI_NODISCARD tutti_status tti_resume_check(const tutti_job *job, const char *run_dir,
                                              tti_str *notice);

/* True if dir holds a run of the job with this text: every key that the text sets has the same
 * value in the job.yaml of dir. */
bool tti_resume_is_own(const char *dir, const char *yaml);

#endif /* TTI_TRAIN_RESUME_H */
