/* hosts_test.c - connections between the supervisors of several hosts: what the environment may
 * say, who is let in, and messages that make no sense. */
#include "launch/hosts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "t.h"

enum { TIMEOUT_MS = 20000 };

/* ---- the environment ---- */

typedef struct variables {
    const char *nodes, *node;
} variables;

static const char *look(void *user, const char *name) {
    const variables *v = user;
    if (strcmp(name, "TUTTI_NODES") == 0) return v->nodes;
    return strcmp(name, "TUTTI_NODE_RANK") == 0 ? v->node : NULL;
}

static void places_are_read(void **state) {
    (void)state;
    tti_host_layout place;
    T_OK(tti_host_layout_find(look, &(variables){NULL, NULL}, &place));
    T_EQ(place.n_nodes, 0);
    T_OK(tti_host_layout_find(look, &(variables){"3,1,2", "2"}, &place));
    T_EQ(place.n_nodes, 3);
    T_EQ(place.node, 2);
    T_EQ(place.first_rank, 4);
    T_EQ(place.n_workers[2], 2);
    T_EQ(place.n_all, 6);
    tti_host_layout_free(&place);
    char many[2 * 1000 + 8] = "4096";
    for (int i = 0; i < 1000; i++) strcat(many, ",9");
    T_OK(tti_host_layout_find(look, &(variables){many, "1000"}, &place));
    T_EQ(place.n_nodes, 1001);
    T_EQ(place.first_rank, 4096 + 9 * 999);
    tti_host_layout_free(&place);
    static const variables wrong[] = {{"3,1", NULL},
                                      {NULL, "0"},
                                      {"3", "0"},
                                      {"3,", "0"},
                                      {"3,x", "0"},
                                      {"3,0", "0"},
                                      {"3,4097", "0"},
                                      {"-1,1", "0"},
                                      {"", "0"},
                                      {"3,1", "2"},
                                      {"3,1", ""},
                                      {"3,1", "-1"},
                                      {"3,1", "1 a"},
                                      {"1,3", "0"},
                                      {"3 1", "0"},
                                      {"3,1", "0x1"},
                                      {"9999999999999999999,1", "0"}};
    for (size_t i = 0; i < TTI_COUNT(wrong); i++) {
        variables v = wrong[i];
        T_EQ(tti_host_layout_find(look, &v, &place), TUTTI_E_CONFIG);
    }
}

/* ---- two hosts ---- */

