/* csv_value.c - parses the cells of a table. */
#include "data/table/csv_value.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

enum { MAX_NUMBER = 64 };

static bool is_one_of(const char *cell, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(cell, words[i]) == 0) return true;
    return false;
}

bool tti_value_is_missing(const char *cell) {
    static const char *const words[] = {"", "na", "n/a", "nan", "null", "none", "?"};
    return is_one_of(cell, words, TTI_COUNT(words));
}

bool tti_value_number(const char *cell, bool decimal_comma, double *out) {
    char text[MAX_NUMBER];
    char *comma = decimal_comma ? strchr(cell, ',') : NULL;
    if (!comma) return tti_parse_double(cell, out) == TTI_NUMBER_OK && isfinite(*out);
    if (strlen(cell) >= sizeof text || strchr(cell, '.')) return false;
    snprintf(text, sizeof text, "%s", cell);
    text[comma - cell] = '.';
    return tti_parse_double(text, out) == TTI_NUMBER_OK && isfinite(*out);
}

/* Bytes of a character at text that divides thousands: a comma, an apostrophe, a no-break blank; 0:
 * it is none. */
static size_t divider_at(const char *text) {
    static const char *const dividers[] = {
        ",", "'", "\xC2\xA0", "\xE2\x80\x89", "\xE2\x80\x99", "\xE2\x80\xAF"};
    for (size_t i = 0; i < TTI_COUNT(dividers); i++)
        if (strncmp(text, dividers[i], strlen(dividers[i])) == 0) return strlen(dividers[i]);
    return 0;
}

/* 1,234,567.5, also with other dividers than commas, or a minus sign that is no hyphen.  A comma
 * may stand anywhere, other dividers before three digits. */
static bool has_other_signs(const char *cell) {
    static const char minus[] = "\xE2\x88\x92";
    char text[MAX_NUMBER];
    size_t n = 0;
    double x;
    bool any = strncmp(cell, minus, sizeof minus - 1) == 0;
    if (any) cell += sizeof minus - 1;
    while (*cell && n + 1 < sizeof text) {
        size_t n_bytes = n > 0 ? divider_at(cell) : 0;
        if (n_bytes > 0 && *cell != ',' && strspn(cell + n_bytes, "0123456789") != 3) return false;
        any |= n_bytes > 0;
        cell += n_bytes;
        if (n_bytes == 0 && !strchr("+-.0123456789eE", *cell)) return false; /* a text, mostly */
        if (n_bytes == 0) text[n++] = *cell++;
    }
    text[n] = '\0';
    return any && !*cell && tti_parse_double(text, &x) == TTI_NUMBER_OK;
}

bool tti_value_has_points_of_thousands(const char *cell) {
    if (*cell == '+' || *cell == '-') cell++;
    size_t n = strspn(cell, "0123456789");
    if (n < 1 || n > 3 || cell[n] != '.') return false;
    for (cell += n; *cell == '.'; cell += 4)
        if (strspn(cell + 1, "0123456789") < 3) return false;
    return !*cell;
}

char *tti_value_text(char out[TTI_NUMBER_TEXT], double x) {
    if (x != nearbyint(x) || fabs(x) >= 1e15) return tti_format_double(out, x);
    snprintf(out, TTI_NUMBER_TEXT, "%.0f", x + 0.0); /* no -0 */
    return out;
}

bool tti_value_is_odd_number(const char *cell) {
    static const char *const words[] = {"inf",      "-inf",      "+inf",
                                        "infinity", "-infinity", "+infinity"};
    double x;
    return is_one_of(cell, words, TTI_COUNT(words)) || has_other_signs(cell) ||
           tti_parse_double(cell, &x) == TTI_NUMBER_RANGE || tti_value_is_tiny(cell);
}

bool tti_value_is_tiny(const char *cell) {
    char text[MAX_NUMBER];
    double x;
    size_t n_bytes = strspn(cell, "+-.,0123456789eE");
    if (cell[n_bytes] || n_bytes >= sizeof text) return false;
    memcpy(text, cell, n_bytes + 1);
    char *comma = strchr(text, ',');
    if (comma) *comma = '.';
    return tti_parse_double(text, &x) == TTI_NUMBER_TINY;
}

bool tti_value_boolean(const char *cell, bool *out) {
    static const char *const yes[] = {"true", "yes", "t"}, *const no[] = {"false", "no", "f"};
    *out = is_one_of(cell, yes, TTI_COUNT(yes));
    return *out || is_one_of(cell, no, TTI_COUNT(no));
}

/* ---- dates ---- */

/* Exactly n digits at *at. */
static bool take_digits(const char **at, int n, int *out) {
    *out = 0;
    for (int i = 0; i < n; i++, ++*at) {
        if (!isdigit((unsigned char)**at)) return false;
        *out = 10 * *out + (**at - '0');
    }
    return true;
}

static bool take_char(const char **at, char c) {
    if (**at != c) return false;
    ++*at;
    return true;
}

/* Days since 1970-01-01 in the Gregorian calendar. */
static double days_of(int year, int month, int day) {
    int y = month <= 2 ? year - 1 : year, era = (y >= 0 ? y : y - 399) / 400,
        of_era = y - era * 400;
    int of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return (double)era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int days_in_month(int year, int month) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (leap && month == 2);
}

static bool take_day(const char **at, double *seconds) {
    int year, month, day;
    bool good = take_digits(at, 4, &year) && take_char(at, '-') && take_digits(at, 2, &month) &&
                take_char(at, '-') && take_digits(at, 2, &day);
    if (!good || month < 1 || month > 12 || day < 1 || day > days_in_month(year, month))
        return false;
    *seconds = days_of(year, month, day) * 86400;
    return true;
}

static bool take_time(const char **at, double *seconds) {
    int hour, minute, second = 0;
    double fraction = 0, unit = 0.1;
    if (!take_digits(at, 2, &hour) || !take_char(at, ':') || !take_digits(at, 2, &minute))
        return false;
    if (take_char(at, ':')) {
        if (!take_digits(at, 2, &second)) return false;
        if (take_char(at, '.'))
            for (; isdigit((unsigned char)**at); ++*at, unit /= 10) fraction += unit * (**at - '0');
    }
    *seconds += hour * 3600.0 + minute * 60.0 + second + fraction;
    return hour < 24 && minute < 60 && second <= 60;
}

static bool take_zone(const char **at, double *seconds) {
    int hour, minute = 0, sign = **at == '-' ? 1 : -1;
    if (take_char(at, 'Z') || !**at) return true;
    if (!take_char(at, '+') && !take_char(at, '-')) return false;
    if (!take_digits(at, 2, &hour)) return false;
    bool colon = take_char(at, ':');
    if ((colon || **at) && !take_digits(at, 2, &minute)) return false;
    *seconds += sign * (hour * 3600.0 + minute * 60.0);
    return hour < 24 && minute < 60;
}

bool tti_value_date(const char *cell, double *out) {
    const char *at = cell;
    if (!take_day(&at, out)) return false;
    if (!*at) return true;
    return (take_char(&at, 'T') || take_char(&at, ' ')) && take_time(&at, out) &&
           take_zone(&at, out) && !*at;
}
