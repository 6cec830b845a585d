/* packed.c - the format "packed": images decoded once, all of one size, read without decoding.
 *
 * DIR/train.pack and DIR/val.pack, little-endian: for each sample a record of [P,P,3] u8, a label
 * i32 and a CRC-32C of its number (i64), pixels and label; then a trailer of 64 bytes with its own
 * CRC-32C, by which a truncated file is recognized.  Every read checks its record. `tutti data
 * pack` writes them from any format of images: the shorter side becomes P and the middle is taken.
 * It also writes the specification of the source, DIR/data.json, from which the class names are
 * read; without the file classes have numbers only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/str.h"
#include "data/data_spec.h"
#include "data/files/byte_reader.h"
#include "data/formats/packed.h"
#include "data/image/image_set.h"

enum { TRAILER = 64, VERSION = 2, MAX_PATH = 4096 };
static const char magic[8] = "TUTTIIMG";

typedef struct trailer {
    char magic[8];
    uint32_t version, side;
    int64_t n_samples, n_classes;
    uint8_t zero[TRAILER - 36];
    uint32_t crc; /* of the preceding fields */
} trailer;

_Static_assert(sizeof(trailer) == TRAILER, "the trailer is written as it lies in memory");

typedef struct packed {
    tti_image_set set; /* first */
    char *path;
    int fd; /* -1: none */
    trailer about;
    tti_data_spec *of_files; /* owned; NULL: data.json is missing */
} packed;

static size_t image_bytes(const trailer *t) { return (size_t)t->side * t->side * 3; }

/* Including label and checksum. */
static size_t record_bytes(const trailer *t) { return image_bytes(t) + 8; }

/* The number is in it, so that a record in another's place is found too. */
static uint32_t record_crc(const trailer *t, int64_t index, const uint8_t *record) {
    return tti_crc32c(tti_crc32c(0, &index, sizeof index), record, image_bytes(t) + 4);
}

static uint32_t trailer_crc(const trailer *t) { return tti_crc32c(0, t, TRAILER - sizeof t->crc); }

static tutti_status file_path(const char *dir, tutti_data_split split, char out[MAX_PATH]) {
    int n = snprintf(out, MAX_PATH, "%s/%s.pack", dir, split == TUTTI_TRAIN ? "train" : "val");
    if (n < 0 || n >= MAX_PATH) return tti_fail(TUTTI_E_INVALID, "packed: the path is too long");
    return TUTTI_OK;
}

/* ---- reading ---- */

static tutti_status check_trailer(const char *path, const trailer *t, uint64_t n_file) {
    if (memcmp(t->magic, magic, sizeof magic) != 0)
        return tti_fail(TUTTI_E_DATA, "%s: truncated, or not a file of packed images", path);
    if (t->version == 1)
        return tti_fail(TUTTI_E_DATA,
                        "%s: was packed without checksums by an older version; pack it again with "
                        "tutti data pack",
                        path);
    if (trailer_crc(t) != t->crc)
        return tti_fail(TUTTI_E_DATA, "%s: damaged: the checksum at its end is wrong", path);
    if (t->version != VERSION)
        return tti_fail(TUTTI_E_DATA,
                        "%s: version %u of packed images is not supported, only %d; pack the data "
                        "set again with tutti data pack",
                        path, (unsigned)t->version, VERSION);
    bool sane = t->side >= 1 && t->side <= TTI_MAX_IMAGE_SIZE && t->n_samples >= 1 &&
                t->n_samples <= INT64_C(1) << 36 && t->n_classes >= 1 && t->n_classes <= INT32_MAX;
    uint64_t n_bytes = 0; /* at most 2^36 * 2^26 */
    if (sane) n_bytes = (uint64_t)t->n_samples * record_bytes(t) + TRAILER;
    if (n_bytes == n_file && sane) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: %lld samples of side %u do not make the %llu bytes of the file", path,
                    (long long)t->n_samples, (unsigned)t->side, (unsigned long long)n_file);
}

static tutti_status read_trailer(const tutti_dataset_desc *desc, packed *p) {
    char path[MAX_PATH];
    uint64_t n_file;
    TTI_TRY(file_path(desc->dir, desc->split, path));
    if (!(p->path = strdup(path))) return tti_fail(TUTTI_E_NOMEM, "packed: out of memory");
    TTI_TRY(tti_open_regular(path, &p->fd, &n_file));
    if (n_file < TRAILER) return tti_fail(TUTTI_E_DATA, "%s: truncated", path);
    TTI_TRY(tti_pread_all(p->fd, path, &p->about, TRAILER, n_file - TRAILER));
    return check_trailer(path, &p->about, n_file);
}

