/* job.c - a job: the schema table bound to a config struct, and values derived from others.
 *
 * The keys are in job_schema.c, the rules between keys in job_conflicts.c; the option engine reads,
 * prints and writes messages (base/options/option.h).  Conflicts are found at each check and
 * discarded afterwards, so that a later assignment can still resolve them. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"
#include "base/utf8.h"
#include "base/yaml.h"
#include "data/samples.h"
#include "train/job/job_data.h"
#include "train/job/job_rules.h"
#include "train/job/load_weights.h"
#include "train/job/lr_schedule.h"
#include "train/job/optimizer.h"
#include "tutti/models.h"

/* ---- create, copy, destroy ---- */

tutti_status tutti_job_create(tutti_job **out) {
    TTI_TRY(tti_need(out, __func__, "out"));
    *out = NULL;
    tutti_job *job = calloc(1, sizeof *job);
    if (!job) return tti_fail(TUTTI_E_NOMEM, "job: out of memory");
    tutti_status st = tti_options_init(&job->options, &tti_job_table, &job->config);
    if (st != TUTTI_OK) {
        tutti_job_destroy(job);
        return st;
    }
    *out = job;
    return TUTTI_OK;
}

static tutti_status take_samples(tutti_job *job, tutti_data_split split,
                                 const tutti_samples *samples) {
    tutti_samples *copy;
    TTI_TRY(tti_samples_copy(samples, &copy));
    tti_samples_free(job->samples[split]);
    job->samples[split] = copy;
    job->config.data.samples[split] = copy;
    return TUTTI_OK;
}

tutti_status tti_job_copy(const tutti_job *job, tutti_job **out) {
    TTI_TRY(tutti_job_create(out));
    tutti_job_set_model(*out, job->model_fn, job->model_user);
    (*out)->is_of_run = job->is_of_run;
    (*out)->allows_plugin = job->allows_plugin;
    tutti_status st = tti_options_copy(&(*out)->options, &job->options);
    for (int i = 0; i < TUTTI_N_SPLITS && st == TUTTI_OK; i++)
        if (job->samples[i]) st = take_samples(*out, (tutti_data_split)i, job->samples[i]);
    if (st == TUTTI_OK) return TUTTI_OK;
    tutti_job_destroy(*out);
    *out = NULL;
    return st;
}

void tutti_job_destroy(tutti_job *job) {
    if (!job) return;
    tti_options_fini(&job->options);
    for (int i = 0; i < TUTTI_N_SPLITS; i++) tti_samples_free(job->samples[i]);
    free(job->path);
    free(job);
}

const tti_job_config *tti_job_config_of(const tutti_job *job) { return &job->config; }
tti_options *tti_job_options(tutti_job *job) { return &job->options; }
const tti_option_state *tti_job_option_state(const tutti_job *job, const char *key) {
    return tti_options_state(&job->options, key);
}
const char *tti_job_path(const tutti_job *job) { return job->path; }
bool tti_job_has_model_fn(const tutti_job *job) { return job->model_fn != NULL; }

/* ---- reading ---- */

tutti_status tti_job_load_text(tutti_job *job, const char *text, size_t n_bytes,
                               const char *source) {
    return tti_options_load(&job->options, text, n_bytes, source);
}

/* True if the file is in a run folder. */
static bool lies_in_run(const char *path) {
    static const char *const written[] = {"metrics.jsonl", "checkpoints"};
    const char *slash = strrchr(path, '/');
    int n_folder = slash ? (int)(slash - path) + 1 : 0;
    bool found = false;
    for (size_t i = 0; i < TTI_COUNT(written); i++) {
        char *beside;
        if (asprintf(&beside, "%.*s%s", n_folder, path, written[i]) < 0) return true;
        found |= access(beside, F_OK) == 0;
        free(beside);
    }
    return found;
}

tutti_status tutti_job_load(tutti_job *job, const char *path) {
    TTI_TRY(tti_need(job, __func__, "job"));
    TTI_TRY(tti_need(path, __func__, "path"));
    tti_arena arena = {0};
    const char *text = NULL;
    size_t n_bytes = 0;
    tutti_status st = tti_yaml_read_file(path, &arena, &text, &n_bytes);
    if (st == TUTTI_OK) st = tti_job_load_text(job, text, n_bytes, path);
    tti_arena_free(&arena);
    TTI_TRY(st);
    char *copy = strdup(path);
    if (!copy) return tti_fail(TUTTI_E_NOMEM, "job: out of memory");
    free(job->path);
    job->path = copy;
    job->is_of_run = lies_in_run(path);
    tti_clear_error();
    return TUTTI_OK;
}

