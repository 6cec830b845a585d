/* transport.c - the shared-memory transport: joining, agreement, barrier, symmetric memory.
 *
 * A rank posts a record and increments its `arrived`; when every rank's count has reached the same
 * value, all records may be read.  Each rank has two records, by parity of the agreement.  A rank
 * writes the next but one record only after all ranks have arrived at the next agreement, and
 * therefore no longer read this record.  So an agreement needs only one barrier. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "comm/shm/shm.h"

enum { SPINS = 2000, SPINS_CROWDED = 200 };

static const char *shm_refusal(const tutti_comm_desc *desc) {
    return desc->group ? NULL : "no group was given (tutti_comm_group_create)";
}

static bool has_arrived(const shm_state *s, const void *arg) {
    const int *rank = arg;
    return atomic_load(&shm_rank_of(s->header, *rank)->arrived) >= s->n_arrived;
}

tutti_status tti_shm_barrier(void *state) {
    shm_state *s = state;
    if (tti_shm_is_large(s)) return tti_shm_tree_barrier(s);
    s->n_arrived++;
    atomic_store(&s->me->arrived, s->n_arrived);
    tti_shm_ring(s->header, s->rank, -1);
    for (int i = 1; i < s->n_ranks; i++) {
        int rank = (s->rank + i) % s->n_ranks;
        const shm_wait wait = {has_arrived, &rank, rank, rank};
        if (!has_arrived(s, &rank)) TTI_TRY(tti_shm_wait_for(s, &wait));
    }
    return TUTTI_OK;
}

/* Publishes the process id, and adds the process and its cores to the sums of the group. */
static void introduce(shm_state *s) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    uint64_t words[16] = {0}, none = 0;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0)
        for (int c = 0; c < 1024; c++)
            if (CPU_ISSET((size_t)c, &cores)) words[c / 64] |= UINT64_C(1) << (c % 64);
    for (int i = 0; i < 16; i++) atomic_fetch_or(&s->header->cores[i], words[i]);
    uint64_t process = s->group->token ^ ((uint64_t)getpid() << 32);
    if (!atomic_compare_exchange_strong(&s->header->process, &none, process) && none != process)
        atomic_store(&s->header->several_processes, 1);
    atomic_store(&s->me->pid, (int32_t)getpid());
}

/* Finds out from the sums if all ranks share one address space, and if there is a core for each
 * rank, so that spinning does not slow down other ranks. */
static void compare_processes(shm_state *s) {
    int n_cores = 0;
    s->one_process = atomic_load(&s->header->several_processes) == 0;
    for (int i = 0; i < 16; i++) n_cores += __builtin_popcountll(atomic_load(&s->header->cores[i]));
    s->n_spins = n_cores >= s->n_ranks ? SPINS : tti_shm_is_large(s) ? 0 : SPINS_CROWDED;
}

static void shm_fail(void *state, tutti_status status) {
    tti_shm_set_cause(((shm_state *)state)->header, status, tutti_last_error());
}

static void shm_leave(void *state) {
    shm_state *s = state;
    if (!s) return;
    atomic_store(&s->me->left, 1);
    atomic_fetch_add(&s->header->n_left, 1);
    tti_shm_ring(s->header, s->rank, -1);
    tutti_comm_group_destroy(s->own_group);
    free(s->segments);
    free(s->global_ranks);
    free(s->busy);
    free(s);
}

/* Allocates the arrays of the state whose size depends on the group, if they are needed. */
static tutti_status alloc_by_rank(shm_state *s, const int *global_ranks) {
    size_t n = (size_t)s->n_ranks, n_words = (n + 63) / 64;
    if (global_ranks) s->global_ranks = malloc(n * sizeof *global_ranks);
    if (n_words > 1) s->busy = calloc(2 * n_words, sizeof *s->busy);
    if ((global_ranks && !s->global_ranks) || (n_words > 1 && !s->busy))
        return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory for %zu ranks", n);
    if (global_ranks) memcpy(s->global_ranks, global_ranks, n * sizeof *global_ranks);
    return TUTTI_OK;
}

