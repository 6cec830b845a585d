/* channel_open.c - opens channels: an invitation, a connection, shared memory.
 *
 * The root broadcasts the address on which it listens and a secret for this start; each other rank
 * connects.  Ranks on the host of the root receive the memory of the areas through their socket, as
 * a descriptor that is sealed against shrinking. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/algorithm.h"
#include "comm/channel_ends.h"
#include "comm/net/net.h"
#include "comm/progress.h"
#include "comm/tcp/tcp.h"

enum { MAX_PLACES = 8, SECRET_BYTES = 16, READ_MS = 3000 };

/* The root's message to all ranks. */
typedef struct invitation {
    char name[48];  /* "unix:NAME", for ranks of its host */
    char token[48]; /* secret of this start */
    int32_t n_places, unused;
    tcp_place places[MAX_PLACES]; /* for ranks of other hosts; loopback last */
} invitation;

typedef struct opening {
    tutti_comm *comm;
    int root;
    invitation invite;
    tti_link_desc desc;
    int near_fd, far_fd; /* near_fd: listener for ranks of this host; far_fd: for ranks of other
                            hosts; -1: none */
    int *fds;            /* [n_ranks], owned */
    bool *wanted;        /* [n_ranks], owned */
    tcp_place *places;   /* [n_ranks], owned; unused entries are zero */
    int64_t deadline_ns;
} opening;

/* The number of a rank in messages. */
static int global_rank_of(const opening *o, int rank) {
    return tti_comm_global_rank(o->comm, rank);
}

static bool is_near(const opening *o, int rank) {
    return tti_comm_host_of(o->comm, rank) == tti_comm_host_of(o->comm, o->root);
}

/* ---- the root ---- */

static tutti_status make_secrets(invitation *out) {
    unsigned char random[2 * SECRET_BYTES];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return tti_fail(TUTTI_E_IO, "channel: getrandom: %s", strerror(errno));
    int n = snprintf(out->name, sizeof out->name, "unix:tutti-");
    for (int i = 0; i < SECRET_BYTES; i++) {
        snprintf(out->name + n + 2 * i, 3, "%02x", random[i]);
        snprintf(out->token + 2 * i, 3, "%02x", random[SECRET_BYTES + i]);
    }
    return TUTTI_OK;
}

static tutti_status fail_listen(const opening *o) {
    return tti_fail(TUTTI_E_IO, "channel: rank %d cannot listen: %s", global_rank_of(o, o->root),
                    strerror(errno));
}

static tutti_status listen_near(opening *o) {
    tcp_address address;
    tcp_place place;
    int n;
    TTI_TRY(tti_tcp_parse(o->invite.name, &address));
    TTI_TRY(tti_tcp_resolve(&address, 0, &place, 1, &n));
    o->near_fd = tti_tcp_listen(&place);
    return o->near_fd >= 0 ? TUTTI_OK : fail_listen(o);
}

static int port_of(const tcp_place *place) {
    struct sockaddr_in six_or_four; /* the port has the same offset in both */
    memcpy(&six_or_four, &place->at, sizeof six_or_four);
    return ntohs(six_or_four.sin_port);
}

/* True if callers on other hosts could mean this interface address. */
static bool is_place(const struct ifaddrs *i, bool loopback) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) return false;
    if (((i->ifa_flags & IFF_LOOPBACK) != 0) != loopback) return false;
    return i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6;
}

static void add_place(invitation *invite, const struct sockaddr *at, int port) {
    struct sockaddr_in6 six;
    tcp_place *place = &invite->places[invite->n_places];
    place->n_bytes = at->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof six;
    memcpy(&place->at, at, place->n_bytes);
    memcpy(&six, &place->at, sizeof six);
    if (at->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) return;
    tti_tcp_set_port(place, port);
    invite->n_places++;
}

static tutti_status find_places(invitation *invite, bool six, int port) {
    struct ifaddrs *list;
    if (getifaddrs(&list) != 0)
        return tti_fail(TUTTI_E_IO, "channel: getifaddrs: %s", strerror(errno));
    for (int loopback = 0; loopback < 2; loopback++)
        for (const struct ifaddrs *i = list; i && invite->n_places < MAX_PLACES; i = i->ifa_next)
            if (is_place(i, loopback) && (six || i->ifa_addr->sa_family == AF_INET))
                add_place(invite, i->ifa_addr, port);
    freeifaddrs(list);
    return TUTTI_OK;
}

