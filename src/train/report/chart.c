/* chart.c - draws SVG charts: frame, ticks, lines, areas and bars. */
#include "train/report/chart.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

enum {
    WIDTH = 560,
    HEIGHT = 250,
    LEFT = 52,
    RIGHT = 12,
    TOP = 10,
    BOTTOM = 26,
    MAX_POINTS = 480, /* about one point per pixel */
    N_TICKS = 5
};

typedef struct frame {
    const tti_chart *chart;
    double x0, x1, y0, y1; /* the visible range; y is a logarithm with log_y */
    bool log_y;
} frame;

/* ---- text ---- */

const char *tti_chart_number(double x, char text[32]) {
    static const char *const units[] = {"", "k", "M", "G", "T"};
    int unit = 0;
    double shown = x;
    for (; fabs(shown) >= 9999.5 && unit < 4; unit++) shown /= 1000;
    snprintf(text, 32, fabs(shown) >= 1000 && fabs(shown) < 1e5 ? "%.0f%s" : "%.3g%s", shown,
             units[unit]);
    return text;
}

const char *tti_chart_bytes(double n_bytes, char text[32]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; n_bytes >= 1000 && unit < 4; unit++) n_bytes /= 1024;
    snprintf(text, 32, "%.3g %s", n_bytes, units[unit]);
    return text;
}

void tti_html_text(tti_str *out, const char *text) {
    while (*text) {
        uint32_t character = 0;
        size_t n = tti_utf8_decode(text, strlen(text), &character);
        bool odd = n == 0 || (!tti_utf8_printable(character) && *text != '\n' && *text != '\t');
        if (odd)
            tti_str_add(out, "?");
        else if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
            tti_str_printf(out, "&#%d;", *text);
        else
            tti_str_add_bytes(out, text, n);
        text += n > 0 ? n : 1;
    }
}

/* ---- the frame ---- */

static double drawn(const frame *f, double y) { return f->log_y ? log10(y) : y; }

static double x_at(const frame *f, double x) {
    return LEFT + (x - f->x0) / (f->x1 - f->x0) * (WIDTH - LEFT - RIGHT);
}

static double y_at(const frame *f, double y) {
    return HEIGHT - BOTTOM - (drawn(f, y) - f->y0) / (f->y1 - f->y0) * (HEIGHT - TOP - BOTTOM);
}

/* Returns the distance between about N_TICKS ticks: 1, 2 or 5 times a power of ten. */
static double round_distance(double range) {
    double raw = range / N_TICKS, power = pow(10, floor(log10(raw))), x = raw / power;
    return power * (x <= 1 ? 1 : x <= 2 ? 2 : x <= 5 ? 5 : 10);
}

static void widen(double *lo, double *hi) {
    if (*hi > *lo) return;
    double by = *lo == 0 ? 1 : fabs(*lo) * 0.5;
    *lo -= by;
    *hi += by;
}

static frame make_frame(const tti_chart *c) {
    frame f = {.chart = c, .x0 = INFINITY, .x1 = -INFINITY, .y0 = INFINITY, .y1 = -INFINITY};
    for (int s = 0; s < c->n_series; s++)
        for (int i = 0; i < c->series[s].n; i++) {
            f.x0 = fmin(f.x0, c->series[s].x[i]), f.x1 = fmax(f.x1, c->series[s].x[i]);
            f.y0 = fmin(f.y0, c->series[s].y[i]), f.y1 = fmax(f.y1, c->series[s].y[i]);
        }
    if (!(f.x0 <= f.x1)) f.x0 = f.y0 = 0, f.x1 = f.y1 = 1;
    f.log_y = c->log_y && f.y0 > 0 && f.y1 / f.y0 > 50;
    if (c->stacked) f.y0 = 0, f.y1 = 1;
    if (c->from_zero && !f.log_y) f.y0 = fmin(f.y0, 0);
    if (f.log_y) f.y0 = log10(f.y0), f.y1 = log10(f.y1);
    widen(&f.x0, &f.x1);
    widen(&f.y0, &f.y1);
    if (c->stacked) return f;
    double by = (f.y1 - f.y0) * 0.05;
    f.y1 += by;
    if (!c->from_zero || f.y0 != 0) f.y0 -= by;
    return f;
}

static void y_tick(tti_str *out, const frame *f, double y) {
    char text[32];
    bool percent = f->chart->unit[0] == '%';
    double at = y_at(f, y);
    tti_str_printf(out,
                   "<path class=\"grid\" d=\"M%d %.1fH%d\"/>"
                   "<text class=\"y\" x=\"%d\" y=\"%.1f\">%s%s</text>",
                   LEFT, at, WIDTH - RIGHT, LEFT - 6, at + 4,
                   tti_chart_number(percent ? y * 100 : y, text), percent ? "%" : "");
}

