/* plateau.c - counts evaluations without improvement and reduces the learning rate.
 *
 * The state stores a factor instead of a learning rate, so that a run resumed with another peak
 * keeps its reductions.  Doubles are stored as bits, because the best loss may be infinite and must
 * be restored exactly. */
#include "train/job/plateau.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"

/* A smaller reduction of the rate is skipped, as in PyTorch. */
static const double least_fall = 1e-8;

tti_plateau tti_plateau_begin(void) { return (tti_plateau){.scale = 1, .best = INFINITY}; }

static bool lower(const tti_plateau_desc *d, tti_plateau *s) {
    double now = d->lr * s->scale, next = fmax(now * d->gamma, d->min_lr);
    if (!(now - next > least_fall)) return false;
    s->scale = next / d->lr;
    return true;
}

bool tti_plateau_update(const tti_plateau_desc *d, tti_plateau *s, double loss) {
    if (loss < s->best * (1 - d->threshold)) {
        s->best = loss;
        s->n_bad = 0;
    } else {
        s->n_bad++;
    }
    if (s->n_cooldown > 0) {
        s->n_cooldown--;
        s->n_bad = 0;
    }
    if (s->n_bad <= d->patience) return false;
    s->n_cooldown = d->cooldown;
    s->n_bad = 0;
    return lower(d, s);
}

void tti_plateau_print(const tti_plateau *s, char text[TTI_PLATEAU_TEXT]) {
    snprintf(text, TTI_PLATEAU_TEXT,
             "scale=%016" PRIx64 " best=%016" PRIx64 " bad=%" PRId64 " cooldown=%" PRId64,
             tti_f64_to_bits(s->scale), tti_f64_to_bits(s->best), s->n_bad, s->n_cooldown);
}

tutti_status tti_plateau_read(const char *text, tti_plateau *out) {
    uint64_t scale = 0, best = 0;
    tti_plateau s = {0};
    char back[TTI_PLATEAU_TEXT];
    int n =
        sscanf(text, "scale=%16" SCNx64 " best=%16" SCNx64 " bad=%18" SCNd64 " cooldown=%18" SCNd64,
               &scale, &best, &s.n_bad, &s.n_cooldown);
    s.scale = tti_f64_of_bits(scale);
    s.best = tti_f64_of_bits(best);
    tti_plateau_print(&s, back);
    bool whole =
        n == 4 && strcmp(text, back) ==
                      0; /* scanf accepts malformed text, so compare the text that print writes */
    if (!whole || !(s.scale >= 0 && s.scale <= 1) || isnan(s.best) || s.n_bad < 0 ||
        s.n_cooldown < 0)
        return tti_fail(TUTTI_E_CHECKPOINT, "plateau: '%.80s' is not a state of this schedule",
                        text);
    *out = s;
    return TUTTI_OK;
}
