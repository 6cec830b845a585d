/* plateau.h - reduces the learning rate when the validation loss stops improving.
 *
 * This is the only schedule with state.  The state is small and the same on every worker, because
 * all see the same loss; it is stored as text in the checkpoint, so that a resumed run reduces at
 * the same evaluation as an uninterrupted one.  Follows torch.optim.lr_scheduler.ReduceLROnPlateau
 * (mode min, threshold relative). */
#ifndef TTI_TRAIN_PLATEAU_H
#define TTI_TRAIN_PLATEAU_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/status.h"

typedef struct tti_plateau_desc {
    double lr;                  /* the peak                                                 */
    double gamma;               /* factor of a reduction */
    double min_lr;              /* lower bound of lr * scale */
    double threshold;           /* a loss is better if it is < best * (1 - threshold)       */
    int64_t patience, cooldown; /* evaluations without improvement before a reduction; evaluations
                                   after a reduction that are not counted */
} tti_plateau_desc;

typedef struct tti_plateau {
    double scale;       /* factor of the learning rate, 0 <= scale <= 1 */
    double best;        /* the lowest loss so far; infinite: none */
    int64_t n_bad;      /* evaluations since then without a better loss */
    int64_t n_cooldown; /* remaining evaluations that are not counted */
} tti_plateau;

/* Size of the text of a state, including the NUL. */
enum { TTI_PLATEAU_TEXT = 128 };

/* Returns the state at the start of a run. */
tti_plateau tti_plateau_begin(void);

/* Records the loss of an evaluation, in the order of the run.  True if it reduced the learning
 * rate. */
bool tti_plateau_update(const tti_plateau_desc *desc, tti_plateau *state, double loss);

/* Formats the state as one line, and parses it back exactly. text comes from a file and may be
 * anything. */
void tti_plateau_print(const tti_plateau *state, char text[TTI_PLATEAU_TEXT]);
tutti_status tti_plateau_read(const char *text, tti_plateau *out);

#endif /* TTI_TRAIN_PLATEAU_H */
