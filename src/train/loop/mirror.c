/* mirror.c - the memory starts with a header that has the position of each version; then come the
 * stamps of both versions, then the arrays of both.  A version has the arrays of each part of the
 * model. */
#include "train/loop/mirror.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fault.h"
#include "train/loop/neighbors.h"
#include "train/setup/worker_exec.h"

enum { N_VERSIONS = TTI_MIRROR_VERSIONS, HEADER_BYTES = 8192, PAGE_BYTES = 4096 };

/* Marks a partition as written. step1 is the step plus one, or 0 before and while a rank writes
 * it. */
typedef struct stamp {
    _Atomic int64_t step1, n, epoch;
} stamp;

/* A new position is written next to the valid one, so that one is always complete. */
typedef struct version {
    _Atomic uint32_t valid;
    tti_carry_position positions[2];
} version;

typedef struct header {
    version versions[N_VERSIONS];
} header;

struct tti_mirror {
    const tti_blueprint *blueprint;
    header *header;
    size_t n_bytes, arrays_at;
    size_t version_elems; /* number of elements of all arrays of a version */
    size_t *first;        /* [n_parts + 1]: offset of the arrays of a part in a version */
    int n_parts;          /* parts of the model */
    bool divides_parts;   /* workers with the same part have different partitions of it */
    int n_arrays, most;   /* arrays per part; maximum number of partitions */
};

_Static_assert(sizeof(header) <= HEADER_BYTES, "the stamps begin after the header");

/* Computes the offsets of stamps and arrays.  They use the largest number of ranks, so they are the
 * same in every epoch. */
