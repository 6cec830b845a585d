/* hosts.c - finds the ranks that share a machine's memory, and connects them.
 *
 * The group of a host is a memfd without a name.  The host's first rank creates it and sends its
 * process id and descriptor number to the others, which open it through /proc.  This fails between
 * users and containers; such ranks count as separate hosts and communicate through the link. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "comm/net/net.h"

static const uint64_t magic = 0x3174656e74755421ULL;

/* FNV-1a, continued. */
static uint64_t mix(uint64_t hash, const void *bytes, size_t n_bytes) {
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n_bytes; i++) hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t mix_namespace(uint64_t hash, const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) return hash;
    return mix(hash, &info.st_ino, sizeof info.st_ino);
}

/* Writes the name of this host, or, for tests, the rank's name in $TUTTI_TEST_HOSTS ("a,a,b";
 * further ranks use the last name). */
static void name_host(int rank, char *out, size_t n_bytes) {
    const char *given = getenv("TUTTI_TEST_HOSTS");
    if (!given || !*given) {
        if (gethostname(out, n_bytes - 1) != 0) snprintf(out, n_bytes, "?");
        return;
    }
    for (const char *comma; rank > 0 && (comma = strchr(given, ',')); rank--) given = comma + 1;
    snprintf(out, n_bytes, "%.*s", (int)strcspn(given, ","), given);
}

void tti_net_fill_hello(int rank, net_hello *hello) {
    char boot[64] = "";
    *hello = (net_hello){.magic = magic, .wire = NET_WIRE, .pid = (int32_t)getpid()};
    bool is_other = TTI_FAULT_AT("net.version", rank, -1);
    snprintf(hello->version, sizeof hello->version, "%s", is_other ? "9.8.7" : TUTTI_VERSION);
    name_host(rank, hello->host, sizeof hello->host);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file && !fgets(boot, sizeof boot, file)) boot[0] = '\0';
    if (file) fclose(file);
    uint64_t hash = mix(UINT64_C(0xcbf29ce484222325), hello->host, sizeof hello->host);
    hash = mix(hash, boot, sizeof boot);
    hash = mix_namespace(hash, "/proc/self/ns/pid");
    hello->host_id = mix_namespace(hash, "/proc/self/ns/net");
}

void tti_net_divide(net_state *s, const bool *apart) {
    s->n_hosts = s->n_local = 0;
    for (int r = 0; r < s->n_ranks; r++) {
        int host = apart[r] ? s->n_hosts : 0;
        while (host < s->n_hosts &&
               (apart[s->first_of[host]] || s->host_ids[s->first_of[host]] != s->host_ids[r]))
            host++;
        if (host == s->n_hosts) s->first_of[s->n_hosts++] = r;
        s->host_of[r] = host;
    }
    for (int r = 0; r < s->n_ranks; r++) {
        bool is_here = s->host_of[r] == s->host_of[s->rank];
        s->index_of[r] = is_here ? s->n_local : -1;
        if (is_here) s->rank_of[s->n_local++] = r;
    }
}

/* The data with which a process opens the group of a host. */
typedef struct local_peer {
    int32_t pid, fd;
    uint32_t ok;
    uint32_t unused;
} local_peer;

/* Sends one message from the first rank of this host to each of its other ranks, or back. items
 * [n_local]. */
static tutti_status pass(net_state *s, bool to_first, local_peer *items) {
    tti_message *messages = tti_message_list_room(&s->messages, s->n_local);
    if (!messages) return TUTTI_E_NOMEM;
    int me = s->index_of[s->rank], n = 0;
    for (int i = 1; i < s->n_local; i++) {
        if (me != 0 && me != i) continue;
        bool out = (me != 0) == to_first;
        messages[n++] = (tti_message){.peer = s->rank_of[me == 0 ? i : 0],
                                      .out = out ? &items[i] : NULL,
                                      .in = out ? NULL : &items[i],
                                      .n_bytes = sizeof *items};
    }
    return tti_net_move(s, messages, n);
}

/* Shares with every rank the list of hosts whose ranks could not open their group. */
static tutti_status share_success(net_state *s, bool ok, bool *apart) {
    unsigned char mine = ok, *all = calloc((size_t)s->n_ranks, 1);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory for %d ranks", s->n_ranks);
    tutti_status st = tti_net_gather(s, &mine, sizeof mine, all);
    for (int r = 0; r < s->n_ranks; r++) apart[r] = !all[r];
    free(all);
    return st;
}

/* items: [n_local] */
static tutti_status connect_locally(net_state *s, local_peer *items, bool *out) {
    int me = s->index_of[s->rank];
    bool ok = true;
    if (me == 0) {
        ok = tutti_comm_group_create(s->n_local, &s->group) == TUTTI_OK;
        for (int i = 0; i < s->n_local; i++)
            items[i] =
                (local_peer){(int32_t)getpid(), ok ? tutti_comm_group_fd(s->group) : -1, ok, 0};
    }
    TTI_TRY(pass(s, false, items));
    if (me != 0)
        ok = items[me].ok && tti_shm_open_group(items[me].pid, items[me].fd, &s->group) == TUTTI_OK;
    items[me].ok = ok;
    TTI_TRY(pass(s, true, items)); /* if one rank fails, no rank of the host uses the group */
    for (int i = 0; me == 0 && i < s->n_local; i++) ok = ok && items[i].ok;
    for (int i = 0; me == 0 && i < s->n_local; i++) items[i].ok = ok;
    TTI_TRY(pass(s, false, items));
    ok = items[me].ok;
    if (!ok) {
        tutti_comm_group_destroy(s->group);
        s->group = NULL;
    }
    *out = ok;
    return TUTTI_OK;
}

tutti_status tti_net_connect_locally(net_state *s, bool *apart) {
    local_peer *items = calloc((size_t)s->n_local, sizeof *items);
    bool ok = false;
    if (!items)
        return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory for %d ranks", s->n_local);
    tutti_status st = connect_locally(s, items, &ok);
    free(items);
    return st == TUTTI_OK ? share_success(s, ok, apart) : st;
}