static int free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    T_EQ(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    T_EQ(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    close(fd);
    return ntohs(at.sin_port);
}

/* Numbers of the hosts of a test. */
static int two_hosts[] = {2, 2}, one_less[] = {2, 1}, four_hosts[] = {2, 2, 1, 1};

static tti_hosts_desc desc_of(int node, int port) {
    return (tti_hosts_desc){.place = {.node = node, .n_nodes = 2, .n_workers = two_hosts},
                            .host = "127.0.0.1",
                            .port = port,
                            .token = "a token that both know",
                            .job = "model: mlp",
                            .machine = "avx2",
                            .run_dir = node == 0 ? "/runs/of host 0" : NULL};
}

typedef struct follower {
    tti_hosts_desc desc;
    int timeout_ms;   /* 0: TIMEOUT_MS */
    tti_hosts *hosts; /* NULL: it was not let in */
    tutti_status status;
    char error[1024];
    atomic_bool has_ended;
} follower;

static void *follow(void *arg) {
    follower *f = arg;
    f->status = tti_hosts_open(&f->desc, f->timeout_ms ? f->timeout_ms : TIMEOUT_MS, &f->hosts);
    snprintf(f->error, sizeof f->error, "%s", f->status == TUTTI_OK ? "" : tutti_last_error());
    atomic_store(&f->has_ended, true);
    return NULL;
}

/* Host 0 works until the other one is in or has been refused. */
static void let_in(tti_hosts *first, follower *f) {
    pthread_t thread;
    T_EQ(pthread_create(&thread, NULL, follow, f), 0);
    while (!atomic_load(&f->has_ended)) {
        tti_hosts_move(first);
        usleep(1000);
    }
    T_EQ(pthread_join(thread, NULL), 0);
}

static int connect_to(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    T_EQ(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

/* Until the other side has closed the connection. */
static void wait_for_end(tti_hosts *first, int fd) {
    char skipped[4096];
    ssize_t n;
    while ((n = recv(fd, skipped, sizeof skipped, MSG_DONTWAIT)) != 0) {
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) break;
        tti_hosts_move(first);
        usleep(1000);
    }
    close(fd);
}

static void strangers_stay_outside(void **state) {
    (void)state;
    tti_hosts *first = NULL;
    int port = free_port();
    tti_hosts_desc desc = desc_of(0, port);
    T_OK(tti_hosts_open(&desc, TIMEOUT_MS, &first));
    srand(7);
    for (int i = 0; i < 40; i++) { /* more than host 0 listens to at a time */
        tti_host_message m = {.kind = TTI_HOST_HELLO, .magic = 0x3174736f48747554ULL, .node = 1};
        unsigned char *bytes = (unsigned char *)&m;
        size_t from = i % 2 ? offsetof(tti_host_message, nonce) : 0; /* a header that makes sense */
        for (size_t k = from; k < sizeof m; k++) bytes[k] = (unsigned char)rand();
        int fd = connect_to(port);
        T_EQ(send(fd, &m, sizeof m, MSG_NOSIGNAL), sizeof m);
        wait_for_end(first, fd);
        assert_false(tti_hosts_get(first, 1)->link.is_open);
    }
    follower thief = {.desc = desc_of(1, port), .timeout_ms = 1000};
    thief.desc.token = "a guess";
    pthread_t thread;
    T_EQ(pthread_create(&thread, NULL, follow, &thief), 0);
    follower other = {.desc = desc_of(1, port)};
    let_in(first, &other);
    T_OK(other.status);
    assert_string_equal(tti_hosts_run_dir(other.hosts), "/runs/of host 0");
    assert_true(tti_hosts_get(first, 1)->link.is_open);
    tti_hosts_close(other.hosts);
    tti_hosts_close(first);
    T_EQ(pthread_join(thread, NULL), 0);
    T_EQ(thief.status, TUTTI_E_TIMEOUT);
}

static void another_job_is_refused(void **state) {
    (void)state;
    tti_hosts *first = NULL;
    int port = free_port();
    tti_hosts_desc desc = desc_of(0, port);
    T_OK(tti_hosts_open(&desc, TIMEOUT_MS, &first));
    follower job = {.desc = desc_of(1, port)}, machine = {.desc = job.desc},
             nodes = {.desc = job.desc}, node = {.desc = job.desc};
    job.desc.job = "model: cnn";
    machine.desc.machine = "avx512";
    nodes.desc.place.n_workers = one_less;
    node.desc.place.node = 5;
    const struct {
        follower *f;
        const char *words;
    } tried[] = {{&job, "the job, TUTTI_NODES or the version of host"},
                 {&machine, "computes with avx512"},
                 {&nodes, "the job, TUTTI_NODES or the version of host"},
                 {&node, "there is no host 5"}};
    for (size_t i = 0; i < TTI_COUNT(tried); i++) {
        let_in(first, tried[i].f);
        T_EQ(tried[i].f->status, TUTTI_E_CONFIG);
        assert_non_null(strstr(tried[i].f->error, tried[i].words));
    }
    tti_hosts_close(first);
}

/* A host that was let in can end only its own connection by its messages. */
static void senseless_messages_end_the_connection(void **state) {
    (void)state;
    tti_hosts *first = NULL;
    int port = free_port();
    tti_hosts_desc desc = desc_of(0, port);
    T_OK(tti_hosts_open(&desc, TIMEOUT_MS, &first));
    srand(9);
    for (int i = 0; i < 40; i++) {
        follower f = {.desc = desc_of(1, port)};
        let_in(first, &f);
        T_OK(f.status);
        tti_host_message m = {.kind = TTI_HOST_STATUS, .magic = 0x3174736f48747554ULL};
        if (i % 4 == 0) m.n_members = 1 << 20;
        if (i % 4 == 1) m.n_ready = -1;
        if (i % 4 == 2) m.first_rank = 1 << 30;
        if (i % 4 == 3)
            for (size_t k = 0; k < sizeof m; k++) ((unsigned char *)&m)[k] = (unsigned char)rand();
        T_EQ(send(tti_hosts_get(f.hosts, 0)->link.fd, &m, sizeof m, MSG_NOSIGNAL), sizeof m);
        while (tti_hosts_get(first, 1)->link.is_open) {
            tti_hosts_move(first);
            usleep(1000);
        }
        T_EQ(tti_hosts_get(first, 1)->status.kind, 0);
        tti_hosts_close(f.hosts);
    }
    tti_hosts_close(first);
}

/* All work until a host follows the leader. */
static void move_until(tti_hosts **all, int n, int node, int leader) {
    while (tti_hosts_leader(all[node]) != leader ||
           !tti_hosts_get(all[leader], node)->link.is_open) {
        for (int i = 0; i < n; i++)
            if (all[i]) tti_hosts_move(all[i]);
        usleep(1000);
    }
}

/* Host 0 ends.  Among the others, the one with the later epoch leads, and of two with the same
 * epoch the one with the smaller number; a host that leads an epoch follows none. */
static void another_host_leads(void **state) {
    (void)state;
    tti_hosts *all[4] = {NULL};
    int port = free_port();
    tti_hosts_desc desc = desc_of(0, port);
    desc.place.n_nodes = 4;
    desc.place.n_workers = four_hosts;
    T_OK(tti_hosts_open(&desc, TIMEOUT_MS, &all[0]));
    for (int k = 1; k < 4; k++) {
        follower f = {.desc = desc};
        f.desc.place.node = k;
        f.desc.run_dir = NULL;
        let_in(all[0], &f);
        T_OK(f.status);
        all[k] = f.hosts;
        T_EQ(tti_hosts_leader(all[k]), 0);
    }
    for (int k = 1; k < 4; k++) { /* each learns where the others listen */
        tti_host_message m = {.kind = TTI_HOST_PULSE, .epoch = 1};
        tti_hosts_send(all[0], tti_hosts_get(all[0], k), &m);
        while (tti_hosts_get(all[k], 0)->status.epoch != 1) tti_hosts_move(all[k]);
    }
    tti_hosts_close(all[0]);
    all[0] = NULL;
    for (int k = 1; k < 4; k++) {
        while (tti_hosts_get(all[k], 0)->loss == TTI_HOST_NOT_LOST) tti_hosts_move(all[k]);
        T_EQ(tti_hosts_get(all[k], 0)->loss, TTI_HOST_ENDED);
        assert_true(tti_hosts_get(all[k], 0)->is_dead);
        tti_hosts_lead(all[k]);
        tti_hosts_seek(all[k], true, k == 2 ? 8 : 7);
    }
    move_until(all, 4, 1, 2);
    move_until(all, 4, 3, 2);
    tti_hosts_seek(all[2], false, 9); /* it begins an epoch */
    /* Host 1 is stopped for so long that it is given up: it has not ended, as host 2 knows. */
    while (tti_hosts_get(all[2], 1)->link.is_open) {
        tti_hosts_move(all[2]);
        tti_host_message m = {.kind = TTI_HOST_STATUS};
        tti_hosts_send(all[3], tti_hosts_get(all[3], 2), &m);
        usleep(20000);
    }
    T_EQ(tti_hosts_get(all[2], 1)->loss, TTI_HOST_SILENT);
    assert_false(tti_hosts_get(all[2], 1)->is_dead);
    while (tti_hosts_get(all[1], 2)->link.is_open) tti_hosts_move(all[1]);
    T_EQ(tti_hosts_get(all[1], 2)->loss, TTI_HOST_SILENT);
    assert_false(tti_hosts_get(all[1], 2)->is_dead);
    tti_hosts_lead(all[1]);
    tti_hosts_seek(all[1], true, 8);
    move_until(all, 4, 1, 2);
    assert_true(tti_hosts_get(all[2], 3)->link.is_open);
    for (int k = 1; k < 4; k++) tti_hosts_close(all[k]);
}

static void a_long_folder_is_refused(void **state) {
    (void)state;
    char folder[TTI_HOST_TEXT_BYTES + 1];
    memset(folder, 'a', sizeof folder - 1);
    folder[sizeof folder - 1] = '\0';
    tti_hosts *first = NULL;
    tti_hosts_desc desc = desc_of(0, free_port());
    desc.run_dir = folder;
    T_EQ(tti_hosts_open(&desc, TIMEOUT_MS, &first), TUTTI_E_CONFIG);
    assert_non_null(strstr(tutti_last_error(), "run.dir"));
    assert_null(first);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(places_are_read),
                                       cmocka_unit_test(strangers_stay_outside),
                                       cmocka_unit_test(another_job_is_refused),
                                       cmocka_unit_test(senseless_messages_end_the_connection),
                                       cmocka_unit_test(another_host_leads),
                                       cmocka_unit_test(a_long_folder_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
