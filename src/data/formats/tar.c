/* tar.c - the format "tar": shards in WebDataset's naming, read in place.
 *
 * Each archive is indexed when the set is opened (tar_index.c); a sample is then one pread of a
 * file that is opened for it, in any order. data.dir is a folder, a file, a pattern, or a name with
 * braces: "shards/train-{000..146}.tar".  Names with train and val in them decide the split, else a
 * hash of shard and sample name. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/philox.h"
#include "data/files/braces.h"
#include "data/files/file_list.h"
#include "data/formats/tar_index.h"
#include "data/image/image_set.h"
#include "data/table/label_range.h"

enum { MAX_NAME = 4096 + 600 };

typedef struct tar {
    tti_image_set set; /* first */
    tti_file_list files;
    tti_tar_index index;
} tar;

static tutti_status find_files(const tutti_dataset_desc *desc, tti_file_list *out) {
    if (!desc->dir || !strchr(desc->dir, '{')) return tti_file_list_make(desc, "tar", ".tar", out);
    *out = (tti_file_list){0};
    TTI_TRY(tti_expand_braces(desc->dir, &out->path, &out->n));
    return tti_file_list_choose(desc, "tar", out);
}

/* Drops the samples that are of the other split. */
static void keep_split(const tutti_dataset_desc *desc, tti_tar_index *index) {
    int64_t n = 0;
    for (int64_t i = 0; i < index->n; i++) {
        char name[32];
        const tti_tar_sample *s = &index->samples[i];
        snprintf(name, sizeof name, "%016llx",
                 (unsigned long long)tti_mix64(s->key, (uint64_t)s->shard));
        if (tti_hash_splits(desc, name)) index->samples[n++] = *s;
    }
    index->n = n;
}

/* Names, places, sizes and labels of all samples. */
static uint32_t list_samples(const tti_tar_index *index) {
    const size_t n_bytes = offsetof(tti_tar_sample, shard) + sizeof index->samples->shard;
    uint32_t crc = 0;
    for (int64_t i = 0; i < index->n; i++) crc = tti_crc32c(crc, &index->samples[i], n_bytes);
    return crc;
}

static tutti_status index_files(tar *t) {
    for (size_t i = 0; i < t->files.n; i++) {
        int fd;
        uint64_t n_bytes;
        TTI_TRY(tti_open_regular(t->files.path[i], &fd, &n_bytes));
        tti_tar_source source = tti_tar_from_fd(fd, t->files.path[i], n_bytes);
        tutti_status st = tti_tar_index_add(&t->index, &source, (int)i);
        close(fd);
        TTI_TRY(st);
    }
    return TUTTI_OK;
}

static tutti_status limit(const tutti_dataset_desc *desc, tti_tar_index *index) {
    if (index->n == 0)
        return tti_fail(TUTTI_E_DATA,
                        "%s: no samples were found for the %s split (NAME.jpg or NAME.png, each "
                        "with NAME.cls); of few samples data.val_fraction may choose none",
                        desc->dir, desc->split == TUTTI_TRAIN ? "training" : "test");
    if (desc->n_samples > index->n)
        return tti_fail(TUTTI_E_DATA, "%s: %lld samples are requested, there are %lld", desc->dir,
                        (long long)desc->n_samples, (long long)index->n);
    if (desc->n_samples > 0) index->n = desc->n_samples;
    return TUTTI_OK;
}

/* "shard.tar: member 'name'"; reads the header again, for failures only. */
static void name_sample(const tar *t, const tti_tar_sample *s, char out[MAX_NAME]) {
    char name[600] = "?";
    const char *path = t->files.path[s->shard];
    int fd;
    uint64_t n_bytes;
    if (tti_open_regular(path, &fd, &n_bytes) == TUTTI_OK) {
        tti_tar_source source = tti_tar_from_fd(fd, path, n_bytes);
        tti_tar_member_name(&source, s->offset, name, sizeof name);
        close(fd);
    }
    snprintf(out, MAX_NAME, "%s: member '%s'", path, name);
}

/* n_classes counts all samples, whatever the split. */
static tutti_status count_classes(const tutti_dataset_desc *desc, tti_source *source) {
    const tar *t = source->state;
    enum { USUAL_CLASSES = 1024 };
    tti_label_range range = {0};
    int64_t n_classes = desc->n_classes;
    for (int64_t i = 0; i < t->index.n; i++)
        tti_label_range_add(&range, t->index.samples[i].label, i);
    char name[MAX_NAME];
    if (t->index.n == 0) return TUTTI_OK; /* limit() says so */
    name_sample(t, &t->index.samples[range.most_at], name);
    TTI_TRY(tti_label_range_check(&range, name, "data.classes", USUAL_CLASSES, &n_classes));
    tti_label_range_note(&range, desc->dir, desc, &source->notices);
    source->info.n_classes = n_classes;
    return TUTTI_OK;
}

static tutti_status tar_fetch(const tti_source *source, int64_t index, tti_workspace *ws,
                              int32_t *y) {
    const tar *t = source->state;
    const tti_tar_sample *s = &t->index.samples[index];
    *y = s->label;
    return tti_fetch_bytes(t->files.path[s->shard], s->offset, s->n_bytes, ws);
}

static tutti_status tar_label(const tti_source *source, int64_t index, int32_t *y) {
    *y = ((const tar *)source->state)->index.samples[index].label;
    return TUTTI_OK;
}

/* An error message includes the sample's name, if there is one. */
static tutti_status tar_unpack(const tti_source *source, const tti_sample_key *key,
                               tti_workspace *ws, void *x) {
    const tar *t = source->state;
    tutti_status st = tti_image_set_unpack(&t->set, key, "image", ws, x);
    if (st != TUTTI_OK) {
        char text[512], name[MAX_NAME];
        snprintf(text, sizeof text, "%s", tutti_last_error());
        name_sample(t, &t->index.samples[key->index], name);
        return tti_fail(st, "%s: %s", name, text);
    }
    return TUTTI_OK;
}

static void tar_close(tti_source *source) {
    tar *t = source->state;
    tti_file_list_free(&t->files);
    tti_tar_index_free(&t->index);
    free(t);
}

static tutti_status tar_open(const tutti_dataset_desc *desc, tti_source *source) {
    tar *t = calloc(1, sizeof *t);
    if (!t) return tti_fail(TUTTI_E_NOMEM, "tar: out of memory");
    source->state = t;
    tutti_status st;
    TTI_TRY_GOTO(find_files(desc, &t->files), cleanup);
    TTI_TRY_GOTO(index_files(t), cleanup);
    TTI_TRY_GOTO(count_classes(desc, source), cleanup);
    if (t->files.both) keep_split(desc, &t->index);
    TTI_TRY_GOTO(limit(desc, &t->index), cleanup);
    TTI_TRY_GOTO(tti_image_set_init(desc, &tti_usual_photos, source, &t->set), cleanup);
    source->listing = list_samples(&t->index);
    source->info.n_samples = t->index.n;
    source->info.n_ignored = t->files.n_ignored + t->index.n_ignored;
    source->label = tar_label;
    source->fetch = tar_fetch;
    source->unpack = tar_unpack;
    source->close = tar_close;
cleanup:
    if (st != TUTTI_OK) tar_close(source);
    return st;
}

const tti_format tti_format_tar = {
    .name = "tar",
    .doc = "tar archives in WebDataset's naming, NAME.jpg or NAME.png with NAME.cls, read in place",
    .open = tar_open,
    .packs_images = true,
};
