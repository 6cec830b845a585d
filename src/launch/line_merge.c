/* line_merge.c - a queue of lines that wait to be merged with equal lines of other ranks.
 *
 * Merging never reorders the lines of one rank.  So a rank joins a waiting line that is newer than
 * its own last line, or an older one that can move to the end of the queue because it is still the
 * last line of all its members.  Lines leave the queue in order of arrival, when all ranks have
 * joined or 100 ms have passed. */
#include "launch/line_merge.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"

enum {
    LINE_MAX_BYTES = 64 << 10,
    WAITING_MAX_BYTES = 1 << 20,
    WAITING_MAX = 1024,
    WINDOW_MS = 100
};

typedef struct line {
    struct line *next;
    uint64_t seq; /* 1, 2, ... in order of arrival */
    int64_t first_ns;
    int output, n_members;
    uint64_t *members; /* one bit per rank; stored after the struct, followed by the text */
    char *text;
    size_t n_bytes;
} line;

typedef struct source {
    tti_str partial;   /* bytes since the last newline */
    uint64_t last_seq; /* the newest line this rank is a member of */
    bool after_cr;
} source;

struct tti_line_merge {
    int n_ranks;
    size_t n_words; /* words of a member set */
    tti_line_fn emit;
    void *user;
    source *sources; /* [n_ranks][TTI_N_OUTPUTS] */
    line *head, **tail;
    uint64_t n_lines;
    size_t waiting_bytes, n_waiting;
    tti_str text; /* text of the line being emitted */
};

tutti_status tti_line_merge_create(int n_ranks, tti_line_fn emit, void *user,
                                   tti_line_merge **out) {
    *out = NULL;
    tti_line_merge *merge = calloc(1, sizeof *merge);
    source *sources = calloc((size_t)n_ranks * TTI_N_OUTPUTS, sizeof *sources);
    if (!merge || !sources) {
        free(merge);
        free(sources);
        return tti_fail(TUTTI_E_NOMEM, "launch: out of memory for the output of %d ranks", n_ranks);
    }
    *merge = (tti_line_merge){.n_ranks = n_ranks,
                              .n_words = ((size_t)n_ranks + 63) / 64,
                              .emit = emit,
                              .user = user,
                              .sources = sources,
                              .tail = &merge->head};
    *out = merge;
    return TUTTI_OK;
}

