/* schedule_drawing.c - draws the schedule of each pipeline stage.
 *
 * The text shows only the order of segments. Strips also show time, and assume that a backward
 * segment takes twice as long as a forward one. */
#include "planner/schedule_drawing.h"

#include <stdio.h>
#include <stdlib.h>

#include "planner/stage_sim.h"

enum { LINE_END = 84, LABEL_WIDTH = 64, UNITS_FORWARD = 1, UNITS_BACKWARD = 2 };

/* Pixels per unit of time: the most, and the least with which the micro-batch group's number is
 * printed. */
static const double most_pixels = 18, numbered_pixels = 9;

static bool is_backward(const tti_schedule_drawing *d, const tti_pipe_action *a) {
    return a->segment >= d->stages->n_chunks;
}

static int chunk_of(const tti_schedule_drawing *d, const tti_pipe_action *a) {
    return is_backward(d, a) ? 2 * d->stages->n_chunks - 1 - a->segment : a->segment;
}

const char *tti_schedule_rule(const tti_schedule_drawing *d) {
    return d->stages->is_joined ? "all forward, then all backward, since shards are joined"
                                : "one forward, one backward";
}

/* ---- lines ---- */

/* Ends a line before an entry that would be truncated. */
static void print_line(const tti_schedule_drawing *d, const tti_pipe_schedule *s, tti_str *out) {
    int column = 0;
    for (int i = 0; i < s->n_actions; i++) {
        char word[48];
        const tti_pipe_action *a = &s->actions[i];
        int n = snprintf(word, sizeof word, " %c%d", is_backward(d, a) ? 'B' : 'F', a->micro_group);
        if (d->stages->n_chunks > 1)
            n += snprintf(word + n, sizeof word - (size_t)n, ".%d", chunk_of(d, a));
        column += n;
        tti_str_add(out, column > LINE_END ? " ..." : word);
        if (column > LINE_END) break;
    }
    tti_str_add(out, "\n");
}

tutti_status tti_schedule_print(const tti_schedule_drawing *d, tti_str *out) {
    tti_pipe_shape shape = tti_pipe_shape_of(d->stages, d->n_micro_groups, true);
    double bubble;
    TTI_TRY(tti_pipe_bubble(&shape, NULL, &bubble));
    tti_str_printf(out,
                   "\n%s: F and B of the micro-batch groups, of %d shard%s each%s; the "
                   "stages wait %.0f %%\n",
                   tti_schedule_rule(d), d->n_compute_threads, d->n_compute_threads == 1 ? "" : "s",
                   d->stages->n_chunks > 1 ? ", group.chunk" : "", 100 * bubble);
    for (int stage = 0; stage < shape.n_stages; stage++) {
        tti_pipe_schedule schedule;
        TTI_TRY(tti_pipe_schedule_init(&shape, stage, &schedule));
        tti_str_printf(out, "  stage %-3d", stage);
        print_line(d, &schedule, out);
        tti_pipe_schedule_fini(&schedule);
    }
    return TUTTI_OK;
}

/* ---- strips ---- */

typedef struct strips {
    const tti_schedule_drawing *d;
    int x, y;
    double unit; /* pixels */
    tti_str *out;
} strips;

static void draw_segment(void *user, const tti_stage_segment *segment) {
    static const char *const fills[2][2] = {{"#bfdbfe", "#93c5fd"}, {"#bbf7d0", "#86efac"}};
    const strips *s = user;
    const tti_pipe_action *a = &segment->action;
    double x = s->x + LABEL_WIDTH + segment->begin_s * s->unit;
    int y = s->y + segment->stage * TTI_STRIP_HEIGHT;
    tti_str_printf(s->out,
                   "<rect x=\"%.4g\" y=\"%d\" width=\"%.4g\" height=\"%d\" fill=\"%s\" "
                   "stroke=\"#334155\" stroke-width=\"0.5\"/>\n",
                   x, y, segment->s * s->unit, TTI_STRIP_HEIGHT - 4,
                   fills[is_backward(s->d, a)][chunk_of(s->d, a) % 2]);
    if (s->unit >= numbered_pixels)
        tti_str_printf(s->out, "<text x=\"%.4g\" y=\"%d\" font-size=\"10\">%d</text>\n", x + 3,
                       y + 12, a->micro_group);
}

tutti_status tti_schedule_svg(const tti_schedule_drawing *d, int x, int y, int width,
                              tti_str *out) {
    strips s = {.d = d, .x = x, .y = y, .out = out};
    int n_slots = 2 * tti_stages_n_all_chunks(d->stages);
    double *units = calloc((size_t)n_slots, sizeof *units);
    if (!units) return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    tti_stage_sim_desc sim = {.stages = d->stages,
                              .n_micro_groups = d->n_micro_groups,
                              .n_compute_threads = d->n_compute_threads,
                              .slot_s = units};
    tti_stage_sim simulated = {0};
    for (int m = 0; m < n_slots; m++)
        units[m] = tti_sched_slot_is_backward(d->stages, m) ? UNITS_BACKWARD : UNITS_FORWARD;
    tutti_status st = tti_stage_sim_run(&sim, &simulated); /* only the length of the step is used */
    s.unit = TTI_MIN(most_pixels, (width - LABEL_WIDTH) / TTI_MAX(simulated.step_s, 1));
    for (int stage = 0; stage < d->stages->n_stages; stage++)
        tti_str_printf(out, "<text x=\"%d\" y=\"%d\" font-size=\"11\">stage %d</text>\n", x,
                       y + stage * TTI_STRIP_HEIGHT + 12, stage);
    tti_stage_sim_fini(&simulated);
    sim.on_segment = draw_segment, sim.user = &s;
    if (st == TUTTI_OK) st = tti_stage_sim_run(&sim, &simulated);
    tti_stage_sim_fini(&simulated);
    free(units);
    return st;
}
