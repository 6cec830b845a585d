/* devices.c - translates parallel.devices to a backend and a place for each worker. */
#include "train/job/devices.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/job/load_weights.h"

static tutti_status add(tti_devices *d, long index) {
    if ((index < 0 && index != TTI_ON_HOST) || index > INT_MAX)
        return tti_fail(TUTTI_E_CONFIG, "parallel.devices: there is no device %ld", index);
    for (int i = 0; i < d->n; i++)
        if (d->index[i] == (int)index && index != TTI_ON_HOST)
            return tti_fail(TUTTI_E_CONFIG, "parallel.devices: device %ld is named twice", index);
    if (d->n == TTI_MAX_DEVICES)
        return tti_fail(TUTTI_E_CONFIG, "parallel.devices: lists more than %d", TTI_MAX_DEVICES);
    d->index[d->n++] = (int)index;
    return TUTTI_OK;
}

/* ---- lists ---- */

/* Reads the word at *at and moves *at past it and its comma; false: no word is left. */
static bool next_word(const char **at, const char **word, size_t *n_bytes) {
    *word = *at;
    *n_bytes = strcspn(*at, ",");
    if (!**at) return false;
    *at += *n_bytes + ((*at)[*n_bytes] == ',');
    return true;
}

static bool is_word(const char *word, size_t n_bytes, const char *what) {
    return n_bytes == strlen(what) && memcmp(word, what, n_bytes) == 0;
}

int tti_devices_mixed_from(const char *text) {
    const char *at = text, *word;
    size_t n_bytes;
    int n = 0, first_cpu = 0, first_device = 0;
    while (next_word(&at, &word, &n_bytes)) {
        bool is_cpu = is_word(word, n_bytes, "cpu");
        n++;
        if (is_cpu && !first_cpu) first_cpu = n;
        if (!is_cpu && !first_device) first_device = n;
    }
    return first_cpu && first_device ? TTI_MAX(first_cpu, first_device) : 0;
}

static tutti_status bad_list(const char *text) {
    return tti_fail(TUTTI_E_CONFIG,
                    "parallel.devices: '%.60s' is neither auto, cpu, gpu nor a list of numbers "
                    "such as 0,1, or with cpu for workers on the host such as 0,cpu",
                    text);
}

/* Adds a number, or cpu in a list with numbers; gpu in a list with cpu stands for all GPUs. */
static tutti_status read_word(const char *text, const char *word, size_t n_bytes, int n_there,
                              tti_devices *d) {
    char *end;
    if (d->mixed && is_word(word, n_bytes, "cpu")) return add(d, TTI_ON_HOST);
    if (d->mixed && is_word(word, n_bytes, "gpu")) {
        for (int i = 0; i < n_there && i < TTI_MAX_DEVICES; i++) TTI_TRY(add(d, i));
        return TUTTI_OK;
    }
    long index = strtol(word, &end, 10);
    if (end != word + n_bytes || n_bytes == 0) return bad_list(text);
    return index < 0 ? tti_fail(TUTTI_E_CONFIG, "parallel.devices: there is no device %ld", index)
                     : add(d, index);
}

/* Parses "0,2,3", "0,cpu" or "gpu,cpu". n_there: devices of this machine, for gpu. */
static tutti_status read_list(const char *text, int n_there, tti_devices *d) {
    const char *at = text, *word;
    size_t n_bytes;
    d->n = 0;
    d->mixed = tti_devices_mixed_from(text) > 0;
    if (text[0] && text[strlen(text) - 1] == ',') return bad_list(text);
    while (next_word(&at, &word, &n_bytes)) TTI_TRY(read_word(text, word, n_bytes, n_there, d));
    return d->n > 0 ? TUTTI_OK : bad_list(text);
}

int tti_devices_listed(const char *text) {
    tti_devices list = {0};
    if (read_list(text, 0, &list) == TUTTI_OK) return list.mixed ? 0 : list.n;
    tti_clear_error(); /* not a list of numbers but a word such as gpu */
    return 0;
}

int tti_devices_place(const tti_devices *d, int local_rank) {
    if (d->n == 0 || (d->mixed && local_rank >= d->n)) return TTI_ON_HOST;
    return d->index[local_rank % d->n];
}

void tti_devices_kind(const tti_devices *d, int local_rank, tti_str *out) {
    int index = tti_devices_place(d, local_rank);
    if (index == TTI_ON_HOST) return;
    size_t before = out->n_bytes;
    if (d->backend->device->kind) d->backend->device->kind(index, out);
    if (out->n_bytes == before) tti_str_add(out, "a device of unknown kind");
}

