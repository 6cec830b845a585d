/* number.c - numbers as text and back.
 *
 * strtod and printf follow the decimal point of the program's locale, and the library may live in
 * a program that has set one.  So the form of a number is checked by hand, and the conversion runs
 * in the C locale, which newlocale hands out without allocating. */
#include "base/number.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static locale_t c_locale(void) { return newlocale(LC_ALL_MASK, "C", (locale_t)0); }

static const char *skip_digits(const char *p) {
    while (*p >= '0' && *p <= '9') p++;
    return p;
}

static const char *skip_sign(const char *p) { return *p == '-' || *p == '+' ? p + 1 : p; }

tti_number tti_parse_int(const char *text, int64_t *out) {
    const char *digits = skip_sign(text);
    const char *end = skip_digits(digits);
    if (end == digits || *end) return TTI_NUMBER_MALFORMED;
    if (digits[0] == '0' && digits[1]) return TTI_NUMBER_MALFORMED; /* 010: octal to some */
    errno = 0;
    intmax_t x = strtoimax(text, NULL, 10);
    if (errno == ERANGE || x < INT64_MIN || x > INT64_MAX) return TTI_NUMBER_RANGE;
    *out = (int64_t)x;
    return TTI_NUMBER_OK;
}

/* The end of a decimal number, NULL if text does not start with one. */
static const char *number_end(const char *text) {
    const char *start = skip_sign(text);
    const char *p = skip_digits(start);
    size_t n_digits = (size_t)(p - start);
    if (*p == '.') {
        const char *end = skip_digits(p + 1);
        n_digits += (size_t)(end - (p + 1));
        p = end;
    }
    if (n_digits == 0) return NULL;
    if (*p == 'e' || *p == 'E') {
        const char *exponent = skip_sign(p + 1);
        p = skip_digits(exponent);
        if (p == exponent) return NULL;
    }
    return p;
}

/* Whether the number at text has a digit other than 0 before its exponent. */
static bool is_other_than_zero(const char *text) {
    text = skip_sign(text);
    return strchr("123456789", text[strspn(text, "0.")]) && text[strspn(text, "0.")];
}

/* Also in a thread that computes with denormal numbers as with 0, where a comparison cannot tell.
 */
static bool is_zero(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits << 1 == 0;
}

/* text is known to start with a number. */
static tti_number convert(const char *text, double *out) {
    locale_t c = c_locale();
    double x = strtod_l(text, NULL, c);
    freelocale(c);
    if (!isfinite(x)) return TTI_NUMBER_RANGE;
    if (is_zero(x) && is_other_than_zero(text)) return TTI_NUMBER_TINY;
    *out = x;
    return TTI_NUMBER_OK;
}

tti_number tti_parse_double(const char *text, double *out) {
    const char *end = number_end(text);
    if (!end || *end) return TTI_NUMBER_MALFORMED;
    return convert(text, out);
}

tti_number tti_parse_float(const char *text, double *out) {
    double x;
    tti_number form = tti_parse_double(text, &x);
    if (form != TTI_NUMBER_OK) return form;
    if (fabs(x) > (double)FLT_MAX) return TTI_NUMBER_RANGE;
    if (!is_zero(x) && fabs(x) < (double)FLT_MIN) return TTI_NUMBER_TINY;
    *out = x;
    return TTI_NUMBER_OK;
}

tti_number tti_parse_bytes(const char *text, int64_t *out) {
    static const struct {
        const char *text;
        double factor;
    } units[] = {{"", 1},        {"B", 1},        {"k", 1e3},     {"kB", 1e3},    {"M", 1e6},
                 {"MB", 1e6},    {"G", 1e9},      {"GB", 1e9},    {"Ki", 0x1p10}, {"KiB", 0x1p10},
                 {"Mi", 0x1p20}, {"MiB", 0x1p20}, {"Gi", 0x1p30}, {"GiB", 0x1p30}};
    const char *end = number_end(text);
    if (!end) return TTI_NUMBER_MALFORMED;
    const char *unit = *end == ' ' ? end + 1 : end;
    for (size_t i = 0; i < TTI_COUNT(units); i++) {
        if (strcmp(unit, units[i].text)) continue;
        if (units[i].factor == 1 && !*unit) return tti_parse_int(text, out);
        double x;
        tti_number form = convert(text, &x);
        if (form != TTI_NUMBER_OK) return form;
        if (!is_zero(x) && rint(x * units[i].factor) == 0) return TTI_NUMBER_TINY;
        x = rint(x * units[i].factor);
        if (!(fabs(x) < 0x1p63)) return TTI_NUMBER_RANGE;
        *out = (int64_t)x;
        return TTI_NUMBER_OK;
    }
    return TTI_NUMBER_MALFORMED;
}

/* Tries n_digits[0 .. n) until the text reads back to x. */
static char *format(char *text, double x, bool single, const int *n_digits, size_t n) {
    locale_t c = c_locale();
    locale_t before = uselocale(c);
    for (size_t i = 0; i < n; i++) {
        snprintf(text, TTI_NUMBER_TEXT, "%.*g", n_digits[i], x);
        bool same = single ? strtof(text, NULL) == (float)x : strtod(text, NULL) == x;
        if (same) break;
    }
    uselocale(before);
    freelocale(c);
    return text;
}

char *tti_format_double(char text[TTI_NUMBER_TEXT], double x) {
    if (isnan(x)) return strcpy(text, "nan");
    return format(text, x, false, (const int[]){9, 15, 16, 17}, 4);
}

char *tti_format_float(char text[TTI_NUMBER_TEXT], float x) {
    if (isnan(x)) return strcpy(text, "nan");
    return format(text, (double)x, true, (const int[]){6, 7, 8, 9}, 4);
}
