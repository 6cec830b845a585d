/* report.h - report.html in the run folder: what a run did, as one page that needs nothing else. */
#ifndef TTI_TRAIN_REPORT_H
#define TTI_TRAIN_REPORT_H

#include "train/mistakes.h"

/* Writes run_dir/report.html from metrics.jsonl.  mistakes may be NULL; names: the test split, for
 * their classes. */
tutti_status tti_report_write(const char *run_dir, const tti_mistakes *mistakes,
                              const tutti_dataset *names);

/* At the end of a run, by one rank: the same, with mistakes where samples are pictures and looking
 * for them costs little.  b is the run's. */
tutti_status tti_report_at_end(const tutti_job *job, const tti_blueprint *b, const char *run_dir);

#endif /* TTI_TRAIN_REPORT_H */
