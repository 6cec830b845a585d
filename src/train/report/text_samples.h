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
    char note[256]; /* why there are fewer or none; "": complete */
} tti_text_samples;

/* Writes n texts, 0 .. TTI_MAX_TEXT_SAMPLES, for at most time_ms and one token more.  Data without
 * a tokenizer, or a failure, gives none and a note.  The same model writes the same texts, unless
 * it is cut short. Freed with tti_text_samples_free. */
void tti_text_samples_make(const tutti_job *job, tti_predictor *p, int n, int time_ms,
                           tti_text_samples *out);
void tti_text_samples_free(tti_text_samples *t);

/* Appends them to a page. */
void tti_text_samples_draw(tti_str *out, const tti_text_samples *t);

#endif /* TTI_TRAIN_TEXT_SAMPLES_H */
