/* mirror.c - the layout of the memory: a header with the stamps and the position of each version,
 * then the arrays of both. */
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
#include "train/setup/memory_check.h"

enum { N_VERSIONS = 2, HEADER_BYTES = 8192 };

/* A rank has written its partition; step1 is the step plus one, or 0 while it writes and before. */
typedef struct stamp {
    _Atomic int64_t step1, n_ranks;
} stamp;

/* The position is written beside the valid one. */
typedef struct version {
    stamp stamps[TTI_MAX_WORKERS];
    _Atomic uint32_t valid;
    tti_carry_position positions[2];
} version;

typedef struct header {
    version versions[N_VERSIONS];
} header;

struct tti_mirror {
    header *header;
    size_t n_bytes, n_flat;
    int n_arrays;
};

_Static_assert(sizeof(header) <= HEADER_BYTES, "the arrays begin after the header");

tutti_status tti_mirror_open(int fd, const tti_plan *plan, bool has_ema, tti_mirror **out) {
    size_t n_bytes = HEADER_BYTES + tti_mirror_bytes(plan, has_ema);
    struct stat info;
    void *at = MAP_FAILED;
    *out = NULL;
    bool ok = fstat(fd, &info) == 0;
    if (ok && (size_t)info.st_size < n_bytes) ok = ftruncate(fd, (off_t)n_bytes) == 0;
    if (ok) at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return tti_fail(TUTTI_E_NOMEM,
                        "parallel.mirror: no shared memory of %zu bytes: %s; give "
                        "parallel.mirror=false",
                        n_bytes, strerror(errno));
    *out = malloc(sizeof **out);
    if (*out) {
        **out = (tti_mirror){at, n_bytes, plan->n_flat, 1 + plan->n_states + has_ema};
        return TUTTI_OK;
    }
    munmap(at, n_bytes);
    return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
}

void tti_mirror_close(tti_mirror *mirror) {
    if (!mirror) return;
    munmap(mirror->header, mirror->n_bytes);
    free(mirror);
}

static version *version_of(const tti_mirror *mirror, int64_t step) {
    return &mirror->header->versions[step % N_VERSIONS];
}

static float *array_of(const tti_mirror *mirror, int64_t step, int i) {
    size_t before = (size_t)(step % N_VERSIONS) * (size_t)mirror->n_arrays + (size_t)i;
    return (float *)((char *)mirror->header + HEADER_BYTES) + before * mirror->n_flat;
}

/* Parameters, then state, then averages. */
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

tutti_status tti_mirror_put(tti_mirror *mirror, tutti_comm *comm, tti_exec *exec,
                            const tti_carry_position *position) {
    int64_t step = position->state.step;
    int rank = tutti_comm_rank(comm);
    version *v = version_of(mirror, step);
    stamp *own = &v->stamps[rank];
    atomic_store(&own->step1, 0);
    for (int i = 0; i < mirror->n_arrays; i++)
        tti_exec_copy_own(exec, key_of(exec, mirror, i), array_of(mirror, step, i));
    (void)TTI_FAULT_AT("mirror.put", rank, step);
    if (rank == 0) set_position(v, position);
    atomic_store(&own->n_ranks, tutti_comm_n_ranks(comm));
    atomic_store(&own->step1, step + 1);
    return tutti_comm_barrier(comm);
}

void tti_mirror_note(tti_mirror *mirror, const tti_carry_position *position) {
    set_position(version_of(mirror, position->state.step), position);
}

/* The step of a version that all ranks of one epoch have written; -1: there is none. */
static int64_t complete_step(const version *v) {
    int64_t step1 = atomic_load(&v->stamps[0].step1), n = atomic_load(&v->stamps[0].n_ranks);
    for (int64_t r = 0; r < n; r++)
        if (atomic_load(&v->stamps[r].step1) != step1 || atomic_load(&v->stamps[r].n_ranks) != n)
            return -1;
    return step1 - 1;
}

/* Stamps of an earlier epoch of membership must not complete the version that this one writes. */
static void forget(version *v) {
    for (int r = 0; r < TTI_MAX_WORKERS; r++) atomic_store(&v->stamps[r].step1, 0);
}

tutti_status tti_mirror_load(tti_mirror *mirror, tutti_comm *comm, tti_exec *exec,
                             tti_carry_position *position, bool *any) {
    int64_t step = -1;
    for (int i = 0; i < N_VERSIONS; i++)
        step = TTI_MAX(step, complete_step(&mirror->header->versions[i]));
    *any = step >= 0;
    if (*any) {
        const version *v = version_of(mirror, step);
        *position = v->positions[atomic_load(&v->valid)];
        position->state.shard_map = NULL; /* an address in another process */
        for (int i = 0; i < mirror->n_arrays; i++)
            tti_exec_store(exec, key_of(exec, mirror, i), 0, mirror->n_flat,
                           array_of(mirror, step, i));
        TTI_TRY(tti_exec_push(exec));
    }
    TTI_TRY(tutti_comm_barrier(comm)); /* all have looked */
    if (tutti_comm_rank(comm) == 0 && *any) forget(version_of(mirror, step + 1));
    return tutti_comm_barrier(comm);
}
