/* ckpt_load.c - opens one checkpoint folder, verifies it, and reads tensors from it.
 *
 * The manifest is the authority: its own checksum is checked first, then sizes and headers against
 * it, then every tensor.  A file is never trusted without it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_dir.h"
#include "ckpt/manifest.h"

struct tti_ckpt {
    tti_arena arena;
    const char *dir;
    tti_manifest manifest;
    tti_safetensors *files[TTI_CKPT_N_FILES];
};

/* Reading trouble of any kind is, for a caller, a bad checkpoint. */
static tutti_status as_checkpoint(tutti_status st) {
    return st == TUTTI_E_IO || st == TUTTI_E_UNSUPPORTED ? TUTTI_E_CHECKPOINT : st;
}

static tutti_status fail_crc(const char *path, const char *place, uint32_t found,
                             uint32_t expected) {
    return tti_fail(TUTTI_E_CHECKPOINT,
                    "%s: %s: CRC-32C %08" PRIx32 " found, %08" PRIx32 " expected", path, place,
                    found, expected);
}

/* Reads a whole file of at most max bytes; *out is freed with free(). */
static tutti_status slurp(const char *path, uint64_t max, char **out, size_t *n_bytes) {
    int fd;
    uint64_t n;
    TTI_TRY(tti_ckpt_open_file(path, &fd, &n));
    char *text = NULL;
    tutti_status st = TUTTI_OK;
    if (n > max)
        st = tti_fail(TUTTI_E_CHECKPOINT, "%s: %llu bytes, at most %llu are allowed", path,
                      (unsigned long long)n, (unsigned long long)max);
    else if (!(text = malloc(n + 1)))
        st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    else
        st = tti_ckpt_pread(path, fd, text, n, 0);
    close(fd);
    if (st != TUTTI_OK) {
        free(text);
        return st;
    }
    *out = text;
    *n_bytes = n;
    return TUTTI_OK;
}

static tutti_status load_manifest(tti_ckpt *ckpt) {
    const char *path = tti_ckpt_path(&ckpt->arena, ckpt->dir, TTI_MANIFEST_NAME);
    if (!path) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", ckpt->dir);
    char *text;
    size_t n_bytes;
    TTI_TRY(slurp(path, TTI_MANIFEST_MAX_BYTES, &text, &n_bytes));
    tutti_status st = tti_manifest_parse(text, n_bytes, &ckpt->manifest);
    free(text);
    if (st != TUTTI_OK) {
        tti_fail_context("%s: ", path);
        return st;
    }
    const char *slash = strrchr(ckpt->dir, '/');
    int64_t step = tti_ckpt_name_step(slash ? slash + 1 : ckpt->dir);
    if (step >= 0 && step != ckpt->manifest.meta.step)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: is of step %lld, the folder's name is not", path,
                        (long long)ckpt->manifest.meta.step);
    return TUTTI_OK;
}

/* Size and header as the manifest says, before the header is parsed. */
static tutti_status check_head(const char *path, const tti_manifest_file *expected) {
    int fd;
    uint64_t n_bytes;
    TTI_TRY(tti_ckpt_open_file(path, &fd, &n_bytes));
    tutti_status st = TUTTI_OK;
    char *head = malloc(expected->n_header_bytes);
    if (!head)
        st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    else if (n_bytes != expected->n_bytes)
        st = tti_fail(TUTTI_E_CHECKPOINT, "%s: %llu bytes, the manifest says %llu (%s)", path,
                      (unsigned long long)n_bytes, (unsigned long long)expected->n_bytes,
                      n_bytes < expected->n_bytes ? "truncated" : "trailing bytes");
    else
        st = tti_ckpt_pread(path, fd, head, expected->n_header_bytes, 0);
    close(fd);
    uint32_t crc = st == TUTTI_OK ? tti_crc32c(0, head, expected->n_header_bytes) : 0;
    free(head);
    if (st == TUTTI_OK && crc != expected->header_crc)
        st = fail_crc(path, "the header, from byte 0", crc, expected->header_crc);
    return st;
}

static bool same_type(const tutti_type *a, const tutti_type *b) {
    bool same = a->dtype == b->dtype && a->shape.n_dims == b->shape.n_dims;
    for (int i = 0; same && i < a->shape.n_dims; i++) same = a->shape.dim[i] == b->shape.dim[i];
    return same;
}

