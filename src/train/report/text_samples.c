/* text_samples.c - generates continuations of test texts for the report.
 *
 * Uses a temperature slightly below 1, because readers want to see what was learned, not the tail
 * of the distribution. */
#include "train/report/text_samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "train/infer/generator.h"
#include "train/report/chart.h"

enum { MAX_PROMPT = 32, MAX_WRITTEN = 160 };

/* A NUL would end the text on the page. */
static int hear(void *user, const char *text, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) tti_str_add_bytes(user, text[i] ? &text[i] : "\1", 1);
    return 0;
}

/* Decodes the tokens, up to the first one without text. */
static tutti_status read_prompt(const tti_generator *g, const int32_t *tokens, int64_t n,
                                tti_str *out) {
    char *text;
    size_t n_bytes;
    TTI_TRY(tutti_tokenizer_decode(tti_generator_tokenizer(g), tokens, n, &text, &n_bytes));
    (void)hear(out, text, n_bytes);
    free(text);
    return TUTTI_OK;
}

/* room [2, context]: a sample of the test split and its targets. */
static tutti_status write_one(tti_generator *g, const tutti_dataset *test, int64_t index,
                              int32_t *room, const tti_writing *how, tti_text_sample *out) {
    int64_t context = tti_generator_context(g);
    int64_t n = TTI_MAX(1, TTI_MIN(context / 2, (int64_t)MAX_PROMPT));
    tti_writing mine = *how;
    mine.user = &out->text;
    TTI_TRY(tutti_dataset_get(test, index, room, room + context));
    TTI_TRY(read_prompt(g, room, n, &out->prompt));
    TTI_TRY(tti_generator_begin(g, room, n));
    TTI_TRY(tti_generator_write(g, &mine));
    bool failed = out->prompt.failed || out->text.failed;
    return failed ? tti_fail(TUTTI_E_NOMEM, "text samples: out of memory") : TUTTI_OK;
}

static tutti_status write_all(tti_generator *g, const tti_blueprint *b, int n, int time_ms,
                              tti_text_samples *out) {
    int64_t n_rows = tutti_dataset_get_info(b->test)->n_samples;
    int32_t *room = calloc(2 * (size_t)tti_generator_context(g), sizeof *room);
    if (!room) return tti_fail(TUTTI_E_NOMEM, "text samples: out of memory");
    tti_writing how = {.sampling = {.temperature = 0.8, .seed = (uint64_t)b->config.train.seed},
                       .max_tokens = MAX_WRITTEN,
                       .deadline_ns = tti_now_ns() + time_ms * TTI_NS_PER_MS,
                       .on_text = hear};
    tutti_status st = TUTTI_OK;
    n = (int)TTI_MIN((int64_t)n, n_rows);
    for (int i = 0; i < n && st == TUTTI_OK && tti_now_ns() < how.deadline_ns; i++)
        st = write_one(g, b->test, i * (n_rows / n), room, &how, &out->v[out->n++]);
    if (tti_now_ns() >= how.deadline_ns)
        snprintf(out->note, sizeof out->note, "Ended after the time limit of %g s.",
                 time_ms * 1e-3);
    free(room);
    return st;
}

void tti_text_samples_make(const tutti_job *job, tti_predictor *p, int n, int time_ms,
                           tti_text_samples *out) {
    tti_generator *g;
    const tti_blueprint *b = tti_predictor_blueprint(p);
    *out = (tti_text_samples){.step = tti_predictor_step(p)};
    TTI_ASSERT(n >= 0 && n <= TTI_MAX_TEXT_SAMPLES);
    if (n == 0 || !tti_writes_text(b)) return;
    tutti_status st = tti_generator_open(job, p, &g);
    if (st == TUTTI_OK) {
        st = write_all(g, b, n, time_ms, out);
        tti_generator_close(g);
    }
    if (st == TUTTI_OK) return;
    tti_text_samples_free(out);
    snprintf(out->note, sizeof out->note, "No texts: %s", tutti_last_error());
}

void tti_text_samples_free(tti_text_samples *t) {
    for (int i = 0; i < t->n; i++) {
        tti_str_free(&t->v[i].prompt);
        tti_str_free(&t->v[i].text);
    }
    t->n = 0;
}

void tti_text_samples_draw(tti_str *out, const tti_text_samples *t) {
    if (t->n == 0 && !t->note[0]) return;
    tti_str_add(out, "<h2>Texts</h2>");
    if (t->n > 0)
        tti_str_printf(out,
                       "<p>Written by the model after %lld steps; the grey beginnings come from "
                       "the test split.</p>",
                       (long long)t->step);
    for (int i = 0; i < t->n; i++) {
        tti_str_add(out, "<pre class=\"text\"><span>");
        tti_html_text(out, tti_str_text(&t->v[i].prompt));
        tti_str_add(out, "</span>");
        tti_html_text(out, tti_str_text(&t->v[i].text));
        tti_str_add(out, "</pre>\n");
    }
    if (!t->note[0]) return;
    tti_str_add(out, "<p>");
    tti_html_text(out, t->note);
    tti_str_add(out, "</p>\n");
}
