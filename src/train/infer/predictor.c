/* predictor.c - runs the evaluation program on the parameters of a run's checkpoint.
 *
 * A predictor has no gradients, optimizer states or communicator, unlike a worker (exec.h).
 * Parameters are read by name, so their order in memory may differ from that of training. */
#include "train/infer/predictor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/affinity.h"
#include "base/clock.h"
#include "ckpt/ckpt.h"
#include "exec/program/exec_program.h"
#include "train/model/model_choice.h"
#include "train/setup/feeding.h"
#include "train/setup/run_dir.h"

enum { MAX_USE_COMPUTE_THREADS = 64, ERROR_BYTES = 512 };

typedef struct use_compute_thread {
    void *arena;
    tti_instance *instance;
    tutti_status status;
    char error[ERROR_BYTES];
} use_compute_thread;

struct tti_predictor {
    const tti_blueprint *b;
    tti_compute_threads *compute_threads;
    bool one_row;
    bool has_other_data;
    bool joins; /* the model compares samples of all shards */
    int n_compute_threads;
    int n_in_flight; /* shards at a time: n_compute_threads, or all shards of a batch if joins */
    use_compute_thread *compute_thread; /* [n_in_flight] */
    float *params;                      /* [plan->n_flat] */
    char checkpoint[1024];
    int64_t step;
    tti_inputs inputs;            /* inputs of the program */
    const tti_shard_data *shards; /* shards of the current call */
    int n_shards;
};

/* ---- parameters ---- */

/* True if the tensor is the average of a parameter: state.NAME.ema among the optimizer's
 * tensors. */
static bool is_average_of(const char *name, const tti_slot *slot) {
    size_t n = strlen(slot->param->name);
    return strncmp(name, "state.", 6) == 0 && strncmp(name + 6, slot->param->name, n) == 0 &&
           strcmp(name + 6 + n, ".ema") == 0;
}

static const tti_slot *slot_of_average(const tti_plan *plan, const char *name) {
    for (int i = 0; i < plan->n_slots; i++)
        if (is_average_of(name, &plan->slots[i])) return &plan->slots[i];
    return NULL;
}

static tutti_status check_average(const tti_ckpt *ckpt, const tti_safetensors_entry *e,
                                  const tti_slot *slot) {
    const tutti_type *want = &slot->param->out[0]->type;
    if (e->type.dtype == want->dtype && tti_shape_equal(&e->type.shape, &want->shape))
        return TUTTI_OK;
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: %s does not have the type of its parameter",
                    tti_ckpt_dir(ckpt), e->name);
}

/* Sets a destination for every tensor of the optimizer's file: the flat parameters for averages,
 * and temporary memory for all others. */
static tutti_status list_averages(tti_predictor *p, const tti_ckpt *ckpt, tti_arena *arena,
                                  tti_ckpt_tensor *tensors, size_t n) {
    int n_found = 0;
    for (size_t i = 0; i < n; i++) {
        const tti_safetensors_entry *e = tti_ckpt_tensor_at(ckpt, TTI_CKPT_OPTIMIZER, i);
        const tti_slot *slot = slot_of_average(p->b->plan, e->name);
        size_t n_bytes =
            (size_t)tutti_shape_n_elems(&e->type.shape) * tutti_dtype_bytes(e->type.dtype);
        if (slot) TTI_TRY(check_average(ckpt, e, slot));
        float *data = slot ? p->params + slot->first : tti_arena_alloc(arena, n_bytes + 1);
        if (!data) return tti_fail(TUTTI_E_NOMEM, "predictor: out of memory");
        tensors[i] = (tti_ckpt_tensor){e->name, e->type, data};
        n_found += slot != NULL;
    }
    if (n_found == p->b->plan->n_slots) return TUTTI_OK;
    return tti_fail(
        TUTTI_E_CHECKPOINT,
        "%s: has averages of only %d of %d parameters; give train.ema=0 to use the parameters",
        tti_ckpt_dir(ckpt), n_found, p->b->plan->n_slots);
}