static tutti_status open_file(tti_ckpt *ckpt, tti_ckpt_file which) {
    const tti_manifest_file *expected = &ckpt->manifest.files[which];
    const char *path = tti_ckpt_path(&ckpt->arena, ckpt->dir, tti_ckpt_file_name(which));
    if (!path) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", ckpt->dir);
    TTI_TRY(check_head(path, expected));
    TTI_TRY(tti_safetensors_open(path, &ckpt->files[which]));
    tti_safetensors *file = ckpt->files[which];
    bool same = file->n_bytes == expected->n_bytes && file->n_entries == expected->n_entries &&
                file->n_header_bytes == expected->n_header_bytes;
    for (size_t i = 0; same && i < file->n_entries; i++) {
        same = strcmp(file->entries[i].name, expected->entries[i].name) == 0 &&
               same_type(&file->entries[i].type, &expected->entries[i].type);
        file->entries[i].crc = expected->entries[i].crc;
    }
    if (same) return TUTTI_OK;
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: its tensors are not those of the manifest", path);
}

static tutti_status compare_crc(const tti_safetensors *file, const tti_safetensors_entry *entry,
                                uint32_t crc) {
    if (crc == entry->crc) return TUTTI_OK;
    tti_str place = {0};
    tti_str_printf(&place, "tensor '%s' at bytes %llu .. %llu", entry->name,
                   (unsigned long long)entry->offset,
                   (unsigned long long)(entry->offset + entry->n_bytes));
    tutti_status st = fail_crc(file->path, tti_str_text(&place), crc, entry->crc);
    tti_str_free(&place);
    return st;
}

/* Reads one tensor and compares its checksum. */
static tutti_status read_tensor(const tti_safetensors *file, const tti_safetensors_entry *entry,
                                void *dst) {
    uint32_t crc;
    TTI_TRY(tti_safetensors_read(file, entry, dst, &crc));
    return compare_crc(file, entry, crc);
}

/* ---- many tensors, in parts that several threads read ---- */

typedef struct part {
    size_t entry; /* number among those that are read */
    uint64_t first;
    size_t n_bytes;
    uint32_t crc;
} part;

typedef struct reading {
    const tti_safetensors *file;
    const tti_safetensors_entry *const *entries; /* [n_entries] */
    size_t n_entries;
    part *parts;
    uint32_t crc;                    /* of the parts of a tensor so far */
    const tti_ckpt_access *access;   /* NULL: tensors are only verified */
    const tti_ckpt_tensor **tensors; /* [n_entries] */
} reading;

/* parts: NULL, or where they go; returns their number.  An empty tensor has one. */
static int64_t cut(const reading *r, part *parts) {
    int64_t n = 0;
    for (size_t i = 0; i < r->n_entries; i++) {
        uint64_t n_bytes = r->entries[i]->n_bytes, first = 0;
        do {
            size_t n_here = (size_t)TTI_MIN(n_bytes - first, (uint64_t)TTI_CKPT_PART_BYTES);
            if (parts) parts[n] = (part){i, first, n_here, 0};
            first += n_here;
            n++;
        } while (first < n_bytes);
    }
    return n;
}

static tutti_status read_part(void *user, int64_t item, void *memory) {
    const reading *r = user;
    part *p = &r->parts[item];
    uint64_t begin = r->entries[p->entry]->offset + p->first;
    TTI_TRY(tti_ckpt_pread(r->file->path, r->file->fd, memory, p->n_bytes, begin));
    p->crc = tti_crc32c(0, memory, p->n_bytes);
    return TUTTI_OK;
}

static tutti_status take_part(void *user, int64_t item, void *memory) {
    reading *r = user;
    const part *p = &r->parts[item];
    const tti_safetensors_entry *entry = r->entries[p->entry];
    r->crc = p->first == 0 ? p->crc : tti_crc32c_join(r->crc, p->crc, p->n_bytes);
    if (p->first + p->n_bytes == entry->n_bytes) TTI_TRY(compare_crc(r->file, entry, r->crc));
    if (!r->access) return TUTTI_OK;
    return r->access->put(r->access->user, r->tensors[p->entry], p->first, p->n_bytes, memory);
}

