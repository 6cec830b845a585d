/* cifar_fuzz.c - files of CIFAR-100 from anywhere: written to a folder and opened as a data set.
 * What is accepted can be read, first sample and last. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "tutti/data.h"

static char dir[64], path[96];

static void remove_file(void) {
    unlink(path);
    rmdir(dir);
}

static void make_folder(void) {
    snprintf(dir, sizeof dir, "/tmp/tutti-fuzz-XXXXXX");
    TTI_ASSERT(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/train.bin", dir);
    atexit(remove_file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!dir[0]) make_folder();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    TTI_ASSERT(fd >= 0);
    TTI_ASSERT(write(fd, data, size) == (ssize_t)size);
    close(fd);
    tutti_dataset *ds;
    if (tutti_dataset_open(&(tutti_dataset_desc){.format = "cifar100", .dir = dir}, &ds) !=
        TUTTI_OK)
        return 0;
    static float x[3 * 32 * 32];
    int32_t y = -1;
    int64_t n = tutti_dataset_get_info(ds)->n_samples;
    TTI_ASSERT((size_t)n * 3074 == size);
    for (int64_t i = 0; i<n; i += n> 1 ? n - 1 : 1) {
        TTI_ASSERT(tutti_dataset_get(ds, i, x, &y) == TUTTI_OK);
        TTI_ASSERT(y >= 0 && y < 100);
    }
    tutti_dataset_destroy(ds);
    return 0;
}
