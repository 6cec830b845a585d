/* devices.c - from parallel.devices to a backend. */
#include "train/devices.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static tutti_status add(tti_devices *d, long index, int n_there) {
    if (index < 0 || index >= n_there)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.devices: there is no device %ld; this machine has %d (tutti "
                        "doctor lists them)",
                        index, n_there);
    for (int i = 0; i < d->n; i++)
        if (d->index[i] == (int)index)
            return tti_fail(TUTTI_E_CONFIG, "parallel.devices: device %ld is named twice", index);
    if (d->n == TTI_MAX_DEVICES)
        return tti_fail(TUTTI_E_CONFIG, "parallel.devices: more than %d", TTI_MAX_DEVICES);
    d->index[d->n++] = (int)index;
    return TUTTI_OK;
}

/* "0,2,3" */
static tutti_status read_list(const char *text, int n_there, tti_devices *d) {
    for (const char *at = text; *at;) {
        char *end;
        long index = strtol(at, &end, 10);
        if (end == at || (*end && *end != ','))
            return tti_fail(
                TUTTI_E_CONFIG,
                "parallel.devices: '%s' is neither auto, cpu, gpu nor a list of numbers "
                "such as 0,1",
                text);
        TTI_TRY(add(d, index, n_there));
        at = *end ? end + 1 : end;
    }
    return TUTTI_OK;
}

static tutti_status all_devices(int n_there, tti_devices *d) {
    for (int i = 0; i < n_there && i < TTI_MAX_DEVICES; i++) TTI_TRY(add(d, i, n_there));
    return TUTTI_OK;
}

tutti_status tti_devices_find(const tti_job_config *config, tti_devices *out) {
    const char *text = config->parallel.devices;
    bool is_auto = strcmp(text, "auto") == 0;
    *out = (tti_devices){.backend = &tti_backend_cpu};
    bool host = strcmp(config->parallel.backend, "auto") != 0;
    if (strcmp(text, "cpu") == 0 || (is_auto && host)) return TUTTI_OK;
    if (host)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.devices=%s: parallel.backend=%s computes on the host; leave one "
                        "of the two out",
                        text, config->parallel.backend);
    const tti_backend *cuda;
    if (tti_backend_find("cuda", &cuda) != TUTTI_OK) {
        if (!is_auto) return tti_fail(TUTTI_E_CONFIG, "parallel.devices: %s", tutti_last_error());
        tti_clear_error();
        return TUTTI_OK;
    }
    int n_there = cuda->device->count();
    out->backend = cuda;
    bool all = is_auto || strcmp(text, "gpu") == 0;
    return all ? all_devices(n_there, out) : read_list(text, n_there, out);
}

tutti_status tti_devices_resolve(tutti_job *job, tti_devices *out) {
    TTI_TRY(tutti_job_check(job));
    TTI_TRY(tti_devices_find(&job->config, out));
    const char *precision = job->config.train.precision;
    if (out->n == 0 && strcmp(precision, "tf32") == 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "train.precision=tf32 is a way of GPUs to multiply, and this job computes "
                        "on the host; give train.precision=f32");
    if (strcmp(job->config.parallel.devices, "auto") == 0)
        tti_options_put(&job->options, "parallel.devices", out->n ? "gpu" : "cpu",
                        out->n ? "auto, there are some" : "auto, no GPU");
    if (strcmp(precision, "auto") == 0)
        tti_options_put(&job->options, "train.precision", out->n ? "bf16" : "f32",
                        out->n ? "auto, on a GPU" : "auto, on the host");
    return TUTTI_OK;
}
