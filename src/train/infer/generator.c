/* generator.c - tutti_generate: a language model generates text token by token.
 *
 * A model with a decoder processes one token at a time (decoder.h); when its positions are used up,
 * it restarts with the newer half of the window.  For other models the evaluation program runs over
 * the whole window for each token.  This is correct for every causal model, because positions after
 * the last token do not influence it.  If the program has several rows, only the first is used. */
#include "train/infer/generator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "train/infer/decoder.h"
#include "tutti/eval.h"

enum { DEFAULT_TOKENS = 200 };

struct tti_generator {
    tti_predictor *p;
    const tutti_tokenizer *tokenizer;
    int64_t context, n_classes;
    int32_t *tokens; /* [rows, context]: the window, then rows of zeros */
    int64_t n_tokens;
    int32_t *unknown; /* [rows, context]: targets, -1 */
    tti_candidate *room;
    tti_decoder *decoder; /* NULL: the model has none */
    int64_t n_fed;        /* tokens of the window that the decoder has processed */
};

/* ---- supported models ---- */

bool tti_writes_text(const tti_blueprint *b) {
    const tutti_dataset_info *info = tutti_dataset_get_info(b->train);
    bool sequence = info->x.dtype == TUTTI_I32 && info->x.shape.n_dims == 1 &&
                    tti_shape_equal(&info->x.shape, &info->y.shape);
    return sequence && strcmp(b->config.model.name, "bert") != 0;
}

static tutti_status check_model(const tti_generator *g, const tti_blueprint *b) {
    if (!tti_writes_text(b))
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "generate: %s on data.format=%s is not a causal language model",
                        b->model_name, b->config.data.format);
    if (g->tokenizer && tutti_tokenizer_get_size(g->tokenizer) <= g->n_classes) return TUTTI_OK;
    return tti_fail(
        TUTTI_E_UNSUPPORTED,
        "generate: the data has no matching tokenizer; give one with data.tokenizer_dir");
}

static tutti_status prepare(tti_generator *g, const tutti_job *job) {
    const tti_blueprint *b = tti_predictor_blueprint(g->p);
    g->context = tutti_dataset_get_info(b->train)->x.shape.dim[0];
    g->n_classes = b->model_params.n_classes;
    g->tokenizer = tutti_dataset_get_tokenizer(b->train);
    TTI_TRY(check_model(g, b));
    size_t n = (size_t)(b->rows_per_shard * g->context);
    g->tokens = calloc(n, sizeof *g->tokens);
    g->unknown = malloc(n * sizeof *g->unknown);
    g->room = calloc((size_t)g->n_classes, sizeof *g->room);
    if (!g->tokens || !g->unknown || !g->room)
        return tti_fail(TUTTI_E_NOMEM, "generate: out of memory");
    for (size_t i = 0; i < n; i++) g->unknown[i] = -1;
    return tti_decoder_open(job, g->p, g->context, &g->decoder);
}

tutti_status tti_generator_open(const tutti_job *job, tti_predictor *p, tti_generator **out) {
    tti_generator *g = calloc(1, sizeof *g);
    if (!g) return tti_fail(TUTTI_E_NOMEM, "generate: out of memory");
    g->p = p;
    tutti_status st = prepare(g, job);
    if (st == TUTTI_OK)
        *out = g;
    else
        tti_generator_close(g);
    return st;
}

void tti_generator_close(tti_generator *g) {
    if (!g) return;
    tti_decoder_close(g->decoder);
    free(g->tokens);
    free(g->unknown);
    free(g->room);
    free(g);
}

int64_t tti_generator_context(const tti_generator *g) { return g->context; }
const tutti_tokenizer *tti_generator_tokenizer(const tti_generator *g) { return g->tokenizer; }

/* ---- the window ---- */

static void push(tti_generator *g, int32_t token) {
    if (g->n_tokens == g->context) {
        int64_t n_out = g->decoder ? (g->context + 1) / 2 : 1;
        g->n_tokens -= n_out;
        g->n_fed = 0;
        memmove(g->tokens, g->tokens + n_out, (size_t)g->n_tokens * sizeof *g->tokens);
    }
    g->tokens[g->n_tokens++] = token;
}

/* Returns the token before a new text: end-of-text, or a newline if there is no such token. */
static int32_t start_token(const tti_generator *g) {
    int32_t end = tutti_tokenizer_get_end(g->tokenizer), *tokens = NULL;
    int64_t n = 0;
    if (end < 0 && tutti_tokenizer_encode(g->tokenizer, "\n", 1, &tokens, &n) == TUTTI_OK && n > 0)
        end = tokens[0];
    free(tokens);
    return TTI_MAX(end, 0);
}

tutti_status tti_generator_begin(tti_generator *g, const int32_t *tokens, int64_t n) {
    g->n_tokens = g->n_fed = 0;
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= g->n_classes)
            return tti_fail(TUTTI_E_DATA, "generate: the model has no token %d", tokens[i]);
        push(g, tokens[i]);
    }
    if (n == 0) push(g, start_token(g));
    return TUTTI_OK;
}

/* ---- writing ---- */

/* Passes text to the caller's function, which may end the call. */
static tutti_status hand_over(const tti_writing *how, const char *text, size_t n_bytes) {
    if (how->on_text(how->user, text, n_bytes) == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_INTERRUPTED, "generate: the callback has ended the call");
}

