/* report.h - report.html in the run folder: a self-contained page about a run. */
#ifndef TTI_TRAIN_REPORT_H
#define TTI_TRAIN_REPORT_H

#include "train/report/mistakes.h"
#include "train/report/text_samples.h"

/* Parts of the page that need the model; each may be NULL. names: the test split, for the class
 * names of mistakes. */
typedef struct tti_report_extras {
    const tti_mistakes *mistakes;
    const tutti_dataset *names;
    const tti_text_samples *texts;
    bool no_mistakes; /* mistakes were not searched for */
} tti_report_extras;

/* Writes run_dir/report.html from metrics.jsonl.  extras may be NULL. */
tutti_status tti_report_write(const char *run_dir, const tti_report_extras *extras);

/* Writes the page for a run that was stopped on request.  If reading its records would take long,
 * returns TUTTI_E_UNSUPPORTED with the command that writes the page. */
tutti_status tti_report_when_stopped(const char *run_dir);

/* Writes the page at the end of a run, on one rank.  Includes mistakes if samples are images,
 * and generated texts of a language model, if computing them is cheap. b is the blueprint of the
 * run. */
tutti_status tti_report_at_end(const tutti_job *job, const tti_blueprint *b, const char *run_dir);

#endif /* TTI_TRAIN_REPORT_H */
