/* problem.h - a list of problems that is reported all at once.
 *
 * Each is one line, "job.yaml:12:7: error: text" or "command line: error: text".  At most
 * TTI_MAX_PROBLEMS are kept; the rest are counted. */
#ifndef TTI_BASE_PROBLEM_H
#define TTI_BASE_PROBLEM_H

#include "base/error.h"
#include "base/str.h"

enum { TTI_MAX_PROBLEMS = 100, TTI_CLIP = 84 };

/* The origin of a value or a problem. source NULL: unknown. */
typedef struct tti_place {
    const char *source; /* a file name or "command line"; borrowed */
    int line, column;   /* from 1; 0: the source has no lines */
} tti_place;

typedef struct tti_problems {
    tti_str text; /* one line each */
    int n;        /* all of them, also those that were not kept */
} tti_problems;

/* Appends "job.yaml:12:7: ", or nothing without a source. */
void tti_place_print(const tti_place *place, tti_str *out);

void tti_problems_add(tti_problems *problems, const tti_place *place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "job.yaml:12:7: error: " before the text of the last failure, whose status is code; returns
 * code. */
tutti_status tti_problem_place(const tti_place *place, tutti_status code);

/* TUTTI_OK if there are none; otherwise code, with the lines as the text of the failure. */
tutti_status tti_problems_status(const tti_problems *problems, tutti_status code);

void tti_problems_free(tti_problems *problems);

/* Text from outside, made fit for one line of a message: cut after 80 bytes, every control
 * character and bad byte replaced by '?'.  Returns out. */
const char *tti_clip(char out[TTI_CLIP], const char *text);

#endif /* TTI_BASE_PROBLEM_H */
