/* png_file.h - writes small PNG files without a library. */
#ifndef TTI_TESTS_TRAIN_PNG_FILE_H
#define TTI_TESTS_TRAIN_PNG_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "t.h"

enum { T_MOST_PNG_BYTES = 1 << 14 };

static inline uint32_t t_png_crc(const uint8_t *bytes, size_t n) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

static inline void t_png_number(uint8_t *to, uint32_t number) {
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(number >> (24 - 8 * i));
}

static inline void t_png_chunk(FILE *file, const char *kind, const uint8_t *data, size_t n) {
    static uint8_t chunk[T_MOST_PNG_BYTES + 64];
    uint8_t number[4];
    memcpy(chunk, kind, 4);
    if (n > 0) memcpy(chunk + 4, data, n);
    t_png_number(number, (uint32_t)n);
    T_EQ(fwrite(number, 1, 4, file), 4);
    T_EQ(fwrite(chunk, 1, n + 4, file), n + 4);
    t_png_number(number, t_png_crc(chunk, n + 4));
    T_EQ(fwrite(number, 1, 4, file), 4);
}

/* pixels: [h,w,n_channels], 1: grey, 3: RGB.  Stored, not compressed. */
static inline void t_write_png(const char *path, const uint8_t *pixels, int h, int w,
                               int n_channels) {
    static uint8_t data[T_MOST_PNG_BYTES];
    size_t n_row = (size_t)(w * n_channels), n_raw = (n_row + 1) * (size_t)h;
    uint32_t a = 1, b = 0;
    uint8_t head[13] = {[8] = 8, [9] = n_channels == 3 ? 2 : 0};
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(n_raw + 11 <= sizeof data);
    t_png_number(head, (uint32_t)w);
    t_png_number(head + 4, (uint32_t)h);
    memcpy(data,
           (uint8_t[]){0x78, 0x01, 0x01, (uint8_t)n_raw, (uint8_t)(n_raw >> 8), (uint8_t)~n_raw,
                       (uint8_t)(~n_raw >> 8)},
           7);
    for (int y = 0; y < h; y++) {
        uint8_t *row = data + 7 + (size_t)y * (n_row + 1);
        row[0] = 0;
        memcpy(row + 1, pixels + (size_t)y * n_row, n_row);
    }
    for (size_t i = 0; i < n_raw; i++) {
        a = (a + data[7 + i]) % 65521;
        b = (b + a) % 65521;
    }
    t_png_number(data + 7 + n_raw, b << 16 | a);
    T_EQ(fwrite("\x89PNG\r\n\x1a\n", 1, 8, file), 8);
    t_png_chunk(file, "IHDR", head, sizeof head);
    t_png_chunk(file, "IDAT", data, n_raw + 11);
    t_png_chunk(file, "IEND", NULL, 0);
    T_EQ(fclose(file), 0);
}

#endif /* TTI_TESTS_TRAIN_PNG_FILE_H */
