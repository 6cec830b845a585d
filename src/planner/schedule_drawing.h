/* schedule_drawing.h - the order in which the stages of a pipeline work, as text and as strips. */
#ifndef TTI_PLANNER_SCHEDULE_DRAWING_H
#define TTI_PLANNER_SCHEDULE_DRAWING_H

#include "base/str.h"
#include "exec/program/exec_program.h"

/* Height of a strip of the drawing, pixels. */
enum { TTI_STRIP_HEIGHT = 20 };

typedef struct tti_schedule_drawing {
    const tti_stages *stages;              /* of any stage of the plan */
    int n_micro_groups, n_compute_threads; /* n_compute_threads: shards of a micro-batch group */
} tti_schedule_drawing;

/* Which segments come when, in words. */
const char *tti_schedule_rule(const tti_schedule_drawing *schedule);

/* A line for each stage: F and B of micro-batch group 0, 1, ..., as far as a line goes; with
 * several chunks F0.1 is micro-batch group 0 in chunk 1. */
tutti_status tti_schedule_print(const tti_schedule_drawing *schedule, tti_str *out);

/* An SVG strip for each stage from (x, y) down, with a whole step as its width: a backward segment
 * is drawn twice as long as a forward one, messages take no time. */
tutti_status tti_schedule_svg(const tti_schedule_drawing *schedule, int x, int y, int width,
                              tti_str *out);

#endif /* TTI_PLANNER_SCHEDULE_DRAWING_H */
