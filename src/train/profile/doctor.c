/* doctor.c - tutti_doctor: describes this machine and explains what is missing. */
#include "tutti/profile.h"

#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/affinity.h"
#include "base/files/module_file.h"
#include "comm/link.h"
#include "exec/device/bench/sum_table.h"
#include "train/profile/ceilings.h"

static tutti_status describe_ceilings(const tti_backend *backend, tutti_dtype dtype, tti_str *out) {
    tti_ceilings c;
    TTI_TRY(tti_ceilings_measure(backend, dtype, &c));
    tti_str_printf(out, "    matrix product %s %lldx%lldx%lld: %.1f GFLOP/s; copy: %.1f GB/s\n",
                   dtype == TUTTI_F32 ? "f32" : "bf16", (long long)c.side, (long long)c.side,
                   (long long)c.side, c.flops * 1e-9, c.bytes * 1e-9);
    return TUTTI_OK;
}

static tutti_status describe_host(bool measure, tti_str *out) {
    tti_cores cores;
    tti_cores_allowed(&cores);
    tti_str_printf(out, "host: %d cores allowed, %d usable, %.1f GiB of memory\n", cores.n,
                   tti_cores_usable(),
                   (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (1 << 30));
    tti_str_add(out, "  ");
    tti_backend_cpu.describe(out);
    tti_str_add(out, "\n");
    return measure ? describe_ceilings(&tti_backend_cpu, TUTTI_F32, out) : TUTTI_OK;
}

/* Describes a device; also one that is unusable or full, which is not a failure. */
static void describe_device(const tti_backend *backend, int index, bool measure, tti_str *out) {
    tti_str_printf(out, "  device %d: ", index);
    backend->device->describe(index, out);
    tti_str_add(out, "\n");
    if (backend->device->open(&(tti_device_desc){.index = index}) != TUTTI_OK) {
        tti_str_printf(out, "    cannot be used: %s\n", tutti_last_error());
        tti_clear_error();
        return;
    }
    size_t n_now, n_peak, n_free;
    backend->device->memory.get_usage(&n_now, &n_peak, &n_free);
    tti_str_printf(out, "    free memory: %.1f GiB\n", (double)n_free / (1 << 30));
    if (measure && describe_ceilings(backend, TUTTI_BF16, out) != TUTTI_OK) {
        tti_str_printf(out, "    not measured: %s\n", tutti_last_error());
        tti_clear_error();
    }
    backend->device->close();
}

/* Prints the bandwidth of one device reading from another, or the problem. */
static void describe_link(const tti_backend *backend, int reader, int from, tti_str *out,
                          tti_str *faults) {
    tti_device_link link;
    if (backend->device->link(from, &link) !=
        TUTTI_OK) { /* out of memory, or the device has failed */
        tti_str_printf(out, " %8s", "?");
        tti_str_printf(faults, "    device %d from %d: not measured: %s\n", reader, from,
                       tutti_last_error());
        tti_clear_error();
        return;
    }
    tti_str_printf(out, " %8.1f", link.bytes_per_s * 1e-9);
    if (!link.is_right)
        tti_str_printf(faults, "    device %d from %d: WRONG DATA arrived; do not train on both\n",
                       reader, from);
    if (!link.is_direct)
        tti_str_printf(faults, "    device %d from %d: memory cannot be read by kernels\n", reader,
                       from);
}

/* Prints the row of a reader, with one column per source. */
static void describe_links_of(const tti_backend *backend, int reader, tti_str *out,
                              tti_str *faults) {
    tti_str_printf(out, "    device %-2d", reader);
    if (backend->device->open(&(tti_device_desc){.index = reader}) != TUTTI_OK) {
        tti_str_add(out, " cannot be used\n"); /* the reason was printed before */
        tti_clear_error();
        return;
    }
    for (int i = 0; i < backend->device->count(); i++) {
        if (i == reader)
            tti_str_printf(out, " %8s", "-");
        else
            describe_link(backend, reader, i, out, faults);
    }
    tti_str_add(out, "\n");
    backend->device->close();
}

static void describe_links(const tti_backend *backend, tti_str *out) {
    int n = backend->device->count();
    tti_str faults = {0};
    tti_str_add(out, "  links, GB/s one way, what a device reads from");
    for (int i = 0; i < n; i++) tti_str_printf(out, " %d", i);
    tti_str_add(out, ":\n");
    for (int i = 0; i < n; i++) describe_links_of(backend, i, out, &faults);
    tti_str_add(out, faults.text ? faults.text : "    all data right, all memory can be read\n");
    tti_str_free(&faults);
}

/* ---- sums between devices ---- */

enum { SUMS_MOST = 256 << 20, SUMS_LEAST = 4096 };

/* Computes the bytes of the largest vector; the benchmark needs several times this memory. */
static tutti_status size_of_sums(const tti_backend *backend, int n, size_t *n_most) {
    *n_most = SUMS_MOST;
    for (int i = 0; i < n; i++) {
        size_t n_now, n_peak, n_free;
        TTI_TRY(backend->device->open(&(tti_device_desc){.index = i}));
        backend->device->memory.get_usage(&n_now, &n_peak, &n_free);
        backend->device->close();
        while (*n_most > n_free / 16) *n_most /= 4;
    }
    if (*n_most >= SUMS_LEAST) return TUTTI_OK;
    return tti_fail(TUTTI_E_NOMEM, "a device has too little free memory");
}

/* Prints the size from which the library is faster; nothing if it never is. */
static void describe_choice(const tti_sum_table *t, bool fast, tti_str *out) {
    tti_str_printf(out, "    %s mode: direct", fast ? "fast" : "exact");
    bool was = false;
    for (int i = 0; i < t->n_rows; i++) {
        bool is = tti_sum_table_prefers_library(t, t->rows[i].n_bytes, fast);
        const char *name = !is ? "direct" : fast ? "ring" : "tree";
        if (is != was)
            tti_str_printf(out, ", from %lld bytes on %s", (long long)t->rows[i].n_bytes, name);
        was = is;
    }
    tti_str_add(out, "\n");
}

static void print_sums(const tti_sum_table *t, tti_str *out) {
    tti_str_printf(out, "    %12s %10s %10s %10s\n", "bytes", "direct", "tree", "ring");
    for (int i = 0; i < t->n_rows; i++) {
        tti_str_printf(out, "    %12lld", (long long)t->rows[i].n_bytes);
        for (int w = 0; w < TTI_N_SUM_ALGORITHMS; w++) {
            double us = t->rows[i].us[w];
            if (us > 0)
                tti_str_printf(out, " %10.1f", us);
            else
                tti_str_printf(out, " %10s", "-");
        }
        tti_str_add(out, "\n");
    }
    tti_str_printf(out, "    direct: kernels over peers' memory; tree, ring: %s\n",
                   t->library[0] ? t->library : "no library");
    describe_choice(t, false, out);
    describe_choice(t, true, out);
}

/* Measures sums between devices.  Reports failed measurements without failing. */
static void describe_sums(const tti_backend *backend, int n, tti_str *out) {
    tti_sum_table table;
    tti_sum_kind kinds[TTI_SUM_DEVICES];
    char name[64], key[TTI_SUM_KEY];
    size_t n_most;
    tti_str_printf(out, "  sums between %d devices, us, by parallel.algorithm:\n", n);
    tutti_status st = size_of_sums(backend, n, &n_most);
    if (st == TUTTI_OK) st = tti_sum_table_measure(backend, n, n_most, &table);
    if (st != TUTTI_OK) {
        tti_str_printf(out, "    not measured: %s\n", tutti_last_error());
        tti_clear_error();
        return;
    }
    print_sums(&table, out);
    tti_sum_table_name(n, name);
    for (int i = 0; i < n; i++) tti_sum_table_kind(backend, i, &kinds[i]);
    tti_sum_table_key(backend, kinds, n, key);
    if (tti_sum_table_save(key, n, &table))
        tti_str_printf(out, "    stored in %s/%s; %s\n", tti_cache_dir(), name,
                       backend->device->collectives.mixes_algorithms
                           ? "parallel.algorithm=auto uses it"
                           : "parallel.algorithm=auto does not use it for these devices: set "
                             "parallel.algorithm");
    else
        tti_str_add(out, "    not stored: no folder of TUTTI_CACHE can be written\n");
}

/* Describes the communication library, even with one device, because the job may run on several
 * hosts. */
static void describe_library(const tti_backend *backend, tti_str *out) {
    if (!backend->device->collectives.describe_library) return;
    tti_str_add(out, "  between devices: ");
    backend->device->collectives.describe_library(out);
    tti_str_add(out, "\n");
}

/* Describes a module and its devices.  Missing devices are not a failure. */
static void describe_module(const char *name, bool measure, tti_str *out) {
    const tti_backend *backend;
    if (tti_backend_find(name, &backend) != TUTTI_OK) {
        tti_str_printf(out, "%s: not loaded: %s\n", name, tutti_last_error());
        tti_clear_error();
        return;
    }
    backend->describe(out);
    tti_str_printf(out, "\n  module: %s\n", tti_module_file_of(backend));
    describe_library(backend, out);
    for (int i = 0; i < backend->device->count(); i++) describe_device(backend, i, measure, out);
    bool linked = measure && backend->device->link && backend->device->count() > 1;
    if (linked) describe_links(backend, out);
    int n = TTI_MIN(backend->device->count(), (int)TTI_SUM_DEVICES);
    bool adds = measure && backend->device->collectives.connect && n > 1;
    if (adds) describe_sums(backend, n, out);
    if (adds && n > 2) describe_sums(backend, 2, out);
}

/* ---- loaded files ---- */

/* Name prefixes of libraries that compute, send or decode for Tutti. */
static const char *const own_files[] = {
    "tutti-",     "libtutti.", "libdnnl.", "libOpenCL.", "libgomp.", "libstdc++.", "libcuda.",
    "libcudart.", "libcublas", "libcudnn", "libnccl.",   "libmpi.",  "libpmix.",   "libyaml-",
    "libjansson", "libjpeg.",  "libpng",   "libz.",      "libm.",    "libc.",
};

static int describe_file(struct dl_phdr_info *info, size_t n_bytes, void *out) {
    (void)n_bytes;
    const char *slash = strrchr(info->dlpi_name, '/');
    for (size_t i = 0; slash && i < TTI_COUNT(own_files); i++)
        if (strncmp(slash + 1, own_files[i], strlen(own_files[i])) == 0) {
            tti_str_printf(out, "  %s\n", info->dlpi_name);
            break;
        }
    return 0;
}

tutti_status tutti_doctor(bool measure, char **text) {
    TTI_TRY(tti_need(text, __func__, "text"));
    tti_str out = {0};
    *text = NULL;
    tti_str_printf(&out, "tutti %s\n", TUTTI_VERSION);
    tutti_status st = describe_host(measure, &out);
    if (st == TUTTI_OK) describe_module("cuda", measure, &out);
    tti_link_describe(&out);
    /* Printed last, because modules load their libraries at first use. */
    char path[1024];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    tti_str_printf(&out, "loaded files:\n  %.*s\n", n > 0 ? (int)n : 0, path);
    dl_iterate_phdr(describe_file, &out);
    if (st == TUTTI_OK && out.failed) st = tti_fail(TUTTI_E_NOMEM, "doctor: out of memory");
    if (st != TUTTI_OK) tti_str_free(&out);
    *text = out.text;
    return st;
}