static bool is_kind_of(const tti_devices *d, int a, int b) {
    tti_str one = {0}, other = {0};
    tti_devices_kind(d, a, &one);
    tti_devices_kind(d, b, &other);
    bool same = strcmp(tti_str_text(&one), tti_str_text(&other)) == 0;
    tti_str_free(&one);
    tti_str_free(&other);
    return same;
}

void tti_devices_kinds(const tti_devices *d, int n_workers, tti_str *out) {
    int n_reported = 0;
    for (int i = 0; i < TTI_MIN(n_workers, d->n); i++) {
        int before = 0;
        if (tti_devices_place(d, i) == TTI_ON_HOST) continue;
        while (before < i && !is_kind_of(d, before, i)) before++;
        if (before < i) continue;
        if (n_reported++) tti_str_add(out, " and ");
        tti_devices_kind(d, i, out);
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

/* True if workers divide the model. */
static bool is_divided(const tti_job_config *config) {
    return config->parallel.tensor * config->parallel.pipeline > 1;
}

/* Finds the places of a mixed run: some workers on devices, some on the host. */
static tutti_status find_mixture(const char *text, int n_there, tti_devices *found) {
    TTI_TRY(read_list(text, n_there, found));
    for (int i = 0; i < found->n; i++)
        if (found->index[i] != TTI_ON_HOST) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "parallel.devices=%.60s: this machine has no GPU; give parallel.devices=cpu",
                    text);
}

int tti_devices_first(const tti_devices *d) {
    int i = 0;
    while (i < d->n && d->index[i] == TTI_ON_HOST) i++;
    return i < d->n ? d->index[i] : 0;
}

tutti_status tti_devices_check(const tti_job_config *config) {
    const char *text = config->parallel.devices;
    tti_devices list = {0};
    if (strcmp(text, "cpu") == 0 || strcmp(text, "auto") == 0) return TUTTI_OK;
    if (strcmp(text, "gpu") != 0) TTI_TRY(read_list(text, 0, &list));
    if (!tti_job_names_backend(config)) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "parallel.devices=%.60s: parallel.backend=%s computes on the host; leave one "
                    "of the two out",
                    text, config->parallel.backend);
}

tutti_status tti_devices_find(const tti_job_config *config, tti_devices *out) {
    const char *text = config->parallel.devices;
    bool is_auto = strcmp(text, "auto") == 0, all = is_auto || strcmp(text, "gpu") == 0;
    bool host = tti_job_names_backend(config);
    const tti_backend *cuda;
    bool is_null = strcmp(config->parallel.backend, "none") == 0;
    *out = (tti_devices){.backend = is_null ? &tti_backend_null : &tti_backend_cpu};
    if (strcmp(text, "cpu") == 0 || (is_auto && host)) return TUTTI_OK;
    tti_devices found = *out;
    TTI_TRY(tti_devices_check(config));
    if (!all) TTI_TRY(read_list(text, 0, &found));
    tutti_status st = tti_backend_find("cuda", &cuda);
    /* With auto too: a fork must not silently compute on the host what its parent does on GPUs. */
    if (st == TUTTI_E_INVALID) return st;
    if (st != TUTTI_OK) {
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
    if (found.mixed) TTI_TRY(find_mixture(text, n_there, &found));
    for (int i = 0; all && i < n_there && i < TTI_MAX_DEVICES; i++) TTI_TRY(add(&found, i));
    TTI_TRY(check_there(&found, n_there));
    *out = found;
    return TUTTI_OK;
}

/* True if some devices differ from the first one, as far as their backend can tell. */
static bool differ(const tti_devices *d) {
    bool found = d->mixed;
    for (int i = 1; i < d->n && !found; i++) found = !is_kind_of(d, 0, i);
    return found;
}

/* True if workers wait for each other in every step and add their gradients. */
static bool adds_all(const tti_job_config *c) {
    return strcmp(c->parallel.sync, "all-reduce") == 0 ||
           (tti_job_has_server(c) && c->parallel.staleness == 0 && c->parallel.backup_workers == 0);
}

/* With parallel.load_weights=auto, GPUs of different kinds get shards according to their
 * throughput. */
static void resolve_shares(tutti_job *job, const tti_devices *d) {
    tti_load_weights_kind kind = tti_load_weights_kind_of(&job->config);
    bool whole = job->config.parallel.tensor * job->config.parallel.pipeline == 1;
    bool joins = adds_all(&job->config);
    if (kind != TTI_LOAD_WEIGHTS_AUTO || !whole || !joins || !differ(d)) return;
    tti_options_put(&job->options, "parallel.load_weights", "measured",
                    d->mixed ? "auto, GPUs and the host" : "auto, GPUs of different kinds");
}

/* Checks that the host can keep the optimizer state of devices (parallel.offload). */
static tutti_status find_state(const tutti_job *job, const tti_devices *found) {
    if (strcmp(job->config.parallel.offload, "none") == 0 || found->n == 0) return TUTTI_OK;
    if (job->config.parallel.zero > 1)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.offload=optimizer: the host updates from complete gradients, or "
                        "from a partition of them with parallel.zero=1; give parallel.zero=0 or 1, "
                        "or parallel.offload=none");
    if (is_divided(&job->config))
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.offload=optimizer: with tensor or pipeline parallelism the "
                        "optimizer state stays on the GPUs; give parallel.offload=none, or leave "
                        "out parallel.tensor and parallel.pipeline");
    if (tti_job_ends_on_host(&job->config))
        return tti_fail(
            TUTTI_E_CONFIG,
            "parallel.offload=optimizer needs an all-reduce of gradients in every step; give "
            "parallel.offload=none with a parameter server, local SGD, topk or powersgd");
    return TUTTI_OK;
}

