/* profile_overlap.c - computes how long communication and kernels ran at the same time, as the
 * intersection of two lists of disjoint intervals.  Communication is hidden while kernels of the
 * same worker run, for any step or shard.  Waits appear in the row of kernels but are not counted
 * as kernels. */
#include "train/profile/profile_overlap.h"

#include <stdlib.h>

typedef struct stretch {
    double from, to;
} stretch;

static int earlier_first(const void *a, const void *b) {
    double x = ((const stretch *)a)->from, y = ((const stretch *)b)->from;
    return (x > y) - (x < y);
}

/* Collects the intervals of all spans of a kind, joining those that touch, and returns their
 * number. */
static size_t stretches_of(const tti_worker_spans *t, tti_span_kind kind, stretch *out,
                           int64_t *n_spans) {
    size_t n = 0, n_joined = 0;
    for (int64_t i = 0; i < t->head.n_spans; i++) {
        const tti_profile_span *s = &t->spans[i];
        if (tti_span_label_of(t, s)->kind == (int32_t)kind && s->us >= 0)
            out[n++] = (stretch){s->start_us, s->start_us + s->us};
    }
    *n_spans = (int64_t)n;
    qsort(out, n, sizeof *out, earlier_first);
    for (size_t i = 0; i < n; i++) {
        if (n_joined > 0 && out[i].from <= out[n_joined - 1].to)
            out[n_joined - 1].to = TTI_MAX(out[n_joined - 1].to, out[i].to);
        else
            out[n_joined++] = out[i];
    }
    return n_joined;
}

static double in_common(const stretch *a, size_t n_a, const stretch *b, size_t n_b) {
    double us = 0;
    for (size_t i = 0, k = 0; i < n_a && k < n_b;) {
        double from = TTI_MAX(a[i].from, b[k].from), to = TTI_MIN(a[i].to, b[k].to);
        if (to > from) us += to - from;
        if (a[i].to < b[k].to)
            i++;
        else
            k++;
    }
    return us;
}

tutti_status tti_traffic_times(const tti_worker_spans *t, tti_traffic_time *times) {
    size_t n = (size_t)t->head.n_spans + 1;
    stretch *work = calloc(n, sizeof *work), *moved = calloc(n, sizeof *moved);
    int64_t n_spans;
    bool ok = work && moved;
    size_t n_work = ok ? stretches_of(t, TTI_SPAN_WORK, work, &n_spans) : 0;
    for (int k = 0; ok && k < TTI_N_SPAN_KINDS; k++) {
        if (!tti_traffic_name((tti_span_kind)k)) continue;
        size_t n_moved = stretches_of(t, (tti_span_kind)k, moved, &n_spans);
        for (size_t i = 0; i < n_moved; i++) times[k].us += moved[i].to - moved[i].from;
        times[k].hidden_us += in_common(moved, n_moved, work, n_work);
        times[k].n_spans += n_spans;
    }
    free(work);
    free(moved);
    return ok ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
}

const char *tti_traffic_name(tti_span_kind kind) {
    static const char *const names[TTI_N_SPAN_KINDS] = {
        [TTI_SPAN_LAYERS] = "TP collectives",
        [TTI_SPAN_STAGES] = "values between stages",
        [TTI_SPAN_GRADS] = "gradients",
        [TTI_SPAN_PARAMS] = "parameters",
        [TTI_SPAN_SUMS] = "sums and joins of a step"};
    return names[kind];
}
