/* replay.c - runs a fuzz target without libFuzzer: each seed as it is, cut short, and changed.
 *
 * Usage: fuzz_replay NAME [FOLDER]
 * The changes are drawn from Philox, so every run tries the same inputs, in a second or two.  This
 * keeps `make test` honest about hostile input where there is no clang; `make fuzz` looks deeper.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/philox.h"
#include "fuzz/replay.h"

enum { MAX_SEED_BYTES = 1 << 16, MAX_SEEDS = 256, ROUNDS = 400 };
static const double max_seconds = 3.0;

typedef struct seed {
    uint8_t *data;
    size_t n_bytes;
} seed;

/* The target gets memory of exactly n_bytes, so that a sanitizer sees a read past the end. */
static void run(const t_target *target, const uint8_t *data, size_t n_bytes) {
    uint8_t *copy = malloc(n_bytes ? n_bytes : 1);
    if (!copy) abort();
    if (n_bytes) memcpy(copy, data, n_bytes);
    target->run(copy, n_bytes);
    free(copy);
}

static bool read_seed(const char *folder, const char *name, seed *out) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    out->data = malloc(MAX_SEED_BYTES);
    if (!out->data) abort();
    out->n_bytes = fread(out->data, 1, MAX_SEED_BYTES, file);
    fclose(file);
    return true;
}

static int by_bytes(const void *a, const void *b) {
    const seed *x = a, *y = b;
    if (x->n_bytes != y->n_bytes) return x->n_bytes < y->n_bytes ? -1 : 1;
    return x->n_bytes ? memcmp(x->data, y->data, x->n_bytes) : 0;
}

static int read_seeds(const char *folder, seed *out) {
    DIR *dir = folder ? opendir(folder) : NULL;
    int n = 0;
    for (struct dirent *e; dir && n < MAX_SEEDS && (e = readdir(dir));)
        if (e->d_name[0] != '.' && read_seed(folder, e->d_name, &out[n])) n++;
    if (dir) closedir(dir);
    qsort(out, (size_t)n, sizeof *out, by_bytes); /* readdir's order is anything */
    return n;
}

/* One to four changes of data: a bit, a byte that matters to parsers, a copied stretch, a cut. */
static size_t change(uint8_t *data, size_t n_bytes, uint64_t which) {
    static const uint8_t special[] = {0, 1, 0x7f, 0x80, 0xff, '"', '{', '[', '\n', ':', '-', '9'};
    tti_philox how = tti_philox_draw(1, 0, which);
    int n_changes = 1 + (int)(how.v[0] % 4);
    for (int i = 0; i < n_changes && n_bytes > 0; i++) {
        tti_philox r = tti_philox_draw(2, which, (uint64_t)i);
        size_t at = r.v[0] % n_bytes, from = r.v[1] % n_bytes, n = 1 + r.v[2] % 16;
        switch (r.v[3] % 5) {
            case 0:
                data[at] = (uint8_t)(data[at] ^ (1u << (r.v[1] % 8)));
                break;
            case 1:
                data[at] = special[r.v[1] % sizeof special];
                break;
            case 2:
                data[at] = (uint8_t)r.v[1];
                break;
            case 3:
                if (at + n <= n_bytes && from + n <= n_bytes) memmove(data + at, data + from, n);
                break;
            default:
                n_bytes = at;
        }
    }
    return n_bytes;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void replay(const t_target *target, const char *folder) {
    static seed seeds[MAX_SEEDS];
    static uint8_t work[MAX_SEED_BYTES];
    int n_seeds = read_seeds(folder, seeds);
    uint64_t n_runs = 1;
    double end = seconds() + max_seconds;
    run(target, NULL, 0);
    for (int s = 0; s < n_seeds; s++, n_runs++) run(target, seeds[s].data, seeds[s].n_bytes);
    for (uint64_t round = 0; round < ROUNDS && seconds() < end; round++)
        for (int s = 0; s < n_seeds && seconds() < end; s++, n_runs++) {
            memcpy(work, seeds[s].data, seeds[s].n_bytes);
            run(target, work, change(work, seeds[s].n_bytes, round * MAX_SEEDS + (uint64_t)s));
        }
    printf("%d seeds, %llu inputs\n", n_seeds, (unsigned long long)n_runs);
    for (int s = 0; s < n_seeds; s++) free(seeds[s].data);
}

int main(int argc, char **argv) {
    for (const t_target *t = t_targets; t->name; t++)
        if (argc > 1 && strcmp(argv[1], t->name) == 0) {
            replay(t, argc > 2 ? argv[2] : NULL);
            return 0;
        }
    fprintf(stderr, "usage: fuzz_replay NAME [FOLDER], where NAME is one of\n");
    for (const t_target *t = t_targets; t->name; t++) fprintf(stderr, "  %s\n", t->name);
    return 2;
}
