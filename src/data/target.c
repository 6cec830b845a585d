/* target.c - mean and standard deviation of the values that a regression learns, in f64. */
#include "data/target.h"

#include "base/problem.h"

/* The squares of very large or very small distances leave the range of f64: then the distances are
 * divided by the largest first. */
static double scaled_std(const double *value, int64_t n, double mean) {
    double most = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(value[i] - mean));
    if (most == 0 || !isfinite(most)) return most;
    for (int64_t i = 0; i < n; i++)
        squares += (value[i] - mean) / most * ((value[i] - mean) / most);
    return most * sqrt(squares / (double)n);
}

void tti_target_measure(const double *value, int64_t n, double *mean, double *std) {
    double sum = 0, squares = 0, count = (double)n;
    bool same = true;
    for (int64_t i = 0; i < n; i++) sum += value[i], same = same && value[i] == value[0];
    *mean = same ? value[0] : sum / count;
    for (int64_t i = 0; i < n; i++) squares += (value[i] - *mean) * (value[i] - *mean);
    *std = isnormal(squares) ? sqrt(squares / count) : scaled_std(value, n, *mean);
}
