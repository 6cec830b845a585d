/* host_slots.c - applies the numbers of workers in a host file to several hosts.
 *
 * The leader reads the file, so that all numbers of one version are applied together.  A version
 * that cannot be applied is reported and changes nothing.  Other hosts keep the last text in case
 * they become the leader. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launch/supervisor_state.h"

static void warn(const tti_supervisor *s, const char *text) {
    char line[800];
    snprintf(line, sizeof line, "%.300s: %.480s", s->host.file.path, text);
    if (s->desc->on_leave) s->desc->on_leave(s->desc->user, line);
}

/* The numbers that a version of the file requests for the hosts of a run. */
typedef struct request {
    const tti_supervisor *s;
    const tti_host_layout *place;
    tti_host_names *names; /* [n_nodes] */
    int32_t *targets;      /* [n_nodes] */
} request;

/* Returns the number of workers for a host; -1: a line is invalid. */
static int find_target(const request *r, int node) {
    const tti_supervisor_desc *desc = r->s->desc;
    int each = TTI_MAX(r->place->n_together, 1);
    bool leads = tti_hosts_leader(desc->hosts) == node;
    int most = TTI_MAX(r->place->n_workers[node], TTI_MIN(desc->max_workers, TTI_MAX_HOST_WORKERS));
    int n = tti_host_file_slots(r->s->host.file_text, &r->names[node]);
    if (n < 0) return -1;
    int able = TTI_MIN(TTI_MAX(n, leads ? each : 0), most) / each * each;
    char text[300];
    if (n != able) {
        snprintf(text, sizeof text, "asks for %d worker%s on host %d; it gets %d (up to %d%s%s)", n,
                 n == 1 ? "" : "s", node, able, most, each > 1 ? ", in whole groups" : "",
                 leads ? "; the host that leads has at least one" : "");
        warn(r->s, text);
    }
    return able;
}

/* True if the run can have these numbers: the sum is between min_workers and the maximum, and at
 * least min_workers stay while others are started. */
static bool is_possible(const request *r) {
    const tti_supervisor_desc *desc = r->s->desc;
    const int32_t *now = tti_hosts_table(desc->hosts)->targets;
    int most = TTI_MAX(desc->max_workers, r->place->n_all), n_all = 0, n_stay = 0;
    int each = TTI_MAX(desc->n_per_replica, 1);
    char text[300] = "";
    for (int k = 0; k < r->place->n_nodes; k++) {
        n_all += r->targets[k];
        n_stay += TTI_MIN(r->targets[k], now[k]);
    }
    if (n_all < desc->min_workers || n_all > most)
        snprintf(text, sizeof text,
                 "asks for %d worker%s on all hosts, and this run has %d to %d: the numbers stay",
                 n_all, n_all == 1 ? "" : "s", desc->min_workers, most);
    else if (n_all % each != 0)
        snprintf(text, sizeof text,
                 "asks for %d workers on all hosts, and a replica has %d: the numbers stay", n_all,
                 each);
    else if (n_stay < desc->min_workers)
        snprintf(text, sizeof text,
                 "only %d worker%s would stay until those of other hosts are started, and "
                 "parallel.min_workers is %d: the numbers stay; change them in two steps",
                 n_stay, n_stay == 1 ? "" : "s", desc->min_workers);
    if (text[0]) warn(r->s, text);
    return !text[0];
}

static bool is_known(const request *r, int node) { return r->names[node].host[0] != '\0'; }

static void warn_of_unknown(const request *r) {
    char name[100], text[300];
    for (int k = 0; k < r->place->n_nodes; k++)
        if (!is_known(r, k)) return;
    tti_host_file_find_unknown(r->s->host.file_text, r->names, r->place->n_nodes, name,
                               sizeof name);
    if (!name[0]) return;
    snprintf(text, sizeof text, "'%s' is not a host of this run", name);
    warn(r->s, text);
}

/* Fills in the targets. all: of every host, else only of new hosts. */
static void fill(request *r, bool all, bool *ok) {
    for (int k = 0; k < r->place->n_nodes && *ok; k++) {
        tti_host *host = tti_hosts_get(r->s->desc->hosts, k);
        bool is_asked = all || host->is_renamed;
        host->is_renamed = false;
        r->names[k] = tti_hosts_names(r->s->desc->hosts, k);
        if (!is_asked || !is_known(r, k)) continue;
        int n = find_target(r, k);
        *ok = n >= 0;
        r->targets[k] = n;
    }
}

static void follow_file(tti_supervisor *s, bool all) {
    tti_hosts *hosts = s->desc->hosts;
    const tti_host_layout *place = tti_hosts_place(hosts);
    size_t n = (size_t)place->n_nodes;
    request r = {.s = s,
                 .place = place,
                 .names = calloc(n, sizeof *r.names),
                 .targets = calloc(n, sizeof *r.targets)};
    bool ok = r.names && r.targets;
    if (ok) {
        memcpy(r.targets, tti_hosts_table(hosts)->targets, n * sizeof *r.targets);
        fill(&r, all, &ok);
        if (!ok) warn(s, tutti_last_error());
        if (ok && all) warn_of_unknown(&r);
        if (ok && is_possible(&r)) tti_hosts_set_targets(hosts, r.targets);
    }
    free(r.names);
    free(r.targets);
}

/* True if a host with a new name has connected. */
static bool any_is_renamed(const tti_supervisor *s) {
    bool any = false;
    for (int k = 0; k < tti_hosts_place(s->desc->hosts)->n_nodes; k++)
        any |= tti_hosts_get(s->desc->hosts, k)->is_renamed;
    return any;
}

void tti_host_slots_look(tti_supervisor *s) {
    char *text;
    bool leads = tti_hosts_leader(s->desc->hosts) == tti_hosts_place(s->desc->hosts)->node;
    if (!s->desc->host_file || s->host.epoch == 0) return; /* not all hosts are known yet */
    int got = tti_host_file_read(&s->host.file, &text);
    if (got > 0) {
        free(s->host.file_text);
        s->host.file_text = text;
    }
    if (!leads) return;
    if (got < 0 && s->desc->on_leave) s->desc->on_leave(s->desc->user, tutti_last_error());
    if (s->host.file_text && (got > 0 || any_is_renamed(s))) follow_file(s, got > 0);
}
