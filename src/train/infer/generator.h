/* generator.h - continues a text with a language model: tutti_generate on an open predictor. */
#ifndef TTI_TRAIN_GENERATOR_H
#define TTI_TRAIN_GENERATOR_H

#include "train/infer/predictor.h"
#include "train/infer/sample_token.h"

typedef struct tti_generator tti_generator;

/* Creates a generator.  The predictor must outlive it; used by one thread at a time.
 * TUTTI_E_UNSUPPORTED: the model is no language model, or the data has no matching tokenizer. */
tutti_status tti_generator_open(const tutti_job *job, tti_predictor *p, tti_generator **out);
void tti_generator_close(tti_generator *g);

/* True if the model is a causal language model, with or without a tokenizer. */
bool tti_writes_text(const tti_blueprint *b);

/* The context of the model, and its tokenizer. */
int64_t tti_generator_context(const tti_generator *g);
const tutti_tokenizer *tti_generator_tokenizer(const tti_generator *g);

/* Discards the previous tokens and reads these n tokens; n 0: starts a new text. */
tutti_status tti_generator_begin(tti_generator *g, const int32_t *tokens, int64_t n);

typedef struct tti_writing {
    tti_sampling sampling;
    int64_t max_tokens;
    int64_t deadline_ns; /* time limit (tti_now_ns), checked after each token; 0: none */
    /* Receives the bytes of each token; a character may be split over several calls.  Returns 0, or
     * another value to end the call with TUTTI_E_INTERRUPTED. */
    int (*on_text)(void *user, const char *text, size_t n_bytes);
    void *user;
} tti_writing;

/* Generates tokens until the end of a text or a limit in `how`. Random draws are keyed by the
 * position since tti_generator_begin. */
tutti_status tti_generator_write(tti_generator *g, const tti_writing *how);

#endif /* TTI_TRAIN_GENERATOR_H */