void tti_line_merge_destroy(tti_line_merge *merge) {
    if (!merge) return;
    for (line *l = merge->head, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    for (int i = 0; i < merge->n_ranks * TTI_N_OUTPUTS; i++)
        tti_str_free(&merge->sources[i].partial);
    free(merge->sources);
    tti_str_free(&merge->text);
    free(merge);
}

static bool is_member(const line *l, int rank) { return l->members[rank / 64] >> (rank % 64) & 1; }

static void add_member(line *l, int rank) {
    l->members[rank / 64] |= UINT64_C(1) << (rank % 64);
    l->n_members++;
}

/* Appends the ranks of the members, such as "0-3" or "0,2-3". */
static void add_ranks(tti_str *text, const line *l, int n_ranks) {
    const char *comma = "";
    for (int first = 0; first < n_ranks; first++) {
        if (!is_member(l, first)) continue;
        int last = first;
        while (last + 1 < n_ranks && is_member(l, last + 1)) last++;
        if (first == last) tti_str_printf(text, "%s%d", comma, first);
        if (first != last) tti_str_printf(text, "%s%d-%d", comma, first, last);
        comma = ",";
        first = last;
    }
}

static void give_head(tti_line_merge *merge) {
    line *l = merge->head;
    merge->head = l->next;
    if (!merge->head) merge->tail = &merge->head;
    merge->waiting_bytes -= l->n_bytes;
    merge->n_waiting--;
    tti_str_clear(&merge->text);
    if (merge->n_ranks > 1) {
        tti_str_add(&merge->text, "[rank ");
        add_ranks(&merge->text, l, merge->n_ranks);
        tti_str_add(&merge->text, "] ");
    }
    tti_str_add_bytes(&merge->text, l->text, l->n_bytes);
    tti_str_add(&merge->text, "\n");
    merge->emit(merge->user, l->output, tti_str_text(&merge->text), merge->text.n_bytes);
    free(l);
}

static void give_due(tti_line_merge *merge, int64_t now_ns) {
    while (merge->head) {
        const line *l = merge->head;
        bool due = l->n_members == merge->n_ranks || merge->waiting_bytes > WAITING_MAX_BYTES ||
                   merge->n_waiting > WAITING_MAX ||
                   now_ns - l->first_ns >= WINDOW_MS * TTI_NS_PER_MS;
        if (!due) return;
        give_head(merge);
    }
}

/* True if no member of l has written a newer line to this output. */
static bool is_last_of_members(const tti_line_merge *merge, const line *l) {
    for (int r = 0; r < merge->n_ranks; r++)
        if (is_member(l, r) && merge->sources[r * TTI_N_OUTPUTS + l->output].last_seq != l->seq)
            return false;
    return true;
}

static void put_last(tti_line_merge *merge, line *l) {
    l->next = NULL;
    l->seq = ++merge->n_lines;
    *merge->tail = l;
    merge->tail = &l->next;
}

static void move_last(tti_line_merge *merge, line **link) {
    line *l = *link;
    if (!l->next) return;
    *link = l->next;
    put_last(merge, l);
    for (int r = 0; r < merge->n_ranks; r++)
        if (is_member(l, r)) merge->sources[r * TTI_N_OUTPUTS + l->output].last_seq = l->seq;
}

/* Finds a waiting line with this text that a source may join; NULL: none. */
static line *find_same(tti_line_merge *merge, int rank, int output, const char *text,
                       size_t n_bytes) {
    const source *src = &merge->sources[rank * TTI_N_OUTPUTS + output];
    for (line **link = &merge->head, *l; (l = *link); link = &l->next) {
        if (l->output != output || l->n_bytes != n_bytes || is_member(l, rank) ||
            memcmp(l->text, text, n_bytes) != 0)
            continue;
        if (l->seq > src->last_seq) return l;
        if (!is_last_of_members(merge, l)) continue;
        move_last(merge, link);
        return l;
    }
    return NULL;
}

static line *append_line(tti_line_merge *merge, int output, const char *text, size_t n_bytes,
                         int64_t now_ns) {
    size_t set_bytes = merge->n_words * sizeof(uint64_t);
    line *l = calloc(1, sizeof *l + set_bytes + n_bytes + 1);
    if (!l) return NULL; /* out of memory: the line is lost */
    l->first_ns = now_ns;
    l->output = output;
    l->members = (uint64_t *)(l + 1);
    l->text = (char *)l->members + set_bytes;
    l->n_bytes = n_bytes;
    memcpy(l->text, text, n_bytes);
    put_last(merge, l);
    merge->waiting_bytes += n_bytes;
    merge->n_waiting++;
    return l;
}

/* Completes the partial line of a source. */
static void end_line(tti_line_merge *merge, int rank, int output, int64_t now_ns) {
    source *src = &merge->sources[rank * TTI_N_OUTPUTS + output];
    const char *text = tti_str_text(&src->partial);
    size_t n_bytes = src->partial.n_bytes;
    line *l = find_same(merge, rank, output, text, n_bytes);
    if (!l) l = append_line(merge, output, text, n_bytes, now_ns);
    tti_str_clear(&src->partial);
    src->after_cr = false;
    if (!l) return;
    add_member(l, rank);
    src->last_seq = l->seq;
    give_due(merge, now_ns);
}

/* Adds bytes without newline and carriage return. */
static void add_piece(tti_line_merge *merge, int rank, int output, const char *bytes,
                      size_t n_bytes, int64_t now_ns) {
    source *src = &merge->sources[rank * TTI_N_OUTPUTS + output];
    if (n_bytes > 0 && src->after_cr) {
        tti_str_clear(&src->partial);
        src->after_cr = false;
    }
    while (n_bytes > 0) {
        size_t n = TTI_MIN(n_bytes, LINE_MAX_BYTES - src->partial.n_bytes);
        tti_str_add_bytes(&src->partial, bytes, n);
        bytes += n;
        n_bytes -= n;
        if (src->partial.n_bytes >= LINE_MAX_BYTES || src->partial.failed)
            end_line(merge, rank, output, now_ns);
        if (src->partial.failed) return;
    }
}

void tti_line_merge_feed(tti_line_merge *merge, int rank, int output, const char *bytes,
                         size_t n_bytes, int64_t now_ns) {
    source *src = &merge->sources[rank * TTI_N_OUTPUTS + output];
    while (n_bytes > 0) {
        size_t n = 0;
        while (n < n_bytes && bytes[n] != '\n' && bytes[n] != '\r') n++;
        add_piece(merge, rank, output, bytes, n, now_ns);
        if (n == n_bytes) return;
        if (bytes[n] == '\n')
            end_line(merge, rank, output, now_ns);
        else
            src->after_cr = true;
        bytes += n + 1;
        n_bytes -= n + 1;
    }
}

void tti_line_merge_end(tti_line_merge *merge, int rank, int output, int64_t now_ns) {
    if (merge->sources[rank * TTI_N_OUTPUTS + output].partial.n_bytes > 0)
        end_line(merge, rank, output, now_ns);
}

int64_t tti_line_merge_deadline_ns(const tti_line_merge *merge) {
    return merge->head ? merge->head->first_ns + WINDOW_MS * TTI_NS_PER_MS : INT64_MAX;
}

void tti_line_merge_tick(tti_line_merge *merge, int64_t now_ns) { give_due(merge, now_ns); }
