/* text_samples.h - generates continuations of test samples with a language model. */
#ifndef TTI_TRAIN_TEXT_SAMPLES_H
#define TTI_TRAIN_TEXT_SAMPLES_H

#include "base/str.h"
#include "train/infer/predictor.h"

enum { TTI_MAX_TEXT_SAMPLES = 16 };

typedef struct tti_text_sample {
    tti_str prompt, text; /* bytes, possibly not valid UTF-8 */
} tti_text_sample;

typedef struct tti_text_samples {
    tti_text_sample v[TTI_MAX_TEXT_SAMPLES];
    int n;
    int64_t step;   /* number of updates of the model */
    char note[256]; /* the reason if there are fewer texts or none; "": complete */
} tti_text_samples;

/* Generates n texts, 0 .. TTI_MAX_TEXT_SAMPLES, for at most time_ms plus one token.  Without a
 * tokenizer, or after a failure, there are no texts but a note.  The same model generates the same
 * texts, unless the time limit cuts them.  Free with tti_text_samples_free. */
void tti_text_samples_make(const tutti_job *job, tti_predictor *p, int n, int time_ms,
                           tti_text_samples *out);
void tti_text_samples_free(tti_text_samples *t);

/* Appends the texts to a page. */
void tti_text_samples_draw(tti_str *out, const tti_text_samples *t);

#endif /* TTI_TRAIN_TEXT_SAMPLES_H */
