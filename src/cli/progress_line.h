/* progress_line.h - shows the progress of a run: one line that redraws itself, or plain lines. */
#ifndef TUTTI_CLI_PROGRESS_LINE_H
#define TUTTI_CLI_PROGRESS_LINE_H

#include <stdint.h>

#include "tutti/train.h"

typedef struct progress {
    bool terminal; /* stderr is one that can redraw a line */
    bool quiet;    /* warnings only */
    bool drawn;    /* the line stands there */
    double last_s; /* when a plain line was last printed */
} progress;

/* Looks at stderr and TERM. */
progress progress_begin(bool quiet);

/* tutti_train_desc.on_event with a progress as user. */
void progress_event(void *user, const tutti_event *event);

/* Ends the line, so that other text may follow. */
void progress_end(progress *p);

/* r2 as text; NAN is "undefined".  Returns out. */
enum { R2_TEXT = 32 };
const char *r2_text(double r2, char out[R2_TEXT]);

#endif /* TUTTI_CLI_PROGRESS_LINE_H */
