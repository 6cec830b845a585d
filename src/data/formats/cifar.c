/* cifar.c - the formats "cifar10" and "cifar100": the binary files of the CIFAR sets.
 *
 * A record is the label (CIFAR-100: coarse, then fine, which is used) and the planes R, G, B of
 * 32 x 32 bytes.  The files are read once: 150 MB that all threads share; labels are checked then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "data/files/byte_reader.h"
#include "data/image/image_set.h"

enum { SIDE = 32, PLANE = SIDE * SIDE, MAX_FILES = 5, MAX_PATH = 4096 };

/* One of the two sets. */
typedef struct variant {
    const char *name;
    int n_train_files;
    const char *train_files[MAX_FILES], *test_file;
    const char *folder; /* in its archive */
    size_t label_bytes;
    int64_t n_classes;
    tti_image_usual usual;
} variant;

typedef struct cifar {
    tti_image_set set; /* first */
    const variant *variant;
    uint8_t *records;
    int64_t n_samples;
} cifar;

static size_t record_bytes(const variant *v) { return v->label_bytes + 3 * PLANE; }

#define USUAL(m0, m1, m2, s0, s1, s2)                                          \
    {                                                                          \
        .size = SIDE, .fit = TTI_FIT_FILL, .augment = {.pad = 4, .flip = 0.5}, \
        .mean = {m0, m1, m2}, .std = {                                         \
            s0,                                                                \
            s1,                                                                \
            s2                                                                 \
        }                                                                      \
    }

static const variant cifar10 = {
    .name = "cifar10",
    .n_train_files = 5,
    .train_files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                    "data_batch_5.bin"},
    .test_file = "test_batch.bin",
    .folder = "cifar-10-batches-bin",
    .label_bytes = 1,
    .n_classes = 10,
    .usual = USUAL(0.4914, 0.4822, 0.4465, 0.2470, 0.2435, 0.2616),
};

static const variant cifar100 = {
    .name = "cifar100",
    .n_train_files = 1,
    .train_files = {"train.bin"},
    .test_file = "test.bin",
    .folder = "cifar-100-binary",
    .label_bytes = 2,
    .n_classes = 100,
    .usual = USUAL(0.5071, 0.4865, 0.4409, 0.2673, 0.2564, 0.2762),
};

/* DIR/file, or DIR/FOLDER/file as the archive unpacks. */
static tutti_status find_file(const char *dir, const variant *v, const char *file,
                              char out[MAX_PATH]) {
    int n = snprintf(out, MAX_PATH, "%s/%s", dir, file);
    if (n > 0 && n < MAX_PATH && access(out, F_OK) == 0) return TUTTI_OK;
    n = snprintf(out, MAX_PATH, "%s/%s/%s", dir, v->folder, file);
    if (n > 0 && n < MAX_PATH && access(out, F_OK) == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: neither %s nor %s/%s exists; data.dir must hold the binary version of %s "
                    "(from https://www.cs.toronto.edu/~kriz/cifar.html)",
                    dir, file, v->folder, file, v->name);
}

static tutti_status check_records(const cifar *c, const char *path, int64_t first) {
    const variant *v = c->variant;
    for (int64_t i = first; i < c->n_samples; i++) {
        int label = c->records[(size_t)i * record_bytes(v) + v->label_bytes - 1];
        if (label >= v->n_classes)
            return tti_fail(TUTTI_E_DATA, "%s: label %d of record %lld is out of range, 0 .. %lld",
                            path, label, (long long)(i - first), (long long)(v->n_classes - 1));
    }
    return TUTTI_OK;
}

/* Appends the records of one file. */
static tutti_status read_file(cifar *c, const char *path) {
    int fd;
    uint64_t n_bytes;
    TTI_TRY(tti_open_regular(path, &fd, &n_bytes));
    size_t record = record_bytes(c->variant), old = (size_t)c->n_samples * record;
    tutti_status st = TUTTI_OK;
    uint8_t *grown = NULL;
    if (n_bytes == 0 || n_bytes % record != 0 || n_bytes > UINT32_MAX)
        st = tti_fail(TUTTI_E_DATA,
                      "%s: %llu bytes are not a multiple of the record size, %zu: truncated, or "
                      "not a %s file",
                      path, (unsigned long long)n_bytes, record, c->variant->name);
    else if (!(grown = realloc(c->records, old + (size_t)n_bytes)))
        st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory for %llu bytes", path,
                      (unsigned long long)n_bytes);
    if (grown) c->records = grown;
    if (st == TUTTI_OK) st = tti_pread_all(fd, path, c->records + old, (size_t)n_bytes, 0);
    close(fd);
    if (st != TUTTI_OK) return st;
    int64_t first = c->n_samples;
    c->n_samples += (int64_t)(n_bytes / record);
    return check_records(c, path, first);
}

