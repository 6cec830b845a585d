/* tar_files.h - tar archives for tests, good and hostile, in memory. */
#ifndef TTI_TESTS_TAR_FILES_H
#define TTI_TESTS_TAR_FILES_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { T_TAR_MAX = 1 << 17 };

typedef struct t_tar {
    uint8_t bytes[T_TAR_MAX];
    size_t n;
} t_tar;

/* Writes the checksum of the header at header. */
static inline void t_tar_sum(uint8_t *header) {
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
}

/* Appends a member of that type ('0' a file) as ustar; returns its header. */
static inline uint8_t *t_tar_add(t_tar *t, const char *name, char type, const void *data,
                                 size_t n) {
    uint8_t *header = t->bytes + t->n;
    memset(header, 0, 512 + (n + 511) / 512 * 512);
    memcpy(header, name, strnlen(name, 100));
    memcpy(header + 100, "0000644\0000000000\0000000000\0", 24);
    snprintf((char *)header + 124, 12, "%011o", (unsigned)n);
    snprintf((char *)header + 136, 12, "%011o", 0u);
    header[156] = (uint8_t)type;
    memcpy(header + 257, "ustar\00000", 8);
    t_tar_sum(header);
    memcpy(header + 512, data, n);
    t->n += 512 + (n + 511) / 512 * 512;
    return header;
}

/* The end mark. */
static inline void t_tar_end(t_tar *t) {
    memset(t->bytes + t->n, 0, 1024);
    t->n += 1024;
}

#endif /* TTI_TESTS_TAR_FILES_H */
