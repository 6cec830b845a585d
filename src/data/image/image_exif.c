/* image_exif.c - the orientation of a photograph: the tag in EXIF data, else in XMP text.
 *
 * EXIF data is a TIFF header, of which the first directory is read.  In a JPEG both are APP1
 * segments before the first scan; image_png.c finds them in a PNG. Malformed data counts as no
 * orientation, because the pixels are still good. */
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "data/image/image.h"

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

/* The first value of SHORT or LONG; anything else turns nothing, as in Pillow. */
static int read_value(const tiff *t, size_t entry) {
    uint32_t type = read_uint(t, entry + 2, 2), count = read_uint(t, entry + 4, 4);
    size_t n = type == 3 ? 2 : type == 4 ? 4 : 0, at = entry + 8;
    if (n == 0 || count == 0) return 1;
    if (count > 4 / n) at = read_uint(t, at, 4); /* they are elsewhere */
    if (at > t->n_bytes || t->n_bytes - at < n) return 1;
    uint32_t value = read_uint(t, at, n);
    return value >= 1 && value <= 8 ? (int)value : 1;
}

static int read_directory(const tiff *t, size_t at) {
    if (at > t->n_bytes || t->n_bytes - at < 2) return 0;
    size_t n_entries = read_uint(t, at, 2);
    for (size_t i = 0; i < n_entries; i++) {
        size_t entry = at + 2 + 12 * i;
        if (t->n_bytes - at < 2 + 12 * (i + 1)) return 0;
        if (read_uint(t, entry, 2) == 0x0112) return read_value(t, entry);
    }
    return 0;
}

int tti_exif_orientation(const uint8_t *bytes, size_t n_bytes) {
    if (n_bytes >= 6 && memcmp(bytes, "Exif\0", 6) == 0) bytes += 6, n_bytes -= 6;
    tiff t = {.bytes = bytes, .n_bytes = n_bytes};
    if (n_bytes < 8) return 0;
    t.big_endian = memcmp(bytes, "MM\0*", 4) == 0;
    if (!t.big_endian && memcmp(bytes, "II*\0", 4) != 0) return 0;
    return read_directory(&t, read_uint(&t, 4, 4));
}

/* tiff:Orientation="6" or <tiff:Orientation>6. */
int tti_xmp_orientation(const char *text, size_t n_bytes) {
    static const char key[] = "tiff:Orientation";
    size_t n = sizeof key - 1;
    const char *at = text, *end = text + n_bytes;
    while ((at = memmem(at, (size_t)(end - at), key, n))) {
        at += n;
        size_t n_sign = end - at >= 2 && memcmp(at, "=\"", 2) == 0 ? 2
                        : end - at >= 1 && *at == '>'              ? 1
                                                                   : 0;
        if (n_sign == 0 || end - at <= (ptrdiff_t)n_sign) continue;
        char digit = at[n_sign];
        return digit >= '1' && digit <= '8' ? digit - '0' : 1;
    }
    return 0;
}

int tti_jpeg_orientation(const uint8_t *bytes, size_t n_bytes) {
    static const char xmp_name[] = "http://ns.adobe.com/xap/1.0/"; /* with its NUL */
    int exif = 0, xmp = 0;
    for (size_t at = 2; at + 4 <= n_bytes && bytes[at] == 0xFF && exif == 0;) {
        uint8_t marker = bytes[at + 1];
        if (marker == 0xFF) { /* filling */
            at++;
            continue;
        }
        size_t n = (size_t)bytes[at + 2] << 8 | bytes[at + 3]; /* with its own two bytes */
        if (marker == 0xDA || marker == 0xD9 || n < 2 || n > n_bytes - at - 2) break;
        const uint8_t *part = bytes + at + 4;
        if (marker == 0xE1 && n >= 8 && memcmp(part, "Exif\0", 6) == 0)
            exif = tti_exif_orientation(part, n - 2);
        else if (marker == 0xE1 && n - 2 > sizeof xmp_name && xmp == 0 &&
                 memcmp(part, xmp_name, sizeof xmp_name) == 0)
            xmp =
                tti_xmp_orientation((const char *)part + sizeof xmp_name, n - 2 - sizeof xmp_name);
        at += 2 + n;
    }
    return exif ? exif : xmp ? xmp : 1;
}