tutti_status tutti_job_load_run(tutti_job *job, const char *run_dir) {
    TTI_TRY(tti_need(job, __func__, "job"));
    TTI_TRY(tti_need(run_dir, __func__, "run_dir"));
    char *path;
    if (asprintf(&path, "%s/job.yaml", run_dir) < 0)
        return tti_fail(TUTTI_E_NOMEM, "job: out of memory");
    tutti_status st = tutti_job_load(job, path);
    job->is_of_run = true;
    free(path);
    return st;
}

void tutti_job_allow_plugin(tutti_job *job) {
    if (job) job->allows_plugin = true;
}

tutti_status tti_job_check_plugin(const tutti_job *job) {
    const tti_option_state *state = tti_options_state(&job->options, "model.plugin");
    bool is_of_file = state->place.line > 0; /* else the caller set it */
    if (!job->is_of_run || job->allows_plugin || !is_of_file) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "model.plugin: the run folder names the code %s, which would run with your "
                    "rights; if you trust it, give --allow-plugin (in C: tutti_job_allow_plugin), "
                    "or name your own file with model.plugin=PATH",
                    job->config.model.plugin);
}

void tti_job_free_copies(tutti_job *job, const char *origin) {
    const tti_option_state *state = tti_options_state(&job->options, "parallel.data");
    if (job->is_of_run && state->place.line > 0)
        tti_options_put(&job->options, "parallel.data", "auto", origin);
}

static bool assigns(const char *assignment, const char *key) {
    size_t n = strlen(key);
    if (strncmp(assignment, "--", 2) == 0) assignment += 2;
    return strncmp(assignment, key, n) == 0 && assignment[n] == '=';
}

void tutti_job_set(tutti_job *job, const char *assignment, const char *origin) {
    static const char *const keys[] = {"parallel.workers", "parallel.tensor", "parallel.pipeline"};
    if (!job) return;
    if (!assignment) assignment = "";
    if (!origin) origin = "tutti_job_set";
    tti_options_assign(&job->options, assignment, origin);
    for (size_t i = 0; i < TTI_COUNT(keys); i++)
        if (assigns(assignment, keys[i])) tti_job_free_copies(job, origin);
}

void tutti_job_set_model(tutti_job *job, tutti_model_fn fn, const void *user) {
    if (!job) return;
    job->model_fn = fn;
    job->model_user = user;
}

/* True for samples with fields: all samples except plain x with y. */
static bool are_fields(const tutti_samples *s) {
    if (s->n_fields != 2) return true;
    bool has_x = strcmp(s->fields[0].name, "x") == 0 || strcmp(s->fields[1].name, "x") == 0;
    bool has_y = strcmp(s->fields[0].name, "y") == 0 || strcmp(s->fields[1].name, "y") == 0;
    return !has_x || !has_y;
}

tutti_status tutti_job_set_samples(tutti_job *job, tutti_data_split split,
                                   const tutti_samples *samples) {
    static const char origin[] = "tutti_job_set_samples";
    TTI_TRY(tti_need(job, origin, "job"));
    TTI_TRY(tti_need(samples, origin, "samples"));
    if ((unsigned)split >= TUTTI_N_SPLITS)
        return tti_fail(TUTTI_E_INVALID, "%s: split %d does not exist", origin, (int)split);
    TTI_TRY(take_samples(job, split, samples));
    tti_options_put(&job->options, "data.format", "npy", origin);
    tti_options_put(&job->options, "data.dir", TTI_MEMORY_DIR, origin);
    bool is_open = strcmp(job->config.data.fields, "auto") == 0;
    if (is_open && are_fields(samples))
        tti_options_put(&job->options, "data.fields", "all", origin);
    tti_clear_error();
    return TUTTI_OK;
}

/* ---- check and resolve ---- */