static tutti_status read_files(const tutti_dataset_desc *desc, cifar *c) {
    const variant *v = c->variant;
    bool test = desc->split == TUTTI_TEST;
    for (int i = 0; i < (test ? 1 : v->n_train_files); i++) {
        char path[MAX_PATH];
        TTI_TRY(find_file(desc->dir, v, test ? v->test_file : v->train_files[i], path));
        TTI_TRY(read_file(c, path));
    }
    if (desc->n_samples > c->n_samples)
        return tti_fail(TUTTI_E_DATA, "%s: %lld samples are requested, the files have %lld",
                        desc->dir, (long long)desc->n_samples, (long long)c->n_samples);
    if (desc->n_samples > 0) c->n_samples = desc->n_samples;
    if (desc->n_classes > 0 && desc->n_classes != v->n_classes)
        return tti_fail(TUTTI_E_INVALID, "%s: there are %lld classes, not %lld", v->name,
                        (long long)v->n_classes, (long long)desc->n_classes);
    return TUTTI_OK;
}

/* Planes to pixels. */
static tutti_status cifar_fetch(const tti_source *source, int64_t index, tti_workspace *ws,
                                int32_t *y) {
    const cifar *c = source->state;
    const uint8_t *record = c->records + (size_t)index * record_bytes(c->variant);
    TTI_TRY(tti_buffer_reserve(&ws->file, 3 * PLANE + TTI_IMAGE_PAD_BYTES));
    const uint8_t *plane = record + c->variant->label_bytes;
    uint8_t *rgb = ws->file.bytes;
    for (int i = 0; i < PLANE; i++, rgb += 3) {
        rgb[0] = plane[i];
        rgb[1] = plane[PLANE + i];
        rgb[2] = plane[2 * PLANE + i];
    }
    *y = plane[-1];
    return TUTTI_OK;
}

static tutti_status cifar_unpack(const tti_source *source, const tti_sample_key *key,
                                 tti_workspace *ws, void *x) {
    tti_image image = {SIDE, SIDE, ws->file.bytes};
    return tti_image_set_place(&((const cifar *)source->state)->set, key, &image, ws, x);
}

static const char *class_name_10(const tti_source *source, int64_t label) {
    static const char *const classes[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                          "dog",      "frog",       "horse", "ship", "truck"};
    (void)source;
    return classes[label];
}

static void cifar_close(tti_source *source) {
    cifar *c = source->state;
    free(c->records);
    free(c);
}

static tutti_status open_variant(const variant *v, const tutti_dataset_desc *desc,
                                 tti_source *source) {
    if (!desc->dir || !desc->dir[0])
        return tti_fail(TUTTI_E_INVALID, "%s: data.dir is missing; give the folder with the files",
                        v->name);
    cifar *c = calloc(1, sizeof *c);
    if (!c) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", v->name);
    c->variant = v;
    source->state = c;
    tutti_status st;
    TTI_TRY_GOTO(read_files(desc, c), cleanup);
    TTI_TRY_GOTO(tti_image_set_init(desc, &v->usual, source, &c->set), cleanup);
    source->info.n_samples = c->n_samples;
    source->info.n_classes = v->n_classes;
    source->is_fixed = tti_augment_is_none(&c->set.augment);
    source->fetch = cifar_fetch;
    source->unpack = cifar_unpack;
    source->close = cifar_close;
cleanup:
    if (st != TUTTI_OK) cifar_close(source);
    return st;
}

static tutti_status open_cifar10(const tutti_dataset_desc *desc, tti_source *source) {
    source->class_name = class_name_10;
    return open_variant(&cifar10, desc, source);
}

static tutti_status open_cifar100(const tutti_dataset_desc *desc, tti_source *source) {
    return open_variant(&cifar100, desc, source);
}

const tti_format tti_format_cifar10 = {
    .name = "cifar10",
    .doc = "CIFAR-10, binary version: data_batch_1.bin .. data_batch_5.bin, test_batch.bin",
    .open = open_cifar10,
    .packs_images = true,
};

const tti_format tti_format_cifar100 = {
    .name = "cifar100",
    .doc = "CIFAR-100, binary version: train.bin, test.bin; the 100 fine labels",
    .open = open_cifar100,
    .packs_images = true,
};
