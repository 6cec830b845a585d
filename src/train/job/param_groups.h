/* param_groups.h - per-parameter settings of a job, selected by name: learning rate, weight decay,
 * frozen.
 *
 * optimizer.groups is a list of "PATTERN: lr=FACTOR decay=VALUE", where lr or decay may be missing.
 * optimizer.freeze is a list of patterns.  In a pattern * matches any text, including dots, and ?
 * one character; it must match the whole name.  Later entries override earlier ones, lr and decay
 * independently.  A learning rate of 0 is the same as frozen. */
#ifndef TTI_TRAIN_PARAM_GROUPS_H
#define TTI_TRAIN_PARAM_GROUPS_H

#include "train/job/job.h"

typedef struct tti_param_group {
    double lr;      /* factor of the learning rate; 0 if frozen */
    bool has_decay; /* decay is set; otherwise the parameter's default applies */
    double decay;   /* weight decay                                                 */
    bool frozen;    /* no update, no decay, no optimizer state */
} tti_param_group;

/* Returns the settings of config for a parameter. */
tti_param_group tti_param_group_of(const tti_job_config *config, const char *name);

/* Returns TUTTI_E_CONFIG, naming the key and the existing names, if a pattern matches none of
 * them. */
tutti_status tti_param_groups_check(const tti_job_config *config, const char *const *names,
                                    int n_names);

/* Parses one entry of optimizer.groups; fields that it does not set get the defaults of a parameter
 * that no pattern matches.  Returns NULL, or the reason for a failure (static text). */
const char *tti_param_group_parse(const char *text, char pattern[TTI_TEXT_MAX],
                                  tti_param_group *out);

/* True if the pattern matches the whole name. */
bool tti_pattern_matches(const char *pattern, const char *name);

#endif /* TTI_TRAIN_PARAM_GROUPS_H */