static void draw_ticks(tti_str *out, const frame *f) {
    char text[32];
    double by = round_distance(f->y1 - f->y0);
    if (f->log_y) {
        for (double e = floor(f->y0); e <= f->y1; e++)
            for (int k = 1; k <= 5; k += k == 1 ? 1 : 3) {
                bool inside = e + log10(k) >= f->y0 && e + log10(k) <= f->y1;
                if (inside && (k == 1 || f->y1 - f->y0 < 3)) y_tick(out, f, k * pow(10, e));
            }
    } else {
        for (int i = 0; i <= 2 * N_TICKS; i++) {
            double k = ceil(f->y0 / by) + i;
            if (k * by <= f->y1 + by * 1e-9) y_tick(out, f, fabs(k) < 0.5 ? 0 : k * by);
        }
    }
    by = fmax(round_distance(f->x1 - f->x0), 1);
    for (int i = 0; i <= 2 * N_TICKS; i++) {
        double x = (ceil(f->x0 / by) + i) * by;
        if (x <= f->x1)
            tti_str_printf(out, "<text class=\"x\" x=\"%.1f\" y=\"%d\">%s</text>", x_at(f, x),
                           HEIGHT - 8, tti_chart_number(x, text));
    }
}

/* ---- series ---- */

/* The number of drawn points, at most MAX_POINTS; each is the mean of a run of values. */
static int n_drawn(const tti_series *s) { return TTI_MIN(s->n, (int)MAX_POINTS); }

static void mean_at(const tti_series *s, int i, double *x, double *y) {
    int n = n_drawn(s);
    int first = (int)((int64_t)i * s->n / n), last = (int)((int64_t)(i + 1) * s->n / n);
    *x = *y = 0;
    for (int k = first; k < last; k++) *x += s->x[k], *y += s->y[k];
    *x /= last - first;
    *y /= last - first;
}

static void draw_line(tti_str *out, const frame *f, const tti_series *s) {
    double x, y;
    tti_str_printf(out, "<path class=\"line c%d%s\" d=\"", s->colour, s->faint ? " faint" : "");
    for (int i = 0; i < n_drawn(s); i++) {
        mean_at(s, i, &x, &y);
        tti_str_printf(out, "%c%.1f %.1f", i ? 'L' : 'M', x_at(f, x), y_at(f, y));
    }
    tti_str_add(out, "\"/>");
    bool marked = s->n == 1 || (s->dots && s->n <= 60);
    for (int i = 0; marked && i < s->n; i++)
        tti_str_printf(out,
                       "<circle class=\"dot c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\">"
                       "<title>step %.0f: %.6g</title></circle>",
                       s->colour, x_at(f, s->x[i]), y_at(f, s->y[i]), s->x[i], s->y[i]);
}

/* The sum of series 0 .. s at drawn point i. */
static double stack_at(const tti_chart *c, int s, int i, double *x) {
    double sum = 0, y;
    *x = 0;
    for (int k = 0; k <= s; k++) {
        mean_at(&c->series[k], i, x, &y);
        sum += y;
    }
    return fmin(fmax(sum, 0), 1);
}

static void draw_area(tti_str *out, const frame *f, int s) {
    const tti_chart *c = f->chart;
    int n = n_drawn(&c->series[s]);
    double x;
    tti_str_printf(out, "<path class=\"area c%d\" d=\"", c->series[s].colour);
    for (int i = 0; i < n; i++) {
        double y = stack_at(c, s, i, &x);
        tti_str_printf(out, "%c%.1f %.1f", i ? 'L' : 'M', x_at(f, x), y_at(f, y));
    }
    for (int i = n - 1; i >= 0; i--) {
        double y = s > 0 ? stack_at(c, s - 1, i, &x) : (stack_at(c, 0, i, &x), 0);
        tti_str_printf(out, "L%.1f %.1f", x_at(f, x), y_at(f, y));
    }
    tti_str_add(out, "Z\"/>");
}

static void draw_legend(tti_str *out, const tti_chart *c) {
    tti_str_add(out, "<figcaption><b>");
    tti_html_text(out, c->title);
    tti_str_add(out, "</b>");
    if (c->unit[0] && c->unit[0] != '%') tti_str_printf(out, " <small>%s</small>", c->unit);
    for (int s = 0; s < c->n_series; s++) {
        if (c->series[s].faint || c->series[s].n == 0 || !c->series[s].name) continue;
        tti_str_printf(out, "<span class=\"key\"><i class=\"c%d\"></i>", c->series[s].colour);
        tti_html_text(out, c->series[s].name);
        tti_str_add(out, "</span>");
    }
    tti_str_add(out, "</figcaption>");
}

