/* idx_files.h - small IDX files for tests, good and broken. */
#ifndef TTI_TESTS_IDX_FILES_H
#define TTI_TESTS_IDX_FILES_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/gzip_stored.h"
#include "t.h"

/* A fresh folder under $TMPDIR or /tmp; the text is static. */
static inline const char *t_make_dir(void) {
    static char dir[256];
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/tutti-data-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(dir));
    return dir;
}

static inline const char *t_path(const char *dir, const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static inline void t_write(const char *path, const void *bytes, size_t n_bytes) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n_bytes, f), n_bytes);
    assert_int_equal(fclose(f), 0);
}

/* An IDX file in memory: header and elements elem(i) = (i * 7 + 3) % modulus. */
static inline size_t t_idx(int n_dims, const uint32_t *dim, int modulus, uint8_t *out) {
    size_t n = 4, n_elems = 1;
    memcpy(out, (uint8_t[]){0, 0, 8, (uint8_t)n_dims}, 4);
    for (int i = 0; i < n_dims; i++) {
        n_elems *= dim[i];
        for (int shift = 24; shift >= 0; shift -= 8) out[n++] = (uint8_t)(dim[i] >> shift);
    }
    for (size_t i = 0; i < n_elems; i++) out[n++] = (uint8_t)((i * 7 + 3) % (size_t)modulus);
    return n;
}

static inline void t_remove_dir(const char *dir) {
    static const char *const parts[] = {"train-images-idx3", "train-labels-idx1",
                                        "t10k-images-idx3", "t10k-labels-idx1"};
    for (size_t i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s-ubyte", parts[i]);
        unlink(t_path(dir, name));
        rmdir(t_path(dir, name));
        snprintf(name, sizeof name, "%s-ubyte.gz", parts[i]);
        unlink(t_path(dir, name));
    }
    rmdir(dir);
}

#endif /* TTI_TESTS_IDX_FILES_H */