static tutti_status read_averages(tti_predictor *p, const tti_ckpt *ckpt) {
    tti_arena arena = {0};
    size_t n = tti_ckpt_n_tensors(ckpt, TTI_CKPT_OPTIMIZER);
    tti_ckpt_tensor *tensors = tti_arena_alloc(&arena, (n + 1) * sizeof *tensors);
    tutti_status st = tensors ? list_averages(p, ckpt, &arena, tensors, n)
                              : tti_fail(TUTTI_E_NOMEM, "predictor: out of memory");
    if (st == TUTTI_OK) st = tti_ckpt_read(ckpt, TTI_CKPT_OPTIMIZER, tensors, n);
    tti_arena_free(&arena);
    return st;
}

static tutti_status read_params(tti_predictor *p, const tti_ckpt *ckpt) {
    const tti_plan *plan = p->b->plan;
    if (p->b->config.train.ema > 0) return read_averages(p, ckpt);
    tti_ckpt_tensor *tensors = calloc((size_t)plan->n_slots + 1, sizeof *tensors);
    if (!tensors) return tti_fail(TUTTI_E_NOMEM, "predictor: out of memory");
    for (int i = 0; i < plan->n_slots; i++) {
        const tti_slot *slot = &plan->slots[i];
        tensors[i] = (tti_ckpt_tensor){slot->param->name, slot->param->out[0]->type,
                                       p->params + slot->first};
    }
    tutti_status st = tti_ckpt_read(ckpt, TTI_CKPT_MODEL, tensors, (size_t)plan->n_slots);
    free(tensors);
    return st;
}

static tutti_status load(tti_predictor *p, const tti_ckpt *ckpt) {
    size_t n_bytes = p->b->plan->n_flat * sizeof(float) + 64;
    p->params = tti_backend_cpu.alloc(n_bytes);
    if (!p->params)
        return tti_fail(TUTTI_E_NOMEM, "predictor: cannot allocate %zu bytes of parameters",
                        n_bytes);
    TTI_TRY(read_params(p, ckpt));
    snprintf(p->checkpoint, sizeof p->checkpoint, "%s", tti_ckpt_dir(ckpt));
    p->step = tti_ckpt_get_meta(ckpt)->step;
    return TUTTI_OK;
}

/* ---- compute threads ---- */

static tutti_status find_places(tti_predictor *p) {
    const tti_program *program = &p->b->plan->eval;
    const tutti_value *logits = tti_graph_output(program->graph, "logits");
    TTI_TRY(tti_inputs_find(program, &p->inputs));
    TTI_ASSERT(logits && p->inputs.target >= 0);
    bool computed = program->bufs[logits->id].space == TTI_SPACE_RESULT;
    if (computed && logits->type.dtype == TUTTI_F32) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED, "predictor: the model computes nothing");
}

static tutti_status make_instance(const tti_predictor *p, use_compute_thread *compute_thread) {
    const tti_program *program = &p->b->plan->eval;
    compute_thread->arena = tti_backend_cpu.alloc(program->arena_bytes + 64);
    if (!compute_thread->arena)
        return tti_fail(TUTTI_E_NOMEM, "predictor: cannot allocate %zu bytes of activations",
                        program->arena_bytes);
    tti_instance_desc desc = {.program = program,
                              .backend = &tti_backend_cpu,
                              .reference = strcmp(p->b->config.parallel.backend, "reference") == 0,
                              .arena = compute_thread->arena,
                              .params = p->params};
    return tti_instance_create(&desc, &compute_thread->instance);
}

/* True if samples of all shards are compared, which needs a test split. */
static bool compares(const tti_predictor *p, const tti_blueprint_use *use) {
    return p->b->compares_samples && !p->one_row && (use->reads_test || use->like);
}

