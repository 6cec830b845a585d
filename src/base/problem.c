/* problem.c - collects problems, so that all of them are reported at once. */
#include "base/problem.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* The text of a failure has room for 8 KiB; a cut list must end at a line and say so. */
enum { MAX_REPORT_BYTES = 8000 };

void tti_place_print(const tti_place *place, tti_str *out) {
    char clipped[TTI_CLIP];
    if (!place->source) return;
    tti_str_add(out, tti_clip(clipped, place->source));
    if (place->line > 0) tti_str_printf(out, ":%d:%d", place->line, place->column);
    tti_str_add(out, ": ");
}

void tti_problems_add(tti_problems *problems, const tti_place *place, const char *format, ...) {
    if (problems->n++ >= TTI_MAX_PROBLEMS) return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (problems->text.n_bytes > 0) tti_str_add(&problems->text, "\n");
    tti_place_print(place, &problems->text);
    tti_str_printf(&problems->text, "error: %s", line);
}

tutti_status tti_problem_place(const tti_place *place, tutti_status code) {
    tti_str text = {0};
    tti_place_print(place, &text);
    tti_str_add(&text, "error: ");
    if (!text.failed) tti_fail_context("%s", text.text);
    tti_str_free(&text);
    return code;
}

tutti_status tti_problems_status(const tti_problems *problems, tutti_status code) {
    if (problems->n == 0) return TUTTI_OK;
    if (problems->text.failed) return tti_fail(TUTTI_E_NOMEM, "out of memory for error messages");
    const char *text = tti_str_text(&problems->text);
    size_t n_bytes = problems->text.n_bytes;
    int n_shown = TTI_MIN(problems->n, TTI_MAX_PROBLEMS);
    while (n_bytes > MAX_REPORT_BYTES) {
        const char *end = memrchr(text, '\n', n_bytes);
        if (!end) return tti_fail(code, "%.*s", MAX_REPORT_BYTES, text);
        n_bytes = (size_t)(end - text);
        n_shown--;
    }
    int n_more = problems->n - n_shown;
    if (n_more == 0) return tti_fail(code, "%s", text);
    return tti_fail(code, "%.*s\n... and %d more", (int)n_bytes, text, n_more);
}

void tti_problems_free(tti_problems *problems) {
    tti_str_free(&problems->text);
    *problems = (tti_problems){0};
}

const char *tti_clip(char out[TTI_CLIP], const char *text) {
    size_t n_bytes = strlen(text), from = 0, to = 0;
    while (from < n_bytes) {
        uint32_t c;
        size_t n = tti_utf8_decode(text + from, n_bytes - from, &c);
        if (to + TTI_MAX(n, 1u) > TTI_CLIP - 4) {
            memcpy(out + to, "...", 3);
            to += 3;
            break;
        }
        if (n == 0 || !tti_utf8_printable(c)) {
            out[to++] = '?';
        } else {
            memcpy(out + to, text + from, n);
            to += n;
        }
        from += TTI_MAX(n, 1u);
    }
    out[to] = '\0';
    return out;
}
