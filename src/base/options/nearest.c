/* nearest.c - edit distance (optimal string alignment) in three rows of a fixed table.  Names are
 * short, so O(n*m) costs nothing; long input is refused. */
#include "base/options/nearest.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"

static char fold(char c) {
    if (c >= 'A' && c <= 'Z') return (char)(c - 'A' + 'a');
    return c == '-' ? '_' : c;
}

int tti_edit_distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    if (n > TTI_NEAREST_MAX || m > TTI_NEAREST_MAX) return TTI_NOT_NEAR;
    int rows[3][TTI_NEAREST_MAX + 1] = {{0}};
    for (size_t j = 0; j <= m; j++) rows[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        const int *two_up = rows[(i + 1) % 3], *up = rows[(i - 1) % 3];
        int *row = rows[i % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            bool same = fold(a[i - 1]) == fold(b[j - 1]);
            int best = TTI_MIN(up[j], row[j - 1]) + 1;
            best = TTI_MIN(best, up[j - 1] + !same);
            bool swapped = i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
                           fold(a[i - 2]) == fold(b[j - 1]);
            if (swapped) best = TTI_MIN(best, two_up[j - 2] + 1);
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

/* Whether text is word with '_' and more before or after it. */
static bool extends(const char *text, const char *word) {
    size_t n = strlen(text), m = strlen(word);
    if (m < 2 || n <= m + 1) return false;
    if (!strncmp(text, word, m) && fold(text[m]) == '_') return true;
    return !strcmp(text + n - m, word) && fold(text[n - m - 1]) == '_';
}

int tti_nearness(const char *typed, const char *name) {
    int distance = tti_edit_distance(typed, name);
    int limit = TTI_MAX(1, (int)strlen(name) / 3);
    bool near = distance <= limit && distance < (int)strlen(name);
    if (distance > 1 && (extends(typed, name) || extends(name, typed))) return 1;
    return near ? distance : TTI_NOT_NEAR;
}
