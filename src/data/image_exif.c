/* image_exif.c - which way up a photograph is: the orientation tag in the EXIF part of a JPEG.
 *
 * Walks the markers up to the first scan, finds APP1 "Exif", and reads the first directory of the
 * TIFF header in it.  Whatever does not fit is no orientation: the pixels are good all the same. */
#include <string.h>

#include "base/error.h"
#include "data/image.h"

/* Bytes with a byte order. */
typedef struct tiff {
    const uint8_t *bytes;
    size_t n_bytes;
    bool big_endian;
} tiff;

static uint32_t read_uint(const tiff *t, size_t at, size_t n) {
    uint32_t x = 0;
    for (size_t i = 0; i < n; i++) x = x << 8 | t->bytes[at + (t->big_endian ? i : n - 1 - i)];
    return x;
}

static int read_directory(const tiff *t, size_t at) {
    if (at > t->n_bytes || t->n_bytes - at < 2) return 1;
    size_t n_entries = read_uint(t, at, 2);
    for (size_t i = 0; i < n_entries; i++) {
        size_t entry = at + 2 + 12 * i;
        if (t->n_bytes - at < 2 + 12 * (i + 1)) return 1;
        bool is_orientation = read_uint(t, entry, 2) == 0x0112;
        if (!is_orientation) continue;
        uint32_t value = read_uint(t, entry + 8, 2);
        bool is_short = read_uint(t, entry + 2, 2) == 3 && read_uint(t, entry + 4, 4) == 1;
        return is_short && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

static int read_tiff(const uint8_t *bytes, size_t n_bytes) {
    tiff t = {.bytes = bytes, .n_bytes = n_bytes};
    if (n_bytes < 8) return 1;
    t.big_endian = memcmp(bytes, "MM\0*", 4) == 0;
    if (!t.big_endian && memcmp(bytes, "II*\0", 4) != 0) return 1;
    return read_directory(&t, read_uint(&t, 4, 4));
}

int tti_exif_orientation(const uint8_t *bytes, size_t n_bytes) {
    for (size_t at = 2; at + 4 <= n_bytes && bytes[at] == 0xFF;) {
        uint8_t marker = bytes[at + 1];
        if (marker == 0xFF) { /* filling */
            at++;
            continue;
        }
        size_t n = (size_t)bytes[at + 2] << 8 | bytes[at + 3]; /* with its own two bytes */
        if (marker == 0xDA || marker == 0xD9 || n < 2 || n > n_bytes - at - 2) return 1;
        const uint8_t *part = bytes + at + 4;
        if (marker == 0xE1 && n >= 8 && memcmp(part, "Exif\0", 6) == 0)
            return read_tiff(part + 6, n - 8);
        at += 2 + n;
    }
    return 1;
}