/* Refuses a mixed run with so few workers that all would be on GPUs, or all on the host. */
static tutti_status check_workers(const tti_job_config *config, const tti_devices *d) {
    int n = 0, workers = (int)config->parallel.workers;
    while (d->mixed && n < d->n && (d->index[n] == TTI_ON_HOST) == (d->index[0] == TTI_ON_HOST))
        n++;
    if (!d->mixed || workers <= 0 || workers > n) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "parallel.devices=%.60s: %d worker%s would all be %s; give at least "
                    "parallel.workers=%d",
                    config->parallel.devices, workers, workers == 1 ? "" : "s",
                    d->index[0] == TTI_ON_HOST ? "on the host" : "on GPUs", n + 1);
}

bool tti_devices_are_shared(const tti_devices *d, int n_here, int n_devices) {
    return d->n > 0 && !d->mixed && n_here > n_devices;
}

tutti_status tti_devices_check_sharing(const tti_job_config *config, const tti_devices *d,
                                       int n_here, int n_devices) {
    bool shared = tti_devices_are_shared(d, n_here, n_devices);
    if (!shared || config->parallel.share_devices) return TUTTI_OK;
    return tti_fail(
        TUTTI_E_CONFIG,
        "parallel.share_devices=false: %d workers on this machine, but parallel.devices=%.60s is "
        "%d GPU%s; give parallel.workers=%d, or parallel.share_devices=true to let them take turns",
        n_here, config->parallel.devices, n_devices, n_devices == 1 ? "" : "s", n_devices);
}

tutti_status tti_devices_resolve(tutti_job *job, tti_devices *out) {
    TTI_TRY(tutti_job_check(job));
    TTI_TRY(tti_devices_find(&job->config, out));
    TTI_TRY(check_workers(&job->config, out));
    resolve_shares(job, out);
    const char *precision = job->config.train.precision;
    if (strcmp(job->config.parallel.wire, "auto") == 0 && tti_job_wire(&job->config) == TUTTI_F32)
        tti_options_put(&job->options, "parallel.wire", "f32", "auto");
    if (out->n == 0 && strcmp(precision, "tf32") == 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "train.precision=tf32 needs a GPU, and this job computes on the host; give "
                        "train.precision=f32");
    if (out->n > 0 && job->config.parallel.zero > 0 && !out->backend->device->update.complete)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.zero=%d: the update on these GPUs needs the whole optimizer "
                        "state on every worker; give parallel.zero=0, or parallel.devices=cpu to "
                        "divide it over workers on the host",
                        (int)job->config.parallel.zero);
    TTI_TRY(find_state(job, out));
    if (strcmp(job->config.parallel.devices, "auto") == 0)
        tti_options_put(&job->options, "parallel.devices", out->n ? "gpu" : "cpu",
                        out->n ? "auto, GPUs found" : "auto, no GPU");
    if (strcmp(precision, "auto") == 0)
        tti_options_put(&job->options, "train.precision", out->n && !out->mixed ? "bf16" : "f32",
                        out->mixed ? "auto, on GPUs and the host"
                        : out->n   ? "auto, on a GPU"
                                   : "auto, on the host");
    return tutti_job_check(job); /* detects conflicts with values that were auto until now */
}
