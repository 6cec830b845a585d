/* tokenizer_gpt2.c - byte-pair encoding as GPT-2 does it.
 *
 * A word is its bytes as tokens, merged pair by pair, the pair with the lowest rank first.  Words
 * are short, so each round looks at all pairs again; a long word (a hostile file has one of a
 * megabyte) uses a heap. */
#include "data/tokenizer/tokenizer_gpt2.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/philox.h"
#include "base/problem.h"
#include "base/utf8.h"
#include "data/tokenizer/bpe_split.h"

enum {
    SHORT = 64, /* bytes of a word that takes the simple way */
    BLOCK = 4096,
    NO_RANK = INT32_MAX,
    MAX_WORD = 1 << 28,
    ALPHABET_FIRST = 256 /* characters that represent bytes which are not printable */
};
#define END_TEXT "<|endoftext|>"

typedef struct pair {
    uint64_t key;  /* left << 32 | right */
    int32_t rank;  /* NO_RANK: free      */
    int32_t token; /* the merged token */
} pair;

typedef struct gpt2_state {
    pair *table; /* [mask+1], open addressing, at most half full */
    size_t mask;
    size_t n_merges;
    uint64_t *merge;   /* [n_merges] keys by rank */
    int32_t *by_bytes; /* tokens sorted by their bytes */
    size_t n_by_bytes;
    uint8_t *origin; /* [n] of each token: enum origin */
    int32_t byte_token[256];
    tti_added_tokens added;
    bool whole, ignore_merges; /* as in tti_gpt2_source */
} gpt2_state;

/* The file from which a token's text comes, which determines how it is saved. */
enum origin {
    LETTERS, /* in the vocabulary, in the alphabet */
    FOREIGN, /* in the vocabulary, with characters that are not in the alphabet: no text gives it */
    ADDED    /* among the added tokens alone */
};

/* ---- the alphabet ---- */