static tutti_status make_compute_threads(tti_predictor *p, const tti_blueprint_use *use) {
    tti_core_share share;
    tti_cores_share(0, 1, &share);
    int n_shards = p->one_row ? MAX_USE_COMPUTE_THREADS : p->b->n_shards;
    p->n_compute_threads =
        TTI_MAX(1, TTI_MIN(TTI_MIN(share.n_threads, n_shards), MAX_USE_COMPUTE_THREADS));
    p->joins = compares(p, use);
    p->n_in_flight = p->joins ? p->b->n_shards : p->n_compute_threads;
    p->compute_thread = calloc((size_t)p->n_in_flight, sizeof *p->compute_thread);
    if (!p->compute_thread)
        return tti_fail(TUTTI_E_NOMEM, "predictor: %d shards at a time", p->n_in_flight);
    const int *cores = share.pinned ? share.cores.id : NULL;
    TTI_TRY(tti_compute_threads_create(p->n_compute_threads, cores, tti_backend_cpu.thread_init,
                                       &p->compute_threads));
    for (int i = 0; i < p->n_in_flight; i++) TTI_TRY(make_instance(p, &p->compute_thread[i]));
    return TUTTI_OK;
}

typedef struct opening {
    const tutti_job *job;
    const char *run_dir;
    tti_blueprint_use use;
    tutti_warn_fn warn;
    void *user;
} opening;

static tutti_status build_on(tti_predictor *p, const opening *o, const tti_ckpt *ckpt) {
    p->one_row = o->use.one_row;
    p->has_other_data = o->use.is_other_data;
    if (!o->use.like) TTI_TRY(tti_model_check_identity(o->job, tti_ckpt_get_text(ckpt, "model")));
    TTI_TRY(tti_blueprint_create_for_use(o->job, &o->use, &p->b));
    TTI_TRY(find_places(p));
    TTI_TRY(load(p, ckpt));
    return make_compute_threads(p, &o->use);
}

static tutti_status open_one(const opening *o, tti_predictor **out) {
    tti_ckpt *ckpt;
    TTI_TRY(tti_ckpt_open(o->run_dir, o->warn, o->user, &ckpt));
    tti_predictor *p = calloc(1, sizeof *p);
    tutti_status st =
        p ? build_on(p, o, ckpt) : tti_fail(TUTTI_E_NOMEM, "predictor: out of memory");
    tti_ckpt_close(ckpt);
    if (st != TUTTI_OK) {
        tti_predictor_close(p);
        return st;
    }
    *out = p;
    return TUTTI_OK;
}

/* True if the caller, not the job of the run, set this key. */
static bool is_given(const tutti_job *job, const char *key) {
    const char *source = tti_job_option_state(job, key)->place.source;
    return tti_job_path(job) && source && strcmp(source, tti_job_path(job)) != 0;
}

/* Refuses keys that would be ignored, because training has determined how samples are read.  Only a
 * tokenizer may be added if the run has none. */
static tutti_status check_given(const tutti_job *job, const opening *o) {
    static const char *const keys[] = {
        "data.tokenizer",    "data.tokenizer_dir", "data.label",   "data.columns",
        "data.target",       "data.mean",          "data.std",     "data.image_size",
        "data.channel_mean", "data.channel_std",   "data.context", "data.vocabulary",
        "data.mask_token"};
    size_t first = o->use.spec->tokenizer ? 0 : 2;
    size_t n =
        o->use.reads_test ? 5 : TTI_COUNT(keys); /* opening the test split refuses the other keys */
    for (size_t i = first; i < n; i++) {
        if (is_given(job, keys[i]))
            return tti_fail(TUTTI_E_CONFIG,
                            "%s: the training decided how samples are read, and the run folder "
                            "stores it (" TTI_DATA_SPEC_FILE "); leave this key out",
                            keys[i]);
    }
    return TUTTI_OK;
}

