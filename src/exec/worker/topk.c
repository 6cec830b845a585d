/* topk.c - selects the k largest elements with two counting passes over their bits.
 *
 * Without its sign a float is ordered like its bits, so no comparisons are needed and the choice is
 * deterministic: same input, same choice, also among equal elements and NaN. */
#include "exec/worker/topk.h"

#include <string.h>

enum { HALF = 16, LOW = (1 << HALF) - 1 };

static uint32_t magnitude(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7FFFFFFFu;
}

/* The highest bin such that it and those above hold at least k; *above: those above alone. */
static uint32_t find_bin(const uint32_t *counts, size_t k, size_t *above) {
    uint32_t bin = TTI_TOPK_COUNTS - 1;
    *above = 0;
    while (bin > 0 && *above + counts[bin] < k) *above += counts[bin--];
    return bin;
}

void tti_topk_select(const float *x, size_t n, size_t k, uint32_t *counts, uint32_t *index) {
    size_t above, above_in_bin, n_taken = 0;
    if (k == 0) return;
    memset(counts, 0, TTI_TOPK_COUNTS * sizeof *counts);
    for (size_t i = 0; i < n; i++) counts[magnitude(x[i]) >> HALF]++;
    uint32_t high = find_bin(counts, k, &above);
    memset(counts, 0, TTI_TOPK_COUNTS * sizeof *counts);
    for (size_t i = 0; i < n; i++)
        if (magnitude(x[i]) >> HALF == high) counts[magnitude(x[i]) & LOW]++;
    uint32_t least = high << HALF | find_bin(counts, k - above, &above_in_bin);
    size_t n_equal = k - above - above_in_bin; /* of those that are just as large as the least */
    for (size_t i = 0; i < n && n_taken < k; i++) {
        uint32_t m = magnitude(x[i]);
        if (m < least || (m == least && n_equal == 0)) continue;
        if (m == least) n_equal--;
        index[n_taken++] = (uint32_t)i;
    }
}