static bool shows_itself(unsigned byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

uint32_t tti_gpt2_letter(unsigned byte) {
    if (shows_itself(byte)) return byte;
    uint32_t n = 0;
    for (unsigned b = 0; b < byte; b++) n += !shows_itself(b);
    return ALPHABET_FIRST + n;
}

/* The byte that a character stands for, -1 if none. */
static int byte_of(uint32_t letter) {
    if (letter < ALPHABET_FIRST) return shows_itself(letter) ? (int)letter : -1;
    for (unsigned b = 0, n = ALPHABET_FIRST; b < 256; b++)
        if (!shows_itself(b) && n++ == letter) return (int)b;
    return -1;
}

/* Writes the bytes that text stands for, not more than n_bytes; false if some letter is foreign. */
static bool to_bytes(const char *text, size_t n_bytes, char *out, size_t *n_out) {
    size_t n = 0;
    for (size_t at = 0; at < n_bytes;) {
        uint32_t letter;
        size_t step = tti_utf8_decode(text + at, n_bytes - at, &letter);
        int byte = step ? byte_of(letter) : -1;
        if (byte < 0) return false;
        out[n++] = (char)byte;
        at += step;
    }
    *n_out = n;
    return true;
}

/* ---- pairs ---- */

static uint64_t key_of(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static pair *find_pair(const gpt2_state *s, uint64_t key) {
    uint64_t h = key * 0x9E3779B97F4A7C15u;
    for (size_t i = (size_t)(h ^ h >> 32) & s->mask;; i = (i + 1) & s->mask)
        if (s->table[i].key == key || s->table[i].rank == NO_RANK) return &s->table[i];
}

static int32_t rank_of(const gpt2_state *s, int32_t left, int32_t right) {
    return find_pair(s, key_of(left, right))->rank;
}

static int32_t joined(const gpt2_state *s, int32_t rank) {
    return find_pair(s, s->merge[rank])->token;
}

/* ---- joining: the simple way ---- */

/* Merges every pair of that rank; rank[i] is that of the pair i, i+1.  Returns the number of
 * remaining tokens. */
static size_t join_round(const gpt2_state *s, int32_t *token, int32_t *rank, size_t n,
                         int32_t best) {
    int32_t new_token = joined(s, best);
    size_t k = 0;
    bool after_new = false;
    for (size_t i = 0; i < n;) {
        bool join = i + 1 < n && rank[i] == best;
        int32_t now = join ? new_token : token[i];
        int32_t next = join || i + 1 == n ? NO_RANK : rank[i];
        if (k > 0 && (join || after_new)) rank[k - 1] = rank_of(s, token[k - 1], now);
        token[k] = now;
        rank[k++] = next;
        after_new = join;
        i += join ? 2 : 1;
    }
    return k;
}

static size_t join_short(const gpt2_state *s, int32_t *token, size_t n) {
    int32_t rank[SHORT];
    for (size_t i = 0; i + 1 < n; i++) rank[i] = rank_of(s, token[i], token[i + 1]);
    while (n > 1) {
        int32_t best = NO_RANK;
        for (size_t i = 0; i + 1 < n; i++) best = TTI_MIN(best, rank[i]);
        if (best == NO_RANK) break;
        n = join_round(s, token, rank, n, best);
    }
    return n;
}

/* ---- joining: by a heap of pairs ---- */

typedef struct candidate {
    int32_t rank, at, left, right;
} candidate;

typedef struct word {
    const gpt2_state *s;
    int32_t *token, *next, *last; /* a linked list; token -1: joined away */
    candidate *heap;
    size_t n_heap;
    int32_t *pending; /* places whose pair is new */
    size_t n_pending;
} word;

static bool before(const candidate *a, const candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(word *w, int32_t at) {
    if (at < 0 || w->token[at] < 0 || w->next[at] < 0) return;
    candidate c = {.at = at, .left = w->token[at], .right = w->token[w->next[at]]};
    c.rank = rank_of(w->s, c.left, c.right);
    if (c.rank == NO_RANK) return;
    size_t i = w->n_heap++;
    for (; i > 0 && before(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = c;
}

static candidate pop(word *w) {
    candidate top = w->heap[0], c = w->heap[--w->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < w->n_heap; i = child) {
        if (child + 1 < w->n_heap && before(&w->heap[child + 1], &w->heap[child])) child++;
        if (!before(&w->heap[child], &c)) break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = c;
    return top;
}

static void join_one(word *w, const candidate *c) {
    int32_t right = w->next[c->at];
    if (w->token[c->at] != c->left || right < 0 || w->token[right] != c->right) return; /* stale */
    w->token[c->at] = joined(w->s, c->rank);
    w->token[right] = -1;
    w->next[c->at] = w->next[right];
    if (w->next[right] >= 0) w->last[w->next[right]] = c->at;
    w->pending[w->n_pending++] = w->last[c->at];
    w->pending[w->n_pending++] = c->at;
}

static size_t join_all(word *w, size_t n) {
    for (size_t i = 0; i < n; i++) {
        w->last[i] = (int32_t)i - 1;
        w->next[i] = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i < n; i++) push(w, (int32_t)i);
    while (w->n_heap > 0) {
        int32_t rank = w->heap[0].rank;
        while (w->n_heap > 0 && w->heap[0].rank == rank) {
            candidate c = pop(w);
            join_one(w, &c);
        }
        for (size_t i = 0; i < w->n_pending; i++) push(w, w->pending[i]);
        w->n_pending = 0;
    }
    size_t k = 0;
    for (int32_t i = 0; i >= 0; i = w->next[i]) w->token[k++] = w->token[i];
    return k;
}

static size_t join_long(const gpt2_state *s, int32_t *token, size_t n) {
    word w = {.s = s, .token = token};
    /* A join takes one candidate and leaves two, and there are less than n joins. */
    w.heap = malloc(2 * n * sizeof *w.heap);
    w.next = malloc(4 * n * sizeof *w.next);
    size_t left = 0;
    if (w.heap && w.next) {
        w.last = w.next + n;
        w.pending = w.last + n;
        left = join_all(&w, n);
    }
    free(w.heap);
    free(w.next);
    return left;
}

size_t tti_gpt2_join(const tutti_tokenizer *t, int32_t *token, size_t n, bool by_heap) {
    const gpt2_state *s = t->state;
    if (n == 0 || s->n_merges == 0) return n;
    return n > SHORT || by_heap ? join_long(t->state, token, n) : join_short(t->state, token, n);
}

/* ---- encoding ---- */

typedef struct out_block {
    const tti_token_sink *sink;
    size_t n;
    int32_t token[BLOCK];
} out_block;

static tutti_status flush(out_block *out) {
    size_t n = out->n;
    out->n = 0;
    return n > 0 ? out->sink->take(out->sink->user, out->token, n) : TUTTI_OK;
}

static tutti_status to_byte_tokens(const gpt2_state *s, const char *text, size_t at, size_t n,
                                   int32_t *token) {
    for (size_t i = 0; i < n; i++) {
        unsigned byte = (uint8_t)text[at + i];
        token[i] = s->byte_token[byte];
        if (token[i] < 0)
            return tti_fail(TUTTI_E_DATA, "byte %zu (%02x) has no token in the vocabulary", at + i,
                            byte);
    }
    return TUTTI_OK;
}

static tutti_status encode_long(const tutti_tokenizer *t, const char *text, size_t at, size_t n,
                                out_block *out) {
    if (n > MAX_WORD)
        return tti_fail(TUTTI_E_DATA, "a word of %zu bytes at byte %zu, at most %d are supported",
                        n, at, MAX_WORD);
    TTI_TRY(flush(out));
    int32_t *token = malloc(n * sizeof *token);
    tutti_status st = TUTTI_OK;
    if (token) TTI_TRY_GOTO(to_byte_tokens(t->state, text, at, n, token), cleanup);
    size_t left = token ? tti_gpt2_join(t, token, n, true) : 0;
    st = left > 0 ? out->sink->take(out->sink->user, token, left)
                  : tti_fail(TUTTI_E_NOMEM, "out of memory for a word of %zu bytes", n);
cleanup:
    free(token);
    return st;
}

/* ---- tokens by their bytes ---- */

static int compare_bytes(const char *a, size_t n_a, const char *b, size_t n_b) {
    int order = memcmp(a, b, TTI_MIN(n_a, n_b));
    return order ? order : (n_a > n_b) - (n_a < n_b);
}

static size_t piece_size(const tti_pieces *p, int32_t i) { return p->start[i + 1] - p->start[i]; }

static int by_bytes(const void *a, const void *b, void *pieces) {
    const tti_pieces *p = pieces;
    int32_t i = *(const int32_t *)a, k = *(const int32_t *)b;
    int order = compare_bytes(p->bytes + p->start[i], piece_size(p, i), p->bytes + p->start[k],
                              piece_size(p, k));
    return order ? order : (i > k) - (i < k);
}

/* The token of these bytes, -1 if there is none. */
static int32_t find_token(const tutti_tokenizer *t, const char *bytes, size_t n) {
    const gpt2_state *s = t->state;
    const tti_pieces *p = &t->pieces;
    size_t low = 0, high = s->n_by_bytes;
    while (low < high) {
        size_t mid = (low + high) / 2;
        int32_t i = s->by_bytes[mid];
        if (compare_bytes(p->bytes + p->start[i], piece_size(p, i), bytes, n) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == s->n_by_bytes) return -1;
    int32_t i = s->by_bytes[low];
    return compare_bytes(p->bytes + p->start[i], piece_size(p, i), bytes, n) == 0 ? i : -1;
}

/* The state of one encoding. */
typedef struct encoding {
    const tutti_tokenizer *t;
    const char *text;
    size_t n_bytes;
    out_block out;
} encoding;

static tutti_status take_token(void *user, int32_t id) {
    encoding *e = user;
    if (e->out.n == BLOCK) TTI_TRY(flush(&e->out));
    e->out.token[e->out.n++] = id;
    return TUTTI_OK;
}

static tutti_status encode_word(encoding *e, size_t at, size_t n) {
    const gpt2_state *s = e->t->state;
    int32_t whole = s->ignore_merges ? find_token(e->t, e->text + at, n) : -1;
    if (whole >= 0) return take_token(e, whole);
    if (n > SHORT) return encode_long(e->t, e->text, at, n, &e->out);
    if (e->out.n > BLOCK - SHORT) TTI_TRY(flush(&e->out));
    TTI_TRY(to_byte_tokens(s, e->text, at, n, e->out.token + e->out.n));
    e->out.n += join_short(s, e->out.token + e->out.n, n);
    return TUTTI_OK;
}

/* Text without added tokens. */
static tutti_status encode_text(void *user, size_t begin, size_t end) {
    encoding *e = user;
    const gpt2_state *s = e->t->state;
    if (s->whole) {
        size_t n = tti_utf8_check(e->text + begin, end - begin);
        if (n < end - begin) return tti_not_utf8(e->text, e->n_bytes, begin + n);
        return encode_word(e, begin, end - begin);
    }
    for (size_t at = begin; at < end;) {
        size_t n = tti_bpe_next(e->text + at, end - at);
        if (n == 0) return tti_not_utf8(e->text, e->n_bytes, at);
        TTI_TRY(encode_word(e, at, n));
        at += n;
    }
    return TUTTI_OK;
}

static tutti_status gpt2_encode(const tutti_tokenizer *t, const char *text, size_t n_bytes,
                                const tti_token_sink *sink) {
    const gpt2_state *s = t->state;
    encoding e;
    e.t = t;
    e.text = text;
    e.n_bytes = n_bytes;
    e.out.sink = sink;
    e.out.n = 0;
    const tti_added_sink parts = {.take_token = take_token, .take_text = encode_text, .user = &e};
    TTI_TRY(tti_added_tokens_cut(&s->added, text, n_bytes, &parts));
    return flush(&e.out);
}

/* ---- making ---- */

static void gpt2_close(void *p) {
    gpt2_state *s = p;
    if (!s) return;
    free(s->table);
    free(s->merge);
    free(s->by_bytes);
    free(s->origin);
    tti_added_tokens_free(&s->added);
    free(s);
}

/* Tokens by their number; the same one twice must be the same text. */
static tutti_status place_tokens(const tti_gpt2_source *source, const tti_gpt2_token **place,
                                 int64_t n) {
    char clipped[TTI_CLIP];
    for (size_t i = 0; i < source->n_tokens; i++) {
        const tti_gpt2_token *token = &source->token[i];
        if (token->id < 0 || token->id >= n || token->text[0] == '\0')
            return tti_fail(TUTTI_E_DATA, "%s: token '%s' has the number %lld, not 0 .. %d",
                            source->path, tti_clip(clipped, token->text), (long long)token->id,
                            TTI_MAX_TOKENS - 1);
        const tti_gpt2_token *there = place[token->id];
        if (there && strcmp(there->text, token->text) != 0)
            return tti_fail(TUTTI_E_DATA, "%s: the number %lld is given to two tokens, one is '%s'",
                            source->path, (long long)token->id, tti_clip(clipped, token->text));
        if (!there) place[token->id] = token; /* the vocabulary comes first */
    }
    return TUTTI_OK;
}

static tutti_status make_pieces(const tti_gpt2_source *source, const tti_gpt2_token *const *place,
                                int64_t n, tutti_tokenizer *t) {
    size_t n_bytes = 0;
    gpt2_state *s = t->state;
    for (int64_t i = 0; i < n; i++) n_bytes += place[i] ? strlen(place[i]->text) : 0;
    TTI_TRY(tti_pieces_init(&t->pieces, (size_t)n, n_bytes));
    s->origin = calloc((size_t)n, 1);
    s->by_bytes = malloc((size_t)n * sizeof *s->by_bytes);
    if (!s->origin || !s->by_bytes)
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", source->path);
    uint32_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        size_t n_text = place[i] ? strlen(place[i]->text) : 0, n_piece = 0;
        char *to = t->pieces.bytes + at;
        if (place[i] && place[i]->added)
            s->origin[i] = ADDED;
        else if (place[i] && !to_bytes(place[i]->text, n_text, to, &n_piece))
            s->origin[i] = FOREIGN;
        if (s->origin[i] != LETTERS) memcpy(to, place[i]->text, n_piece = n_text);
        if (place[i] && s->origin[i] == LETTERS) s->by_bytes[s->n_by_bytes++] = (int32_t)i;
        t->pieces.start[i + 1] = at += (uint32_t)n_piece;
    }
    t->pieces.n = n;
    qsort_r(s->by_bytes, s->n_by_bytes, sizeof *s->by_bytes, by_bytes, &t->pieces);
    return TUTTI_OK;
}

static void clip_part(char out[TTI_CLIP], char *scratch, const char *text, size_t n_bytes) {
    memcpy(scratch, text, n_bytes);
    scratch[n_bytes] = '\0';
    tti_clip(out, scratch);
}

static tutti_status add_merge(tutti_tokenizer *t, const tti_gpt2_source *source, size_t i,
                              char *scratch) {
    gpt2_state *s = t->state;
    const tti_gpt2_merge *m = &source->merge[i];
    size_t n_left = 0, n_right = 0;
    int32_t left = -1, right = -1, both = -1;
    if (to_bytes(m->left, m->n_left, scratch, &n_left) &&
        to_bytes(m->right, m->n_right, scratch + n_left, &n_right) && n_left > 0 && n_right > 0) {
        left = find_token(t, scratch, n_left);
        right = find_token(t, scratch + n_left, n_right);
        both = find_token(t, scratch, n_left + n_right);
    }
    char a[TTI_CLIP], b[TTI_CLIP];
    if (left < 0 || right < 0 || both < 0) {
        clip_part(a, scratch, m->left, m->n_left);
        clip_part(b, scratch, m->right, m->n_right);
        return tti_fail(TUTTI_E_DATA, "%s: merge %zu, '%s' and '%s': %s is not in the vocabulary",
                        source->merges_path, i + 1, a, b,
                        left < 0    ? "the first"
                        : right < 0 ? "the second"
                                    : "the merged token");
    }
    pair *p = find_pair(s, key_of(left, right));
    if (p->rank == NO_RANK) *p = (pair){key_of(left, right), (int32_t)i, both};
    s->merge[i] = key_of(left, right);
    return TUTTI_OK;
}

static tutti_status make_merges(tutti_tokenizer *t, const tti_gpt2_source *source) {
    gpt2_state *s = t->state;
    size_t n_table = 16, longest = 0;
    while (n_table < 2 * source->n_merges) n_table *= 2;
    for (size_t i = 0; i < source->n_merges; i++)
        longest = TTI_MAX(longest, source->merge[i].n_left + source->merge[i].n_right);
    s->table = malloc(n_table * sizeof *s->table);
    s->merge = calloc(source->n_merges + 1, sizeof *s->merge);
    char *scratch = malloc(longest + 1);
    tutti_status st = TUTTI_OK;
    if (!s->table || !s->merge || !scratch)
        st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", source->merges_path);
    s->mask = n_table - 1;
    s->n_merges = source->n_merges;
    for (size_t i = 0; st == TUTTI_OK && i < n_table; i++)
        s->table[i] = (pair){UINT64_MAX, NO_RANK, -1};
    for (size_t i = 0; st == TUTTI_OK && i < source->n_merges; i++)
        st = add_merge(t, source, i, scratch);
    free(scratch);
    return st;
}

/* An added token that the vocabulary has, too, is the same token. */
static tutti_status check_added(const tutti_tokenizer *t, const tti_gpt2_source *source,
                                const tti_gpt2_token *token) {
    char clipped[TTI_CLIP], *bytes = malloc(strlen(token->text) + 1);
    size_t n = 0;
    if (!bytes) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", source->path);
    bool shown = to_bytes(token->text, strlen(token->text), bytes, &n);
    int32_t same = shown ? find_token(t, bytes, n) : -1;
    free(bytes);
    if (same < 0 || same == token->id) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: the added token '%s' has the number %lld, and the vocabulary gives it %d",
                    source->path, tti_clip(clipped, token->text), (long long)token->id, same);
}

static tutti_status make_added(tutti_tokenizer *t, const tti_gpt2_source *source) {
    gpt2_state *s = t->state;
    for (size_t i = 0; i < source->n_tokens; i++) {
        const tti_gpt2_token *token = &source->token[i];
        if (!token->added) continue;
        TTI_TRY(check_added(t, source, token));
        TTI_TRY(tti_added_tokens_add(&s->added,
                                     &(tti_added_token){.text = (char *)(uintptr_t)token->text,
                                                        .n_bytes = strlen(token->text),
                                                        .id = (int32_t)token->id,
                                                        .flags = token->flags}));
    }
    tti_added_tokens_sort(&s->added);
    return TUTTI_OK;
}

static tutti_status make(tutti_tokenizer *t, const tti_gpt2_source *source) {
    int64_t most = -1;
    for (size_t i = 0; i < source->n_tokens; i++) most = TTI_MAX(most, source->token[i].id);
    int64_t n = TTI_MIN(TTI_MAX(most, 0), TTI_MAX_TOKENS - 1) + 1;
    const tti_gpt2_token **place = calloc((size_t)n, sizeof *place);
    if (!place) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", source->path);
    tutti_status st = place_tokens(source, place, n);
    if (st == TUTTI_OK) st = make_pieces(source, place, n, t);
    free(place);
    if (st != TUTTI_OK) return st;
    gpt2_state *s = t->state;
    for (int i = 0; i < 256; i++) s->byte_token[i] = find_token(t, &(char){(char)i}, 1);
    s->whole = source->whole;
    s->ignore_merges = source->ignore_merges;
    TTI_TRY(make_added(t, source));
    const tti_added_token *end = tti_added_tokens_find(&s->added, END_TEXT);
    t->end = end ? end->id : find_token(t, END_TEXT, strlen(END_TEXT));
    return make_merges(t, source);
}

tutti_status tti_gpt2_make(tutti_tokenizer *t, const tti_gpt2_source *source) {
    t->state = calloc(1, sizeof(gpt2_state));
    if (!t->state) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", source->path);
    t->kind = &tti_tokenizer_gpt2;
    return make(t, source); /* the tokenizer owns the result */
}

/* ---- saving, as a tokenizer.json ---- */

static void add_letters(tti_str *out, const tti_pieces *p, int32_t token) {
    for (uint32_t i = p->start[token]; i < p->start[token + 1]; i++) {
        uint32_t letter = tti_gpt2_letter((uint8_t)p->bytes[i]);
        char two[2] = {(char)(0xC0 | letter >> 6), (char)(0x80 | (letter & 0x3F))};
        if (letter < 0x80)
            tti_str_add_bytes(out, &(char){(char)letter}, 1);
        else
            tti_str_add_bytes(out, two, 2);
    }
}

static void save_added_token(const tti_added_token *token, tti_json *j) {
    tti_json_object(j, NULL);
    tti_json_int(j, "id", token->id);
    tti_json_text(j, "content", token->text);
    tti_json_bool(j, "single_word", false);
    tti_json_bool(j, "lstrip", token->flags.lstrip);
    tti_json_bool(j, "rstrip", token->flags.rstrip);
    tti_json_bool(j, "normalized", token->flags.normalized);
    tti_json_bool(j, "special", token->flags.special);
    tti_json_end(j);
}

/* In numerical order, because other programs rely on it. */
static void save_added(const tutti_tokenizer *t, tti_json *j) {
    const gpt2_state *s = t->state;
    const tti_added_token **by_id = calloc((size_t)t->pieces.n + 1, sizeof *by_id);
    j->out->failed |= !by_id;
    for (size_t i = 0; by_id && i < s->added.n; i++)
        by_id[s->added.token[i].id] = &s->added.token[i];
    tti_json_array(j, "added_tokens");
    for (int64_t i = 0; by_id && i < t->pieces.n; i++)
        if (by_id[i]) save_added_token(by_id[i], j);
    tti_json_end(j);
    free(by_id);
}

static void save_model(const tutti_tokenizer *t, tti_json *j, tti_str *text) {
    const gpt2_state *s = t->state;
    tti_json_object(j, "model");
    tti_json_text(j, "type", "BPE");
    tti_json_bool(j, "ignore_merges", s->ignore_merges);
    tti_json_object(j, "vocab");
    for (int32_t i = 0; i < t->pieces.n; i++) {
        if (s->origin[i] == ADDED || piece_size(&t->pieces, i) == 0) continue;
        tti_str_clear(text);
        if (s->origin[i] == LETTERS)
            add_letters(text, &t->pieces, i);
        else
            tti_str_add_bytes(text, t->pieces.bytes + t->pieces.start[i],
                              piece_size(&t->pieces, i));
        tti_json_int(j, tti_str_text(text), i);
    }
    tti_json_end(j);
    tti_json_array(j, "merges");
    for (size_t i = 0; i < s->n_merges; i++) {
        tti_str_clear(text);
        add_letters(text, &t->pieces, (int32_t)(s->merge[i] >> 32));
        tti_str_add(text, " ");
        add_letters(text, &t->pieces, (int32_t)(uint32_t)s->merge[i]);
        tti_json_text(j, NULL, tti_str_text(text));
    }
    tti_json_end(j);
    tti_json_end(j);
}

void tti_tokenizer_save_byte_level(tti_json *j, const char *key, bool use_regex) {
    tti_json_object(j, key);
    tti_json_text(j, "type", "ByteLevel");
    tti_json_bool(j, "add_prefix_space", false);
    tti_json_bool(j, "trim_offsets", true);
    tti_json_bool(j, "use_regex", use_regex);
    tti_json_end(j);
}

static void gpt2_save(const tutti_tokenizer *t, tti_json *j) {
    const gpt2_state *s = t->state;
    tti_str text = {0};
    tti_json_text(j, "version", "1.0");
    save_added(t, j);
    tti_json_null(j, "normalizer");
    tti_tokenizer_save_byte_level(j, "pre_tokenizer", !s->whole);
    tti_json_null(j, "post_processor");
    tti_tokenizer_save_byte_level(j, "decoder", true);
    save_model(t, j, &text);
    j->out->failed |= text.failed;
    tti_str_free(&text);
}

static bool gpt2_equal(const tutti_tokenizer *a, const tutti_tokenizer *b) {
    const gpt2_state *x = a->state, *y = b->state;
    return x->whole == y->whole && x->ignore_merges == y->ignore_merges &&
           tti_added_tokens_equal(&x->added, &y->added) && x->n_merges == y->n_merges &&
           memcmp(x->merge, y->merge, x->n_merges * sizeof *x->merge) == 0;
}

const tti_tokenizer_kind tti_tokenizer_gpt2 = {
    .name = "gpt2",
    .doc = "byte pairs, from tokenizer.json or vocab.json and merges.txt",
    .encode = gpt2_encode,
    .save = gpt2_save,
    .equal = gpt2_equal,
    .close = gpt2_close,
};
