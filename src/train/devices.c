/* devices.c - from parallel.devices to a backend. */
#include "train/devices.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/shares.h"

static tutti_status add(tti_devices *d, long index) {
    if (index < 0 || index > INT_MAX)
        return tti_fail(TUTTI_E_CONFIG, "parallel.devices: there is no device %ld", index);
    for (int i = 0; i < d->n; i++)
        if (d->index[i] == (int)index)
            return tti_fail(TUTTI_E_CONFIG, "parallel.devices: device %ld is named twice", index);
    if (d->n == TTI_MAX_DEVICES)
        return tti_fail(TUTTI_E_CONFIG, "parallel.devices: more than %d", TTI_MAX_DEVICES);
    d->index[d->n++] = (int)index;
    return TUTTI_OK;
}

/* "0,cpu": a list with the host in it. */
static bool mixes_host(const char *text) {
    bool found = false;
    for (const char *at = text; *at && strchr(text, ',');) {
        size_t n = strcspn(at, ",");
        found |= n == 3 && memcmp(at, "cpu", 3) == 0;
        at += n + (at[n] == ',');
    }
    return found;
}

static tutti_status refuse_mixture(const char *text) {
    return tti_fail(TUTTI_E_CONFIG,
                    "parallel.devices=%.60s: the workers of a run are all on the host or all on "
                    "GPUs: their kernels do not come to the same bits, which parallel.mode=exact "
                    "promises, and parallel.mode=fast has one plan for all of them so far; give "
                    "cpu, gpu or the numbers of GPUs",
                    text);
}

/* "0,2,3" */
static tutti_status read_list(const char *text, tti_devices *d) {
    for (const char *at = text;;) {
        char *end;
        long index = strtol(at, &end, 10);
        if (mixes_host(text)) return refuse_mixture(text);
        if (end == at || (*end && *end != ','))
            return tti_fail(TUTTI_E_CONFIG,
                            "parallel.devices: '%.60s' is neither auto, cpu, gpu nor a list of "
                            "numbers such as 0,1",
                            text);
        TTI_TRY(add(d, index));
        if (!*end) return TUTTI_OK;
        at = end + 1;
    }
}

static tutti_status check_there(const tti_devices *d, int n_there) {
    for (int i = 0; i < d->n; i++)
        if (d->index[i] >= n_there)
            return tti_fail(TUTTI_E_CONFIG,
                            "parallel.devices: there is no device %d; this machine has %d (tutti "
                            "doctor lists them)",
                            d->index[i], n_there);
    return TUTTI_OK;
}

/* The model is, between workers. */
static bool is_divided(const tti_job_config *config) {
    return config->parallel.tensor * config->parallel.pipeline > 1;
}

tutti_status tti_devices_find(const tti_job_config *config, tti_devices *out) {
    const char *text = config->parallel.devices;
    bool is_auto = strcmp(text, "auto") == 0, all = is_auto || strcmp(text, "gpu") == 0;
    bool host = strcmp(config->parallel.backend, "auto") != 0;
    const tti_backend *cuda;
    *out = (tti_devices){.backend = &tti_backend_cpu};
    if (strcmp(text, "cpu") == 0 || (is_auto && host)) return TUTTI_OK;
    tti_devices found = *out;
    if (!all) TTI_TRY(read_list(text, &found));
    if (host)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.devices=%.60s: parallel.backend=%s computes on the host; leave "
                        "one of the two out",
                        text, config->parallel.backend);
    if (tti_backend_find("cuda", &cuda) != TUTTI_OK) {
        if (!is_auto)
            return tti_fail(TUTTI_E_CONFIG,
                            "parallel.devices=%.60s: no GPU can be used; parallel.devices=cpu "
                            "computes on the host, and `tutti doctor` shows what is missing: %s",
                            text, tutti_last_error());
        tti_clear_error();
        return TUTTI_OK;
    }
    int n_there = cuda->device->count();
    found.backend = cuda;
    for (int i = 0; all && i < n_there && i < TTI_MAX_DEVICES; i++) TTI_TRY(add(&found, i));
    TTI_TRY(check_there(&found, n_there));
    *out = found;
    return TUTTI_OK;
}

/* Some of the devices are not like the first one, as far as their backend can tell. */
static bool differ(const tti_devices *d) {
    tti_str first = {0}, other = {0};
    bool found = false;
    if (d->n < 2 || !d->backend->device->kind) return false;
    d->backend->device->kind(d->index[0], &first);
    for (int i = 1; i < d->n && !found; i++) {
        tti_str_clear(&other);
        d->backend->device->kind(d->index[i], &other);
        found = strcmp(tti_str_text(&first), tti_str_text(&other)) != 0;
    }
    tti_str_free(&first);
    tti_str_free(&other);
    return found;
}

/* Where the job leaves it open, GPUs of different kinds have shares by their speed. */
static void resolve_shares(tutti_job *job, const tti_devices *d) {
    tti_shares_kind kind = tti_shares_kind_of(&job->config);
    bool whole = job->config.parallel.tensor * job->config.parallel.pipeline == 1;
    bool joins = strcmp(job->config.parallel.sync, "all-reduce") == 0;
    if (kind != TTI_SHARES_AUTO || !whole || !joins || !differ(d)) return;
    tti_options_put(&job->options, "parallel.shares", "measured", "auto, GPUs of different kinds");
}

/* Whether the host may have the optimizer's state of devices; that of CPUs it has anyway. */
static tutti_status find_state(const tutti_job *job, const tti_devices *found) {
    if (strcmp(job->config.parallel.offload, "none") == 0 || found->n == 0) return TUTTI_OK;
    if (is_divided(&job->config))
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.offload=optimizer: workers on GPUs that have a part of the model "
                        "have its state there; give parallel.offload=none, or leave "
                        "parallel.tensor and parallel.pipeline out");
    if (tti_job_ends_on_host(&job->config))
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.offload=optimizer is for sums of all workers' gradients in every "
                        "step; give parallel.offload=none with a parameter server, local SGD, topk "
                        "or powersgd");
    return TUTTI_OK;
}

tutti_status tti_devices_resolve(tutti_job *job, tti_devices *out) {
    TTI_TRY(tutti_job_check(job));
    TTI_TRY(tti_devices_find(&job->config, out));
    resolve_shares(job, out);
    const char *precision = job->config.train.precision;
    if (out->n == 0 && strcmp(precision, "tf32") == 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "train.precision=tf32 is a way of GPUs to multiply, and this job computes "
                        "on the host; give train.precision=f32");
    if (out->n > 0 && job->config.parallel.zero > 1)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.zero=%d: gradients and parameters of GPUs are whole on every "
                        "worker so far; give parallel.zero=1 or 0, or parallel.devices=cpu to "
                        "split them between workers on the host",
                        (int)job->config.parallel.zero);
    if (out->n > 0 && job->config.parallel.zero > 0 && !out->backend->device->update_complete)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.zero=1: the update on GPUs has all of the optimizer's state on "
                        "every worker so far; give parallel.zero=0, or parallel.devices=cpu to "
                        "split it between workers on the host");
    TTI_TRY(find_state(job, out));
    if (strcmp(job->config.parallel.devices, "auto") == 0)
        tti_options_put(&job->options, "parallel.devices", out->n ? "gpu" : "cpu",
                        out->n ? "auto, there are some" : "auto, no GPU");
    if (strcmp(precision, "auto") == 0)
        tti_options_put(&job->options, "train.precision", out->n ? "bf16" : "f32",
                        out->n ? "auto, on a GPU" : "auto, on the host");
    return tutti_job_check(job); /* conflicts with what was auto until now */
}
