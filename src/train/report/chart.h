/* chart.h - small charts as inline SVG, coloured by the CSS classes c0 .. c5 of the page. */
#ifndef TTI_TRAIN_CHART_H
#define TTI_TRAIN_CHART_H

#include <stdbool.h>

#include "base/str.h"

typedef struct tti_series {
    const char *name;
    int colour;          /* CSS class c0 .. c5 */
    const double *x, *y; /* [n], x ascending */
    int n;
    bool faint; /* drawn in the background, not in the legend */
    bool dots;  /* mark each value */
} tti_series;

enum { TTI_CHART_SERIES = 8 };

typedef struct tti_chart {
    const char *title;
    const char *unit; /* unit of y, for the title; "": none; "%": values are multiplied by 100 */
    const tti_series *series;
    int n_series;
    bool log_y;     /* logarithmic axis, if all values are positive and far apart */
    bool from_zero; /* the y axis begins at 0 */
    bool stacked;   /* areas on top of each other, all with the same x, up to 1 */
} tti_chart;

/* Draws a figure with title and legend.  With more values than pixels, means of neighbours are
 * drawn. */
void tti_chart_draw(tti_str *out, const tti_chart *chart);

/* Draws bars with their values in bytes; values of 0 are left out. */
void tti_chart_bars(tti_str *out, const char *title, const char *const *names, const double *bytes,
                    int n);

/* Draws one bar per row, made of parts from left to right. */
typedef struct tti_stacks {
    const char *title, *row; /* row: the kind of a row, such as "rank", before its number */
    const char *const *parts;
    const int *colours; /* [n_parts]: c0 .. c5 */
    int n_parts, n_rows;
    const double *seconds; /* [n_rows, n_parts]; the longest row fills the width */
} tti_stacks;

void tti_chart_stacks(tti_str *out, const tti_stacks *stacks);

/* Formats x with at most 3 digits: 0.031, 12.5k, 3.4M. */
const char *tti_chart_number(double x, char text[32]);
const char *tti_chart_bytes(double n_bytes, char text[32]);

/* Appends text with <, >, & and quotes as entities; bad UTF-8 and control characters become '?'. */
void tti_html_text(tti_str *out, const char *text);

#endif /* TTI_TRAIN_CHART_H */