tutti_status tti_shm_join_below(const tutti_comm_desc *desc, const int *global_ranks,
                                const shm_state *parent, void **state) {
    shm_header *header = desc->group->header;
    if (desc->n_ranks != (int)header->n_ranks)
        return tti_fail(TUTTI_E_INVALID, "comm_create: the group is for %u ranks, not %d",
                        header->n_ranks, desc->n_ranks);
    shm_state *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "comm_create: %zu bytes", sizeof *s);
    *s = (shm_state){.group = desc->group,
                     .parent = parent,
                     .header = header,
                     .me = shm_rank_of(header, desc->rank),
                     .rank = desc->rank,
                     .n_ranks = desc->n_ranks,
                     .timeout_ms = desc->timeout_ms,
                     .phase_timeout_ms = TTI_MAX(desc->phase_timeout_ms, desc->timeout_ms),
                     .n_spins = SPINS_CROWDED,
                     .heap_end = header->heap_offset};
    tutti_status st = alloc_by_rank(s, global_ranks);
    if (st == TUTTI_OK && atomic_exchange(&s->me->joined, 1) != 0)
        st = tti_fail(TUTTI_E_INVALID, "comm_create: rank %d has already joined this group",
                      desc->rank);
    if (st != TUTTI_OK) {
        free(s->global_ranks);
        free(s->busy);
        free(s);
        return st;
    }
    atomic_fetch_add(&header->n_joined, 1);
    atomic_store(&s->me->rank_in_root, tti_shm_root(s)->rank);
    introduce(s);
    st = tti_shm_check_cause(s);
    if (st == TUTTI_OK) st = tti_shm_barrier(s);
    if (st != TUTTI_OK) {
        shm_fail(s, st);
        shm_leave(s);
        return st;
    }
    compare_processes(s);
    *state = s;
    return TUTTI_OK;
}

tutti_status tti_shm_join_as(const tutti_comm_desc *desc, const int *global_ranks, void **state) {
    return tti_shm_join_below(desc, global_ranks, NULL, state);
}

tutti_status tti_shm_join_subgroup(const tutti_comm_desc *desc, const int *global_ranks,
                                   void *whole, void **state) {
    return tti_shm_join_below(desc, global_ranks, whole, state);
}

void tti_shm_listen(void *state, const tti_shm_remote *remote) {
    ((shm_state *)state)->remote = *remote;
}

tutti_status tti_shm_cause(void *state) { return tti_shm_check_cause(state); }

static tutti_status shm_join(const tutti_comm_desc *desc, void **state) {
    return tti_shm_join_as(desc, NULL, state);
}

/* Bytes of buffer i of an offer, which has the same size on every rank. */
static size_t buf_bytes(const tti_offer *offer, int i) {
    return offer->last_bytes && i == offer->n_bufs - 1 ? offer->last_bytes : offer->buf_bytes;
}

/* An agreement in which each rank reads the records of all ranks. */
static tutti_status flat_agree(shm_state *s, const tti_offer *mine, tti_agreement *out) {
    const shm_record *first = tti_shm_record_of(s, 0);
    *out = (tti_agreement){.direct = true, .odd_rank = -1};
    TTI_TRY(tti_shm_barrier(s));
    for (int r = 0; r < s->n_ranks; r++) {
        const shm_record *other = tti_shm_record_of(s, r);
        if (out->odd_rank < 0 && memcmp(&other->call, &first->call, sizeof first->call) != 0) {
            out->odd_rank = r;
            out->first = first->call;
            out->odd = other->call;
        }
        for (uint32_t i = 0; i < TTI_MIN(other->n_bufs, (uint32_t)TTI_MAX_BUFS); i++)
            out->direct = out->direct &&
                          tti_shm_locate(s, r, other->bufs[i],
                                         s->one_process ? 0 : buf_bytes(mine, (int)i)) &&
                          other->bufs[i] != 0;
    }
    return TUTTI_OK;
}

static tutti_status shm_agree(void *state, const tti_offer *mine, tti_agreement *out) {
    shm_state *s = state;
    TTI_TRY(tti_shm_check_cause(s));
    s->n_agreed++;
    shm_record *record = tti_shm_record_of(s, s->rank);
    record->call = mine->call;
    record->n_bufs = (uint32_t)mine->n_bufs;
    for (int i = 0; i < mine->n_bufs; i++)
        record->bufs[i] = tti_shm_address(s, mine->bufs[i], buf_bytes(mine, i));
    if (mine->inline_bytes) memcpy(record->payload, mine->inline_data, mine->inline_bytes);
    return tti_shm_is_large(s) ? tti_shm_tree_agree(s, mine, out) : flat_agree(s, mine, out);
}

static bool shm_sums(void *state) { return tti_shm_is_large(state); }

static const void *shm_sum(void *state) { return tti_shm_record_of(state, 0)->sum; }

static tti_commons *shm_commons(void *state) { return &((shm_state *)state)->group->commons; }

static void *shm_view(void *state, int rank, int buf) {
    const shm_state *s = state;
    return tti_shm_locate(s, rank, tti_shm_record_of(s, rank)->bufs[buf], 0);
}

static const void *shm_payload(void *state, int rank) {
    return tti_shm_record_of(state, rank)->payload;
}

/* Reserves the memory now, so that a lack of memory is an error here and not a signal later.
 * Refuses sizes that cannot fit first, because the kernel would try to free memory for any size. */