static tutti_status check_label(const packed *p, int64_t index, int32_t y) {
    if (y >= 0 && y < p->about.n_classes) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA, "%s: label %d of sample %lld is out of range, 0 .. %lld", p->path,
                    (int)y, (long long)index, (long long)(p->about.n_classes - 1));
}

static tutti_status packed_fetch(const tti_source *source, int64_t index, tti_workspace *ws,
                                 int32_t *y) {
    const packed *p = source->state;
    const trailer *t = &p->about;
    size_t n = record_bytes(t);
    uint32_t crc;
    TTI_TRY(tti_buffer_reserve(&ws->file, n + TTI_IMAGE_PAD_BYTES));
    TTI_TRY(tti_pread_all(p->fd, p->path, ws->file.bytes, n, (uint64_t)index * n));
    memcpy(y, ws->file.bytes + n - 8, 4);
    memcpy(&crc, ws->file.bytes + n - 4, 4);
    if (crc != record_crc(t, index, ws->file.bytes))
        return tti_fail(TUTTI_E_DATA, "%s: damaged: the checksum of sample %lld is wrong", p->path,
                        (long long)index);
    return check_label(p, index, *y);
}

static tutti_status packed_label(const tti_source *source, int64_t index, int32_t *y) {
    const packed *p = source->state;
    uint64_t n = record_bytes(&p->about);
    TTI_TRY(tti_pread_all(p->fd, p->path, y, 4, (uint64_t)index * n + n - 8));
    return check_label(p, index, *y);
}

static tutti_status packed_unpack(const tti_source *source, const tti_sample_key *key,
                                  tti_workspace *ws, void *x) {
    const packed *p = source->state;
    tti_image image = {p->about.side, p->about.side, ws->file.bytes};
    return tti_image_set_place(&p->set, key, &image, ws, x);
}

static void packed_close(tti_source *source) {
    packed *p = source->state;
    if (p->fd >= 0) close(p->fd);
    tti_data_spec_release(p->of_files);
    free(p->path);
    free(p);
}

static tutti_status check_wanted(const tutti_dataset_desc *desc, const packed *p) {
    const trailer *t = &p->about;
    if (desc->n_samples > t->n_samples)
        return tti_fail(TUTTI_E_DATA, "%s: %lld samples are requested, the file has %lld", p->path,
                        (long long)desc->n_samples, (long long)t->n_samples);
    if (desc->n_classes > 0 && desc->n_classes != t->n_classes)
        return tti_fail(TUTTI_E_DATA, "%s: %lld classes, %lld are expected", p->path,
                        (long long)t->n_classes, (long long)desc->n_classes);
    return TUTTI_OK;
}

static const char *packed_class_name(const tti_source *source, int64_t label) {
    const packed *p = source->state;
    return p->of_files->class_names[label];
}

static tutti_status read_source(const char *dir, packed *p) {
    char path[MAX_PATH];
    if (snprintf(path, sizeof path, "%s/%s", dir, TTI_DATA_SPEC_FILE) >= MAX_PATH)
        return tti_fail(TUTTI_E_INVALID, "packed: the path is too long");
    if (access(path, F_OK) != 0) return TUTTI_OK;
    tutti_status st = tti_data_spec_load(dir, &p->of_files);
    if (st == TUTTI_E_CHECKPOINT) return tti_fail(TUTTI_E_DATA, "%s", tutti_last_error());
    if (st != TUTTI_OK || p->of_files->n_classes == p->about.n_classes) return st;
    return tti_fail(TUTTI_E_DATA,
                    "%s: describes %lld classes, and %s has %lld: pack the data set again", path,
                    (long long)p->of_files->n_classes, p->path, (long long)p->about.n_classes);
}

