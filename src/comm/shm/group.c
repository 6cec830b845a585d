/* group.c - the shared memory of the ranks of one host: a memfd without a name.
 *
 * Threads share the tutti_comm_group, processes inherit its descriptor.  The file can grow but is
 * sealed against shrinking, so that no process can remove memory that another one uses. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/shm/shm.h"

enum { MAX_SLOT_BYTES = 16384, BOUNCE_BYTES = 28 * 1024, VERSION = 6 };
static const uint64_t magic = 0x31697474755421ULL;

static size_t round_up(size_t n_bytes, size_t unit) { return (n_bytes + unit - 1) / unit * unit; }

/* If ranks share channels, a rank's own number needs no exception. */
int tti_shm_n_channels(int n_ranks) {
    return n_ranks <= SHM_N_CHANNELS ? n_ranks - 1 : SHM_N_CHANNELS;
}

/* The multiplication gives different channels to peers at distances of powers of two, which trees
 * use. */
int tti_shm_channel_of(const shm_header *header, int from, int to) {
    if (header->n_ranks <= SHM_N_CHANNELS) return to < from ? to : to - 1;
    return (int)((((uint32_t)to - (uint32_t)from) * 2654435769u) >> 26);
}

/* A power of two, so that all slots of a rank, two per channel, fit in 2 * BOUNCE_BYTES. */
static size_t slot_bytes(int n_ranks) {
    size_t n = MAX_SLOT_BYTES;
    while (n * (size_t)tti_shm_n_channels(n_ranks) > BOUNCE_BYTES) n /= 2;
    return n;
}

static size_t area_bytes(int n_ranks) {
    size_t n_channels = (size_t)tti_shm_n_channels(n_ranks);
    return round_up(
        sizeof(shm_rank) + n_channels * (sizeof(shm_channel) + SHM_N_SLOTS * slot_bytes(n_ranks)),
        SHM_PAGE_BYTES);
}

static size_t heap_offset(int n_ranks) {
    return SHM_HEADER_BYTES + (size_t)n_ranks * area_bytes(n_ranks);
}

unsigned char *tti_shm_bounce(const shm_header *header, int from, int channel, uint64_t piece) {
    const shm_rank *r = shm_rank_of(header, from);
    return (unsigned char *)(uintptr_t)&r->channels[tti_shm_n_channels((int)header->n_ranks)] +
           ((uint64_t)channel * SHM_N_SLOTS + piece % SHM_N_SLOTS) * header->slot_bytes;
}

/* Creates an empty group object that owns fd. */
static tutti_status group_new(int fd, tutti_comm_group **out) {
    tutti_comm_group *g = calloc(1, sizeof *g);
    if (!g) return tti_fail(TUTTI_E_NOMEM, "comm_group: %zu bytes", sizeof *g);
    g->fd = fd;
    atomic_store(&g->n_owners, 1);
    pthread_mutex_init(&g->lock, NULL);
    tti_commons_init(&g->commons);
    if (getrandom(&g->token, sizeof g->token, 0) != (ssize_t)sizeof g->token)
        g->token = (uint64_t)(uintptr_t)g;
    *out = g;
    return TUTTI_OK;
}

static tutti_status group_map_header(tutti_comm_group *g, size_t n_bytes) {
    void *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->fd, 0);
    if (memory == MAP_FAILED)
        return tti_fail(TUTTI_E_NOMEM, "comm_group: cannot map %zu bytes: %s", n_bytes,
                        strerror(errno));
    g->header = memory;
    g->n_bytes = n_bytes;
    return TUTTI_OK;
}