static tutti_status take_part(const shm_state *s, uint64_t offset, size_t part_bytes) {
    uint64_t ram_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (part_bytes > ram_bytes / (uint64_t)s->n_ranks)
        return tti_fail(TUTTI_E_NOMEM,
                        "comm_alloc: %d ranks with %zu bytes each exceed the memory of this "
                        "machine (%llu bytes)",
                        s->n_ranks, part_bytes, (unsigned long long)ram_bytes);
    int rc;
    do rc = fallocate(s->group->fd, 0, (off_t)offset, (off_t)part_bytes);
    while (rc != 0 && errno == EINTR);
    if (rc == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_NOMEM, "comm_alloc: rank %d cannot allocate %zu bytes: %s", s->rank,
                    part_bytes, strerror(errno));
}

static tutti_status shm_alloc(void *state, size_t n_bytes, void **out) {
    shm_state *s = state;
    size_t part_bytes =
        (TTI_MAX(n_bytes, (size_t)1) + SHM_PAGE_BYTES - 1) & ~(size_t)(SHM_PAGE_BYTES - 1);
    uint64_t end;
    if (__builtin_add_overflow(s->heap_end, (uint64_t)part_bytes * (uint64_t)s->n_ranks, &end) ||
        end > INT64_MAX)
        return tti_fail(TUTTI_E_NOMEM, "comm_alloc: %zu bytes are too many", n_bytes);
    size_t n = (size_t)s->n_segments + 1;
    shm_segment *segments = realloc(s->segments, n * sizeof *segments);
    if (!segments) return tti_fail(TUTTI_E_NOMEM, "comm_alloc: out of memory for %zu segments", n);
    s->segments = segments;
    shm_segment *segment = &segments[s->n_segments];
    TTI_TRY(take_part(s, s->heap_end + (uint64_t)s->rank * part_bytes, part_bytes));
    TTI_TRY(tti_shm_group_map(s->group, s->heap_end, part_bytes, segment));
    TTI_TRY(tti_shm_barrier(s));
    s->n_segments++;
    s->heap_end = end;
    *out = segment->base + (size_t)s->rank * part_bytes;
    return TUTTI_OK;
}

static tutti_status shm_check(void *state) {
    shm_state *s = state;
    TTI_TRY(tti_shm_check_cause(s));
    /* Ranks check each other's processes only in a subgroup. */
    if (!s->parent && atomic_load(&s->header->n_left) == 0) return TUTTI_OK;
    for (int r = 0; r < (int)s->header->n_ranks; r++) {
        if (atomic_load(&shm_rank_of(s->header, r)->left))
            return tti_fail(TUTTI_E_PEER, "comm: rank %d waits for rank %d, which left the group",
                            tti_shm_global_rank(s, s->rank), tti_shm_global_rank(s, r));
        TTI_TRY(tti_shm_check_alive(s, r));
    }
    return TUTTI_OK;
}

void tti_shm_report_stopped(void *state, const char *host, tti_str *out) {
    const shm_state *s = state;
    for (int r = 0; r < s->n_ranks; r++) {
        int pid = atomic_load(&shm_rank_of(s->header, r)->pid);
        char now = (char)(pid > 0 ? tti_process_state(pid) : 0);
        if (now != 'T' && now != 't') continue;
        tti_str_printf(out, ", rank %d (pid %d%s%s), which a signal has stopped",
                       tti_shm_global_rank(s, r), pid, host ? " on " : "", host ? host : "");
    }
}

static void shm_describe_late(void *state, tti_str *out) {
    tti_shm_report_stopped(state, NULL, out);
}

static void shm_set_timeout(void *state, int timeout_ms) {
    ((shm_state *)state)->timeout_ms = timeout_ms;
}

static const tutti_comm_group *shm_host_group(void *state) { return ((shm_state *)state)->group; }

const tti_transport tti_transport_shm = {
    .name = "shm",
    .doc = "threads and processes of one host, through shared memory without a name (memfd)",
    .refusal = shm_refusal,
    .join = shm_join,
    .leave = shm_leave,
    .alloc = shm_alloc,
    .agree = shm_agree,
    .barrier = tti_shm_barrier,
    .send_recv = tti_shm_send_recv,
    .view = shm_view,
    .payload = shm_payload,
    .sums = shm_sums,
    .sum = shm_sum,
    .commons = shm_commons,
    .fail = shm_fail,
    .check = shm_check,
    .check_reported = tti_shm_reported,
    .describe_late = shm_describe_late,
    .delay = tti_shm_delay,
    .set_timeout = shm_set_timeout,
    .host_group = shm_host_group,
    .note_call = tti_shm_note_call,
    .note_step = tti_shm_note_step,
    .declare = tti_shm_declare,
    .note_wait = tti_shm_note_wait,
    .find_culprit = tti_shm_find_culprit,
    .find_busy = tti_shm_find_busy,
    .split = tti_shm_split,
};
