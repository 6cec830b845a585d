/* job_rules.h - rules that concern more than one key of a job. */
#ifndef TTI_TRAIN_JOB_RULES_H
#define TTI_TRAIN_JOB_RULES_H

#include "train/job/job.h"

enum { TTI_RULE_KEYS = 9, TTI_WHY = 400 };

typedef struct tti_job_rule {
    const char *keys[TTI_RULE_KEYS]; /* keys that the rule reads */
    /* Writes the conflict and what to do instead to why, or leaves why empty. */
    void (*find)(const tti_job_config *c, char why[TTI_WHY]);
} tti_job_rule;

/* Adds a problem to the job for each broken rule. */
void tti_job_apply_rules(const tti_job_rule *rules, size_t n, tutti_job *job);

/* job_parallel_rules.c */
void tti_job_find_parallel_conflicts(tutti_job *job);

#endif /* TTI_TRAIN_JOB_RULES_H */
