/* address.c - parses "HOST:PORT", "HOST:FIRST-LAST", "[ADDRESS]:PORT" and "unix:NAME". */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "comm/tcp/tcp.h"

static tutti_status fail_form(const char *text, const char *why) {
    return tti_fail(TUTTI_E_CONFIG,
                    "comm_create: address '%.200s': %s; expected HOST:PORT, HOST:FIRST-LAST or "
                    "unix:NAME",
                    text, why);
}

/* Parses "29500" or "29501-29516". */
static bool parse_ports(const char *text, int *first, int *last) {
    char *end;
    errno = 0;
    long a = strtol(text, &end, 10), b = a;
    if (errno || end == text || *text < '0' || *text > '9') return false;
    if (*end == '-') {
        const char *second = end + 1;
        b = strtol(second, &end, 10);
        if (errno || end == second || *second < '0' || *second > '9') return false;
    }
    *first = (int)a;
    *last = (int)b;
    return !*end && a >= 1 && b >= a && b <= 65535 && b - a < 64;
}

tutti_status tti_tcp_parse(const char *text, tcp_address *out) {
    *out = (tcp_address){0};
    if (strlen(text) >= sizeof out->text) return fail_form(text, "too long");
    snprintf(out->text, sizeof out->text, "%s", text);
    if (strncmp(text, "unix:", 5) == 0) {
        size_t n = strlen(text + 5);
        if (n == 0 || n > 90) return fail_form(text, "the name must have 1 to 90 bytes");
        out->is_unix = true;
        memcpy(out->host, text + 5, n + 1);
        return TUTTI_OK;
    }
    const char *host = text, *colon = strrchr(text, ':');
    if (!colon) return fail_form(text, "no port");
    size_t n = (size_t)(colon - text);
    if (n >= 2 && host[0] == '[' && colon[-1] == ']') {
        host++;
        n -= 2;
    } else if (memchr(host, ':', n)) {
        return fail_form(text, "write an address with colons in [ ]");
    }
    if (n == 0 || n >= sizeof out->host) return fail_form(text, "no host");
    memcpy(out->host, host, n);
    if (!parse_ports(colon + 1, &out->first, &out->last))
        return fail_form(text, "ports are 1 to 65535, at most 64 of them");
    return TUTTI_OK;
}

/* An abstract Unix socket name: it has no file and belongs to this network namespace. */
static void unix_place(const char *name, tcp_place *out) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "%s", name);
    *out =
        (tcp_place){.n_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)};
    memcpy(&out->at, &at, sizeof at);
}

void tti_tcp_unix_places(const tcp_address *address, const char *token, int rank,
                         tcp_place out[TCP_UNIX_PLACES]) {
    static const char prefix[] = "tutti-";
    for (int i = 0; i < TCP_UNIX_PLACES; i++) {
        char plain[sizeof address->host + 32], name[sizeof prefix + 2 * TCP_MAC_BYTES];
        unsigned char mac[TCP_MAC_BYTES];
        int n = snprintf(plain, sizeof plain, "%s.%d.%d", address->host, rank, i);
        if (!token || !*token) {
            unix_place(plain, &out[i]);
            continue;
        }
        tti_hmac(token, plain, (size_t)n, mac);
        memcpy(name, prefix, sizeof prefix);
        for (int k = 0; k < TCP_MAC_BYTES; k++)
            snprintf(name + sizeof prefix - 1 + 2 * k, 3, "%02x", mac[k]);
        unix_place(name, &out[i]);
    }
}

tutti_status tti_tcp_resolve(const tcp_address *address, int port, tcp_place *out, int n_max,
                             int *n) {
    *n = 0;
    if (address->is_unix) {
        unix_place(address->host, out);
        *n = 1;
        return TUTTI_OK;
    }
    char service[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list;
    snprintf(service, sizeof service, "%d", port);
    int rc = getaddrinfo(address->host, service, &hints, &list);
    if (rc != 0)
        return tti_fail(TUTTI_E_CONFIG, "no host '%s': %s", address->host, gai_strerror(rc));
    for (const struct addrinfo *a = list; a && *n < n_max; a = a->ai_next) {
        if (a->ai_addrlen > sizeof out->at) continue;
        out[*n].n_bytes = a->ai_addrlen;
        memcpy(&out[(*n)++].at, a->ai_addr, a->ai_addrlen);
    }
    freeaddrinfo(list);
    return *n ? TUTTI_OK : tti_fail(TUTTI_E_CONFIG, "no host '%s'", address->host);
}

void tti_tcp_set_port(tcp_place *place, int port) {
    struct sockaddr_in six_or_four; /* the port has the same offset in both */
    if (place->at.ss_family != AF_INET && place->at.ss_family != AF_INET6) return;
    memcpy(&six_or_four, &place->at, sizeof six_or_four);
    six_or_four.sin_port = htons((uint16_t)port);
    memcpy(&place->at, &six_or_four, sizeof six_or_four);
}

/* Writes only printable characters, because a process of another user may have chosen the name and
 * terminals interpret control characters. */
static void unix_text(const tcp_place *place, char *buf, size_t n_bytes) {
    struct sockaddr_un at;
    size_t n_head = offsetof(struct sockaddr_un, sun_path) + 1;
    memcpy(&at, &place->at, sizeof at);
    if (place->n_bytes <= n_head) {
        snprintf(buf, n_bytes, "a process of this host");
        return;
    }
    snprintf(buf, n_bytes, "unix:%.*s",
             (int)TTI_MIN(place->n_bytes - n_head, sizeof at.sun_path - 1), at.sun_path + 1);
    for (char *c = buf; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
}

const char *tti_tcp_place_text(const tcp_place *place, char *buf, size_t n_bytes) {
    char host[INET6_ADDRSTRLEN] = "?";
    if (place->at.ss_family == AF_INET) {
        struct sockaddr_in at;
        memcpy(&at, &place->at, sizeof at);
        inet_ntop(AF_INET, &at.sin_addr, host, sizeof host);
        snprintf(buf, n_bytes, "%s:%d", host, ntohs(at.sin_port));
    } else if (place->at.ss_family == AF_INET6) {
        struct sockaddr_in6 at;
        memcpy(&at, &place->at, sizeof at);
        inet_ntop(AF_INET6, &at.sin6_addr, host, sizeof host);
        snprintf(buf, n_bytes, "[%s]:%d", host, ntohs(at.sin6_port));
    } else {
        unix_text(place, buf, n_bytes);
    }
    return buf;
}
