/* program_parts.c - reads tensors of a program in parts, which several threads read and convert to
 * f32.
 *
 * The checksum of an entry is combined from those of its parts. The calling thread reads a tensor
 * as a whole if its checksum covers other bytes too, or if its elements are not contiguous. */
#include "import/program/program_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32.h"
#include "base/error.h"

typedef struct reading {
    const tti_program_file *program;
    const tti_input_spec *const *specs;
    uint32_t crc; /* checksum of the parts of a tensor so far */
    tti_take_part_fn take;
    void *user;
} reading;

static bool is_in_archive(const reading *r, const tti_input_spec *spec) {
    return r->program->archive && !spec->bytes;
}

static size_t bytes_of(const tti_input_spec *spec, size_t n_elems) {
    return n_elems * (size_t)tti_elem_bytes(spec->elem);
}

static size_t n_elems_of(const void *user, int tensor, bool *is_whole) {
    const reading *r = user;
    const tti_input_spec *spec = r->specs[tensor];
    size_t n_elems = (size_t)tti_import_n_elems(&spec->shape);
    *is_whole = !tti_program_is_dense(spec) ||
                (is_in_archive(r, spec) &&
                 (spec->offset != 0 ||
                  tti_archive_size(r->program->archive, spec->entry) != bytes_of(spec, n_elems)));
    return n_elems;
}

/* ---- any thread ---- */

static tutti_status read_bytes(const reading *r, const tti_part *p, void *dst) {
    const tti_input_spec *spec = r->specs[p->tensor];
    size_t n_bytes = bytes_of(spec, p->n_elems), first = bytes_of(spec, p->first);
    if (!is_in_archive(r, spec))
        return tti_program_read_bytes(r->program, spec,
                                      first + bytes_of(spec, (size_t)spec->offset), n_bytes, dst);
    uint64_t begin = 0;
    TTI_TRY(tti_archive_locate(r->program->archive, spec->entry, &begin));
    return tti_archive_read_part(r->program->archive, begin, first, n_bytes, dst);
}

static tutti_status read_part(void *user, tti_part *p, float *memory) {
    const reading *r = user;
    const tti_input_spec *spec = r->specs[p->tensor];
    size_t n_bytes = bytes_of(spec, p->n_elems);
    bool converts = spec->elem != TTI_ELEM_F32;
    void *bytes = converts ? malloc(n_bytes + 1) : memory;
    if (!bytes) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", r->program->path);
    tutti_status st = read_bytes(r, p, bytes);
    if (st == TUTTI_OK && is_in_archive(r, spec)) p->crc = tti_crc32(0, bytes, n_bytes);
    if (st == TUTTI_OK && converts) tti_program_convert(spec->elem, bytes, p->n_elems, memory);
    if (converts) free(bytes);
    return st;
}

/* ---- the calling thread ---- */

static tutti_status take_whole(const reading *r, const tti_part *p) {
    float *data = malloc(p->n_elems * sizeof *data + 1);
    if (!data) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", r->program->path);
    tutti_status st = tti_program_load_f32(r->program, r->specs[p->tensor], data);
    if (st == TUTTI_OK) st = r->take(r->user, p->tensor, 0, p->n_elems, data);
    free(data);
    return st;
}

static tutti_status take_part(void *user, const tti_part *p, const float *memory) {
    reading *r = user;
    const tti_input_spec *spec = r->specs[p->tensor];
    if (p->is_whole) return take_whole(r, p);
    r->crc = p->first == 0 ? p->crc : tti_crc32_join(r->crc, p->crc, bytes_of(spec, p->n_elems));
    bool ends = p->first + p->n_elems == (size_t)tti_import_n_elems(&spec->shape);
    if (ends && is_in_archive(r, spec))
        TTI_TRY(tti_archive_compare(r->program->archive, spec->entry, r->crc));
    return r->take(r->user, p->tensor, p->first, p->n_elems, memory);
}

tutti_status tti_program_read_parts(const tti_program_file *program,
                                    const tti_input_spec *const *specs, int n,
                                    const tti_readers *readers, tti_take_part_fn take, void *user) {
    reading r = {.program = program, .specs = specs, .take = take, .user = user};
    return tti_read_parts(readers, n, n_elems_of, read_part, take_part, &r);
}
