/* job_where.c - adds the position in the job file to errors that are found late.
 *
 * Conflicts with the model, the data or the machine are found by code that knows values but not
 * their positions in the job file.  Their messages name the key.  So this file takes the position
 * of the first key in the first line of the message that the user has set.  Later failures of a run
 * also name keys, as advice, but get no position. */
#include <ctype.h>
#include <string.h>

#include "train/job/job.h"

/* True if the text between begin and end is a separate word, not part of a path. */
static bool is_word(const char *text, const char *begin, const char *end) {
    bool is_first = begin == text || begin[-1] == ' ' || begin[-1] == '(';
    bool goes_on = isalnum((unsigned char)*end) || (*end && strchr("_-/", *end)) ||
                   (*end == '.' && isalnum((unsigned char)end[1]));
    return is_first && !goes_on;
}

/* Finds the first mention of the key in the first n_bytes of text; NULL: none. */
static const char *find_key(const char *text, size_t n_bytes, const char *key) {
    size_t n = strlen(key);
    const char *at = strstr(text, key);
    while (at && at < text + n_bytes && !is_word(text, at, at + n)) at = strstr(at + 1, key);
    return at && at < text + n_bytes ? at : NULL;
}

/* Finds the first key that the text mentions and the user has set; NULL: none.  *at: its position.
 */
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

/* True for a status that means that the job itself must be changed. */
static bool is_refusal(tutti_status st) {
    return st == TUTTI_E_CONFIG || st == TUTTI_E_INVALID || st == TUTTI_E_UNSUPPORTED ||
           st == TUTTI_E_DATA;
}

/* True if the text already has a position. */
static bool is_placed(const char *text) {
    return strncmp(text, "error: ", strlen("error: ")) == 0 || strstr(text, ": error: ");
}

tutti_status tti_job_say_where(const tutti_job *job, tutti_status st) {
    const char *text = tutti_last_error(), *at = NULL;
    if (st == TUTTI_OK) tti_clear_error(); /* clears a failure that the call has recovered from */
    if (st == TUTTI_OK || is_placed(text)) return st;
    const tti_option_state *state = first_given(&job->options, text, &at);
    if (!state || (at != text && !is_refusal(st))) return st;
    return tti_problem_place(&state->place, st);
}
