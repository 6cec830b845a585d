/* schedule_drawing.c - what each stage of a pipeline does when, drawn.
 *
 * The idea to know: lines tell the order, which is certain; strips tell time too, of which only the
 * rule is known here that a backward part takes two forward ones. */
#include "planner/schedule_drawing.h"

#include <stdio.h>
#include <stdlib.h>

enum { LINE_END = 84, LABEL_WIDTH = 64, UNIT = 18, UNITS_FORWARD = 1, UNITS_BACKWARD = 2 };

static tti_pipe_shape shape_of(const tti_schedule_drawing *d) {
    return (tti_pipe_shape){.n_stages = d->stages->n_stages,
                            .n_chunks = d->stages->n_chunks,
                            .n_waves = d->n_waves,
                            .training = true};
}

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
    tti_pipe_shape shape = shape_of(d);
    double bubble;
    TTI_TRY(tti_pipe_bubble(&shape, NULL, &bubble));
    tti_str_printf(out,
                   "\none forward, one backward: F and B of the waves, of %d shard%s each%s; the "
                   "stages wait %.0f %%\n",
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
    tti_pipe_schedule of[TTI_MAX_PIECES_OF_MODEL]; /* by stage */
    int done[TTI_MAX_PIECES_OF_MODEL], now[TTI_MAX_PIECES_OF_MODEL];
    int *end; /* [n_waves][moments]: in units; < 0: not yet */
    int x, y, width;
    tti_str *out;
} strips;

static void draw_part(const strips *s, int stage, const tti_pipe_action *a, int begin, int units) {
    static const char *const fills[2][2] = {{"#bfdbfe", "#93c5fd"}, {"#bbf7d0", "#86efac"}};
    int x = s->x + LABEL_WIDTH + begin * UNIT, y = s->y + stage * TTI_STRIP_HEIGHT;
    if (x + units * UNIT > s->x + s->width) return;
    tti_str_printf(s->out,
                   "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" "
                   "stroke=\"#334155\" stroke-width=\"0.5\"/>\n"
                   "<text x=\"%d\" y=\"%d\" font-size=\"10\">%d</text>\n",
                   x, y, units * UNIT, TTI_STRIP_HEIGHT - 4,
                   fills[is_backward(s->d, a)][chunk_of(s->d, a) % 2], x + 3, y + 12, a->wave);
}

/* The next part of a stage, if what it reads is there. */
static bool advance(strips *s, int stage) {
    if (s->done[stage] == s->of[stage].n_actions) return false;
    const tti_pipe_action *a = &s->of[stage].actions[s->done[stage]];
    int moment = tti_part_moment(s->d->stages, stage, a->part);
    int *end = &s->end[a->wave * 2 * tti_stages_n_pieces(s->d->stages)];
    int ready = moment > 0 ? end[moment - 1] : 0;
    int units = is_backward(s->d, a) ? UNITS_BACKWARD : UNITS_FORWARD;
    if (ready < 0) return false;
    ready = TTI_MAX(ready, s->now[stage]);
    draw_part(s, stage, a, ready, units);
    end[moment] = s->now[stage] = ready + units;
    s->done[stage]++;
    return true;
}

static void draw_all(strips *s) {
    int n_stages = s->d->stages->n_stages;
    for (int stage = 0; stage < n_stages; stage++)
        tti_str_printf(s->out, "<text x=\"%d\" y=\"%d\" font-size=\"11\">stage %d</text>\n", s->x,
                       s->y + stage * TTI_STRIP_HEIGHT + 12, stage);
    for (bool moved = true; moved;) {
        moved = false;
        for (int stage = 0; stage < n_stages; stage++)
            while (advance(s, stage)) moved = true;
    }
}

tutti_status tti_schedule_picture(const tti_schedule_drawing *d, int x, int y, int width,
                                  tti_str *out) {
    tti_pipe_shape shape = shape_of(d);
    strips s = {.d = d, .x = x, .y = y, .width = width, .out = out};
    size_t n = (size_t)d->n_waves * 2 * (size_t)tti_stages_n_pieces(d->stages);
    tutti_status st = TUTTI_OK;
    s.end = calloc(n, sizeof *s.end);
    if (!s.end) return tti_fail(TUTTI_E_NOMEM, "inspect: out of memory");
    for (size_t i = 0; i < n; i++) s.end[i] = -1;
    for (int i = 0; st == TUTTI_OK && i < shape.n_stages; i++)
        st = tti_pipe_schedule_init(&shape, i, &s.of[i]);
    if (st == TUTTI_OK) draw_all(&s);
    for (int i = 0; i < shape.n_stages; i++) tti_pipe_schedule_fini(&s.of[i]);
    free(s.end);
    return st;
}