static const char *name_in(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* True for the same file or folder, or one of the same name if that of the run does not exist any
 * more, because it was moved. */
static bool is_same_data(const char *own, const char *given) {
    char *a = realpath(own, NULL), *b = realpath(given, NULL);
    bool same = a && b ? strcmp(a, b) == 0 : strcmp(own, given) == 0;
    if (!a && b) same = same || strcmp(name_in(own), name_in(b)) == 0;
    free(a);
    free(b);
    return same;
}

/* *out: data.dir differs from the training data.  If the caller sets val_fraction, it selects test
 * rows of data.dir. */
static tutti_status find_other_data(const tutti_job *job, bool *out) {
    tutti_job *own;
    *out = false;
    if (!is_given(job, "data.dir") || is_given(job, "data.val_fraction")) return TUTTI_OK;
    TTI_TRY(tutti_job_create(&own));
    tutti_status st = tutti_job_load(own, tti_job_path(job));
    if (st == TUTTI_OK)
        *out = !is_same_data(tti_job_config_of(own)->data.dir, tti_job_config_of(job)->data.dir);
    tutti_job_destroy(own);
    return st;
}

static tutti_status open_run(tutti_job *job, opening *o, tti_predictor **out) {
    const char *run_dir = o->run_dir;
    tti_data_spec *spec = NULL;
    *out = NULL;
    o->job = job;
    if (!tti_run_dir_exists(run_dir))
        return tti_fail(TUTTI_E_CONFIG, "%s: no run there (no metrics.jsonl)", run_dir);
    tutti_status st = tti_job_resolve(job, tti_cores_usable());
    if (st == TUTTI_OK) st = tti_data_spec_load(run_dir, &spec);
    o->use.spec = spec;
    if (st == TUTTI_OK) st = check_given(job, o);
    if (st == TUTTI_OK && o->use.reads_test) st = find_other_data(job, &o->use.is_other_data);
    if (o->use.is_other_data &&
        !is_given(job, "data.n_test")) /* the value in the job was for the run's own data */
        tti_options_put(tti_job_options(job), "data.n_test", "0", "data.dir");
    if (st == TUTTI_OK) st = open_one(o, out);
    tti_data_spec_release(o->use.spec);
    return tti_job_say_where(job, st);
}

tutti_status tti_predictor_open(tutti_job *job, const char *run_dir, tutti_warn_fn warn, void *user,
                                tti_predictor **out) {
    return open_run(job, &(opening){.run_dir = run_dir, .warn = warn, .user = user}, out);
}

tutti_status tti_predictor_open_with_test(tutti_job *job, const char *run_dir, tutti_warn_fn warn,
                                          void *user, tti_predictor **out) {
    opening o = {.run_dir = run_dir, .warn = warn, .user = user, .use.reads_test = true};
    return open_run(job, &o, out);
}

tutti_status tti_predictor_open_one_row(tutti_job *job, const char *run_dir, tutti_warn_fn warn,
                                        void *user, tti_predictor **out) {
    opening o = {.run_dir = run_dir, .warn = warn, .user = user, .use.one_row = true};
    return open_run(job, &o, out);
}

tutti_status tti_predictor_open_like(const tutti_job *job, const tti_blueprint *like,
                                     const char *run_dir, tti_predictor **out) {
    *out = NULL;
    return open_one(&(opening){.job = job, .run_dir = run_dir, .use.like = like}, out);
}

void tti_predictor_close(tti_predictor *p) {
    if (!p) return;
    tti_compute_threads_destroy(p->compute_threads);
    for (int i = 0; p->compute_thread && i < p->n_in_flight; i++) {
        tti_instance_destroy(p->compute_thread[i].instance);
        tti_backend_cpu.release(p->compute_thread[i].arena, p->b->plan->eval.arena_bytes + 64);
    }
    free(p->compute_thread);
    if (p->params) tti_backend_cpu.release(p->params, p->b->plan->n_flat * sizeof(float) + 64);
    tti_blueprint_destroy(p->b);
    free(p);
}

const tti_blueprint *tti_predictor_blueprint(const tti_predictor *p) { return p->b; }
const tutti_graph *tti_predictor_graph(const tti_predictor *p) { return p->b->plan->eval.graph; }
const char *tti_predictor_checkpoint(const tti_predictor *p) { return p->checkpoint; }
bool tti_predictor_has_other_data(const tti_predictor *p) { return p->has_other_data; }
int64_t tti_predictor_step(const tti_predictor *p) { return p->step; }
float *tti_predictor_params(const tti_predictor *p) { return p->params; }
int tti_predictor_n_compute_threads(const tti_predictor *p) { return p->n_in_flight; }

/* ---- a run ---- */

static void feed(tti_predictor *p, tti_instance *instance, const tti_shard_data *data) {
    static const float one = 1;
    const tti_inputs *in = &p->inputs;
    tti_inputs_point_at_samples(instance, in, data->x);
    tti_instance_set_input(instance, in->target, data->target);
    if (in->rows >= 0) tti_instance_set_input(instance, in->rows, &data->n_rows);
    if (in->loss_scale >= 0) tti_instance_set_input(instance, in->loss_scale, &one);
}

/* A range of program steps that compute threads run for every shard. */
typedef struct stretch {
    tti_predictor *p;
    int first, last;
} stretch;

static void run_one(const stretch *at, int i) {
    tti_predictor *p = at->p;
    use_compute_thread *compute_thread = &p->compute_thread[i];
    tti_run run = {.seed = (uint64_t)p->b->config.train.seed,
                   .step = (uint64_t)p->step,
                   .sample0 = p->joins ? (uint64_t)(i * p->b->rows_per_shard) : 0};
    if (at->first == 0) {
        compute_thread->status = TUTTI_OK;
        feed(p, compute_thread->instance, &p->shards[i]);
    }
    if (compute_thread->status != TUTTI_OK) return;
    compute_thread->status =
        tti_instance_run_range(compute_thread->instance, &run, at->first, at->last, NULL, NULL);
    if (compute_thread->status != TUTTI_OK)
        snprintf(compute_thread->error, sizeof compute_thread->error, "%s", tutti_last_error());
}

static void run_compute_thread(int thread, void *arg) {
    const stretch *at = arg;
    for (int i = thread; i < at->p->n_shards; i += at->p->n_compute_threads) run_one(at, i);
}

/* Joins one value of all shards, as a worker with all shards does (exec/worker/sync.c). */
static tutti_status join_shards(const tti_predictor *p, int step) {
    const tti_node *node = p->b->plan->eval.steps[step];
    const tti_join_size size = tti_join_size_of(node);
    float *parts = calloc(size.n_part * (size_t)p->n_shards + 1, sizeof *parts);
    float *joined = calloc(size.n_joined + 1, sizeof *joined);
    bool ready = parts && joined;
    for (int i = 0; ready && i < p->n_shards; i++)
        tti_join_take(p->compute_thread[i].instance, step, &size, parts + size.n_part * (size_t)i);
    if (ready) node->op->join(parts, (size_t)p->n_shards, size.n_part, joined);
    for (int i = 0; ready && i < p->n_shards; i++)
        tti_join_give(p->compute_thread[i].instance, step, &size, i, joined);
    tutti_status st = ready ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "predictor: out of memory");
    free(parts);
    free(joined);
    return st;
}

