/* added_tokens.c - finds added tokens in a text.
 *
 * The tokens of a pass are sorted, so all that begin with the bytes seen so far are adjacent: one
 * more byte of text narrows that range by bisection. */
#include "data/tokenizer/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/tokenizer/bpe_split.h"

tutti_status tti_added_tokens_add(tti_added_tokens *all, const tti_added_token *token) {
    TTI_ASSERT(token->n_bytes > 0);
    if ((all->n & (all->n - 1)) == 0) { /* room for the next power of two */
        tti_added_token *more = realloc(all->token, (2 * all->n + 1) * sizeof *more);
        if (!more) return tti_fail(TUTTI_E_NOMEM, "tokenizer: out of memory");
        all->token = more;
    }
    char *text = malloc(token->n_bytes + 1);
    if (!text) return tti_fail(TUTTI_E_NOMEM, "tokenizer: out of memory");
    memcpy(text, token->text, token->n_bytes);
    text[token->n_bytes] = '\0';
    all->token[all->n] = *token;
    all->token[all->n++].text = text;
    return TUTTI_OK;
}

static int compare(const void *a, const void *b) {
    const tti_added_token *x = a, *y = b;
    if (x->flags.normalized != y->flags.normalized) return x->flags.normalized ? 1 : -1;
    return strcmp(x->text, y->text);
}

void tti_added_tokens_sort(tti_added_tokens *all) {
    size_t n = 0;
    if (all->n > 0) qsort(all->token, all->n, sizeof *all->token, compare);
    for (size_t i = 0; i < all->n; i++) {
        if (n > 0 && compare(&all->token[n - 1], &all->token[i]) == 0)
            free(all->token[i].text);
        else
            all->token[n++] = all->token[i];
    }
    all->n = all->begin[2] = n;
    all->begin[1] = 0;
    for (size_t i = 0; i < n; i++) {
        const tti_added_token *token = &all->token[i];
        all->begin[1] += !token->flags.normalized;
        all->starts[token->flags.normalized][(uint8_t)token->text[0]] = true;
    }
}

void tti_added_tokens_free(tti_added_tokens *all) {
    for (size_t i = 0; i < all->n; i++) free(all->token[i].text);
    free(all->token);
    *all = (tti_added_tokens){0};
}

bool tti_added_tokens_equal(const tti_added_tokens *a, const tti_added_tokens *b) {
    bool equal = a->n == b->n;
    for (size_t i = 0; i < a->n && equal; i++) {
        const tti_added_token *x = &a->token[i], *y = &b->token[i];
        equal = x->id == y->id && strcmp(x->text, y->text) == 0 &&
                x->flags.lstrip == y->flags.lstrip && x->flags.rstrip == y->flags.rstrip &&
                x->flags.normalized == y->flags.normalized;
    }
    return equal;
}

const tti_added_token *tti_added_tokens_find(const tti_added_tokens *all, const char *text) {
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->token[i].text, text) == 0) return &all->token[i];
    return NULL;
}

/* The first of low .. high whose byte at place depth is at least that. */
static size_t lower_bound(const tti_added_tokens *all, size_t low, size_t high, size_t depth,
                          int byte) {
    while (low < high) {
        size_t mid = (low + high) / 2;
        if ((uint8_t)all->token[mid].text[depth] < byte)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The longest token of a pass that text begins with, NULL if there is none. */
static const tti_added_token *longest_at(const tti_added_tokens *all, int pass, const char *text,
                                         size_t n_bytes) {
    const tti_added_token *best = NULL;
    size_t low = all->begin[pass], high = all->begin[pass + 1];
    for (size_t depth = 0; depth < n_bytes && low < high; depth++) {
        uint8_t byte = (uint8_t)text[depth];
        if (byte == 0) break; /* no token has one, and it ends the texts here */
        low = lower_bound(all, low, high, depth, byte);
        high = lower_bound(all, low, high, depth, byte + 1);
        if (low < high && all->token[low].n_bytes == depth + 1) best = &all->token[low];
    }
    return best;
}

static bool is_space(const char *text, size_t n_bytes, size_t *n) {
    uint32_t c = 0;
    *n = n_bytes ? tti_utf8_decode(text, n_bytes, &c) : 0;
    return *n > 0 && tti_classify(c) == TTI_CHAR_SPACE;
}

static size_t spaces_from(const char *text, size_t n_bytes) {
    size_t at = 0;
    for (size_t n; is_space(text + at, n_bytes - at, &n);) at += n;
    return at;
}

/* The begin of the white space that ends at `end`, not before `least`. */
static size_t spaces_before(const char *text, size_t least, size_t end) {
    while (end > least) {
        size_t at = end - 1, n;
        while (at > least && ((uint8_t)text[at] & 0xC0) == 0x80) at--;
        if (!is_space(text + at, end - at, &n) || n != end - at) break;
        end = at;
    }
    return end;
}

static tutti_status cut(const tti_added_tokens *all, int pass, const char *text, size_t begin,
                        size_t end, const tti_added_sink *sink);

static tutti_status pass_on(const tti_added_tokens *all, int pass, const char *text, size_t begin,
                            size_t end, const tti_added_sink *sink) {
    if (begin >= end) return TUTTI_OK;
    return pass == 0 ? cut(all, 1, text, begin, end, sink)
                     : sink->take_text(sink->user, begin, end);
}

static tutti_status cut(const tti_added_tokens *all, int pass, const char *text, size_t begin,
                        size_t end, const tti_added_sink *sink) {
    size_t done = begin;
    for (size_t at = begin; at < end && all->begin[pass] < all->begin[pass + 1];) {
        const tti_added_token *token = NULL;
        if (all->starts[pass][(uint8_t)text[at]])
            token = longest_at(all, pass, text + at, end - at);
        if (!token) {
            at++;
            continue;
        }
        size_t start = at, stop = at + token->n_bytes;
        at = stop;
        if (token->flags.lstrip) start = TTI_MAX(spaces_before(text, done, start), done);
        if (token->flags.rstrip) stop += spaces_from(text + stop, end - stop);
        TTI_TRY(pass_on(all, pass, text, done, start, sink));
        /* It is empty only if the preceding token has consumed its white space. */
        if (start < stop) TTI_TRY(sink->take_token(sink->user, token->id));
        done = stop;
    }
    return pass_on(all, pass, text, done, end, sink);
}

tutti_status tti_added_tokens_cut(const tti_added_tokens *all, const char *text, size_t n_bytes,
                                  const tti_added_sink *sink) {
    return cut(all, 0, text, 0, n_bytes, sink);
}