static tutti_status group_init(tutti_comm_group *g, int n_ranks) {
    size_t n_bytes = heap_offset(n_ranks);
    if (ftruncate(g->fd, (off_t)n_bytes) != 0)
        return tti_fail(TUTTI_E_NOMEM, "comm_group_create: cannot size %zu bytes: %s", n_bytes,
                        strerror(errno));
    if (fcntl(g->fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
        return tti_fail(TUTTI_E_IO, "comm_group_create: cannot seal: %s", strerror(errno));
    TTI_TRY(group_map_header(g, n_bytes));
    g->header->version = VERSION;
    g->header->n_ranks = (uint32_t)n_ranks;
    g->header->area_bytes = area_bytes(n_ranks);
    g->header->slot_bytes = slot_bytes(n_ranks);
    g->header->heap_offset = n_bytes;
    for (int r = 0; r < n_ranks; r++)
        atomic_store(&shm_rank_of(g->header, r)->sleeping_on, SHM_NO_RANK);
    g->header->magic = magic;
    return TUTTI_OK;
}

tutti_status tutti_comm_group_create(int n_ranks, tutti_comm_group **out) {
    if (!out) return tti_fail(TUTTI_E_INVALID, "comm_group_create: out is NULL");
    *out = NULL;
    if (n_ranks < 1 || n_ranks > TTI_MAX_HOST_RANKS)
        return tti_fail(TUTTI_E_INVALID, "comm_group_create: n_ranks must be in 1 .. %d, got %d",
                        TTI_MAX_HOST_RANKS, n_ranks);
    int fd = memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return tti_fail(TUTTI_E_IO, "comm_group_create: no memfd: %s", strerror(errno));
    tutti_comm_group *g = NULL;
    tutti_status st = group_new(fd, &g);
    if (st != TUTTI_OK) {
        close(fd);
        return st;
    }
    st = group_init(g, n_ranks);
    if (st != TUTTI_OK) {
        tutti_comm_group_destroy(g);
        return st;
    }
    *out = g;
    return TUTTI_OK;
}

int tutti_comm_group_fd(const tutti_comm_group *group) { return group->fd; }

static tutti_status check_header(const tutti_comm_group *g, uint64_t file_bytes) {
    const shm_header *h = g->header;
    int n = (int)h->n_ranks;
    if (h->magic != magic || h->version != VERSION)
        return tti_fail(TUTTI_E_INVALID,
                        "comm_group_open: descriptor %d is not a group of this version", g->fd);
    if (h->n_ranks < 1 || h->n_ranks > TTI_MAX_HOST_RANKS || h->area_bytes != area_bytes(n) ||
        h->slot_bytes != slot_bytes(n) || h->heap_offset != heap_offset(n) ||
        file_bytes < h->heap_offset)
        return tti_fail(TUTTI_E_INVALID,
                        "comm_group_open: descriptor %d has a damaged header (%u ranks, %llu "
                        "bytes)",
                        g->fd, h->n_ranks, (unsigned long long)file_bytes);
    return TUTTI_OK;
}

/* Maps the header page, checks it, then maps all areas. */
static tutti_status group_attach(tutti_comm_group *g) {
    struct stat info;
    int seals = fcntl(g->fd, F_GET_SEALS);
    if (fstat(g->fd, &info) != 0 || info.st_size < SHM_HEADER_BYTES || seals < 0 ||
        !(seals & F_SEAL_SHRINK))
        return tti_fail(TUTTI_E_INVALID, "comm_group_open: descriptor %d is not a group", g->fd);
    TTI_TRY(group_map_header(g, SHM_HEADER_BYTES));
    TTI_TRY(check_header(g, (uint64_t)info.st_size));
    size_t n_bytes = (size_t)g->header->heap_offset;
    munmap(g->header, SHM_HEADER_BYTES);
    g->header = NULL;
    TTI_TRY(group_map_header(g, n_bytes));
    if (fcntl(g->fd, F_SETFD, FD_CLOEXEC) != 0)
        return tti_fail(TUTTI_E_IO, "comm_group_open: %s", strerror(errno));
    return TUTTI_OK;
}

tutti_status tutti_comm_group_open(int fd, tutti_comm_group **out) {
    if (!out) return tti_fail(TUTTI_E_INVALID, "comm_group_open: out is NULL");
    *out = NULL;
    tutti_comm_group *g;
    TTI_TRY(group_new(fd, &g));
    tutti_status st = group_attach(g);
    if (st != TUTTI_OK) {
        g->fd = -1; /* on failure the caller keeps fd */
        tutti_comm_group_destroy(g);
        return st;
    }
    *out = g;
    return TUTTI_OK;
}

int tutti_comm_group_n_ranks(const tutti_comm_group *group) { return (int)group->header->n_ranks; }

void tutti_comm_group_abort(tutti_comm_group *group, int rank, const char *text) {
    char buf[64];
    if (rank >= 0)
        snprintf(buf, sizeof buf, "rank %d is gone", rank);
    else
        snprintf(buf, sizeof buf, "the group was aborted");
    tti_shm_set_cause(group->header, TUTTI_E_PEER, text && text[0] ? text : buf);
}

void tti_shm_lose(tutti_comm_group *group, const char *text) {
    tti_shm_set_loss(group->header, text);
}

void tutti_comm_group_destroy(tutti_comm_group *group) {
    if (!group || atomic_fetch_sub(&group->n_owners, 1) > 1) return;
    int n_ranks = group->header ? (int)group->header->n_ranks : 0;
    for (int i = 0; i < group->n_segments; i++)
        munmap(group->segments[i].base, group->segments[i].part_bytes * (size_t)n_ranks);
    free(group->segments);
    if (group->header) munmap(group->header, group->n_bytes);
    if (group->fd >= 0) close(group->fd);
    tti_commons_fini(&group->commons);
    pthread_mutex_destroy(&group->lock);
    free(group);
}

static tutti_status map_locked(tutti_comm_group *group, uint64_t offset, size_t part_bytes,
                               shm_segment *out) {
    for (int i = group->n_segments - 1; i >= 0; i--)
        if (group->segments[i].offset == offset) {
            *out = group->segments[i];
            return TUTTI_OK;
        }
    size_t n = (size_t)group->n_segments + 1;
    shm_segment *segments = realloc(group->segments, n * sizeof *segments);
    if (!segments) return tti_fail(TUTTI_E_NOMEM, "comm_alloc: out of memory for %zu segments", n);
    group->segments = segments;
    size_t n_bytes = part_bytes * group->header->n_ranks;
    void *base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, group->fd, (off_t)offset);
    if (base == MAP_FAILED)
        return tti_fail(TUTTI_E_NOMEM, "comm_alloc: cannot map %zu bytes: %s", n_bytes,
                        strerror(errno));
    *out = segments[group->n_segments++] = (shm_segment){offset, part_bytes, base};
    return TUTTI_OK;
}

tutti_status tti_shm_group_map(tutti_comm_group *group, uint64_t offset, size_t part_bytes,
                               shm_segment *out) {
    pthread_mutex_lock(&group->lock);
    tutti_status st = map_locked(group, offset, part_bytes, out);
    pthread_mutex_unlock(&group->lock);
    return st;
}
