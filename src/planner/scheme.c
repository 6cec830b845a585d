/* scheme.c - tries each layout on the job itself, so that the job's own rules decide which layouts
 * are possible. */
#include "planner/scheme.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/affinity.h"
#include "train/job/devices.h"

enum { MAX_LAYOUTS = 512, MAX_SHARDS_EACH = 4, MAX_ZERO = 3, MAX_CHUNKS = 2 };

static const char *const recomputes[] = {"none", "light", "block"};

void tti_scheme_text(const tti_scheme *l, tti_str *out) {
    tti_str_printf(out, "data %d", l->data);
    if (l->tensor > 1) tti_str_printf(out, ", tensor %d", l->tensor);
    if (l->pipeline > 1) tti_str_printf(out, ", pipeline %d", l->pipeline);
    if (l->chunks > 1) tti_str_printf(out, ", %d chunks", l->chunks);
    tti_str_printf(out, ", %" PRId64 " shard%s", l->shards, l->shards == 1 ? "" : "s");
    if (l->zero) tti_str_printf(out, ", zero %d", l->zero);
    if (strcmp(l->recompute, "none") != 0) tti_str_printf(out, ", recompute %s", l->recompute);
}

/* ---- a job with a layout ---- */

static bool has_key(const tutti_job *job, const char *key) {
    return tti_job_option_state(job, key) != NULL;
}

static void put(tutti_job *job, const char *key, int64_t value) {
    char text[96];
    if (!has_key(job, key)) return;
    snprintf(text, sizeof text, "%s=%" PRId64, key, value);
    tutti_job_set(job, text, "the planner");
}

static void write_layout(tutti_job *job, const tti_scheme *l) {
    char text[64];
    tutti_job_set(job, "parallel.data=auto", "the planner"); /* the data axis has the rest */
    put(job, "parallel.workers", l->data * l->tensor * l->pipeline);
    put(job, "parallel.shards", l->shards);
    put(job, "parallel.tensor", l->tensor);
    put(job, "parallel.pipeline", l->pipeline);
    put(job, "parallel.pipeline_chunks", l->chunks);
    put(job, "parallel.zero", l->zero);
    snprintf(text, sizeof text, "train.recompute=%s", l->recompute);
    tutti_job_set(job, text, "the planner");
    if (tti_devices_mixed_from(tti_job_config_of(job)->parallel.devices) == 0)
        tutti_job_set(job, "parallel.load_weights=equal", "the planner");
}

tutti_status tti_scheme_job(tutti_job *job, const tti_scheme *l, bool is_offline, tutti_job **out) {
    tti_devices devices;
    tutti_status st = tti_job_copy(job, out);
    if (st == TUTTI_OK) {
        write_layout(*out, l);
        st = tutti_job_check(*out);
    }
    if (st == TUTTI_OK && !is_offline) st = tti_devices_resolve(*out, &devices);
    if (st == TUTTI_OK) st = tti_job_resolve(*out, tti_cores_usable());
    if (st != TUTTI_OK) {
        tutti_job_destroy(*out);
        *out = NULL;
    }
    return st;
}

/* A plan for devices must compute on devices, even if this machine has none. */
static void force_devices(tutti_job *job) {
    const char *given = tti_job_config_of(job)->parallel.devices;
    if (strcmp(given, "auto") == 0 || strcmp(given, "cpu") == 0)
        tutti_job_set(job, "parallel.devices=gpu", "the planner");
    if (strcmp(tti_job_config_of(job)->train.precision, "auto") == 0)
        tutti_job_set(job, "train.precision=bf16", "auto, on a device");
}

tutti_status tti_scheme_move_machine(tutti_job *job, bool on_device) {
    if (on_device && strcmp(tti_job_config_of(job)->parallel.offload, "none") != 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.offload=%s: the update is made by the host of the GPUs, and "
                        "--device describes only GPUs; leave one of the two out, or measure on a "
                        "machine that has both",
                        tti_job_config_of(job)->parallel.offload);
    TTI_TRY(tti_devices_check(tti_job_config_of(job)));
    if (on_device && tti_job_names_backend(tti_job_config_of(job)))
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.backend=%s computes on the host, and --device describes GPUs "
                        "alone; leave parallel.backend out, or give --device cpu",
                        tti_job_config_of(job)->parallel.backend);
    if (on_device)
        force_devices(job);
    else
        tutti_job_set(job, "parallel.devices=cpu", "the planner");
    return TUTTI_OK;
}

void tti_scheme_remove_server(tutti_job *job) {
    static const char *const without[] = {"parallel.sync=all-reduce", "parallel.servers=1",
                                          "parallel.staleness=0", "parallel.backup_workers=0",
                                          "parallel.replay=\"\""};
    for (size_t i = 0; i < TTI_COUNT(without); i++) tutti_job_set(job, without[i], "the planner");
}

/* ---- all layouts ---- */

/* The job, and the values that it leaves open. */
typedef struct requested {
    tutti_job *job;
    int n_workers;
    bool any_shards, any_recompute, any_chunks, on_device, is_offline;
} requested;

static bool is_given(tutti_job *job, const char *key) {
    const tti_option_state *state = tti_job_option_state(job, key);
    if (!state || !state->place.source) return false;
    return strcmp(tutti_job_get(job, key), "auto") != 0;
}

static int64_t power_of_two_from(int64_t n) {
    int64_t power = 1;
    while (power < n) power *= 2;
    return power;
}