static bool is_join(const tti_predictor *p, int step) {
    return p->joins && (p->b->plan->eval.steps[step]->op->traits & TTI_SYNC);
}

static tutti_status run_program(tti_predictor *p) {
    int n_steps = p->b->plan->eval.n_steps;
    for (stretch at = {p, 0, 0}; at.first <= n_steps; at.first = at.last + 1) {
        for (at.last = at.first; at.last < n_steps && !is_join(p, at.last);) at.last++;
        tti_compute_threads_run(p->compute_threads, run_compute_thread, &at);
        for (int i = 0; i < p->n_shards; i++)
            if (p->compute_thread[i].status != TUTTI_OK)
                return tti_fail(p->compute_thread[i].status, "%s", p->compute_thread[i].error);
        if (at.last < n_steps) TTI_TRY(join_shards(p, at.last));
    }
    return TUTTI_OK;
}

static double sum_of(const use_compute_thread *compute_thread, const char *name) {
    return *(const float *)tti_instance_output(compute_thread->instance, name);
}

tutti_status tti_predictor_run(tti_predictor *p, const tti_shard_data *shards, int n_shards,
                               tti_predicted *out) {
    TTI_ASSERT(n_shards >= 1 && n_shards <= p->n_in_flight);
    TTI_ASSERT(!p->joins || n_shards == p->b->n_shards);
    p->shards = shards;
    p->n_shards = n_shards;
    TTI_TRY(run_program(p));
    for (int i = 0; i < n_shards; i++)
        out[i] =
            (tti_predicted){.logits = tti_instance_output(p->compute_thread[i].instance, "logits"),
                            .instance = p->compute_thread[i].instance,
                            .loss_sum = sum_of(&p->compute_thread[i], "loss_sum"),
                            .count = sum_of(&p->compute_thread[i], "count"),
                            .correct = sum_of(&p->compute_thread[i], "correct")};
    return TUTTI_OK;
}