/* Listens on any port of this address.  False: errno is set. */
static bool listen_at(opening *o, const void *at, size_t n_bytes, tcp_place *place) {
    *place = (tcp_place){.n_bytes = (socklen_t)n_bytes};
    memcpy(&place->at, at, n_bytes);
    tti_tcp_set_port(place, 0);
    o->far_fd = tti_tcp_listen(place);
    place->n_bytes = sizeof place->at;
    return o->far_fd >= 0 &&
           getsockname(o->far_fd, (struct sockaddr *)&place->at, &place->n_bytes) == 0;
}

/* Finds the address of this host that the link's connection to a rank uses.  False: there is
 * none. */
static bool find_interface(const tutti_comm *comm, int rank, tcp_place *out) {
    if (comm->transport != &tti_transport_tcp) return false;
    const net_state *net = comm->state;
    const tcp_state *tcp = net->wire;
    if (tcp->port) {
        int own = tti_tcp_global_rank(tcp, comm->rank);
        return tti_tcp_place_of_spot(&tti_tcp_port_spots(tcp->port)[own], out) == TUTTI_OK &&
               out->at.ss_family != AF_UNIX;
    }
    *out = (tcp_place){.n_bytes = sizeof out->at};
    return getsockname(tti_tcp_fd(tcp, rank), (struct sockaddr *)&out->at, &out->n_bytes) == 0 &&
           out->at.ss_family != AF_UNIX;
}

/* Listens on all addresses if the link has none (MPI), or on all IPv4 addresses if there is no
 * IPv6. */
static tutti_status listen_anywhere(opening *o) {
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET};
    tcp_place place;
    bool has_six = listen_at(o, &six, sizeof six, &place);
    if (!has_six && !listen_at(o, &four, sizeof four, &place)) return fail_listen(o);
    return find_places(&o->invite, has_six, port_of(&place));
}

/* Ranks of other hosts connect through the interface that they already use. */
static tutti_status listen_far(opening *o) {
    tcp_place way, place;
    int rank = 0;
    while (is_near(o, rank)) rank++;
    if (!find_interface(o->comm, rank, &way)) return listen_anywhere(o);
    if (!listen_at(o, &way.at, way.n_bytes, &place)) return fail_listen(o);
    o->invite.places[o->invite.n_places++] = place;
    return TUTTI_OK;
}

static tutti_status invite(opening *o) {
    TTI_TRY(make_secrets(&o->invite));
    TTI_TRY(listen_near(o));
    return o->comm->n_hosts > 1 ? listen_far(o) : TUTTI_OK;
}

static tutti_status admit(opening *o, bool near) {
    int n = 0;
    for (int r = 0; r < o->comm->n_ranks; r++)
        n += o->wanted[r] = r != o->root && is_near(o, r) == near;
    if (n == 0) return TUTTI_OK;
    return tti_tcp_admit(&o->desc, near ? o->near_fd : o->far_fd, o->wanted, o->fds, o->places,
                         near ? "unix:" : "a port of its host", o->deadline_ns);
}

/* Sends a descriptor, with one byte of data, over a Unix socket. */
static tutti_status pass(int fd, int memory_fd) {
    char byte = 1, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(head), &memory_fd, sizeof memory_fd);
    if (sendmsg(fd, &message, MSG_NOSIGNAL) == 1) return TUTTI_OK;
    return tti_fail(TUTTI_E_PEER, "channel: a rank left before it had received its memory");
}

/* Creates memory of n_bytes whose size is sealed.  Returns -1 with the error text set on
 * failure. */
