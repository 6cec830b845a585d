/* schedule_drawing.h - draws the schedule of a pipeline, as text and as SVG strips. */
#ifndef TTI_PLANNER_SCHEDULE_DRAWING_H
#define TTI_PLANNER_SCHEDULE_DRAWING_H

#include "base/str.h"
#include "exec/program/exec_program.h"

/* Height of a strip of the drawing, pixels. */
enum { TTI_STRIP_HEIGHT = 20 };

typedef struct tti_schedule_drawing {
    const tti_stages *stages;              /* the stages as any stage of the plan describes them */
    int n_micro_groups, n_compute_threads; /* n_compute_threads: shards of a micro-batch group */
} tti_schedule_drawing;

/* Describes the order of segments in words. The text is static. */
const char *tti_schedule_rule(const tti_schedule_drawing *schedule);

/* Prints a line for each stage: F (forward) or B (backward) and the micro-batch group, until the
 * line is full. With several chunks F0.1 is micro-batch group 0 in chunk 1. */
tutti_status tti_schedule_print(const tti_schedule_drawing *schedule, tti_str *out);

/* Draws an SVG strip for each stage, from (x, y) down; width (pixels) is the whole step. A backward
 * segment is twice as long as a forward one; messages take no time. */
tutti_status tti_schedule_svg(const tti_schedule_drawing *schedule, int x, int y, int width,
                              tti_str *out);

#endif /* TTI_PLANNER_SCHEDULE_DRAWING_H */
