/* idx.c - the format "idx": MNIST, Fashion-MNIST, KMNIST and other sets with their file names.
 *
 * Pixels stay u8.  A gzipped file is inflated into memory once per process.  Only the header of a
 * plain file is read at the start, and pixels are fetched sample by sample from the page cache,
 * which costs less than half a microsecond and no memory. */
#include "data/formats/idx.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "data/format.h"
#include "data/table/label_range.h"

enum { MAX_SAMPLE_BYTES = 1 << 26 };

typedef struct idx_state {
    uint8_t *pixels; /* all of them, or NULL: read from fd */
    uint8_t *labels;
    int fd; /* -1: none */
    uint64_t offset;
    size_t sample_bytes;
    char *path; /* of the images, for messages */
} idx_state;

/* ---- the file format ---- */

static tutti_status check_magic(tti_reader *reader, const uint8_t head[4], int n_dims) {
    if (head[0] == 0 && head[1] == 0 && head[2] == 8 && head[3] == n_dims) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: wrong magic %02x %02x %02x %02x, expected 00 00 08 %02x (IDX, u8, %d "
                    "dimensions)",
                    tti_reader_path(reader), head[0], head[1], head[2], head[3], (unsigned)n_dims,
                    n_dims);
}

tutti_status tti_idx_read_header(tti_reader *reader, int n_dims, tti_idx_header *out) {
    uint8_t head[4], dim[4];
    TTI_TRY(tti_reader_read(reader, head, 4, "header"));
    TTI_TRY(check_magic(reader, head, n_dims));
    tti_idx_header header = {.shape.n_dims = n_dims, .n_bytes = 1, .offset = 4};
    bool overflow = false, empty = false;
    for (int i = 0; i < n_dims; i++, header.offset += 4) {
        TTI_TRY(tti_reader_read(reader, dim, 4, "header"));
        uint32_t n =
            (uint32_t)dim[0] << 24 | (uint32_t)dim[1] << 16 | (uint32_t)dim[2] << 8 | dim[3];
        header.shape.dim[i] = n;
        empty |= n == 0;
        overflow |= __builtin_mul_overflow(header.n_bytes, (size_t)n, &header.n_bytes);
        overflow |= header.n_bytes > INT64_MAX;
    }
    if (empty)
        return tti_fail(TUTTI_E_DATA, "%s: a dimension is 0, there are no samples",
                        tti_reader_path(reader));
    if (overflow)
        return tti_fail(TUTTI_E_DATA, "%s: the dimensions overflow", tti_reader_path(reader));
    TTI_TRY(tti_reader_expect(reader, header.n_bytes));
    *out = header;
    return TUTTI_OK;
}

tutti_status tti_idx_read_elems(tti_reader *reader, const tti_idx_header *header, uint8_t **out) {
    uint8_t *elems = malloc(header->n_bytes);
    if (!elems)
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory for %zu bytes", tti_reader_path(reader),
                        header->n_bytes);
    tutti_status st = tti_reader_read(reader, elems, header->n_bytes, "data");
    if (st == TUTTI_OK) st = tti_reader_finish(reader);
    if (st == TUTTI_OK)
        *out = elems;
    else
        free(elems);
    return st;
}

/* ---- the files of a split ---- */

/* Opens the plain file, or else the gzipped one. */
static tutti_status open_part(const tutti_dataset_desc *desc, const char *part, tti_reader **out) {
    static const char *const suffixes[] = {"", ".gz"};
    const char *split = desc->split == TUTTI_TRAIN ? "train" : "t10k";
    for (size_t i = 0; i < TTI_COUNT(suffixes); i++) {
        char path[4096];
        int n =
            snprintf(path, sizeof path, "%s/%s-%s-ubyte%s", desc->dir, split, part, suffixes[i]);
        if (n < 0 || (size_t)n >= sizeof path)
            return tti_fail(TUTTI_E_INVALID, "idx: the name of the folder is too long");
        if (access(path, F_OK) != 0) continue;
        TTI_TRY(tti_reader_open(path, out));
        tti_reader_allow(*out, desc->max_unpacked);
        return TUTTI_OK;
    }
    return tti_fail(
        TUTTI_E_DATA,
        "%s: neither %s-%s-ubyte nor %s-%s-ubyte.gz exists; data.dir must hold the four files of "
        "MNIST (from https://storage.googleapis.com/cvdf-datasets/mnist/) or of a set like it",
        desc->dir, split, part, split, part);
}

static tutti_status open_images(const tutti_dataset_desc *desc, idx_state *state,
                                tutti_shape *out_shape) {
    tti_reader *reader;
    TTI_TRY(open_part(desc, "images-idx3", &reader));
    tti_idx_header header = {0};
    tutti_status st;
    TTI_TRY_GOTO(tti_idx_read_header(reader, 3, &header), cleanup);
    state->sample_bytes = header.n_bytes / (size_t)header.shape.dim[0];
    if (state->sample_bytes > MAX_SAMPLE_BYTES) {
        st = tti_fail(TUTTI_E_DATA, "%s: images of %zu bytes, at most %d are supported",
                      tti_reader_path(reader), state->sample_bytes, MAX_SAMPLE_BYTES);
        goto cleanup;
    }
    state->offset = header.offset;
    state->path = strdup(tti_reader_path(reader));
    if (!state->path) {
        st = tti_fail(TUTTI_E_NOMEM, "idx: out of memory");
        goto cleanup;
    }
    TTI_TRY_GOTO(tti_reader_is_gzip(reader)
                     ? tti_idx_read_elems(reader, &header, &state->pixels)
                     : tti_reader_release_fd(reader, header.n_bytes, &state->fd),
                 cleanup);
    *out_shape = header.shape;
cleanup:
    tti_reader_close(reader);
    return st;
}