static int make_memory(size_t n_bytes) {
    int fd = memfd_create("tutti-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && ftruncate(fd, (off_t)n_bytes) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    (void)tti_fail(TUTTI_E_NOMEM, "channel: cannot allocate %zu bytes of memory: %s", n_bytes,
                   strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

static tutti_status give_channel(opening *o, int rank, const size_t *area_bytes, int n_areas,
                                 tti_channel **out) {
    tti_channel_ends ends = {o->fds[rank], -1, global_rank_of(o, rank), o->comm->timeout_ms};
    o->fds[rank] = -1;
    if (is_near(o, rank)) {
        ends.memory_fd = make_memory(tti_channel_memory_bytes(area_bytes, n_areas));
        tutti_status st = ends.memory_fd < 0 ? TUTTI_E_NOMEM : pass(ends.fd, ends.memory_fd);
        if (st != TUTTI_OK) {
            if (ends.memory_fd >= 0) close(ends.memory_fd);
            close(ends.fd);
            return st;
        }
    }
    tutti_status st = tti_channel_make(&ends, area_bytes, n_areas, out);
    if (ends.memory_fd >= 0) close(ends.memory_fd);
    return st;
}

static tutti_status give_all(opening *o, const size_t *area_bytes, int n_areas,
                             tti_channel **channels) {
    TTI_TRY(admit(o, true));
    TTI_TRY(admit(o, false));
    for (int r = 0; r < o->comm->n_ranks; r++)
        if (r != o->root) TTI_TRY(give_channel(o, r, area_bytes, n_areas, &channels[r]));
    return TUTTI_OK;
}

/* ---- the others ---- */

static tutti_status check_invitation(opening *o) {
    invitation *invite = &o->invite;
    invite->name[sizeof invite->name - 1] = invite->token[sizeof invite->token - 1] = '\0';
    bool ok = invite->n_places >= 0 && invite->n_places <= MAX_PLACES;
    for (int i = 0; ok && i < invite->n_places; i++)
        ok = invite->places[i].n_bytes <= sizeof invite->places[i].at;
    return ok ? TUTTI_OK
              : tti_fail(TUTTI_E_INTERNAL, "channel: a damaged invitation of rank %d",
                         global_rank_of(o, o->root));
}

static tutti_status introduce(const opening *o, int fd) {
    int64_t deadline_ns = TTI_MIN(o->deadline_ns, tti_now_ns() + READ_MS * TTI_NS_PER_MS);
    tcp_challenge challenge;
    TTI_TRY(tti_tcp_recv_challenge(fd, deadline_ns, &challenge));
    return tti_tcp_send_hello(&o->desc, fd, o->root, 0, &challenge, deadline_ns);
}

static tutti_status call_at(const opening *o, const tcp_place *place, int *out) {
    int64_t deadline_ns = TTI_MIN(o->deadline_ns, tti_now_ns() + READ_MS * TTI_NS_PER_MS);
    char where[128];
    int fd = tti_tcp_connect(place, deadline_ns);
    tutti_status st = fd < 0 ? tti_fail(TUTTI_E_IO, "%s", strerror(errno)) : introduce(o, fd);
    if (st == TUTTI_OK) {
        *out = fd;
        return st;
    }
    if (fd >= 0) close(fd);
    tti_fail_context("at %s: ", tti_tcp_place_text(place, where, sizeof where));
    return st;
}

/* Tries the root's addresses until one answers, because not all of them may be reachable. */
static tutti_status call_first(const opening *o, int *fd) {
    tcp_address address;
    tcp_place near;
    int n = 1;
    bool is_here = is_near(o, o->comm->rank);
    if (is_here) {
        TTI_TRY(tti_tcp_parse(o->invite.name, &address));
        TTI_TRY(tti_tcp_resolve(&address, 0, &near, 1, &n));
    }
    const tcp_place *places = is_here ? &near : o->invite.places;
    int n_places = is_here ? n : o->invite.n_places;
    tutti_status st = tti_fail(TUTTI_E_IO, "it has no address");
    do {
        for (int i = 0; i < n_places && st != TUTTI_OK; i++) st = call_at(o, &places[i], fd);
        if (st != TUTTI_OK) tti_sleep_ms(TCP_RETRY_MS);
    } while (st != TUTTI_OK && tti_now_ns() < o->deadline_ns);
    if (st != TUTTI_OK)
        tti_fail_context("channel: rank %d cannot reach rank %d ", global_rank_of(o, o->comm->rank),
                         global_rank_of(o, o->root));
    return st;
}

/* Receives the descriptor that the root sends.  Returns -1 with the error text set on failure. */
static int alloc_memory(const opening *o, int fd, size_t n_bytes) {
    char byte, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct stat info;
    int memory_fd = -1;
    while (poll(&p, 1, tti_ms_until(o->deadline_ns)) < 0 && errno == EINTR) continue;
    ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *head = n == 1 ? CMSG_FIRSTHDR(&message) : NULL;
    if (head && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&memory_fd, CMSG_DATA(head), sizeof memory_fd);
    if (memory_fd >= 0 && fstat(memory_fd, &info) == 0 && (size_t)info.st_size == n_bytes)
        return memory_fd;
    if (memory_fd >= 0) close(memory_fd);
    (void)tti_fail(TUTTI_E_PEER, "channel: rank %d passed no memory to rank %d",
                   global_rank_of(o, o->root), global_rank_of(o, o->comm->rank));
    return -1;
}

static tutti_status take_channel(opening *o, const size_t *area_bytes, int n_areas,
                                 tti_channel **out) {
    tti_channel_ends ends = {-1, -1, global_rank_of(o, o->root), o->comm->timeout_ms};
    TTI_TRY(call_first(o, &ends.fd));
    if (is_near(o, o->comm->rank)) {
        size_t n_bytes = tti_channel_memory_bytes(area_bytes, n_areas);
        ends.memory_fd = alloc_memory(o, ends.fd, n_bytes);
        if (ends.memory_fd < 0) {
            close(ends.fd);
            return TUTTI_E_PEER;
        }
    }
    tutti_status st = tti_channel_make(&ends, area_bytes, n_areas, out);
    if (ends.memory_fd >= 0) close(ends.memory_fd);
    return st;
}

/* ---- both ---- */

static void close_rest(opening *o) {
    for (int r = 0; o->fds && r < o->comm->n_ranks; r++)
        if (o->fds[r] >= 0) close(o->fds[r]);
    free(o->fds);
    free(o->wanted);
    free(o->places);
    if (o->near_fd >= 0) close(o->near_fd);
    if (o->far_fd >= 0) close(o->far_fd);
}

static tutti_status alloc_opening(opening *o) {
    size_t n = (size_t)o->comm->n_ranks;
    o->fds = malloc(n * sizeof *o->fds);
    o->wanted = calloc(n, sizeof *o->wanted);
    o->places = calloc(n, sizeof *o->places);
    for (size_t r = 0; o->fds && r < n; r++) o->fds[r] = -1;
    return o->fds && o->wanted && o->places
               ? TUTTI_OK
               : tti_fail(TUTTI_E_NOMEM, "channel: out of memory for %zu ranks", n);
}

static tutti_status open_all(opening *o, const size_t *area_bytes, int n_areas,
                             tti_channel **channels) {
    bool is_root = o->comm->rank == o->root;
    if (is_root) TTI_TRY(invite(o));
    TTI_TRY(tutti_comm_broadcast(o->comm, &o->invite, sizeof o->invite, TUTTI_U8, o->root));
    TTI_TRY(check_invitation(o));
    o->desc.token = o->invite.token;
    o->deadline_ns = tti_now_ns() + o->comm->timeout_ms * TTI_NS_PER_MS;
    TTI_TRY(is_root ? give_all(o, area_bytes, n_areas, channels)
                    : take_channel(o, area_bytes, n_areas, &channels[o->root]));
    return tutti_comm_barrier(o->comm);
}

tutti_status tti_channels_open(tutti_comm *comm, int root, const size_t *area_bytes, int n_areas,
                               tti_channel **channels) {
    opening o = {.comm = comm, .root = root, .near_fd = -1, .far_fd = -1};
    o.desc = (tti_link_desc){.rank = comm->rank,
                             .n_ranks = comm->n_ranks,
                             .timeout_ms = comm->timeout_ms,
                             .job = "channels"};
    for (int r = 0; r < comm->n_ranks; r++) channels[r] = NULL;
    tutti_status st = alloc_opening(&o);
    if (st == TUTTI_OK) st = open_all(&o, area_bytes, n_areas, channels);
    close_rest(&o);
    if (st == TUTTI_OK) return st;
    tti_comm_abort(comm, tutti_last_error()); /* the other ranks wait for this one */
    for (int r = 0; r < comm->n_ranks; r++) {
        tti_channel_close(channels[r]);
        channels[r] = NULL;
    }
    return st;
}
