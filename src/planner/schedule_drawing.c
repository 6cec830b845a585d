/* schedule_drawing.c - what each stage of a pipeline does when, drawn.
 *
 * The idea to know: lines tell the order, which is certain; strips tell time too, of which only the
 * rule is known here that a backward part takes two forward ones. */
#include "planner/schedule_drawing.h"

#include <stdio.h>

#include "planner/stage_play.h"

enum { LINE_END = 84, LABEL_WIDTH = 64, UNIT = 18, UNITS_FORWARD = 1, UNITS_BACKWARD = 2 };

static bool is_backward(const tti_schedule_drawing *d, const tti_pipe_action *a) {
    return a->part >= d->stages->n_chunks;
}

static int chunk_of(const tti_schedule_drawing *d, const tti_pipe_action *a) {
    return is_backward(d, a) ? 2 * d->stages->n_chunks - 1 - a->part : a->part;
}

/* ---- lines ---- */

/* A line may end before what comes next would be cut. */
static void print_line(const tti_schedule_drawing *d, const tti_pipe_schedule *s, tti_str *out) {
    int column = 0;
    for (int i = 0; i < s->n_actions; i++) {
        char word[48];
        const tti_pipe_action *a = &s->actions[i];
        int n = snprintf(word, sizeof word, " %c%d", is_backward(d, a) ? 'B' : 'F', a->wave);
        if (d->stages->n_chunks > 1)
            n += snprintf(word + n, sizeof word - (size_t)n, ".%d", chunk_of(d, a));
        column += n;
        tti_str_add(out, column > LINE_END ? " ..." : word);
        if (column > LINE_END) break;
    }
    tti_str_add(out, "\n");
}

tutti_status tti_schedule_print(const tti_schedule_drawing *d, tti_str *out) {
    tti_pipe_shape shape = tti_pipe_shape_of(d->stages, d->n_waves, true);
    double bubble;
    TTI_TRY(tti_pipe_bubble(&shape, NULL, &bubble));
    tti_str_printf(out,
                   "\n%s: F and B of the waves, of %d shard%s each%s; the "
                   "stages wait %.0f %%\n",
                   shape.joined ? "all forward, then all backward, since shards are joined"
                                : "one forward, one backward",
                   d->n_lanes, d->n_lanes == 1 ? "" : "s",
                   d->stages->n_chunks > 1 ? ", wave.chunk" : "", 100 * bubble);
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
    int x, y, width;
    tti_str *out;
} strips;

static void draw_part(void *user, const tti_stage_part *part) {
    static const char *const fills[2][2] = {{"#bfdbfe", "#93c5fd"}, {"#bbf7d0", "#86efac"}};
    const strips *s = user;
    const tti_pipe_action *a = &part->action;
    int x = s->x + LABEL_WIDTH + (int)part->begin_s * UNIT, units = (int)part->s;
    int y = s->y + part->stage * TTI_STRIP_HEIGHT;
    if (x + units * UNIT > s->x + s->width) return;
    tti_str_printf(s->out,
                   "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" "
                   "stroke=\"#334155\" stroke-width=\"0.5\"/>\n"
                   "<text x=\"%d\" y=\"%d\" font-size=\"10\">%d</text>\n",
                   x, y, units * UNIT, TTI_STRIP_HEIGHT - 4,
                   fills[is_backward(s->d, a)][chunk_of(s->d, a) % 2], x + 3, y + 12, a->wave);
}

tutti_status tti_schedule_picture(const tti_schedule_drawing *d, int x, int y, int width,
                                  tti_str *out) {
    strips s = {.d = d, .x = x, .y = y, .width = width, .out = out};
    double units[TTI_MAX_MOMENTS];
    tti_stage_play played;
    for (int m = 0; m < 2 * tti_stages_n_pieces(d->stages); m++)
        units[m] = tti_moment_is_backward(d->stages, m) ? UNITS_BACKWARD : UNITS_FORWARD;
    for (int stage = 0; stage < d->stages->n_stages; stage++)
        tti_str_printf(out, "<text x=\"%d\" y=\"%d\" font-size=\"11\">stage %d</text>\n", x,
                       y + stage * TTI_STRIP_HEIGHT + 12, stage);
    return tti_stage_play_run(&(tti_stage_play_desc){.stages = d->stages,
                                                     .n_waves = d->n_waves,
                                                     .n_lanes = d->n_lanes,
                                                     .moment_s = units,
                                                     .on_part = draw_part,
                                                     .user = &s},
                              &played);
}
