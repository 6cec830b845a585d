/* mistakes.h - finds misclassified test images, the most confident predictions first. */
#ifndef TTI_TRAIN_MISTAKES_H
#define TTI_TRAIN_MISTAKES_H

#include "base/str.h"
#include "train/infer/predictor.h"

enum { TTI_MAX_MISTAKES = 20, TTI_MISTAKE_SIDE = 64 };

typedef struct tti_mistake {
    int64_t index; /* number of the sample in the test split */
    int64_t label, predicted;
    double probability; /* probability of the predicted class */
    int h, w;           /* at most TTI_MISTAKE_SIDE */
    uint8_t rgb[TTI_MISTAKE_SIDE * TTI_MISTAKE_SIDE * 3];
} tti_mistake;

typedef struct tti_mistakes {
    tti_mistake *found; /* [n], owned */
    int n;
    int64_t n_seen, n_wrong; /* samples searched; misclassified ones */
} tti_mistakes;

/* True if samples are images that can be shown. */
bool tti_shows_images(const tti_blueprint *b);

/* Searches the test split for at most time_ms.  Free the result with tti_mistakes_free. */
tutti_status tti_mistakes_find(tti_predictor *p, int time_ms, tti_mistakes *out);
void tti_mistakes_free(tti_mistakes *m);

/* Adds the images to the page as figures; class names are those of the test split. */
void tti_mistakes_draw(tti_str *out, const tti_mistakes *m, const tutti_dataset *names);

#endif /* TTI_TRAIN_MISTAKES_H */