static tutti_status packed_open(const tutti_dataset_desc *desc, tti_source *source) {
    if (!desc->dir || !desc->dir[0])
        return tti_fail(TUTTI_E_INVALID,
                        "packed: data.dir is missing; give the folder of train.pack");
    packed *p = malloc(sizeof *p);
    if (!p) return tti_fail(TUTTI_E_NOMEM, "packed: out of memory");
    *p = (packed){.fd = -1};
    source->state = p;
    tutti_status st;
    TTI_TRY_GOTO(read_trailer(desc, p), cleanup);
    TTI_TRY_GOTO(check_wanted(desc, p), cleanup);
    TTI_TRY_GOTO(read_source(desc->dir, p), cleanup);
    tti_image_usual usual = tti_usual_photos;
    usual.size = TTI_MIN((int64_t)p->about.side, usual.size);
    bool as_packed = p->about.side == (desc->image_size > 0 ? desc->image_size : usual.size);
    if (as_packed) usual.fit = TTI_FIT_SQUARE; /* of a square all; of other images as packing did */
    TTI_TRY_GOTO(tti_image_set_init(desc, &usual, source, &p->set), cleanup);
    source->info.n_samples = desc->n_samples > 0 ? desc->n_samples : p->about.n_samples;
    source->info.n_classes = p->about.n_classes;
    source->is_fixed = tti_augment_is_none(&p->set.augment);
    if (p->of_files && p->of_files->class_names) source->class_name = packed_class_name;
    source->label = packed_label;
    source->fetch = packed_fetch;
    source->unpack = packed_unpack;
    source->close = packed_close;
cleanup:
    if (st != TUTTI_OK) packed_close(source);
    return st;
}

const tti_format tti_format_packed = {
    .name = "packed",
    .doc = "train.pack and val.pack: images of one size, as `tutti data pack` writes them",
    .open = packed_open,
};

/* ---- writing ---- */

/* Skipped samples are left out. */
static tutti_status write_records(const tutti_dataset *ds, tti_atomic_file *file, uint8_t *record,
                                  trailer *about) {
    tti_workspace ws = {0};
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < tutti_dataset_get_info(ds)->n_samples; i++) {
        bool skipped = false;
        int32_t y;
        st = tti_dataset_read(ds, &(tti_sample_key){.index = (uint64_t)i}, &ws, record, &y,
                              &skipped);
        if (st != TUTTI_OK || skipped) continue;
        memcpy(record + image_bytes(about), &y, 4);
        uint32_t crc = record_crc(about, about->n_samples, record);
        memcpy(record + image_bytes(about) + 4, &crc, 4);
        st = tti_atomic_file_write(file, record, record_bytes(about));
        about->n_samples++;
    }
    tti_workspace_free(&ws);
    return st;
}

static tutti_status write_file(const tutti_dataset *ds, const char *path, trailer *about) {
    tti_atomic_file *file = NULL;
    uint8_t *record = malloc(record_bytes(about));
    if (!record) return tti_fail(TUTTI_E_NOMEM, "packed: out of memory");
    tutti_status st;
    uint64_t n_bytes =
        (uint64_t)tutti_dataset_get_info(ds)->n_samples * record_bytes(about) + TRAILER;
    TTI_TRY_GOTO(tti_atomic_file_create(path, n_bytes, &file), cleanup);
    TTI_TRY_GOTO(write_records(ds, file, record, about), cleanup);
    if (about->n_samples == 0) {
        st = tti_fail(TUTTI_E_DATA, "%s: every sample was skipped", path);
        goto cleanup;
    }
    about->crc = trailer_crc(about);
    TTI_TRY_GOTO(tti_atomic_file_write(file, about, TRAILER), cleanup);
    TTI_TRY_GOTO(tti_atomic_file_commit(file), cleanup);
cleanup:
    tti_atomic_file_destroy(file);
    free(record);
    return st;
}

tutti_status tti_packed_write(const tutti_dataset *ds, const char *dir, tutti_data_split split,
                              tti_str *report) {
    char path[MAX_PATH];
    const tti_image_set *set = tti_dataset_state(ds);
    trailer about = {.version = VERSION,
                     .side = (uint32_t)set->size,
                     .n_classes = tutti_dataset_get_info(ds)->n_classes};
    memcpy(about.magic, magic, sizeof magic);
    TTI_TRY(file_path(dir, split, path));
    TTI_TRY(write_file(ds, path, &about));
    if (split == TUTTI_TRAIN) TTI_TRY(tti_data_spec_save(tti_dataset_spec(ds), dir));
    tti_str_printf(report, "%s: %lld images of %lld x %lld, %lld classes, %lld skipped\n", path,
                   (long long)about.n_samples, (long long)set->size, (long long)set->size,
                   (long long)tutti_dataset_get_info(ds)->n_classes,
                   (long long)tutti_dataset_n_skipped(ds));
    return TUTTI_OK;
}
