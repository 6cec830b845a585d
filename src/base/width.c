/* width.c - the ranges of Unicode that matter for tables; the C library's own would depend on the
 * locale. */
#include "base/width.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

typedef struct range {
    uint32_t first, last;
} range;

/* Marks on the character before, joiners and selectors. */
static const range no_columns[] = {
    {0x300, 0x36f},   {0x483, 0x489},     {0x591, 0x5bd},    {0x610, 0x61a},   {0x64b, 0x65f},
    {0x900, 0x902},   {0x93c, 0x93c},     {0x941, 0x948},    {0x94d, 0x94d},   {0xe31, 0xe31},
    {0xe34, 0xe3a},   {0xe47, 0xe4e},     {0x1160, 0x11ff},  {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff},
    {0x200b, 0x200f}, {0x20d0, 0x20ff},   {0x302a, 0x302d},  {0x3099, 0x309a}, {0xfe00, 0xfe0f},
    {0xfe20, 0xfe2f}, {0x1f3fb, 0x1f3ff}, {0xe0100, 0xe01ef}};

static const range two_columns[] = {
    {0x1100, 0x115f},   {0x231a, 0x231b},   {0x23e9, 0x23ec},   {0x25fd, 0x25fe},
    {0x2614, 0x2615},   {0x2648, 0x2653},   {0x267f, 0x267f},   {0x2693, 0x2693},
    {0x26a1, 0x26a1},   {0x26bd, 0x26be},   {0x26c4, 0x26c5},   {0x26d4, 0x26d4},
    {0x26ea, 0x26ea},   {0x26f2, 0x26f5},   {0x2705, 0x2705},   {0x270a, 0x270b},
    {0x2728, 0x2728},   {0x274c, 0x274e},   {0x2753, 0x2757},   {0x2795, 0x2797},
    {0x2b1b, 0x2b1c},   {0x2b50, 0x2b50},   {0x2e80, 0x303e},   {0x3041, 0x4dbf},
    {0x4e00, 0xa4cf},   {0xa960, 0xa97f},   {0xac00, 0xd7a3},   {0xf900, 0xfaff},
    {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},   {0x1f300, 0x1f64f},
    {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd}};

static bool is_in(const range *ranges, size_t n, uint32_t c) {
    for (size_t i = 0; i < n; i++)
        if (c >= ranges[i].first && c <= ranges[i].last) return true;
    return false;
}

static int width_of(uint32_t c) {
    if (is_in(no_columns, TTI_COUNT(no_columns), c)) return 0;
    return is_in(two_columns, TTI_COUNT(two_columns), c) ? 2 : 1;
}

/* Bytes at the start of text that take at most n_columns; *width: how many they take. */
static size_t fit(const char *text, int n_columns, int *width) {
    size_t n_bytes = strlen(text), at = 0;
    *width = 0;
    while (at < n_bytes) {
        uint32_t c = 0;
        size_t n = tti_utf8_decode(text + at, n_bytes - at, &c);
        int more = n ? width_of(c) : 1;
        if (more > n_columns - *width) break;
        *width += more;
        at += n ? n : 1;
    }
    return at;
}

int tti_text_width(const char *text) {
    int width;
    fit(text, 1 << 30, &width);
    return width;
}

void tti_str_add_column(tti_str *out, const char *text, int n_columns) {
    int width, room = abs(n_columns);
    size_t n_bytes = fit(text, room, &width);
    if (n_columns < 0) tti_str_printf(out, "%*s", room - width, "");
    tti_str_add_bytes(out, text, n_bytes);
    if (n_columns > 0) tti_str_printf(out, "%*s", room - width, "");
}