tutti_status tutti_job_check(tutti_job *job) {
    TTI_TRY(tti_need(job, __func__, "job"));
    tti_problems *problems = &job->options.problems;
    int n = problems->n;
    size_t n_bytes = problems->text.n_bytes;
    tti_job_find_parallel_conflicts(job);
    tti_job_find_conflicts(job);
    tutti_status st = tti_options_check(&job->options);
    problems->n = n;
    problems->text.n_bytes = n_bytes;
    if (problems->text.text) problems->text.text[n_bytes] = '\0';
    if (st == TUTTI_OK) tti_clear_error(); /* rules call functions that may fail */
    return st;
}

const char *tutti_job_warnings(const tutti_job *job) {
    return job ? tti_str_text(&job->options.warnings) : "";
}

static void put_int(tutti_job *job, const char *key, int64_t value, const char *origin) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    tti_options_put(&job->options, key, text, origin);
}

static int64_t shards_for(int64_t n_workers) {
    int64_t shards = 1;
    while (shards < n_workers) shards *= 2;
    return shards;
}

int64_t tti_job_workers_of_model(const tti_job_config *c) {
    return c->parallel.tensor * c->parallel.pipeline;
}

int64_t tti_job_least_workers(const tti_job_config *c) {
    int64_t each = tti_job_workers_of_model(c);
    return (c->parallel.min_workers + each - 1) / each * each;
}

int64_t tti_job_most_workers(const tti_job_config *c) {
    int64_t each = tti_job_workers_of_model(c);
    return TTI_MAX(c->parallel.workers, c->parallel.max_workers) / each * each;
}

int64_t tti_job_given_workers(const tti_job_config *c) {
    tti_load_weights weights;
    if (c->parallel.workers > 0) return c->parallel.workers;
    if (c->parallel.data > 0) return c->parallel.data * tti_job_workers_of_model(c);
    bool is_given = !tti_load_weights_parse(c->parallel.load_weights, &weights) &&
                    weights.kind == TTI_LOAD_WEIGHTS_GIVEN;
    tti_load_weights_free(&weights);
    return is_given ? weights.n * tti_job_workers_of_model(c) : 0;
}

/* Sets the number of workers from other keys; true if they determine it. */
static bool take_given_workers(tutti_job *job) {
    int64_t n = tti_job_given_workers(&job->config);
    if (n == 0) return false;
    put_int(job, "parallel.workers", n,
            job->config.parallel.data > 0 ? "auto, data x pipeline x tensor"
                                          : "auto, from parallel.load_weights");
    return true;
}

static bool is_on_host(const tti_job_config *c) {
    return strcmp(c->parallel.devices, "cpu") == 0 || strcmp(c->parallel.devices, "auto") == 0;
}

/* The largest number of workers and shards that auto chooses from the number of cores.  Results
 * depend on the number of shards and should not differ between large machines. */
enum { MOST_AUTO = 64 };

/* Chooses one worker per core, or fewer if the batch is too small to give each one a shard.  If the
 * model is divided, chooses as many replicas as the cores allow, at least one. */
static void resolve_workers(tutti_job *job, int n_cores) {
    const tti_job_config *c = &job->config;
    if (c->parallel.workers != -1 || take_given_workers(job)) return;
    int64_t each = tti_job_workers_of_model(c), workers = TTI_MIN(TTI_MAX(n_cores, 1), MOST_AUTO);
    workers = TTI_MAX(workers / each, 1);
    if (c->parallel.shards > 0) workers = TTI_MIN(workers, c->parallel.shards);
    while (workers > 1 && shards_for(workers) > c->train.batch) workers--;
    workers *= each;
    char origin[64];
    snprintf(origin, sizeof origin, "auto, %d %s%s", n_cores, is_on_host(c) ? "core" : "device",
             n_cores == 1 ? "" : "s");
    put_int(job, "parallel.workers", workers, origin);
}

/* The number of shards.  A worker on the host computes as many shards in parallel as it has cores,
 * so one shard per core costs nothing, and the result is the same for any number of workers up to
 * the number of shards.  A device computes its shards one after the other, so there is one per
 * worker (docs/adr/0007-default-shards.md). */
static int64_t shards_for_copies(const tti_job_config *c, int n_cores) {
    int64_t each = tti_job_workers_of_model(c);
    int64_t copies = TTI_MAX(tti_job_most_workers(c) / each, 1);
    int64_t cores = is_on_host(c) ? TTI_MIN(n_cores, MOST_AUTO) / each : 0;
    int64_t least = shards_for(copies), shards = shards_for(TTI_MAX(copies, cores));
    while (shards > least && shards > c->train.batch) shards /= 2;
    return shards;
}

