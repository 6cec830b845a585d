/* digit_pen.h - one drawn digit: pixels and label as pure functions of (seed, split, index). */
#ifndef TTI_DATA_DIGIT_PEN_H
#define TTI_DATA_DIGIT_PEN_H

#include <stdint.h>

enum { TTI_DIGIT_SIDE = 28, TTI_DIGIT_PIXELS = TTI_DIGIT_SIDE * TTI_DIGIT_SIDE };

/* Which digits: a key made of seed and split. */
uint64_t tti_digit_key(uint64_t seed, int split);

/* 0 .. 9; every ten in a row (index/10) are a permutation of them. */
int tti_digit_label(uint64_t key, uint64_t index);

/* The image, row-major, white on black. */
void tti_digit_draw(uint64_t key, uint64_t index, uint8_t pixel[TTI_DIGIT_PIXELS]);

#endif /* TTI_DATA_DIGIT_PEN_H */
