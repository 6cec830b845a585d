/* chart.h - small charts as inline SVG, coloured by the classes c0 .. c5 of the page around them.
 */
#ifndef TTI_TRAIN_CHART_H
#define TTI_TRAIN_CHART_H

#include <stdbool.h>

#include "base/str.h"

typedef struct tti_series {
    const char *name;
    int colour;          /* of the page: c0 .. c5 */
    const double *x, *y; /* [n], x ascending */
    int n;
    bool faint; /* drawn in the background, not in the legend */
    bool dots;  /* few values, each marked */
} tti_series;

enum { TTI_CHART_SERIES = 8 };

typedef struct tti_chart {
    const char *title;
    const char *unit; /* of y, for the title; "" none; "%": shown times 100 */
    const tti_series *series;
    int n_series;
    bool log_y;     /* where all values are positive and far apart */
    bool from_zero; /* y begins at 0 */
    bool stacked;   /* areas on top of each other, all with the same x, up to 1 */
} tti_chart;

/* A figure with title and legend.  If there are more values than pixels, means of neighbours are
 * drawn. */
void tti_chart_draw(tti_str *out, const tti_chart *chart);

/* Bars with their values in bytes; values of 0 are left out. */
void tti_chart_bars(tti_str *out, const char *title, const char *const *names, const double *bytes,
                    int n);

/* Rows of parts that make up a whole: a bar for each, from the left. */
typedef struct tti_stacks {
    const char *title, *row; /* row: the kind of a row, such as "rank", before its number */
    const char *const *parts;
    const int *colours; /* [n_parts]: c0 .. c5 */
    int n_parts, n_rows;
    const double *seconds; /* [n_rows, n_parts]; the longest row fills the width */
} tti_stacks;

void tti_chart_stacks(tti_str *out, const tti_stacks *stacks);

/* x in at most 3 digits: 0.031, 12.5k, 3.4M. */
const char *tti_chart_number(double x, char text[32]);
const char *tti_chart_bytes(double n_bytes, char text[32]);

/* Text with <, >, & and quotes as entities; bad UTF-8 and control characters become '?'. */
void tti_html_text(tti_str *out, const char *text);

#endif /* TTI_TRAIN_CHART_H */