/* The number of shards for a pipeline.  Stages wait for each other at both ends of a step; with
 * more shards the waits are a smaller part of the step. */
static int64_t shards_for_stages(const tti_job_config *c, int64_t at_least) {
    int64_t shards = at_least;
    while (shards < 2 * c->parallel.pipeline * at_least && 2 * shards <= c->train.batch)
        shards *= 2;
    return shards;
}

static void resolve_shards(tutti_job *job, int n_cores) {
    const tti_job_config *c = &job->config;
    if (c->parallel.shards != -1) return;
    char origin[96];
    int64_t shards = shards_for_copies(c, n_cores);
    if (c->parallel.pipeline > 1) {
        shards = shards_for(TTI_MAX(c->parallel.workers / tti_job_workers_of_model(c), 1));
        snprintf(origin, sizeof origin, "auto, %" PRId64 " workers in %" PRId64 " stages",
                 c->parallel.workers, c->parallel.pipeline);
        shards = shards_for_stages(c, shards);
    } else if (is_on_host(c)) {
        snprintf(origin, sizeof origin, "auto, %d core%s, %" PRId64 " worker%s", n_cores,
                 n_cores == 1 ? "" : "s", c->parallel.workers, c->parallel.workers == 1 ? "" : "s");
    } else {
        snprintf(origin, sizeof origin, "auto, %" PRId64 " worker%s", c->parallel.workers,
                 c->parallel.workers == 1 ? "" : "s");
    }
    put_int(job, "parallel.shards", shards, origin);
}

static void put_auto(tutti_job *job, const char *key, double now, double value,
                     const char *reason) {
    char text[TTI_NUMBER_TEXT], origin[TTI_CLIP];
    if (now != -1) return;
    snprintf(origin, sizeof origin, "auto, %s", reason);
    tti_options_put(&job->options, key, tti_format_double(text, value), origin);
}

/* Sets the default values of the optimizer and the schedule for keys at auto. */
static void resolve_habits(tutti_job *job) {
    const tti_job_config *c = &job->config;
    const tti_optimizer *optimizer = tti_optimizer_find(c->optimizer.name);
    const tti_lr_schedule *schedule = tti_lr_schedule_find(c->schedule.name);
    TTI_ASSERT(optimizer && schedule); /* the schema allows only known names */
    put_auto(job, "optimizer.momentum", c->optimizer.momentum, optimizer->momentum,
             optimizer->name);
    put_auto(job, "optimizer.beta2", c->optimizer.beta2, optimizer->beta2, optimizer->name);
    put_auto(job, "optimizer.eps", c->optimizer.eps, optimizer->eps, optimizer->name);
    put_auto(job, "schedule.gamma", c->schedule.gamma, schedule->gamma, schedule->name);
    put_auto(job, "schedule.rise", c->schedule.rise, schedule->rise, schedule->name);
}

tutti_status tti_job_resolve(tutti_job *job, int n_cores) {
    TTI_TRY(tutti_job_check(job)); /* also checks the auto values set above */
    if (strcmp(job->config.train.precision, "auto") == 0) {
        /* A job whose devices were not resolved computes on the host.  Conflicts with f32 can be
         * found only now. */
        tti_options_put(&job->options, "train.precision", "f32", "auto, on the host");
        TTI_TRY(tutti_job_check(job));
    }
    resolve_workers(job, n_cores);
    tti_options_put(&job->options, "parallel.data", "auto", "parallel.workers");
    resolve_shards(job, n_cores);
    /* Digits are generated, so the number of samples needs a default. */
    bool is_digits = strcmp(job->config.data.format, "digits") == 0;
    if (is_digits && job->config.data.n_train == 0)
        put_int(job, "data.n_train", 20000, "auto, digits");
    if (is_digits && job->config.data.n_test == 0)
        put_int(job, "data.n_test", 4000, "auto, digits");
    if (job->config.schedule.steps == -1) {
        /* Without train.epochs, train.steps is the length of the run and of its schedule; with
         * train.epochs it only shortens the run. */
        bool has_epochs = tti_options_state(&job->options, "train.epochs")->place.source != NULL;
        bool by_steps = job->config.train.steps > 0 && !has_epochs;
        put_int(job, "schedule.steps", by_steps ? job->config.train.steps : 0,
                by_steps ? "auto, train.steps" : "auto, train.epochs");
    }
    resolve_habits(job);
    return tutti_job_check(job); /* the number of workers may cause conflicts */
}