/* ---- the test split ---- */

static tutti_status load_test(const tti_blueprint *b, tti_loader **out) {
    return tti_loader_create(&(tti_loader_desc){.dataset = b->test,
                                                .batch = b->config.train.batch,
                                                .n_shards = b->n_shards,
                                                .last_shard = b->n_shards,
                                                .sequential = true,
                                                .n_threads = (int)b->config.data.threads,
                                                .n_prefetch = (int)b->config.data.prefetch,
                                                .timeout_ms = (int)b->config.parallel.timeout_ms},
                             out);
}

/* Runs a batch, as many shards at a time as there are instances of the program. */
static tutti_status run_batch(tti_predictor *p, const tti_batch *batch, tti_predicted_fn take,
                              void *user) {
    int64_t index = batch->step * p->b->config.train.batch;
    tti_shard_data *shards = calloc((size_t)p->n_in_flight, sizeof *shards);
    tti_predicted *out = calloc((size_t)p->n_in_flight, sizeof *out);
    tutti_status st =
        shards && out ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "predictor: out of memory");
    for (int first = 0; st == TUTTI_OK && first < batch->n_shards; first += p->n_in_flight) {
        int n = TTI_MIN(p->n_in_flight, batch->n_shards - first);
        for (int i = 0; i < n; i++) shards[i] = tti_shard_of(batch, first + i, 0);
        st = tti_predictor_run(p, shards, n, out);
        for (int i = 0; st == TUTTI_OK && i < n; i++)
            take(user, &shards[i], &out[i], index + (first + i) * batch->rows_per_shard);
    }
    free(shards);
    free(out);
    return st;
}

tutti_status tti_predictor_run_test(tti_predictor *p, int64_t until_ns, tti_predicted_fn take,
                                    void *user) {
    tti_loader *loader;
    tutti_status st = TUTTI_OK;
    TTI_TRY(load_test(p->b, &loader));
    int64_t n_steps = tti_loader_steps_per_epoch(loader);
    for (int64_t t = 0; st == TUTTI_OK && t < n_steps; t++) {
        tti_batch batch;
        if (t > 0 && tti_now_ns() >= until_ns) break;
        st = tti_loader_next(loader, &batch);
        if (st == TUTTI_OK) st = run_batch(p, &batch, take, user);
    }
    tti_loader_destroy(loader);
    return st;
}
