/* csv_value.c - parses the cells of a table. */
#include "data/table/csv_value.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

#define MAX_EXACT 9007199254740992.0 /* 2^53 */

enum { MAX_NUMBER = 64 };

static bool is_one_of(const char *cell, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(cell, words[i]) == 0) return true;
    return false;
}

bool tti_value_is_missing(const char *cell) {
    static const char *const words[] = {
        "",     "na",  "n/a",  "nan",      "-nan",   "null",    "none",    "?",
        "#n/a", "#na", "<na>", "#n/a n/a", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"};
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

/* Bytes of the word that text starts with; 0: none of them. */
static size_t starts_with(const char *text, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strncmp(text, words[i], strlen(words[i])) == 0) return strlen(words[i]);
    return 0;
}

/* Bytes of a character at text that divides thousands: a comma, an apostrophe, a no-break blank; 0:
 * it is none. */
static size_t divider_at(const char *text) {
    static const char *const dividers[] = {
        ",", "'", "\xC2\xA0", "\xE2\x80\x89", "\xE2\x80\x99", "\xE2\x80\xAF"};
    return starts_with(text, dividers, TTI_COUNT(dividers));
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

/* Bytes of a currency sign, a percent sign, a blank, a quote or a parenthesis at text; 0: none. */
static size_t mark_at(const char *text) {
    static const char *const marks[] = {"$",
                                        "%",
                                        "(",
                                        ")",
                                        "'",
                                        " ",
                                        "\xC2\xA0",
                                        "\xE2\x80\xAF", /* blanks */
                                        "\xC2\xA3",
                                        "\xC2\xA5",
                                        "\xE2\x82\xA9",
                                        "\xE2\x82\xAC", /* pound yen won euro */
                                        "\xE2\x82\xB9",
                                        "\xE2\x82\xBD",
                                        "\xE2\x80\xB0"}; /* rupee rouble per mille */
    return starts_with(text, marks, TTI_COUNT(marks));
}

/* Bytes of what divides thousands at text, between digits. */
static size_t group_at(const char *text) {
    static const char *const dividers[] = {" ", "_"};
    size_t n_bytes = divider_at(text);
    if (n_bytes == 0) n_bytes = starts_with(text, dividers, TTI_COUNT(dividers));
    bool divides = n_bytes > 0 && strspn(text + n_bytes, "0123456789") == 3;
    return divides || *text == ',' ? n_bytes : 0;
}

bool tti_value_has_marks(const char *cell) {
    char text[MAX_NUMBER];
    size_t n = 0, n_bytes;
    bool any = false, closed = false;
    double x;
    while (*cell && n + 1 < sizeof text) {
        bool after_digit = n > 0 && isdigit((unsigned char)text[n - 1]);
        if (after_digit && !closed && (n_bytes = group_at(cell)) > 0) {
            any = true;
        } else if ((n_bytes = mark_at(cell)) > 0) {
            any = true;
            closed = closed || after_digit;
        } else if (closed || !strchr("+-.0123456789", *cell)) {
            return false;
        } else {
            text[n++] = *cell;
            n_bytes = 1;
        }
        cell += n_bytes;
    }
    text[n] = '\0';
    return any && !*cell && tti_parse_double(text, &x) == TTI_NUMBER_OK;
}

bool tti_value_is_rounded(const char *cell) {
    double x;
    size_t n_sign = *cell == '+' || *cell == '-';
    if (cell[n_sign + strspn(cell + n_sign, "0123456789")]) return false;
    return tti_parse_double(cell, &x) == TTI_NUMBER_OK && fabs(x) >= MAX_EXACT;
}

const char *tti_value_unit(const char *cell) {
    char text[MAX_NUMBER];
    double x;
    size_t n = strspn(cell, "+-.,0123456789");
    if (n == 0 || n >= sizeof text) return NULL;
    memcpy(text, cell, n);
    text[n] = '\0';
    bool good = tti_value_number(text, strchr(text, ',') != NULL, &x);
    return good && cell[n] && !strpbrk(cell + n, "0123456789") ? cell + n : NULL;
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

/* 1.234.567: one point alone may be that of a number. */
static bool has_several_points(const char *cell) {
    const char *point = strchr(cell, '.');
    return point && strchr(point + 1, '.') && tti_value_has_points_of_thousands(cell);
}

bool tti_value_begins_with_number(const char *cell) {
    size_t n_code = strspn(cell, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"); /* USD 5 */
    if (n_code == 3) cell += n_code + strspn(cell + n_code, " ");
    if (*cell == '+' || *cell == '-') cell++;
    if (*cell == '.') cell++;
    return isdigit((unsigned char)*cell) != 0;
}

bool tti_value_is_odd_number(const char *cell) {
    static const char *const words[] = {"inf",      "-inf",      "+inf",
                                        "infinity", "-infinity", "+infinity"};
    double x;
    return is_one_of(cell, words, TTI_COUNT(words)) || has_other_signs(cell) ||
           has_several_points(cell) || tti_parse_double(cell, &x) == TTI_NUMBER_RANGE ||
           tti_value_is_tiny(cell);
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

/* 2024-02-29, 2024/02/29 */
static bool take_day(const char **at, double *seconds) {
    int year, month, day;
    if (!take_digits(at, 4, &year)) return false;
    char separator = **at == '/' ? '/' : '-';
    bool good = take_char(at, separator) && take_digits(at, 2, &month) &&
                take_char(at, separator) && take_digits(at, 2, &day);
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
    int hour, minute = 0;
    if (!**at) return true;
    take_char(at, ' ');
    if (strcmp(*at, "Z") == 0 || strcmp(*at, "UTC") == 0 || strcmp(*at, "GMT") == 0) {
        *at += strlen(*at);
        return true;
    }
    int sign = **at == '-' ? 1 : -1;
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

/* Takes 1 to 4 digits, or the name of a month: 3 to 9 letters.  Returns the number of digits, 0 for
 * a name, -1 if neither is there. */
static int take_part(const char **at) {
    int n_digits = 0, n_letters = 0;
    while (isdigit((unsigned char)**at)) ++*at, n_digits++;
    if (n_digits > 0) return n_digits <= 4 ? n_digits : -1;
    while (isalpha((unsigned char)**at)) ++*at, n_letters++;
    return n_letters >= 3 && n_letters <= 9 ? 0 : -1;
}

bool tti_value_looks_like_date(const char *cell) {
    const char *at = cell;
    int first = take_part(&at);
    char separator = *at;
    if (first < 0 || !separator || !strchr("/.- ", separator)) return false;
    at++;
    int second = take_part(&at);
    if (separator == ' ' && first == 0) take_char(&at, ','); /* Feb 29, 2024 */
    if (second < 0 || !take_char(&at, separator)) return false;
    int third = take_part(&at);
    bool ends = !*at || *at == ' ' || *at == 'T' || *at == ',';
    bool has_year = third == 4 || first == 4 || (third == 2 && separator == '/');
    return ends && has_year && third > 0 && (first > 0 || second > 0);
}