/* Records the reason of a refusal once, with the first layout that it concerns. */
static void record_refusal(tti_schemes *all, const tti_scheme *l) {
    char why[512];
    const char *text = tutti_last_error(), *begin = strstr(text, "error: ");
    snprintf(why, sizeof why, "%s", begin ? begin + strlen("error: ") : text);
    why[strcspn(why, "\n")] = '\0';
    if (strstr(tti_str_text(&all->refused), why)) return;
    tti_scheme_text(l, &all->refused);
    tti_str_printf(&all->refused, ": %s\n", why);
}

/* Checks combinations that are allowed on the host but not on devices. */
static tutti_status check_on_device(tutti_job *job, const tti_scheme *l) {
    tutti_job *there;
    TTI_TRY(tti_job_copy(job, &there));
    write_layout(there, l);
    tutti_job_set(there, "parallel.devices=0", "the planner");
    tutti_status st = tutti_job_check(there);
    tutti_job_destroy(there);
    return st;
}

static tutti_status add(tti_schemes *all, const requested *w, const tti_scheme *l) {
    tutti_job *job = NULL;
    if (all->n == MAX_LAYOUTS) return TUTTI_OK; /* further layouts would not improve the plan */
    tutti_status st = w->on_device ? check_on_device(w->job, l) : TUTTI_OK;
    if (st == TUTTI_OK) st = tti_scheme_job(w->job, l, w->is_offline, &job);
    tutti_job_destroy(job);
    if (st == TUTTI_E_CONFIG) {
        record_refusal(all, l);
        return TUTTI_OK;
    }
    TTI_TRY(st);
    all->of[all->n++] = *l;
    return TUTTI_OK;
}

/* Adds a mesh with every number of shards and every recomputation. Fewer shards than stages would
 * leave stages idle. */
static tutti_status add_mesh(tti_schemes *all, const requested *w, tti_scheme l) {
    int64_t least = power_of_two_from(l.data) * power_of_two_from(l.pipeline),
            given = tti_job_config_of(w->job)->parallel.shards;
    for (int64_t each = 1; each <= MAX_SHARDS_EACH; each *= 2) {
        l.shards = w->any_shards ? least * each : given;
        for (size_t i = 0; i < TTI_COUNT(recomputes); i++) {
            l.recompute =
                w->any_recompute ? recomputes[i] : tti_job_config_of(w->job)->train.recompute;
            TTI_TRY(add(all, w, &l));
            if (!w->any_recompute) break;
        }
        if (!w->any_shards) break;
    }
    return TUTTI_OK;
}

static tutti_status add_zero(tti_schemes *all, const requested *w, tti_scheme l) {
    for (l.zero = 0; l.zero <= (l.data > 1 ? MAX_ZERO : 0); l.zero++) TTI_TRY(add_mesh(all, w, l));
    return TUTTI_OK;
}

/* Adds pipelines with undivided stages, and with several chunks per stage. */
static tutti_status add_chunks(tti_schemes *all, const requested *w, tti_scheme l) {
    int given = (int)tti_job_config_of(w->job)->parallel.pipeline_chunks;
    l.chunks = l.pipeline > 1 && !w->any_chunks ? given : 1;
    TTI_TRY(add_zero(all, w, l));
    for (l.chunks = 2; w->any_chunks && l.pipeline > 1 && l.chunks <= MAX_CHUNKS; l.chunks++)
        TTI_TRY(add_zero(all, w, l));
    return TUTTI_OK;
}

static tutti_status add_all(tti_schemes *all, const requested *w) {
    int n = w->n_workers, most_tensor = has_key(w->job, "parallel.tensor") ? n : 1,
        most_pipeline = has_key(w->job, "parallel.pipeline") ? n : 1;
    for (int tensor = 1; tensor <= most_tensor; tensor++) {
        int rest = n / tensor; /* data x pipeline */
        for (int pipeline = 1; n % tensor == 0 && pipeline <= TTI_MIN(rest, most_pipeline);
             pipeline++)
            if (rest % pipeline == 0)
                TTI_TRY(add_chunks(
                    all, w,
                    (tti_scheme){.data = rest / pipeline, .tensor = tensor, .pipeline = pipeline}));
    }
    return TUTTI_OK;
}

static tutti_status none_left(const tti_schemes *all) {
    return tti_fail(TUTTI_E_CONFIG, "plan: no layout of %d workers is possible:\n%s",
                    all->n_workers, tti_str_text(&all->refused));
}

void tti_schemes_drop(tti_schemes *all, int i) {
    all->n--;
    memmove(all->of + i, all->of + i + 1, (size_t)(all->n - i) * sizeof *all->of);
}

tutti_status tti_schemes_refuse(tti_schemes *all, int i) {
    record_refusal(all, &all->of[i]);
    tti_schemes_drop(all, i);
    return all->n > 0 ? TUTTI_OK : none_left(all);
}

tutti_status tti_schemes_find(tutti_job *job, int n_workers, bool on_device, bool is_offline,
                              tti_schemes *out) {
    requested w = {.job = job,
                   .n_workers = n_workers,
                   .any_shards = !is_given(job, "parallel.shards"),
                   .any_recompute = !is_given(job, "train.recompute"),
                   .any_chunks = !is_given(job, "parallel.pipeline_chunks"),
                   .on_device = on_device,
                   .is_offline = is_offline};
    *out = (tti_schemes){.of = calloc(MAX_LAYOUTS, sizeof *out->of), .n_workers = n_workers};
    if (!out->of) return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    TTI_TRY(add_all(out, &w));
    return out->n > 0 ? TUTTI_OK : none_left(out);
}

void tti_schemes_fini(tti_schemes *layouts) {
    free(layouts->of);
    tti_str_free(&layouts->refused);
}