static tutti_status read_parts(reading *r, const tti_readers *readers) {
    int64_t n_parts = cut(r, NULL);
    r->parts = malloc((size_t)(n_parts + 1) * sizeof *r->parts);
    if (!r->parts) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", r->file->path);
    cut(r, r->parts);
    tutti_status st = tti_read_ahead(&(tti_read_ahead_desc){.readers = readers,
                                                            .n_items = n_parts,
                                                            .item_bytes = TTI_CKPT_PART_BYTES,
                                                            .read = read_part,
                                                            .use = take_part,
                                                            .user = r});
    free(r->parts);
    return st;
}

static tutti_status verify_tensors(const tti_safetensors *file, const tti_readers *readers) {
    const tti_safetensors_entry **entries = malloc((file->n_entries + 1) * sizeof *entries);
    if (!entries) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", file->path);
    for (size_t i = 0; i < file->n_entries; i++) entries[i] = &file->entries[i];
    reading r = {.file = file, .entries = entries, .n_entries = file->n_entries};
    tutti_status st = read_parts(&r, readers);
    free(entries);
    return st;
}

static tutti_status verify_file(const tti_ckpt *ckpt, tti_ckpt_file which,
                                const tti_readers *readers) {
    const tti_manifest_file *expected = &ckpt->manifest.files[which];
    const tti_safetensors *file = ckpt->files[which];
    uint32_t crc = file->header_crc;
    TTI_TRY(verify_tensors(file, readers));
    for (size_t i = 0; i < file->n_entries; i++)
        crc = tti_crc32c_join(crc, file->entries[i].crc, file->entries[i].n_bytes);
    return crc == expected->crc ? TUTTI_OK
                                : fail_crc(file->path, "the whole file", crc, expected->crc);
}

static tutti_status open_files(tti_ckpt *ckpt, bool verify, const tti_readers *readers) {
    TTI_TRY(load_manifest(ckpt));
    for (int p = 0; p < TTI_CKPT_N_FILES; p++) TTI_TRY(open_file(ckpt, (tti_ckpt_file)p));
    for (int p = 0; verify && p < TTI_CKPT_N_FILES; p++)
        TTI_TRY(verify_file(ckpt, (tti_ckpt_file)p, readers));
    return TUTTI_OK;
}

static tutti_status open_dir(const char *dir, bool verify, const tti_readers *readers,
                             tti_ckpt **out) {
    *out = NULL;
    tti_ckpt *ckpt = calloc(1, sizeof *ckpt);
    if (!ckpt) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", dir);
    ckpt->dir = tti_arena_strdup(&ckpt->arena, dir);
    tutti_status st = ckpt->dir ? open_files(ckpt, verify, readers)
                                : tti_fail(TUTTI_E_NOMEM, "%s: out of memory", dir);
    if (st != TUTTI_OK) {
        tti_ckpt_close(ckpt);
        return as_checkpoint(st);
    }
    *out = ckpt;
    return TUTTI_OK;
}

tutti_status tti_ckpt_open_dir(const char *dir, bool verify, tti_ckpt **out) {
    return open_dir(dir, verify, NULL, out);
}

tutti_status tti_ckpt_open_dir_by(const char *dir, const tti_readers *readers, tti_ckpt **out) {
    return open_dir(dir, true, readers, out);
}

void tti_ckpt_close(tti_ckpt *ckpt) {
    if (!ckpt) return;
    for (int p = 0; p < TTI_CKPT_N_FILES; p++) tti_safetensors_close(ckpt->files[p]);
    tti_manifest_free(&ckpt->manifest);
    tti_arena_free(&ckpt->arena);
    free(ckpt);
}

const char *tti_ckpt_dir(const tti_ckpt *ckpt) { return ckpt->dir; }

const tti_ckpt_meta *tti_ckpt_get_meta(const tti_ckpt *ckpt) { return &ckpt->manifest.meta; }

const char *tti_ckpt_get_text(const tti_ckpt *ckpt, const char *key) {
    for (size_t i = 0; i < ckpt->manifest.n_texts; i++)
        if (strcmp(ckpt->manifest.texts[i].key, key) == 0) return ckpt->manifest.texts[i].text;
    return NULL;
}

size_t tti_ckpt_n_tensors(const tti_ckpt *ckpt, tti_ckpt_file which) {
    return ckpt->files[which]->n_entries;
}

const tti_safetensors_entry *tti_ckpt_tensor_at(const tti_ckpt *ckpt, tti_ckpt_file which,
                                                size_t i) {
    TTI_ASSERT(i < ckpt->files[which]->n_entries);
    return &ckpt->files[which]->entries[i];
}

/* ---- matching the caller's tensors with those of a file, both sorted by name ---- */

