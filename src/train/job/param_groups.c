/* param_groups.c - patterns of parameter names and the settings they select.
 *
 * Entries are parsed again for each name: there are at most sixteen, and each parameter needs them
 * once, when the plan is made. job_conflicts.c has checked their syntax. */
#include "train/job/param_groups.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/options/nearest.h"
#include "base/problem.h"

/* On a mismatch the last * takes one more character; earlier ones need no backtracking. */
bool tti_pattern_matches(const char *pattern, const char *name) {
    const char *star = NULL, *from = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = ++pattern;
            from = name;
        } else if (*pattern && (*pattern == '?' || *pattern == *name)) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

static const tti_param_group no_group = {.lr = 1};

static const char *read_setting(const char *key, const char *value, bool *has_lr,
                                tti_param_group *g) {
    double x;
    bool lr = !strcmp(key, "lr"), decay = !strcmp(key, "decay");
    if (!lr && !decay)
        return "the settings are lr (a factor) and decay, such as \"*.bias: lr=2 decay=0\"";
    tti_number form = tti_parse_float(value, &x);
    if (form == TTI_NUMBER_TINY)
        return "lr or decay is too small to compute with; write 0 if that is meant";
    if (form != TTI_NUMBER_OK || x < 0 || x > 1000)
        return "lr and decay must be numbers from 0 to 1000";
    if (lr ? *has_lr : g->has_decay) return "sets lr or decay twice";
    if (lr) {
        *has_lr = true;
        g->lr = x;
        g->frozen = x == 0;
    } else {
        g->has_decay = true;
        g->decay = x;
    }
    return NULL;
}

/* Parses the text after the colon; modifies scratch. */
static const char *read_settings(char *scratch, bool *has_lr, tti_param_group *g) {
    char *rest = scratch;
    for (char *word = strtok_r(scratch, " ,\t", &rest); word;
         word = strtok_r(NULL, " ,\t", &rest)) {
        char *equals = strchr(word, '=');
        if (!equals) return "needs key=value after the colon, such as \"*.bias: lr=2 decay=0\"";
        *equals = '\0';
        const char *why = read_setting(word, equals + 1, has_lr, g);
        if (why) return why;
    }
    if (!*has_lr && !g->has_decay) return "sets nothing; give lr=FACTOR, decay=VALUE or both";
    return NULL;
}

/* Like the public function; *has_lr: the entry sets the learning rate. */
static const char *parse(const char *text, char pattern[TTI_TEXT_MAX], bool *has_lr,
                         tti_param_group *out) {
    char scratch[TTI_TEXT_MAX];
    const char *colon = strchr(text, ':');
    tti_param_group g = no_group;
    *has_lr = false;
    if (!colon) return "needs a pattern, a colon and settings, such as \"*.bias: lr=2 decay=0\"";
    text += strspn(text, " \t");
    size_t n = (size_t)(colon - text);
    while (n > 0 && strchr(" \t", text[n - 1])) n--;
    if (n == 0) return "has no pattern before the colon";
    snprintf(pattern, TTI_TEXT_MAX, "%.*s", (int)n, text);
    snprintf(scratch, sizeof scratch, "%s", colon + 1);
    const char *why = read_settings(scratch, has_lr, &g);
    if (!why) *out = g;
    return why;
}

const char *tti_param_group_parse(const char *text, char pattern[TTI_TEXT_MAX],
                                  tti_param_group *out) {
    bool has_lr;
    return parse(text, pattern, &has_lr, out);
}

tti_param_group tti_param_group_of(const tti_job_config *c, const char *name) {
    char pattern[TTI_TEXT_MAX];
    tti_param_group sum = no_group, one = no_group;
    bool has_lr;
    for (int i = 0; i < c->optimizer.groups.n; i++) {
        const char *why = parse(c->optimizer.groups.v[i], pattern, &has_lr, &one);
        if (why || !tti_pattern_matches(pattern, name)) continue;
        if (has_lr) sum.lr = one.lr, sum.frozen = one.frozen;
        if (one.has_decay) sum.has_decay = true, sum.decay = one.decay;
    }
    for (int i = 0; i < c->optimizer.freeze.n; i++)
        if (tti_pattern_matches(c->optimizer.freeze.v[i], name)) sum.lr = 0, sum.frozen = true;
    return sum;
}

/* ---- patterns that match nothing ---- */

static tutti_status check_pattern(const char *key, const char *pattern, const char *const *names,
                                  int n_names) {
    char clipped[TTI_CLIP];
    int best = 0, best_distance = TTI_NOT_NEAR;
    for (int i = 0; i < n_names; i++) {
        if (tti_pattern_matches(pattern, names[i])) return TUTTI_OK;
        int distance = tti_edit_distance(pattern, names[i]);
        if (distance < best_distance) best = i, best_distance = distance;
    }
    if (n_names == 0) return tti_fail(TUTTI_E_CONFIG, "%s: the model has no parameters", key);
    return tti_fail(TUTTI_E_CONFIG,
                    "%s: \"%s\" matches none of the %d parameters; the nearest name is %s", key,
                    tti_clip(clipped, pattern), n_names, names[best]);
}

tutti_status tti_param_groups_check(const tti_job_config *c, const char *const *names,
                                    int n_names) {
    char pattern[TTI_TEXT_MAX];
    tti_param_group group;
    for (int i = 0; i < c->optimizer.groups.n; i++) {
        const char *why = tti_param_group_parse(c->optimizer.groups.v[i], pattern, &group);
        if (why)
            return tti_fail(TUTTI_E_CONFIG, "optimizer.groups: \"%s\" %s", c->optimizer.groups.v[i],
                            why);
        TTI_TRY(check_pattern("optimizer.groups", pattern, names, n_names));
    }
    for (int i = 0; i < c->optimizer.freeze.n; i++)
        TTI_TRY(check_pattern("optimizer.freeze", c->optimizer.freeze.v[i], names, n_names));
    return TUTTI_OK;
}
