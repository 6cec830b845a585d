/* job_where.c - adds the place in the job to an error that is found late.
 *
 * Conflicts with the model, the data or the machine are found far from the job file, by code that
 * has values but no places.  Their message names the key, so the place is found here for all of
 * them: that of the first key in the first line whose value the user gave.  Later failures of a run
 * may also name keys, as advice, and have no place in the job. */
#include <ctype.h>
#include <string.h>

#include "train/job/job.h"

/* Whether the text between begin and end is a separate word: not part of a path. */
static bool is_word(const char *text, const char *begin, const char *end) {
    bool is_first = begin == text || begin[-1] == ' ' || begin[-1] == '(';
    bool goes_on = isalnum((unsigned char)*end) || (*end && strchr("_-/", *end)) ||
                   (*end == '.' && isalnum((unsigned char)end[1]));
    return is_first && !goes_on;
}

/* The first mention of the key in the first n_bytes of text; NULL: none. */
static const char *find_key(const char *text, size_t n_bytes, const char *key) {
    size_t n = strlen(key);
    const char *at = strstr(text, key);
    while (at && at < text + n_bytes && !is_word(text, at, at + n)) at = strstr(at + 1, key);
    return at && at < text + n_bytes ? at : NULL;
}

/* The first key that the text mentions and the user has set; NULL: there is none. *at: its
 * position. */
static const tti_option_state *first_given(const tti_options *o, const char *text,
                                           const char **at) {
    const tti_option_state *first = NULL;
    size_t n_bytes = strcspn(text, "\n");
    for (size_t i = 0; i < o->table->n_rows; i++) {
        const tti_option_state *state = &o->state[i];
        if (!state->place.source || state->is_own) continue;
        const char *found = find_key(text, n_bytes, o->table->rows[i].key);
        if (!found || (first && found > *at)) continue;
        first = state;
        *at = found;
    }
    return first;
}

/* Whether it says that the job cannot be run as it is. */
static bool is_refusal(tutti_status st) {
    return st == TUTTI_E_CONFIG || st == TUTTI_E_INVALID || st == TUTTI_E_UNSUPPORTED ||
           st == TUTTI_E_DATA;
}

/* Whether it has its places already. */
static bool is_placed(const char *text) {
    return strncmp(text, "error: ", strlen("error: ")) == 0 || strstr(text, ": error: ");
}

tutti_status tti_job_say_where(const tutti_job *job, tutti_status st) {
    const char *text = tutti_last_error(), *at = NULL;
    if (st == TUTTI_OK) tti_clear_error(); /* a failure that was recovered from is none */
    if (st == TUTTI_OK || is_placed(text)) return st;
    const tti_option_state *state = first_given(&job->options, text, &at);
    if (!state || (at != text && !is_refusal(st))) return st;
    return tti_problem_place(&state->place, st);
}
