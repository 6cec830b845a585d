/* decoder.h - runs a language model one token at a time, with the previous tokens in a cache. */
#ifndef TTI_TRAIN_DECODER_H
#define TTI_TRAIN_DECODER_H

#include "train/infer/predictor.h"

typedef struct tti_decoder tti_decoder;

/* Creates a decoder for a model that can decode; otherwise *out is NULL. context: positions of the
 * cache.  The predictor must outlive the decoder, which shares its parameters. */
tutti_status tti_decoder_open(const tutti_job *job, const tti_predictor *p, int64_t context,
                              tti_decoder **out);
void tti_decoder_close(tti_decoder *d);

/* Clears the cache: the next token is the first one. */
void tti_decoder_restart(tti_decoder *d);

/* Processes the next token; at most context tokens may follow a restart. *logits [classes] predict
 * the token after it and are borrowed until the next call. */
tutti_status tti_decoder_step(tti_decoder *d, int32_t token, const float **logits);

#endif /* TTI_TRAIN_DECODER_H */
