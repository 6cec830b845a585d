/* arrivals_fuzz.c - arrivals.txt of an unknown run. An accepted file can be replayed: a
 * server for it would find every batch once in its stretch, and no gradient newer than its update.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "train/loop/arrivals.h"

static char dir[64], path[96];

static void remove_file(void) {
    unlink(path);
    rmdir(dir);
}

static void make_folder(void) {
    snprintf(dir, sizeof dir, "/tmp/tutti-fuzz-XXXXXX");
    TTI_ASSERT(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/arrivals.txt", dir);
    atexit(remove_file);
}

static int64_t every_two(const tti_blueprint *b, int64_t step) {
    return TTI_MIN(b->n_steps, (step / 2 + 1) * 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
static void read_it(const char *precision) {
    static tti_blueprint b = {
        .n_workers = 2, .mesh = {.data = 2, .stage = 1, .tensor = 1}, .n_shards = 4, .n_steps = 5};
    b.config.train.batch = 8;
    b.config.train.seed = 1;
    snprintf(b.config.train.precision, sizeof b.config.train.precision, "%s", precision);
    tti_arrival *a;
    int64_t n, sum = 0;
    if (tti_arrivals_read(&b, dir, every_two, &a, &n) != TUTTI_OK) return;
    TTI_ASSERT(n == b.n_steps);
    for (int64_t i = 0; i < n; i++) {
        TTI_ASSERT(a[i].step == i + 1 && a[i].version <= i && a[i].version >= i / 2 * 2);
        TTI_ASSERT(a[i].worker >= 0 && a[i].worker < b.n_workers);
        TTI_ASSERT(*precision ? a[i].loss_scale > 0 : a[i].loss_scale == 0);
        sum += a[i].batch;
    }
    TTI_ASSERT(sum == n * (n - 1) / 2);
    free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!dir[0]) make_folder();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    TTI_ASSERT(fd >= 0);
    TTI_ASSERT(write(fd, data, size) == (ssize_t)size);
    close(fd);
    read_it("");
    read_it("f16");
    return 0;
}
