/* doctor.c - tutti_doctor: what this machine has, and why not more. */
#include "tutti/profile.h"

#include <stdio.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/affinity.h"
#include "comm/link.h"
#include "train/ceilings.h"

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

/* A device that cannot be used, or is full of another's work, is told, and no failure. */
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
    backend->device->memory(&n_now, &n_peak, &n_free);
    tti_str_printf(out, "    free memory: %.1f GiB\n", (double)n_free / (1 << 30));
    if (measure && describe_ceilings(backend, TUTTI_BF16, out) != TUTTI_OK) {
        tti_str_printf(out, "    not measured: %s\n", tutti_last_error());
        tti_clear_error();
    }
    backend->device->close();
}

/* What one device reads from another: a figure, and what is wrong with it by name. */
static void describe_link(const tti_backend *backend, int reader, int from, tti_str *out,
                          tti_str *faults) {
    tti_device_link link;
    if (backend->device->link(from, &link) != TUTTI_OK) { /* full, or broken */
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

/* One row per reader, one column per source. */
static void describe_links_of(const tti_backend *backend, int reader, tti_str *out,
                              tti_str *faults) {
    tti_str_printf(out, "    device %-2d", reader);
    if (backend->device->open(&(tti_device_desc){.index = reader}) != TUTTI_OK) {
        tti_str_add(out, " cannot be used\n"); /* why has been told */
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

/* A machine without devices is no failure. */
static void describe_module(const char *name, bool measure, tti_str *out) {
    const tti_backend *backend;
    if (tti_backend_find(name, &backend) != TUTTI_OK) {
        tti_str_printf(out, "%s: not loaded: %s\n", name, tutti_last_error());
        tti_clear_error();
        return;
    }
    backend->describe(out);
    tti_str_add(out, "\n");
    for (int i = 0; i < backend->device->count(); i++) describe_device(backend, i, measure, out);
    bool linked = measure && backend->device->link && backend->device->count() > 1;
    if (linked) describe_links(backend, out);
}

tutti_status tutti_doctor(bool measure, char **text) {
    tti_str out = {0};
    *text = NULL;
    tti_str_printf(&out, "tutti %s\n", TUTTI_VERSION);
    tutti_status st = describe_host(measure, &out);
    if (st == TUTTI_OK) describe_module("cuda", measure, &out);
    tti_link_describe(&out);
    if (st == TUTTI_OK && out.failed) st = tti_fail(TUTTI_E_NOMEM, "doctor: out of memory");
    if (st != TUTTI_OK) tti_str_free(&out);
    *text = out.text;
    return st;
}