/* n_classes 0 becomes the largest label + 1. */
static tutti_status check_labels(const tti_reader *reader, const uint8_t *labels, int64_t n,
                                 tti_label_range *range, int64_t *n_classes) {
    for (int64_t i = 0; i < n; i++) {
        if (*n_classes > 0 && labels[i] >= *n_classes)
            return tti_fail(TUTTI_E_DATA, "%s: label %d of sample %lld is out of range, 0 .. %lld",
                            tti_reader_path(reader), labels[i], (long long)i,
                            (long long)(*n_classes - 1));
        tti_label_range_add(range, labels[i], i);
    }
    if (*n_classes == 0) *n_classes = range->n > 0 ? range->most + 1 : 0;
    return TUTTI_OK;
}

static tutti_status open_labels(const tutti_dataset_desc *desc, tti_source *source,
                                int64_t n_images, int64_t *n_classes) {
    idx_state *state = source->state;
    tti_label_range range = {0};
    tti_reader *reader;
    TTI_TRY(open_part(desc, "labels-idx1", &reader));
    tti_idx_header header = {0};
    tutti_status st;
    TTI_TRY_GOTO(tti_idx_read_header(reader, 1, &header), cleanup);
    if (header.shape.dim[0] != n_images) {
        st = tti_fail(TUTTI_E_DATA, "%s: %lld labels for the %lld images of %s",
                      tti_reader_path(reader), (long long)header.shape.dim[0], (long long)n_images,
                      state->path);
        goto cleanup;
    }
    TTI_TRY_GOTO(tti_idx_read_elems(reader, &header, &state->labels), cleanup);
    TTI_TRY_GOTO(check_labels(reader, state->labels, n_images, &range, n_classes), cleanup);
    tti_label_range_note(&range, tti_reader_path(reader), desc, &source->notices);
cleanup:
    tti_reader_close(reader);
    return st;
}

/* ---- the data set ---- */

static tutti_status idx_read(const tti_source *source, int64_t index, void *x, int32_t *y) {
    const idx_state *state = source->state;
    size_t at = (size_t)index * state->sample_bytes;
    *y = state->labels[index];
    if (state->pixels) {
        memcpy(x, state->pixels + at, state->sample_bytes);
        return TUTTI_OK;
    }
    for (size_t done = 0; done < state->sample_bytes;) {
        ssize_t n = pread(state->fd, (char *)x + done, state->sample_bytes - done,
                          (off_t)(state->offset + at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return tti_fail(TUTTI_E_IO, "%s: cannot read image %lld: %s", state->path,
                            (long long)index, strerror(errno));
        if (n == 0)
            return tti_fail(TUTTI_E_DATA,
                            "%s: truncated while in use: image %lld can no longer be read",
                            state->path, (long long)index);
        done += (size_t)n;
    }
    return TUTTI_OK;
}

static void idx_close(tti_source *source) {
    idx_state *state = source->state;
    if (state->fd >= 0) close(state->fd);
    free(state->pixels);
    free(state->labels);
    free(state->path);
    free(state);
}

static tutti_status fill_info(const tutti_dataset_desc *desc, const tutti_shape *shape,
                              int64_t n_classes, tti_source *source) {
    const idx_state *state = source->state;
    if (desc->n_samples > shape->dim[0])
        return tti_fail(TUTTI_E_DATA, "%s: %lld samples are requested, the file has %lld",
                        state->path, (long long)desc->n_samples, (long long)shape->dim[0]);
    source->info.n_samples = desc->n_samples > 0 ? desc->n_samples : shape->dim[0];
    source->info.n_classes = n_classes;
    source->info.y = (tutti_type){TUTTI_I32, {0}};
    source->stored = (tutti_type){TUTTI_U8, TUTTI_SHAPE(1, shape->dim[1], shape->dim[2])};
    return TUTTI_OK;
}

static tutti_status idx_open(const tutti_dataset_desc *desc, tti_source *source) {
    if (!desc->dir || !desc->dir[0])
        return tti_fail(TUTTI_E_INVALID,
                        "idx: data.dir is missing; give the folder with the files");
    idx_state *state = malloc(sizeof *state);
    if (!state) return tti_fail(TUTTI_E_NOMEM, "idx: out of memory");
    *state = (idx_state){.fd = -1};
    source->state = state;
    source->read = idx_read;
    source->is_fixed = true;
    source->close = idx_close;
    tutti_shape shape = {0};
    int64_t n_classes = desc->n_classes;
    tutti_status st;
    TTI_TRY_GOTO(open_images(desc, state, &shape), cleanup);
    TTI_TRY_GOTO(open_labels(desc, source, shape.dim[0], &n_classes), cleanup);
    TTI_TRY_GOTO(fill_info(desc, &shape, n_classes, source), cleanup);
    TTI_TRY_GOTO(tti_source_normalise(desc, source), cleanup);
cleanup:
    if (st != TUTTI_OK) idx_close(source);
    return st;
}

const tti_format tti_format_idx = {
    .name = "idx",
    .doc = "the four files of MNIST and sets like it, plain or gzipped",
    .open = idx_open,
};
