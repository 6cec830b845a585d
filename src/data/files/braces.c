/* braces.c - brace expansion: the alternatives so far are multiplied, part by part.  A plain part
 * is one alternative, a brace several. */
#include "data/files/braces.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { MAX_DIGITS = 12, MAX_TEXT = 4096 };

typedef struct texts {
    size_t n, capacity;
    char **text;
} texts;

static void texts_free(texts *t) {
    for (size_t i = 0; i < t->n; i++) free(t->text[i]);
    free(t->text);
    *t = (texts){0};
}

/* Appends head and the n bytes of tail as one text. */
static tutti_status add(texts *t, const char *head, const char *tail, size_t n) {
    if (t->n == TTI_MAX_EXPANSIONS || strlen(head) + n > MAX_TEXT)
        return tti_fail(TUTTI_E_INVALID, "braces: more than %d names, or one of more than %d bytes",
                        TTI_MAX_EXPANSIONS, MAX_TEXT);
    if (t->n == t->capacity) {
        size_t capacity = TTI_MAX(16, 2 * t->capacity);
        char **text = realloc(t->text, capacity * sizeof *text);
        if (!text) return tti_fail(TUTTI_E_NOMEM, "braces: out of memory");
        t->text = text;
        t->capacity = capacity;
    }
    size_t n_head = strlen(head);
    char *copy = malloc(n_head + n + 1);
    if (!copy) return tti_fail(TUTTI_E_NOMEM, "braces: out of memory");
    memcpy(copy, head, n_head);
    memcpy(copy + n_head, tail, n);
    copy[n_head + n] = '\0';
    t->text[t->n++] = copy;
    return TUTTI_OK;
}

static bool read_digits(const char **text, const char *end, long long *out) {
    const char *start = *text;
    for (*out = 0; *text < end && **text >= '0' && **text <= '9' && *text - start < MAX_DIGITS;)
        *out = *out * 10 + (*(*text)++ - '0');
    return *text > start;
}

/* "000..146", as numbers with as many digits as the first has. */
static bool read_range(const char *text, const char *end, long long *first, long long *last,
                       int *n_digits) {
    const char *at = text;
    if (!read_digits(&at, end, first)) return false;
    *n_digits = (int)(at - text);
    if (end - at < 3 || at[0] != '.' || at[1] != '.') return false;
    at += 2;
    return read_digits(&at, end, last) && at == end && *first <= *last;
}

static tutti_status add_range(texts *alternatives, const char *text, const char *end) {
    long long first, last;
    int n_digits;
    if (!read_range(text, end, &first, &last, &n_digits))
        return tti_fail(TUTTI_E_INVALID,
                        "braces: '{%.*s}' is neither a range such as {000..146} nor a list",
                        (int)TTI_MIN(end - text, 64), text);
    for (long long i = first; i <= last; i++) {
        char number[32];
        int n = snprintf(number, sizeof number, "%0*lld", n_digits, i);
        TTI_TRY(add(alternatives, "", number, (size_t)n));
    }
    return TUTTI_OK;
}

/* Adds the text between two braces. */
static tutti_status add_brace(texts *alternatives, const char *text, const char *end) {
    if (!memchr(text, ',', (size_t)(end - text))) return add_range(alternatives, text, end);
    for (const char *at = text; at <= end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        if (!comma) comma = end;
        TTI_TRY(add(alternatives, "", at, (size_t)(comma - at)));
        at = comma + 1;
    }
    return TUTTI_OK;
}

static tutti_status multiply(texts *all, const texts *alternatives) {
    texts product = {0};
    tutti_status st = TUTTI_OK;
    for (size_t i = 0; st == TUTTI_OK && i < all->n; i++)
        for (size_t k = 0; st == TUTTI_OK && k < alternatives->n; k++)
            st = add(&product, all->text[i], alternatives->text[k], strlen(alternatives->text[k]));
    texts_free(st == TUTTI_OK ? all : &product);
    if (st == TUTTI_OK) *all = product;
    return st;
}

/* Adds one part from *pattern on: a brace, or the text before the next one. */
static tutti_status take_part(const char **pattern, texts *all) {
    const char *text = *pattern, *end = text + strcspn(text, "{}");
    texts alternatives = {0};
    tutti_status st;
    if (end > text) {
        *pattern = end;
        st = add(&alternatives, "", text, (size_t)(end - text));
    } else {
        end = text + 1 + strcspn(text + 1, "{}");
        if (*text != '{' || *end != '}')
            return tti_fail(TUTTI_E_INVALID, "braces: unbalanced or nested at '%.64s'", text);
        *pattern = end + 1;
        st = add_brace(&alternatives, text + 1, end);
    }
    if (st == TUTTI_OK) st = multiply(all, &alternatives);
    texts_free(&alternatives);
    return st;
}

tutti_status tti_expand_braces(const char *pattern, char ***out, size_t *n) {
    texts all = {0};
    tutti_status st = add(&all, "", "", 0);
    while (st == TUTTI_OK && *pattern) st = take_part(&pattern, &all);
    if (st != TUTTI_OK) {
        texts_free(&all);
        return st;
    }
    *out = all.text;
    *n = all.n;
    return TUTTI_OK;
}
