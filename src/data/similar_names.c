/* similar_names.c - finds classes whose names differ so little that they may be meant as one.
 *
 * Folders that were merged from several computers have "Cat" and "cat", or an accented letter once
 * as one character and once as a letter with a combining mark, which look the same on a screen.
 * Names are compared without case, accents and special blanks.  Letters outside Latin, Greek,
 * Cyrillic and Korean are compared as they are. */
#include "data/similar_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/problem.h"
#include "base/utf8.h"

/* Letters with an accent, by their base letter. */
static const struct {
    uint16_t first, last;
    char letter;
} accented[] = {
    {0xC0, 0xC5, 'a'},     {0xC7, 0xC7, 'c'},     {0xC8, 0xCB, 'e'},     {0xCC, 0xCF, 'i'},
    {0xD1, 0xD1, 'n'},     {0xD2, 0xD6, 'o'},     {0xD8, 0xD8, 'o'},     {0xD9, 0xDC, 'u'},
    {0xDD, 0xDD, 'y'},     {0xE0, 0xE5, 'a'},     {0xE7, 0xE7, 'c'},     {0xE8, 0xEB, 'e'},
    {0xEC, 0xEF, 'i'},     {0xF1, 0xF1, 'n'},     {0xF2, 0xF6, 'o'},     {0xF8, 0xF8, 'o'},
    {0xF9, 0xFC, 'u'},     {0xFD, 0xFD, 'y'},     {0xFF, 0xFF, 'y'},     {0x100, 0x105, 'a'},
    {0x106, 0x10D, 'c'},   {0x10E, 0x111, 'd'},   {0x112, 0x11B, 'e'},   {0x11C, 0x123, 'g'},
    {0x124, 0x127, 'h'},   {0x128, 0x131, 'i'},   {0x134, 0x135, 'j'},   {0x136, 0x138, 'k'},
    {0x139, 0x142, 'l'},   {0x143, 0x14B, 'n'},   {0x14C, 0x151, 'o'},   {0x154, 0x159, 'r'},
    {0x15A, 0x161, 's'},   {0x162, 0x167, 't'},   {0x168, 0x173, 'u'},   {0x174, 0x175, 'w'},
    {0x176, 0x178, 'y'},   {0x179, 0x17E, 'z'},   {0x1A0, 0x1A1, 'o'},   {0x1AF, 0x1B0, 'u'},
    {0x1EA0, 0x1EB7, 'a'}, {0x1EB8, 0x1EC7, 'e'}, {0x1EC8, 0x1ECB, 'i'}, {0x1ECC, 0x1EE3, 'o'},
    {0x1EE4, 0x1EF1, 'u'}, {0x1EF2, 0x1EF9, 'y'},
};

static bool is_mark(uint32_t c) { return (c >= 0x300 && c <= 0x36F) || c == 0x200B || c == 0xFEFF; }

static bool is_blank(uint32_t c) {
    return c == ' ' || c == '\t' || c == 0xA0 || (c >= 0x2000 && c <= 0x200A) || c == 0x202F ||
           c == 0x3000;
}

/* A Korean syllable is one character, or two or three letters. */
enum { SYLLABLE = 0xAC00, N_SYLLABLES = 11172, N_VOWELS = 21, N_FINALS = 28 };
enum { INITIAL = 0x1100, VOWEL = 0x1161, FINAL = 0x11A7 };

static size_t split_syllable(uint32_t c, uint32_t *out) {
    uint32_t k = c - SYLLABLE, final = k % N_FINALS;
    out[0] = INITIAL + k / (N_VOWELS * N_FINALS);
    out[1] = VOWEL + k / N_FINALS % N_VOWELS;
    out[2] = FINAL + final;
    return final ? 3 : 2;
}

static uint32_t base_letter(uint32_t c) {
    for (size_t i = 0; i < TTI_COUNT(accented); i++)
        if (c >= accented[i].first && c <= accented[i].last) return (uint32_t)accented[i].letter;
    bool upper = (c >= 'A' && c <= 'Z') || (c >= 0xC0 && c <= 0xDE && c != 0xD7) ||
                 (c >= 0x391 && c <= 0x3A9) || (c >= 0x410 && c <= 0x42F);
    return upper ? c + 32 : c >= 0x400 && c <= 0x40F ? c + 80 : c;
}

/* The characters of a name as they are compared, ended by 0; out has room for 3 for each byte. */
static void fold(const char *name, uint32_t *out) {
    size_t n = 0, n_bytes = strlen(name);
    for (size_t at = 0, step; at < n_bytes; at += step) {
        uint32_t c = (uint8_t)name[at];
        step = tti_utf8_decode(name + at, n_bytes - at, &c);
        if (step == 0) step = 1;
        if (is_mark(c) || (is_blank(c) && (n == 0 || out[n - 1] == ' '))) continue;
        if (c - SYLLABLE < N_SYLLABLES)
            n += split_syllable(c, out + n);
        else
            out[n++] = is_blank(c) ? ' ' : base_letter(c);
    }
    while (n > 0 && out[n - 1] == ' ') n--;
    out[n] = 0;
}

typedef struct folded {
    uint32_t *text;
    const char *name;
} folded;

static int compare(const uint32_t *x, const uint32_t *y) {
    while (*x && *x == *y) x++, y++;
    return (*x > *y) - (*x < *y);
}

static int by_text(const void *a, const void *b) {
    const folded *x = a, *y = b;
    int order = compare(x->text, y->text);
    return order ? order : strcmp(x->name, y->name);
}

static void report(const folded *list, int64_t n, tti_str *out) {
    char first[TTI_CLIP], second[TTI_CLIP];
    int64_t n_pairs = 0;
    for (int64_t i = 1; i < n; i++)
        if (compare(list[i - 1].text, list[i].text) == 0 && n_pairs++ == 0) {
            tti_clip(first, list[i - 1].name);
            tti_clip(second, list[i].name);
        }
    if (n_pairs == 0) return;
    tti_str_printf(out, "the classes '%s' and '%s'", first, second);
    if (n_pairs > 1)
        tti_str_printf(out, " (and %lld more pair%s)", (long long)n_pairs - 1,
                       n_pairs > 2 ? "s" : "");
    tti_str_add(out,
                " differ only in case, accents, blanks or the Unicode form of letters; if "
                "they are the same class, give them one name\n");
}

void tti_note_similar_names(const char *const *names, int64_t n, tti_str *out) {
    size_t n_chars = 0, at = 0;
    for (int64_t i = 0; i < n; i++) n_chars += 3 * strlen(names[i]) + 1;
    folded *list = malloc(((size_t)n + 1) * sizeof *list);
    uint32_t *text = malloc((n_chars + 1) * sizeof *text);
    for (int64_t i = 0; i < n && list && text; i++) {
        list[i] = (folded){text + at, names[i]};
        fold(names[i], list[i].text);
        at += 3 * strlen(names[i]) + 1;
    }
    if (list && text) { /* without memory the note is left out */
        qsort(list, (size_t)n, sizeof *list, by_text);
        report(list, n, out);
    }
    free(list);
    free(text);
}

bool tti_names_look_alike(const char *a, const char *b) {
    size_t n_a = 3 * strlen(a) + 1;
    uint32_t *text = malloc((n_a + 3 * strlen(b) + 1) * sizeof *text);
    if (!text) return false;
    fold(a, text);
    fold(b, text + n_a);
    bool same = compare(text, text + n_a) == 0;
    free(text);
    return same;
}
