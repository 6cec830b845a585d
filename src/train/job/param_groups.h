/* param_groups.h - what a job says about parameters by name: learning rate, decay, frozen or not.
 *
 * optimizer.groups is a list of "PATTERN: lr=FACTOR decay=VALUE", either part alone or both, and
 * optimizer.freeze a list of patterns.  In a pattern * stands for any text, dots too, and ? for one
 * character; it must fit the whole name.  Later entries win over earlier ones, lr and decay each
 * for itself.  A learning rate of 0 is the same as frozen. */
#ifndef TTI_TRAIN_PARAM_GROUPS_H
#define TTI_TRAIN_PARAM_GROUPS_H

#include "train/job/job.h"

typedef struct tti_param_group {
    double lr;      /* factor of the learning rate, 0 if frozen                     */
    bool has_decay; /* decay is said; otherwise the parameter's own rule holds      */
    double decay;   /* weight decay                                                 */
    bool frozen;    /* the parameter stays as it is: no update, no decay, no state */
} tti_param_group;

/* What config says of the parameter. */
tti_param_group tti_param_group_of(const tti_job_config *config, const char *name);

/* TUTTI_E_CONFIG, with the key and the names that there are, if a pattern fits none of them. */
tutti_status tti_param_groups_check(const tti_job_config *config, const char *const *names,
                                    int n_names);

/* One entry of optimizer.groups taken apart; what it does not say is as for a parameter that no
 * pattern fits.  NULL, or what is wrong with it (static text). */
const char *tti_param_group_parse(const char *text, char pattern[TTI_TEXT_MAX],
                                  tti_param_group *out);

/* Whether the pattern fits the whole name. */
bool tti_pattern_fits(const char *pattern, const char *name);

#endif /* TTI_TRAIN_PARAM_GROUPS_H */
