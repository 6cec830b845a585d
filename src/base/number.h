/* number.h - numbers as text and back, the same in every locale. */
#ifndef TTI_BASE_NUMBER_H
#define TTI_BASE_NUMBER_H

#include <stdint.h>

typedef enum tti_number {
    TTI_NUMBER_OK,
    TTI_NUMBER_MALFORMED, /* not a number, or something follows it */
    TTI_NUMBER_RANGE,     /* a number that the type cannot hold    */
    TTI_NUMBER_TINY       /* not 0, but so small that it would be read as 0 */
} tti_number;

enum { TTI_NUMBER_TEXT = 32 }; /* bytes that any formatted number needs */

/* Decimal, with an optional sign; the whole text must be consumed, blanks included.  *out is
 * written only on TTI_NUMBER_OK. */
tti_number tti_parse_int(const char *text, int64_t *out);

/* Decimal with optional sign, fraction and exponent: 1e-3, .5, 2.  No hex, no inf, no nan. */
tti_number tti_parse_double(const char *text, double *out);

/* The same for a value that is used as a 32-bit float: also TTI_NUMBER_RANGE above FLT_MAX, and
 * TTI_NUMBER_TINY below FLT_MIN unless it is 0.  *out has all digits. */
tti_number tti_parse_float(const char *text, double *out);

/* A count of bytes: an integer, or a number with one of k, M, G (powers of 1000) or Ki, Mi, Gi
 * (of 1024), with or without a B: "64Mi", "1.5 GB". */
tti_number tti_parse_bytes(const char *text, int64_t *out);

/* The shortest of 9, 15, 16 and 17 digits that reads back to the same value; "inf", "-inf", "nan"
 * for those.  Returns text. */
char *tti_format_double(char text[TTI_NUMBER_TEXT], double x);

/* The same for a float: the shortest of 6 .. 9 digits that reads back to the same float. */
char *tti_format_float(char text[TTI_NUMBER_TEXT], float x);

#endif /* TTI_BASE_NUMBER_H */
