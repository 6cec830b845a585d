/* bucket_link.c - estimates the link that carries gradient sums, and the bucket size that suits it.
 *
 * Uses only facts that all workers know: the job, its devices, and the number of hosts.  A measured
 * table is used only if all workers are on one machine. */
#include "train/setup/bucket_link.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/device/bench/sum_table.h"

/* A bucket's reduction moves bytes for at least this many latencies, so latency is at most 5 % of
 * its time. */
static const double LATENCIES = 19;

/* Figures for sums between two workers, measured with `tutti bench comm` and `tutti doctor`.
 * Links between hosts are assumed to have at least 10 Gbit/s, between devices of hosts 400
 * Gbit/s. taken_s on the host is the cost of the communication thread.  On H200 a step of GPT-2
 * 124M takes 46 us longer for each bucket of 4 MiB and 90 us for each of 32 MiB.  Compression
 * reads and writes gradients several times for each of two collectives.  Copies to the host use
 * no multiprocessors. */
static const tti_bucket_link threads = {"threads of one process", 3e-6, 10e9, 20e-6, 0};
static const tti_bucket_link processes = {"memory of one host", 4.5e-6, 9e9, 20e-6, 0};
static const tti_bucket_link hosts = {"a network of hosts", 30e-6, 2.5e9, 20e-6, 0};
static const tti_bucket_link devices_connected = {"devices with peer access", 5.2e-6, 335e9, 80e-6,
                                                  0};
static const tti_bucket_link devices_net = {"devices of several hosts", 30e-6, 40e9, 80e-6, 0};
static const tti_bucket_link compress = {"devices that compress", 25e-6, 140e9, 80e-6, 0};
static const tti_bucket_link host_staged = {"devices through their host", 60e-6, 4.1e9, 40e-6, 0};
static const tti_bucket_link to_host = {"copies to the host", 10e-6, 50e9, 0, 0};

/* If gradients or parameters are sharded, two or three buckets are in memory at once. */
enum { MOST_ON_DEVICES = 32 << 20, MOST_ON_HOST = 4 << 20 };

/* The largest value of parallel.bucket_mb, because a measured table may contain any values. */
static const double LONGEST = 4096.0 * 1048576;

/* ---- measured tables ---- */

/* Returns the sum algorithm for parallel.algorithm. */
static tti_sum_algorithm algorithm_of(const tti_job_config *c) {
    if (strcmp(c->parallel.algorithm, "tree") == 0) return TTI_SUM_TREE;
    return strcmp(c->parallel.algorithm, "ring") == 0 ? TTI_SUM_RING : TTI_SUM_DIRECT;
}

/* The time of the smallest size is the latency; the last two sizes give the bandwidth.  False: the
 * table has no such figures. */
static bool read_table(const tti_sum_table *table, tti_sum_algorithm algorithm,
                       tti_bucket_link *out) {
    const tti_sum_row *first = NULL, *before = NULL, *last = NULL;
    for (int i = 0; i < table->n_rows; i++) {
        const tti_sum_row *row = &table->rows[i];
        if (row->us[algorithm] <= 0) continue;
        if (!first) first = row;
        before = last, last = row;
    }
    if (!before || last->us[algorithm] <= before->us[algorithm]) return false;
    out->latency_s = first->us[algorithm] * 1e-6;
    out->bytes_s = (double)(last->n_bytes - before->n_bytes) /
                   (last->us[algorithm] - before->us[algorithm]) * 1e6;
    return true;
}

/* Reads the same table as exec/device/bucket_algorithms.c, for latency and bandwidth. */
static void measured(const tti_job_config *c, const tti_devices *d, int n, tti_bucket_link *out) {
    tti_sum_kind kinds[TTI_SUM_DEVICES];
    char key[TTI_SUM_KEY];
    tti_sum_table table;
    if (n < 2 || n > TTI_SUM_DEVICES || n > d->n ||
        !d->backend->device->collectives.describe_library)
        return;
    for (int i = 0; i < n; i++) tti_sum_table_kind(d->backend, d->index[i], &kinds[i]);
    tti_sum_table_key(d->backend, kinds, n, key);
    if (tti_sum_table_load(key, n, &table) != TTI_CACHE_GOOD) return;
    if (read_table(&table, algorithm_of(c), out))
        snprintf(out->name, sizeof out->name, "devices, from the table of tutti doctor");
}

/* ---- choice of the link ---- */

/* True if gradients are compressed on the device: the model is not divided and states are not
 * sharded, as in exec/device/device_compress.c. */
static bool compresses_there(const tti_job_config *c) {
    const char *key = tti_job_ends_on_host(c);
    return key && strcmp(key, "parallel.compress") == 0 && c->parallel.zero == 0 &&
           c->parallel.tensor * c->parallel.pipeline == 1;
}

static void of_devices(const tti_job_config *c, const tti_devices *d, int n_workers, int n_hosts,
                       tti_bucket_link *out) {
    int n_here = (n_workers + n_hosts - 1) / n_hosts;
    int n_copies = n_workers / (int)(c->parallel.tensor * c->parallel.pipeline);
    bool compresses = compresses_there(c);
    bool ends_on_host = d->mixed || (tti_job_ends_on_host(c) && !compresses) ||
                        (d->n > 0 && n_here > d->n) || tti_job_is_host_staged(c, n_copies);
    *out = ends_on_host  ? host_staged
           : compresses  ? compress
           : n_hosts > 1 ? devices_net
                         : devices_connected;
    if (strcmp(c->parallel.offload, "none") != 0)
        *out = to_host;
    else if (!ends_on_host && !compresses && n_hosts == 1 &&
             c->parallel.tensor * c->parallel.pipeline == 1)
        measured(c, d, n_workers, out);
}

void tti_bucket_link_of(const tti_job_config *c, const tti_devices *d, int n_workers, int n_hosts,
                        tti_bucket_link *out) {
    bool on_devices = d->mixed || d->backend->device;
    if (on_devices)
        of_devices(c, d, n_workers, n_hosts, out);
    else if (n_hosts > 1)
        *out = hosts;
    else
        *out = strcmp(c->parallel.place, "processes") == 0 ? processes : threads;
    if (c->parallel.zero > 1) out->most_bytes = on_devices ? MOST_ON_DEVICES : MOST_ON_HOST;
}

void tti_bucket_link_apply(const tti_bucket_link *link, const tti_job_config *c,
                           tti_plan_desc *desc) {
    if (c->parallel.bucket_mb >= 0) {
        desc->bucket_bytes = (size_t)(c->parallel.bucket_mb * 1048576.0);
        return;
    }
    desc->bucket_bytes = (size_t)fmin(LATENCIES * link->latency_s * link->bytes_s, LONGEST);
    desc->bucket_growth = fmin((link->latency_s + link->taken_s) * link->bytes_s, LONGEST);
    desc->bucket_most = (size_t)link->most_bytes;
}

void tti_bucket_link_describe(const tti_bucket_link *link, const tti_job_config *c,
                              size_t bucket_bytes, tti_str *out) {
    tti_str_printf(out, " of %.3g MiB", (double)bucket_bytes / 1048576.0);
    if (c->parallel.bucket_mb >= 0)
        tti_str_add(out, ", as the job says");
    else
        tti_str_printf(out, ": %s, %.3g us and %.3g GB/s", link->name, link->latency_s * 1e6,
                       link->bytes_s * 1e-9);
}
