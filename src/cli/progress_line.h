/* progress_line.h - shows the progress of a run: one line that redraws itself, or plain lines. */
#ifndef TUTTI_CLI_PROGRESS_LINE_H
#define TUTTI_CLI_PROGRESS_LINE_H

#include <stdint.h>

#include "tutti/train.h"

typedef struct progress {
    bool terminal; /* stderr is a terminal that can redraw a line */
    bool quiet;    /* warnings only */
    bool drawn;    /* a line is on the screen */
    double last_s; /* time of the last plain line */
} progress;

/* Initializes progress from stderr and TERM. */
progress progress_begin(bool quiet);

/* Pass it as tutti_train_desc.on_event, with a progress as user. */
void progress_event(void *user, const tutti_event *event);

/* Ends the line before other output. */
void progress_end(progress *p);

/* Formats r2 into out, NAN as "undefined".  Returns out. */
enum { R2_TEXT = 32 };
const char *r2_text(double r2, char out[R2_TEXT]);

#endif /* TUTTI_CLI_PROGRESS_LINE_H */
