/* weights_index_fuzz.c - any bytes as model.safetensors.index.json, beside files that it may name:
 * refused, or accepted with every tensor of those files once, found by its name and readable; a
 * file outside of the folder is never among them. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "ckpt/weights.h"

enum { N_ELEMS = 3 };

static char dir[64], inside[80];

static char *path_of(const char *name) {
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const void *bytes, size_t n_bytes) {
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    TTI_ASSERT(fd >= 0);
    TTI_ASSERT(write(fd, bytes, n_bytes) == (ssize_t)n_bytes);
    close(fd);
}

/* A file of one tensor f32 [3], all of value. */
static void put_weights(const char *name, const char *tensor, float value) {
    char bytes[256];
    const float data[N_ELEMS] = {value, value, value};
    int n = snprintf(bytes + 8, 200,
                     "{\"%s\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", tensor);
    memset(bytes, 0, 8);
    bytes[0] = (char)n;
    memcpy(bytes + 8 + n, data, sizeof data);
    put(name, bytes, 8 + (size_t)n + sizeof data);
}

static void remove_files(void) {
    static const char *const names[] = {"in/model.safetensors.index.json", "in/a.safetensors",
                                        "in/b.safetensors", "in/cut.safetensors",
                                        "outside.safetensors"};
    for (size_t i = 0; i < TTI_COUNT(names); i++) unlink(path_of(names[i]));
    rmdir(inside);
    rmdir(dir);
}

static void make_folder(void) {
    snprintf(dir, sizeof dir, "/tmp/tutti-fuzz-XXXXXX");
    TTI_ASSERT(mkdtemp(dir) != NULL);
    snprintf(inside, sizeof inside, "%s/in", dir);
    TTI_ASSERT(mkdir(inside, 0700) == 0);
    put_weights("in/a.safetensors", "one", 1);
    put_weights("in/b.safetensors", "two", 2);
    put("in/cut.safetensors", "\x40\0\0\0\0\0\0\0{", 9);
    put_weights("outside.safetensors", "secret", 3);
    atexit(remove_files);
}

static void check_tensor(const tti_weights *w, size_t i) {
    const tti_safetensors_entry *e = tti_weights_at(w, i);
    bool one = strcmp(e->name, "one") == 0;
    float value[N_ELEMS] = {0};
    TTI_ASSERT(one || strcmp(e->name, "two") == 0);
    TTI_ASSERT(tti_weights_find(w, e->name) == (int64_t)i);
    TTI_ASSERT(tti_weights_read(w, i, value) == TUTTI_OK);
    for (int k = 0; k < N_ELEMS; k++) TTI_ASSERT(value[k] == (one ? 1.0F : 2.0F));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tti_weights *w;
    if (!dir[0]) make_folder();
    put("in/model.safetensors.index.json", data, size);
    tutti_status st = tti_weights_open(inside, &w);
    TTI_ASSERT((st == TUTTI_OK) == (w != NULL));
    if (st != TUTTI_OK) return 0;
    TTI_ASSERT(tti_weights_n(w) <= 2);
    for (size_t i = 0; i < tti_weights_n(w); i++) check_tensor(w, i);
    TTI_ASSERT(tti_weights_find(w, "secret") < 0);
    tti_weights_close(w);
    return 0;
}