static tutti_status lay_out(const tti_blueprint *b, tti_mirror *m) {
    size_t stamp_bytes;
    m->blueprint = b;
    m->n_parts = TTI_MAX(b->n_model_ranks, 1);
    m->divides_parts =
        b->n_model_ranks == 0 || b->config.parallel.zero > 0 || tti_worker_serves_in_ranks(b);
    m->n_arrays = 1 + b->plan->n_states + (b->config.train.ema > 0);
    m->most = b->n_shards * m->n_parts;
    m->first = calloc((size_t)m->n_parts + 1, sizeof *m->first);
    if (!m->first) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    for (int i = 0; i < m->n_parts; i++)
        m->first[i + 1] = m->first[i] + (size_t)m->n_arrays * tti_blueprint_plan(b, i)->n_flat;
    m->version_elems = m->first[m->n_parts];
    stamp_bytes = N_VERSIONS * (size_t)m->most * sizeof(stamp);
    m->arrays_at = HEADER_BYTES + (stamp_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    m->n_bytes = m->arrays_at + N_VERSIONS * m->version_elems * sizeof(float);
    return TUTTI_OK;
}

static tutti_status map(int fd, tti_mirror *m) {
    struct stat info;
    void *at = MAP_FAILED;
    bool ok = fstat(fd, &info) == 0;
    if (ok && (size_t)info.st_size < m->n_bytes) ok = ftruncate(fd, (off_t)m->n_bytes) == 0;
    if (ok) at = mmap(NULL, m->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return tti_fail(TUTTI_E_NOMEM,
                        "parallel.mirror: no shared memory of %zu bytes: %s; give "
                        "parallel.mirror=false",
                        m->n_bytes, strerror(errno));
    m->header = at;
    return TUTTI_OK;
}

tutti_status tti_mirror_open(int fd, const tti_blueprint *b, tti_mirror **out) {
    *out = NULL;
    tti_mirror *m = calloc(1, sizeof *m);
    if (!m) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    tutti_status st = lay_out(b, m);
    if (st == TUTTI_OK) st = map(fd, m);
    if (st == TUTTI_OK)
        *out = m;
    else
        tti_mirror_close(m);
    return st;
}

void tti_mirror_close(tti_mirror *mirror) {
    if (!mirror) return;
    if (mirror->header) munmap(mirror->header, mirror->n_bytes);
    free(mirror->first);
    free(mirror);
}

static version *version_of(const tti_mirror *mirror, int64_t step) {
    return &mirror->header->versions[step % N_VERSIONS];
}

/* Returns the stamps [most] of the version of a step. */
static stamp *stamps_of(const tti_mirror *mirror, int64_t step) {
    stamp *all = (stamp *)(void *)((char *)mirror->header + HEADER_BYTES);
    return all + (step % N_VERSIONS) * mirror->most;
}

static size_t n_flat_of(const tti_mirror *m, int part) {
    return (m->first[part + 1] - m->first[part]) / (size_t)m->n_arrays;
}

float *tti_mirror_array(const tti_mirror *m, int64_t step, int part, int i) {
    size_t before = (size_t)(step % N_VERSIONS) * m->version_elems + m->first[part];
    float *arrays = (float *)((char *)m->header + m->arrays_at);
    return arrays + before + (size_t)i * n_flat_of(m, part);
}

/* The part of the model that a rank has (comm/mesh.h). */
static int part_of(const tti_mirror *m, int rank) { return rank % m->n_parts; }

/* The executor's number of array i: parameters, then state, then averages. */
static int key_of(const tti_exec *exec, const tti_mirror *mirror, int i) {
    if (i == 0) return TTI_STATE_PARAMS;
    bool is_ema = tti_exec_has_ema(exec) && i == mirror->n_arrays - 1;
    return is_ema ? TTI_STATE_EMA : i - 1;
}

static void set_position(version *v, const tti_carry_position *position) {
    uint32_t other = 1 - atomic_load(&v->valid);
    v->positions[other] = *position;
    atomic_store(&v->valid, other);
}

int tti_mirror_n_slots(const tti_mirror *mirror) { return mirror->most; }
int tti_mirror_slot_of(const tti_mirror *m, int rank) {
    return m->divides_parts ? rank : part_of(m, rank);
}

int tti_mirror_count_slots(const tti_mirror *m, int n_ranks) {
    return m->divides_parts ? n_ranks : m->n_parts;
}

bool tti_mirror_copies(const tti_mirror *m, int rank, int host_first) {
    return m->divides_parts || rank - host_first < m->n_parts;
}

bool tti_mirror_divides_parts(const tti_mirror *mirror) { return mirror->divides_parts; }
int tti_mirror_n_parts(const tti_mirror *mirror) { return mirror->n_parts; }

const tti_plan *tti_mirror_plan(const tti_mirror *mirror, int part) {
    return tti_blueprint_plan(mirror->blueprint, part);
}

tti_mirror_stamp tti_mirror_get_stamp(const tti_mirror *mirror, int i, int slot) {
    if (slot >= mirror->most) return (tti_mirror_stamp){0};
    const stamp *at = &stamps_of(mirror, i)[slot];
    int64_t step1 = atomic_load(&at->step1);
    return (tti_mirror_stamp){step1, atomic_load(&at->n), atomic_load(&at->epoch)};
}

void tti_mirror_begin(tti_mirror *mirror, int64_t step, int slot) {
    atomic_store(&stamps_of(mirror, step)[slot].step1, 0);
}

void tti_mirror_end(tti_mirror *mirror, int slot, const tti_mirror_stamp *now) {
    stamp *at = &stamps_of(mirror, now->step1 - 1)[slot];
    atomic_store(&at->n, now->n);
    atomic_store(&at->epoch, now->epoch);
    atomic_store(&at->step1, now->step1);
}

tti_carry_position tti_mirror_get_position(const tti_mirror *mirror, int64_t step) {
    const version *v = version_of(mirror, step);
    const tti_carry_position at = v->positions[atomic_load(&v->valid)];
    return at.state.step == step ? at : (tti_carry_position){0};
}

int tti_mirror_n_arrays(const tti_mirror *mirror) { return mirror->n_arrays; }

tutti_status tti_mirror_enter(tti_carry *carry, tutti_comm *comm, tti_exec *exec) {
    tti_neighbors_destroy(carry->neighbors);
    carry->neighbors = NULL;
    if (carry->epoch == 0) return TUTTI_OK;
    return tti_neighbors_create(carry->host_first, comm, exec, carry->mirror, &carry->neighbors);
}

/* Clears stamps of a previous epoch, so that they cannot complete a version that this epoch
 * overwrites. */
static void forget_former(const tti_mirror *mirror, int64_t step, uint64_t epoch) {
    stamp *stamps = stamps_of(mirror, step);
    for (int r = 0; r < mirror->most; r++)
        if (atomic_load(&stamps[r].epoch) != (int64_t)epoch) atomic_store(&stamps[r].step1, 0);
}

tutti_status tti_mirror_put(const tti_carry *carry, tutti_comm *comm, tti_exec *exec,
                            const tti_carry_position *position) {
    tti_mirror *mirror = carry->mirror;
    int64_t step = position->state.step;
    int rank = tutti_comm_rank(comm);
    int part = part_of(mirror, rank), slot = tti_mirror_slot_of(mirror, rank);
    int n = tti_mirror_count_slots(mirror, tutti_comm_n_ranks(comm));
    const tti_mirror_stamp now = {step + 1, n, (int64_t)carry->epoch};
    bool copies = tti_mirror_copies(mirror, rank, carry->host_first);
    if (copies) tti_mirror_begin(mirror, step, slot);
    if (copies) TTI_TRY(tti_exec_pull(exec));
    for (int i = 0; i < mirror->n_arrays && copies; i++)
        tti_exec_copy_own(exec, key_of(exec, mirror, i), tti_mirror_array(mirror, step, part, i));
    (void)TTI_FAULT_AT("mirror.put", rank, step);
    if (rank == carry->host_first) set_position(version_of(mirror, step), position);
    if (copies) tti_mirror_end(mirror, slot, &now);
    TTI_TRY(tti_neighbors_put(carry->neighbors, comm, &now));
    TTI_TRY(tutti_comm_barrier(comm));
    if (rank == carry->host_first) forget_former(mirror, step + 1, carry->epoch);
    return TUTTI_OK;
}

void tti_mirror_note(tti_mirror *mirror, const tti_carry_position *position) {
    set_position(version_of(mirror, position->state.step), position);
}

/* The step of version i if all partitions of one epoch are written; else -1. */
static int64_t complete_step(const tti_mirror *mirror, int i) {
    const tti_mirror_stamp first = tti_mirror_get_stamp(mirror, i, 0);
    for (int slot = 0; slot < (int)first.n; slot++) {
        const tti_mirror_stamp at = tti_mirror_get_stamp(mirror, i, slot);
        if (memcmp(&at, &first, sizeof at) != 0) return -1;
    }
    return first.step1 - 1;
}

/* Completes the mirror of this host from other hosts, then finds the newest complete step; -1:
 * none. */
static tutti_status find_step(const tti_carry *carry, tutti_comm *comm, tti_exec *exec,
                              int64_t *step, tti_carry_position *position) {
    const tti_mirror *mirror = carry->mirror;
    bool is_first = tutti_comm_rank(comm) == carry->host_first;
    *step = -1;
    if (carry->epoch > 0) {
        TTI_TRY(tti_neighbors_collect(carry, comm, exec, step, position));
        if (*step >= 0 && is_first) set_position(version_of(mirror, *step), position);
        return TUTTI_OK;
    }
    for (int i = 0; i < N_VERSIONS; i++) *step = TTI_MAX(*step, complete_step(mirror, i));
    if (*step >= 0) *position = tti_mirror_get_position(mirror, *step);
    return TUTTI_OK;
}

tutti_status tti_mirror_load(const tti_carry *carry, tutti_comm *comm, tti_exec *exec,
                             tti_carry_position *position, bool *any) {
    const tti_mirror *mirror = carry->mirror;
    int64_t step;
    TTI_TRY(find_step(carry, comm, exec, &step, position));
    *any = step >= 0;
    if (*any) {
        position->state.shard_map = NULL; /* a pointer of another process */
        TTI_TRY(tti_exec_pull(exec));     /* allocates the arrays on the host */
        int part = part_of(mirror, tutti_comm_rank(comm));
        for (int i = 0; i < mirror->n_arrays; i++)
            tti_exec_store(exec, key_of(exec, mirror, i), 0, n_flat_of(mirror, part),
                           tti_mirror_array(mirror, step, part, i));
        TTI_TRY(tti_exec_push(exec));
    }
    TTI_TRY(tutti_comm_barrier(comm)); /* all ranks have read the mirror */
    if (tutti_comm_rank(comm) == carry->host_first)
        for (int64_t i = step + 1; i < step + (*any ? 2 : 3); i++)
            for (int r = 0; r < mirror->most; r++) atomic_store(&stamps_of(mirror, i)[r].step1, 0);
    return tutti_comm_barrier(comm);
}
