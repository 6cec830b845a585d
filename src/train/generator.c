/* generator.c - tutti_generate: a language model writes on, token by token.
 *
 * A model that can decode takes one token at a time (decoder.h); when its positions are used up it
 * starts again from the newer half of the window.  For any other the evaluation program runs over
 * the whole window for each token, which is right for every causal model: what stands behind the
 * last token is not seen by it. */
#include <stdlib.h>
#include <string.h>

#include "train/decoder.h"
#include "train/predictor.h"
#include "train/sample_token.h"
#include "tutti/eval.h"

enum { DEFAULT_TOKENS = 200 };

typedef struct writer {
    const tutti_generate_desc *desc;
    tti_predictor *p;
    const tutti_tokenizer *tokenizer;
    tti_sampling sampling;
    int64_t context, n_classes;
    int32_t *tokens; /* [context]: the window */
    int64_t n_tokens;
    int32_t *unknown; /* [context]: targets, -1 */
    tti_candidate *room;
    tti_decoder *decoder; /* NULL: the model has none */
    int64_t n_fed;        /* tokens of the window that the decoder has taken */
} writer;

static tutti_status check_model(const writer *w, const tti_blueprint *b) {
    const tutti_dataset_info *info = tutti_dataset_get_info(b->train);
    const char *name = b->config.model.name;
    bool sequence = info->x.dtype == TUTTI_I32 && info->x.shape.n_dims == 1 &&
                    tti_shape_equal(&info->x.shape, &info->y.shape);
    if (!sequence || strcmp(name, "bert") == 0)
        return tti_fail(TUTTI_E_UNSUPPORTED, "generate: %s on data.format=%s writes no text", name,
                        b->config.data.format);
    if (w->tokenizer && tutti_tokenizer_get_size(w->tokenizer) <= w->n_classes) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "generate: the data has no tokenizer that fits; data.tokenizer_dir says where "
                    "one is");
}

/* ---- the window ---- */

static void push(writer *w, int32_t token) {
    if (w->n_tokens == w->context) {
        int64_t n_out = w->decoder ? (w->context + 1) / 2 : 1;
        w->n_tokens -= n_out;
        w->n_fed = 0;
        memmove(w->tokens, w->tokens + n_out, (size_t)w->n_tokens * sizeof *w->tokens);
    }
    w->tokens[w->n_tokens++] = token;
}

/* A text begins after the end of another, or with a new line where there are no ends. */
static tutti_status push_start(writer *w) {
    int32_t end = tutti_tokenizer_get_end(w->tokenizer), *tokens = NULL;
    int64_t n = 0;
    if (end < 0 && tutti_tokenizer_encode(w->tokenizer, "\n", 1, &tokens, &n) == TUTTI_OK && n > 0)
        end = tokens[0];
    free(tokens);
    push(w, TTI_MAX(end, 0));
    return TUTTI_OK;
}

static tutti_status push_prompt(writer *w) {
    int32_t *tokens;
    int64_t n;
    const char *prompt = w->desc->prompt ? w->desc->prompt : "";
    if (!prompt[0]) return push_start(w);
    TTI_TRY(tutti_tokenizer_encode(w->tokenizer, prompt, strlen(prompt), &tokens, &n));
    for (int64_t i = 0; i < n; i++) push(w, tokens[i]);
    free(tokens);
    return TUTTI_OK;
}

/* ---- writing ---- */

static tutti_status say(const writer *w, int32_t token) {
    char *text;
    size_t n_bytes;
    TTI_TRY(tutti_tokenizer_decode(w->tokenizer, &token, 1, &text, &n_bytes));
    w->desc->on_text(w->desc->user, text, n_bytes);
    free(text);
    return TUTTI_OK;
}

static tutti_status decode(writer *w, const float **logits) {
    if (w->n_fed == 0) tti_decoder_restart(w->decoder);
    while (w->n_fed < w->n_tokens)
        TTI_TRY(tti_decoder_step(w->decoder, w->tokens[w->n_fed++], logits));
    return TUTTI_OK;
}

/* Logits of the token after the window. */
static tutti_status next_logits(writer *w, const float **logits) {
    tti_predicted out;
    tti_shard_data data = {w->tokens, w->unknown, 1};
    if (w->decoder) return decode(w, logits);
    TTI_TRY(tti_predictor_run(w->p, &data, 1, &out));
    *logits = out.logits + (w->n_tokens - 1) * w->n_classes;
    return TUTTI_OK;
}

static tutti_status write_on(writer *w) {
    int64_t n = w->desc->max_tokens > 0 ? w->desc->max_tokens : DEFAULT_TOKENS;
    int64_t n_sayable = tutti_tokenizer_get_size(w->tokenizer);
    int32_t end = tutti_tokenizer_get_end(w->tokenizer);
    for (int64_t i = 0; i < n; i++) {
        const float *logits = NULL;
        TTI_TRY(next_logits(w, &logits));
        int32_t token = tti_sample_token(&w->sampling, logits, n_sayable, (uint64_t)i, w->room);
        if (token == end) break;
        TTI_TRY(say(w, token));
        push(w, token);
    }
    return TUTTI_OK;
}

static tutti_status prepare(writer *w, const tutti_job *job) {
    const tti_blueprint *b = tti_predictor_blueprint(w->p);
    w->context = tutti_dataset_get_info(b->train)->x.shape.dim[0];
    w->n_classes = b->model_params.n_classes;
    w->tokenizer = tutti_dataset_get_tokenizer(b->train);
    TTI_TRY(check_model(w, b));
    w->tokens = calloc((size_t)w->context, sizeof *w->tokens);
    w->unknown = malloc((size_t)w->context * sizeof *w->unknown);
    w->room = calloc((size_t)w->n_classes, sizeof *w->room);
    if (!w->tokens || !w->unknown || !w->room)
        return tti_fail(TUTTI_E_NOMEM, "generate: out of memory");
    for (int64_t i = 0; i < w->context; i++) w->unknown[i] = -1;
    TTI_TRY(tti_decoder_open(job, w->p, w->context, &w->decoder));
    return push_prompt(w);
}

/* One sample at a time: the shards of training would be computed for nothing. */
static void take_one_row(tutti_job *job) {
    tutti_job_set(job, "train.batch=1", "generate");
    tutti_job_set(job, "parallel.shards=1", "generate");
    tutti_job_set(job, "parallel.workers=1", "generate");
}

tutti_status tutti_generate(tutti_job *job, const char *run_dir, const tutti_generate_desc *desc) {
    writer w = {.desc = desc,
                .sampling = {.temperature = desc->temperature == 0 ? 1 : desc->temperature,
                             .top_k = desc->top_k,
                             .top_p = desc->top_p,
                             .seed = desc->seed}};
    take_one_row(job);
    TTI_TRY(tti_predictor_open(job, run_dir, NULL, NULL, &w.p));
    tutti_status st = prepare(&w, job);
    if (st == TUTTI_OK && desc->prompt)
        desc->on_text(desc->user, desc->prompt, strlen(desc->prompt));
    if (st == TUTTI_OK) st = write_on(&w);
    tti_decoder_close(w.decoder);
    free(w.tokens);
    free(w.unknown);
    free(w.room);
    tti_predictor_close(w.p);
    return st;
}