void tti_chart_draw(tti_str *out, const tti_chart *chart) {
    frame f = make_frame(chart);
    tti_str_add(out, "<figure>");
    draw_legend(out, chart);
    tti_str_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\">", WIDTH, HEIGHT);
    if (chart->stacked)
        for (int s = chart->n_series - 1; s >= 0; s--) draw_area(out, &f, s);
    draw_ticks(out, &f);
    for (int s = 0; !chart->stacked && s < chart->n_series; s++)
        if (chart->series[s].n > 0) draw_line(out, &f, &chart->series[s]);
    tti_str_add(out, "</svg></figure>\n");
}

void tti_chart_bars(tti_str *out, const char *title, const char *const *names, const double *bytes,
                    int n) {
    double most = 1;
    char text[32];
    for (int i = 0; i < n; i++) most = fmax(most, bytes[i]);
    tti_str_add(out, "<figure><figcaption><b>");
    tti_html_text(out, title);
    tti_str_printf(out, "</b></figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\">", WIDTH, HEIGHT);
    int row = 0;
    for (int i = 0; i < n; i++) {
        if (bytes[i] <= 0) continue;
        int y = TOP + 38 * row++;
        tti_str_printf(out,
                       "<text class=\"bar\" x=\"0\" y=\"%d\">%s</text>"
                       "<rect class=\"area c%d\" x=\"170\" y=\"%d\" width=\"%.1f\" height=\"20\" "
                       "rx=\"3\"/><text class=\"bar\" x=\"%.1f\" y=\"%d\">%s</text>",
                       y + 15, names[i], i % 6, y, bytes[i] / most * 290,
                       178 + bytes[i] / most * 290, y + 15, tti_chart_bytes(bytes[i], text));
    }
    tti_str_add(out, "</svg></figure>\n");
}

static void draw_stack(tti_str *out, const tti_stacks *s, int row, double per_s, double y,
                       double height) {
    const double *seconds = &s->seconds[(size_t)row * (size_t)s->n_parts];
    double sum = 0, x = LEFT;
    for (int i = 0; i < s->n_parts; i++) sum += seconds[i];
    for (int i = 0; i < s->n_parts; i++) {
        if (seconds[i] <= 0) continue;
        tti_str_printf(out,
                       "<rect class=\"area c%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                       "height=\"%.1f\"><title>%s %d, %s: %.3g s, %.1f %%</title></rect>",
                       s->colours[i], x, y, seconds[i] * per_s, height, s->row, row, s->parts[i],
                       seconds[i], 100 * seconds[i] / sum);
        x += seconds[i] * per_s;
    }
}

static void draw_keys(tti_str *out, const tti_stacks *s) {
    tti_str_add(out, "<figcaption><b>");
    tti_html_text(out, s->title);
    tti_str_add(out, "</b>");
    for (int i = 0; i < s->n_parts; i++)
        tti_str_printf(out, "<span class=\"key\"><i class=\"c%d\"></i>%s</span>", s->colours[i],
                       s->parts[i]);
    tti_str_add(out, "</figcaption>");
}

void tti_chart_stacks(tti_str *out, const tti_stacks *s) {
    double most = 0, step = fmin(30, fmax(9, (HEIGHT - TOP) / (double)s->n_rows));
    int every = (int)ceil(14 / step); /* only rows with enough space are labeled */
    for (int row = 0; row < s->n_rows; row++) {
        double sum = 0;
        for (int i = 0; i < s->n_parts; i++) sum += s->seconds[row * s->n_parts + i];
        most = fmax(most, sum);
    }
    if (most <= 0) return;
    tti_str_add(out, "<figure>");
    draw_keys(out, s);
    tti_str_printf(out, "<svg viewBox=\"0 0 %d %.0f\" role=\"img\">", WIDTH,
                   TOP + step * s->n_rows);
    for (int row = 0; row < s->n_rows; row++) {
        double y = TOP + step * row;
        if (row % every == 0)
            tti_str_printf(out, "<text class=\"y\" x=\"%d\" y=\"%.1f\">%s %d</text>", LEFT - 6,
                           y + step / 2 + 3, s->row, row);
        draw_stack(out, s, row, (WIDTH - LEFT - RIGHT) / most, y, step * 0.8);
    }
    tti_str_add(out, "</svg></figure>\n");
}