typedef struct matching {
    const tti_ckpt_tensor **wanted;
    const tti_safetensors_entry **found;
    size_t n_wanted, n_found;
    size_t n_differences;
    tti_str text; /* the first of them, a line each */
} matching;

static int by_wanted_name(const void *a, const void *b) {
    const tti_ckpt_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int by_found_name(const void *a, const void *b) {
    const tti_safetensors_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static tutti_status matching_init(matching *m, const tti_safetensors *file,
                                  const tti_ckpt_tensor *tensors, size_t n_tensors) {
    *m = (matching){.n_wanted = n_tensors, .n_found = file->n_entries};
    m->wanted = calloc(n_tensors + 1, sizeof *m->wanted);
    m->found = calloc(file->n_entries + 1, sizeof *m->found);
    if (!m->wanted || !m->found) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", file->path);
    for (size_t i = 0; i < n_tensors; i++) m->wanted[i] = &tensors[i];
    for (size_t i = 0; i < file->n_entries; i++) m->found[i] = &file->entries[i];
    qsort(m->wanted, n_tensors, sizeof *m->wanted, by_wanted_name);
    qsort(m->found, file->n_entries, sizeof *m->found, by_found_name);
    return TUTTI_OK;
}

static void matching_fini(matching *m) {
    free(m->wanted);
    free(m->found);
    tti_str_free(&m->text);
}

/* Notes one difference; either side may be NULL. */
static void differ(matching *m, const tti_ckpt_tensor *wanted, const tti_safetensors_entry *found) {
    enum { MAX_SHOWN = 10 };
    if (m->n_differences++ >= MAX_SHOWN) return;
    tti_str_printf(&m->text, "\n  %s: ", wanted ? wanted->name : found->name);
    if (wanted) tti_safetensors_type(&m->text, &wanted->type);
    tti_str_add(&m->text, wanted ? " wanted, " : "not wanted, ");
    if (found) tti_safetensors_type(&m->text, &found->type);
    tti_str_add(&m->text, found ? " in the checkpoint" : "not in the checkpoint");
}

static void compare_sorted(matching *m) {
    size_t i = 0, k = 0;
    while (i < m->n_wanted || k < m->n_found) {
        int order = i == m->n_wanted  ? 1
                    : k == m->n_found ? -1
                                      : strcmp(m->wanted[i]->name, m->found[k]->name);
        if (order < 0)
            differ(m, m->wanted[i++], NULL);
        else if (order > 0)
            differ(m, NULL, m->found[k++]);
        else {
            if (!same_type(&m->wanted[i]->type, &m->found[k]->type))
                differ(m, m->wanted[i], m->found[k]);
            i++, k++;
        }
    }
}

/* Both lists are the same, one by one. */
static tutti_status read_same(const tti_safetensors *file, const matching *m,
                              const tti_ckpt_access *access) {
    reading r = {.file = file,
                 .entries = m->found,
                 .n_entries = m->n_found,
                 .access = access,
                 .tensors = m->wanted};
    if (access) return read_parts(&r, access->readers);
    for (size_t i = 0; i < m->n_found; i++)
        TTI_TRY(read_tensor(file, m->found[i], m->wanted[i]->data));
    return TUTTI_OK;
}

static tutti_status read_matched(const tti_safetensors *file, matching *m,
                                 const tti_ckpt_access *access) {
    compare_sorted(m);
    if (m->n_differences == 0) return read_same(file, m, access);
    if (m->n_differences > 10) tti_str_add(&m->text, "\n  ...");
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: is of another model: %zu tensors differ%s", file->path,
                    m->n_differences, tti_str_text(&m->text));
}

tutti_status tti_ckpt_read(const tti_ckpt *ckpt, tti_ckpt_file which,
                           const tti_ckpt_tensor *tensors, size_t n_tensors) {
    return tti_ckpt_read_by(ckpt, which, tensors, n_tensors, NULL);
}

tutti_status tti_ckpt_read_by(const tti_ckpt *ckpt, tti_ckpt_file which,
                              const tti_ckpt_tensor *tensors, size_t n_tensors,
                              const tti_ckpt_access *access) {
    matching m;
    const tti_safetensors *file = ckpt->files[which];
    tutti_status st = matching_init(&m, file, tensors, n_tensors);
    if (st == TUTTI_OK) st = read_matched(file, &m, access);
    matching_fini(&m);
    return as_checkpoint(st);
}