/* Makes a path absolute.  The key keeps its origin in the job file, because messages refer to
 * it. */
static tutti_status make_absolute(const char *key, const char *here, char path[TTI_TEXT_MAX]) {
    char full[PATH_MAX + TTI_TEXT_MAX];
    if (!path[0] || path[0] == '/') return TUTTI_OK;
    while (strncmp(path, "./", 2) == 0 && path[2]) memmove(path, path + 2, strlen(path + 2) + 1);
    int n = snprintf(full, sizeof full, "%s/%s", here, path);
    if (n < 0 || n >= TTI_TEXT_MAX)
        return tti_fail(
            TUTTI_E_CONFIG,
            "%s: '%s' in the current directory is a path of %d bytes; at most %d are supported",
            key, path, n, TTI_TEXT_MAX - 1);
    if (!tti_utf8_is_line(full))
        return tti_fail(
            TUTTI_E_CONFIG,
            "%s: '%s' is relative to the current directory, whose name has bytes that a "
            "job file cannot hold (UTF-8 without control characters); give an absolute "
            "path without such bytes",
            key, path);
    memcpy(path, full, (size_t)n + 1);
    return TUTTI_OK;
}

tutti_status tti_job_make_paths_absolute(tutti_job *job) {
    tti_job_config *c = &job->config;
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here))
        return tti_fail(TUTTI_E_IO, "the current directory: %s", strerror(errno));
    TTI_TRY(make_absolute("data.dir", here, c->data.dir));
    TTI_TRY(make_absolute("data.tokenizer_dir", here, c->data.tokenizer_dir));
    TTI_TRY(make_absolute("model.plugin", here, c->model.plugin));
    TTI_TRY(make_absolute("model.file", here, c->model.file));
    TTI_TRY(make_absolute("model.init", here, c->model.init));
    TTI_TRY(make_absolute("parallel.hostfile", here, c->parallel.hostfile));
    return make_absolute("parallel.replay", here, c->parallel.replay);
}

/* ---- printing ---- */

const char *tutti_job_find_key(const char *word) {
    const char *key = word ? tti_option_table_find(&tti_job_table, word) : NULL;
    return key && strchr(key, '.') ? key : NULL; /* a group is not a key */
}

const char *tutti_job_get(tutti_job *job, const char *key) {
    return job && key ? tti_options_get(&job->options, key) : NULL;
}

/* Passes ownership of the text to the caller; NULL if out of memory. */
static char *take_text(tti_str *str) {
    if (!str->failed) return str->text;
    tti_str_free(str);
    return NULL;
}

char *tutti_job_print(tutti_job *job, bool origins) {
    tti_str text = {0};
    if (!job) return NULL;
    tti_options_print(&job->options, origins, tti_job_key_applies, job, &text);
    return take_text(&text);
}

char *tutti_job_schema_json(void) {
    tti_str text = {0};
    tti_option_schema(&tti_job_table, "Tutti job", &text);
    return take_text(&text);
}

char *tutti_job_reference_md(void) {
    tti_str text = {0};
    tti_str_add(&text,
                "# Job files\n\nA job is a YAML file of groups and keys, and `key=value` "
                "assignments on the command line,\nwhich win:\n\n```sh\ntutti train job.yaml "
                "optimizer.lr=3e-4 model.hidden=[512,256]\n```\n\nKeys may be nested (`optimizer: "
                "{lr: 1e-3}`) or flat (`optimizer.lr: 1e-3`); `null` stands for the\ndefault. "
                "Anchors, aliases, tags and second documents are refused, as is every unknown "
                "or\nrepeated key. `tutti config show JOB` prints all values and where each one "
                "comes from, `tutti config schema`\na JSON schema, with which an editor completes "
                "and checks a file that starts with\n`# yaml-language-server: "
                "$schema=job.schema.json`.\n\nThis page is made by `tutti config reference`.\n");
    tti_option_reference(&tti_job_table, &text);
    return take_text(&text);
}