static tutti_status say(const tti_generator *g, const tti_writing *how, int32_t token) {
    char *text;
    size_t n_bytes;
    TTI_TRY(tutti_tokenizer_decode(g->tokenizer, &token, 1, &text, &n_bytes));
    tutti_status st = hand_over(how, text, n_bytes);
    free(text);
    return st;
}

/* Computes the logits of the token after the window. */
static tutti_status next_logits(tti_generator *g, const float **logits) {
    tti_predicted out;
    tti_shard_data data = {g->tokens, g->unknown, 1};
    if (g->decoder) {
        if (g->n_fed == 0) tti_decoder_restart(g->decoder);
        while (g->n_fed < g->n_tokens)
            TTI_TRY(tti_decoder_step(g->decoder, g->tokens[g->n_fed++], logits));
        return TUTTI_OK;
    }
    TTI_TRY(tti_predictor_run(g->p, &data, 1, &out));
    *logits = out.logits + (g->n_tokens - 1) * g->n_classes;
    return TUTTI_OK;
}

/* Refuses NaN and +inf, which have no probability. */
static tutti_status check_logits(const float *logits, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return tti_fail(TUTTI_E_NUMERICS,
                            "generate: the model's output is not finite; its weights are not "
                            "finite, or a value overflows");
    return TUTTI_OK;
}

tutti_status tti_generator_write(tti_generator *g, const tti_writing *how) {
    int64_t n_sayable = tutti_tokenizer_get_size(g->tokenizer);
    int32_t end = tutti_tokenizer_get_end(g->tokenizer);
    for (int64_t i = 0; i < how->max_tokens; i++) {
        const float *logits = NULL;
        if (how->deadline_ns && tti_now_ns() > how->deadline_ns) break;
        TTI_TRY(next_logits(g, &logits));
        TTI_TRY(check_logits(logits, n_sayable));
        int32_t token = tti_sample_token(&how->sampling, logits, n_sayable, (uint64_t)i, g->room);
        if (token == end) break;
        TTI_TRY(say(g, how, token));
        push(g, token);
    }
    return TUTTI_OK;
}

/* ---- the call ---- */

/* Checks the caller's description.  Comparisons are written such that NaN fails them. */
static tutti_status check_desc(const tutti_generate_desc *desc) {
    TTI_TRY(tti_need(desc->on_text ? desc : NULL, "tutti_generate", "on_text"));
    if (desc->max_tokens < 0 || desc->top_k < 0)
        return tti_fail(TUTTI_E_INVALID,
                        "generate: max_tokens and top_k must be at least 0, got %lld and %lld",
                        (long long)desc->max_tokens, (long long)desc->top_k);
    if (!(desc->temperature >= 0 && desc->temperature < INFINITY))
        return tti_fail(TUTTI_E_INVALID,
                        "generate: temperature must be a number of at least 0, got %g",
                        desc->temperature);
    if (!(desc->top_p >= 0 && desc->top_p <= 1))
        return tti_fail(TUTTI_E_INVALID, "generate: top_p must be from 0 to 1, got %g",
                        desc->top_p);
    return TUTTI_OK;
}

/* Sets the shard to one row, because the other rows of a training shard would be computed for
 * nothing. */
static void take_one_row(tutti_job *job) {
    tti_options_put(tti_job_options(job), "train.batch", "1", "generate");
    tti_options_put(tti_job_options(job), "parallel.shards", "1", "generate");
    tti_options_put(tti_job_options(job), "parallel.workers", "1", "generate");
    tti_job_free_copies(job, "generate");
    tti_options_put(tti_job_options(job), "parallel.tensor", "1", "generate");
    tti_options_put(tti_job_options(job), "parallel.pipeline", "1", "generate");
}

static tutti_status begin(tti_generator *g, const char *prompt) {
    int32_t *tokens = NULL;
    int64_t n = 0;
    if (*prompt) TTI_TRY(tutti_tokenizer_encode(g->tokenizer, prompt, strlen(prompt), &tokens, &n));
    tutti_status st = tti_generator_begin(g, tokens, n);
    free(tokens);
    return st;
}

static tutti_status generate(const tutti_job *job, tti_predictor *p,
                             const tutti_generate_desc *desc) {
    tti_generator *g;
    tti_writing how = {.sampling = {.temperature = desc->temperature == 0 ? -1 : desc->temperature,
                                    .top_k = desc->top_k,
                                    .top_p = desc->top_p,
                                    .seed = desc->seed},
                       .max_tokens = desc->max_tokens > 0 ? desc->max_tokens : DEFAULT_TOKENS,
                       .on_text = desc->on_text,
                       .user = desc->user};
    TTI_TRY(tti_generator_open(job, p, &g));
    tutti_status st = begin(g, desc->prompt ? desc->prompt : "");
    if (st == TUTTI_OK && desc->prompt) st = hand_over(&how, desc->prompt, strlen(desc->prompt));
    if (st == TUTTI_OK) st = tti_generator_write(g, &how);
    tti_generator_close(g);
    return st;
}

tutti_status tutti_generate(tutti_job *job, const char *run_dir, const tutti_generate_desc *desc) {
    TTI_TRY(tti_need(job, __func__, "job"));
    TTI_TRY(tti_need(run_dir, __func__, "run_dir"));
    TTI_TRY(tti_need(desc, __func__, "desc"));
    TTI_TRY(check_desc(desc));
    tti_predictor *p;
    take_one_row(job);
    TTI_TRY(tti_predictor_open(job, run_dir, desc->on_warning, desc->user, &p));
    tutti_status st = generate(job, p, desc);
    tti_predictor_close(p);
    return tti_job_say_where(job, st);
}
