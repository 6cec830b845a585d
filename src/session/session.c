/* session.c - creates, describes and closes a session.
 *
 * Creation is the preparation of tutti_train without a run folder: resolve the job, make the
 * blueprint, start the workers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/levels.h"
#include "base/affinity.h"
#include "comm/transport.h"
#include "data/dataset.h"
#include "data/fields.h"
#include "ir/graph.h"
#include "ops/op_table.h"
#include "session/session_state.h"
#include "train/job/numerics.h"
#include "train/job/optimizer.h"
#include "train/setup/agreement.h"
#include "train/setup/init_config.h"
#include "train/setup/kernels.h"
#include "train/setup/memory_check.h"
#include "train/setup/pretrained.h"
#include "train/setup/shard_graph.h"
#include "train/setup/worker_exec.h"

/* ---- preparation ---- */

static tutti_status check_layout(const tutti_session *s) {
    const tti_job_config *c = tti_job_config_of(s->job);
    if (strcmp(c->parallel.place, "processes") == 0 && !s->comm && c->parallel.workers > 1)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "parallel.place: the workers of a session are threads; start the program "
                        "with tutti launch and pass the communicator of tutti_worker_join for "
                        "processes");
    if (c->parallel.staleness != 0)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "parallel.staleness: a session is synchronous; give parallel.staleness=0");
    if (c->parallel.backup_workers > 0)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "parallel.backup_workers: a session waits for all workers; give "
                        "parallel.backup_workers=0");
    /* The forward pass that gives the outputs would send what is left of earlier gradients. */
    bool keeps_rest =
        strcmp(c->parallel.compress, "topk") == 0 || strcmp(c->parallel.compress, "powersgd") == 0;
    if (s->loss && keeps_rest && c->parallel.workers > 1)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "parallel.compress=%s cannot be used with desc.loss; give "
                        "parallel.compress=none or f16",
                        c->parallel.compress);
    return TUTTI_OK;
}

static tutti_status join_group(tutti_session *s, const tti_devices *devices) {
    tti_comm_place place;
    char *yaml = tutti_job_print(s->job, false);
    if (!yaml) return tti_fail(TUTTI_E_NOMEM, "session: out of memory");
    tutti_status st = tti_agree_on_job(s->comm, yaml);
    free(yaml);
    TTI_TRY(st);
    TTI_TRY(tti_agree_on_cores(s->comm, &s->core_rank, &s->core_n_ranks));
    tti_comm_get_place(s->comm, &place);
    uint64_t identity = 0;
    if (devices->n > 0) {
        s->core_rank = place.local_rank;
        s->core_n_ranks = place.local_n_ranks;
        int device = tti_devices_place(devices, place.local_rank);
        if (device != TTI_ON_HOST) identity = devices->backend->device->identity(device);
    }
    return tti_agree_on_devices(s->comm, identity, &s->n_devices);
}

static tutti_status take_workers_of_group(const tutti_session *s) {
    char text[24];
    int n = tutti_comm_n_ranks(s->comm);
    if (tti_job_config_of(s->job)->parallel.workers > 0 &&
        tti_job_config_of(s->job)->parallel.workers != n)
        return tti_fail(TUTTI_E_CONFIG, "parallel.workers is %lld, but desc.comm has %d ranks",
                        (long long)tti_job_config_of(s->job)->parallel.workers, n);
    if (n > TTI_MAX_WORKERS)
        return tti_fail(TUTTI_E_CONFIG, "session: desc.comm has %d ranks, at most %d are supported",
                        n, TTI_MAX_WORKERS);
    snprintf(text, sizeof text, "%d", n);
    tti_options_put(tti_job_options(s->job), "parallel.workers", text, "desc.comm");
    return TUTTI_OK;
}

static tutti_status resolve(tutti_session *s, const char *run_dir) {
    tti_devices devices;
    char notice[1024];
    if (s->comm) TTI_TRY(take_workers_of_group(s));
    TTI_TRY(tti_devices_resolve(s->job, &devices));
    TTI_TRY(tutti_job_check(s->job));
    if (!run_dir) TTI_TRY(tti_init_config_apply(s->job));
    int n = s->comm ? tutti_comm_n_ranks(s->comm) : devices.n ? devices.n : tti_cores_usable();
    TTI_TRY(tti_job_resolve(s->job, n));
    TTI_TRY(check_layout(s));
    TTI_TRY(tti_cpu_check_levels());
    s->n_devices = devices.n;
    if (s->comm) TTI_TRY(join_group(s, &devices));
    const tti_job_config *c = tti_job_config_of(s->job);
    int n_here = s->comm ? s->core_n_ranks : (int)c->parallel.workers;
    TTI_TRY(tti_devices_check_sharing(c, &devices, n_here, s->n_devices));
    return tti_agree_on_kernels(&(tti_kernel_query){.comm = s->comm,
                                                    .devices = &devices,
                                                    .local_rank = s->core_rank,
                                                    .n_workers = (int)c->parallel.workers,
                                                    .exact = tti_job_is_exact(c)},
                                notice, sizeof notice);
}

/* ---- inputs ---- */

static tutti_status check_field(const tutti_session_desc *d, int i) {
    const tutti_field *f = &d->inputs[i];
    if (!f->name || !f->name[0] || strlen(f->name) >= TTI_MAX_FIELD_NAME)
        return tti_fail(TUTTI_E_INVALID, "session: desc.inputs[%d] needs a name of 1 .. %d bytes",
                        i, TTI_MAX_FIELD_NAME - 1);
    for (int k = 0; k < i; k++)
        if (strcmp(d->inputs[k].name, f->name) == 0)
            return tti_fail(TUTTI_E_INVALID, "session: desc.inputs has '%s' twice", f->name);
    if (f->type.dtype != TUTTI_F32 && f->type.dtype != TUTTI_I32)
        return tti_fail(TUTTI_E_INVALID, "session: input '%s' must be f32 or i32 in desc.inputs",
                        f->name);
    int n = f->type.shape.n_dims;
    if (n < 0 || n >= TUTTI_MAX_DIMS)
        return tti_fail(TUTTI_E_INVALID, "session: input '%s' has %d dimensions, not 0 .. %d",
                        f->name, n, TUTTI_MAX_DIMS - 1);
    size_t n_bytes = 4;
    for (int k = 0; k < n; k++)
        if (f->type.shape.dim[k] < 1 ||
            __builtin_mul_overflow(n_bytes, (size_t)f->type.shape.dim[k], &n_bytes) ||
            n_bytes > (size_t)1 << 40)
            return tti_fail(TUTTI_E_INVALID, "session: input '%s': dimension %d is %lld", f->name,
                            k, (long long)f->type.shape.dim[k]);
    return TUTTI_OK;
}

/* "x" and the labels "y". */
static tutti_status take_classes(const tutti_session_desc *d, tti_data_spec *spec) {
    const tutti_field *x = NULL, *y = NULL;
    for (int i = 0; i < d->n_inputs; i++) {
        if (strcmp(d->inputs[i].name, "x") == 0) x = &d->inputs[i];
        if (strcmp(d->inputs[i].name, "y") == 0) y = &d->inputs[i];
    }
    if (!x || !y || d->n_inputs != 2 || y->type.dtype != TUTTI_I32)
        return tti_fail(TUTTI_E_INVALID,
                        "session: with desc.n_classes the inputs are 'x' and the labels 'y' (i32); "
                        "give n_classes 0 for other inputs");
    if (d->n_classes > INT32_MAX)
        return tti_fail(TUTTI_E_INVALID, "session: desc.n_classes is %lld",
                        (long long)d->n_classes);
    spec->stored = spec->x = x->type;
    spec->y = y->type;
    spec->n_classes = d->n_classes;
    bool tokens = x->type.dtype == TUTTI_I32;
    spec->n_tokens = tokens ? d->n_classes : 0;
    return TUTTI_OK;
}

static tutti_status take_fields(const tutti_session_desc *d, tti_data_spec *spec) {
    TTI_TRY(tti_data_spec_alloc_fields(spec, d->n_inputs));
    for (int i = 0; i < d->n_inputs; i++) {
        spec->fields[i] =
            (tutti_field){tti_arena_strdup(&spec->arena, d->inputs[i].name), d->inputs[i].type};
        if (!spec->fields[i].name) return tti_fail(TUTTI_E_NOMEM, "session: out of memory");
    }
    size_t n_bytes = tti_fields_bytes(spec->fields, spec->n_fields);
    spec->stored = spec->x = (tutti_type){TUTTI_U8, TUTTI_SHAPE((int64_t)n_bytes)};
    spec->y = (tutti_type){TUTTI_I32, {0}};
    return TUTTI_OK;
}

/* The samples that desc describes; NULL: those of the job's data. */
static tutti_status make_spec(tutti_session *s, const tutti_session_desc *d) {
    if (!d->inputs && d->run_dir) return tti_data_spec_load(d->run_dir, &s->spec);
    if (!d->inputs && d->n_inputs == 0) return TUTTI_OK;
    if (!d->inputs || d->n_inputs < 1 || d->n_inputs > TTI_MAX_FIELDS)
        return tti_fail(TUTTI_E_INVALID, "session: desc.n_inputs is %d, not 1 .. %d%s", d->n_inputs,
                        TTI_MAX_FIELDS, d->inputs ? "" : ", and desc.inputs is NULL");
    if (d->n_classes < 0)
        return tti_fail(TUTTI_E_INVALID, "session: desc.n_classes is %lld",
                        (long long)d->n_classes);
    for (int i = 0; i < d->n_inputs; i++) TTI_TRY(check_field(d, i));
    s->spec = tti_data_spec_create();
    if (!s->spec) return tti_fail(TUTTI_E_NOMEM, "session: out of memory");
    s->spec->format = tti_job_config_of(s->job)->data.format;
    return d->n_classes > 0 ? take_classes(d, s->spec) : take_fields(d, s->spec);
}

static tutti_status name_inputs(tutti_session *s) {
    const tutti_dataset_info *info = tutti_dataset_get_info(s->b->train);
    s->n_inputs = info->n_fields > 0 ? info->n_fields : 2;
    if (info->n_fields > TTI_MAX_FIELDS)
        return tti_fail(TUTTI_E_UNSUPPORTED, "session: at most %d inputs are supported",
                        TTI_MAX_FIELDS);
    const tutti_field classic[2] = {{"x", info->x}, {"y", info->y}};
    for (int i = 0; i < s->n_inputs; i++) {
        s->inputs[i] = info->n_fields > 0 ? info->fields[i] : classic[i];
        s->inputs[i].name = tti_arena_strdup(&s->arena, s->inputs[i].name);
    }
    return TUTTI_OK;
}

/* Marks what a value depends on. */
static void mark_sources(const tutti_value *v, bool *seen) {
    const tti_node *node = v->node;
    if (seen[node->id]) return;
    seen[node->id] = true;
    for (int i = 0; i < node->n_in; i++) mark_sources(node->in[i], seen);
}

static tutti_status find_needed(tutti_session *s) {
    const tutti_graph *g = s->b->plan->eval.graph;
    bool *seen = calloc((size_t)g->n_nodes + 1, sizeof *seen);
    if (!seen) return tti_fail(TUTTI_E_NOMEM, "session: out of memory");
    for (int i = 0; i < s->n_outputs; i++)
        mark_sources(tti_graph_output(g, s->outputs[i].value), seen);
    for (int i = 0; i < s->n_inputs; i++) {
        char name[TTI_MAX_FIELD_NAME + 8];
        bool fields = tutti_dataset_get_info(s->b->train)->n_fields > 0;
        snprintf(name, sizeof name, "%s%s", fields ? "field." : "", s->inputs[i].name);
        const tti_node *node = tti_graph_find_source(g, !fields && i == 1 ? "target" : name);
        s->is_needed[i] = node && seen[node->id];
    }
    free(seen);
    return TUTTI_OK;
}

/* ---- outputs and parameters ---- */

/* The type of one row; [targets, classes] of several targets of a row are [rows] of these. */
static tutti_type row_type(const tutti_value *value, int64_t rows) {
    tutti_type type = value->type;
    int64_t each = type.shape.dim[0] / rows;
    if (each > 1) {
        type.shape.dim[0] = each;
        return type;
    }
    type.shape.n_dims--;
    memmove(type.shape.dim, type.shape.dim + 1,
            (size_t)type.shape.n_dims * sizeof type.shape.dim[0]);
    return type;
}

static void add_output(tutti_session *s, const tti_output *out) {
    const tutti_dataset_info *info = tutti_dataset_get_info(s->b->train);
    tti_session_output *o = &s->outputs[s->n_outputs++];
    size_t n_prefix = tti_shard_graph_is_named(out) ? sizeof TTI_OUTPUT_PREFIX - 1 : 0;
    o->value = tti_arena_strdup(&s->arena, out->name);
    o->field = (tutti_field){o->value ? o->value + n_prefix : NULL,
                             row_type(out->value, s->b->rows_per_shard)};
    o->row_bytes = tti_field_bytes(&o->field);
    o->is_value = info->is_value && strcmp(out->name, "logits") == 0;
    o->first = s->outputs_bytes;
    s->outputs_bytes += (o->row_bytes * (size_t)s->b->rows_per_shard + 63) & ~(size_t)63;
}

static tutti_status name_outputs(tutti_session *s) {
    const tutti_graph *g = s->b->plan->eval.graph;
    bool is_named = false;
    for (int i = 0; i < g->n_outputs; i++)
        is_named |= tti_shard_graph_is_named(&g->outputs[i]) &&
                    tti_shard_graph_is_output(g, i, s->b->rows_per_shard);
    s->outputs = calloc((size_t)g->n_outputs + 1, sizeof *s->outputs);
    if (!s->outputs) return tti_fail(TUTTI_E_NOMEM, "session: out of memory");
    for (int i = 0; i < g->n_outputs; i++) {
        if (!tti_shard_graph_is_output(g, i, s->b->rows_per_shard)) continue;
        if (is_named && strcmp(g->outputs[i].name, "logits") == 0) continue; /* the first of them */
        if (s->loss && g->outputs[i].value->type.dtype != TUTTI_F32) continue;
        if (s->n_outputs == TTI_MAX_OUTPUTS)
            return tti_fail(TUTTI_E_UNSUPPORTED, "session: the model has more than %d outputs",
                            TTI_MAX_OUTPUTS);
        add_output(s, &g->outputs[i]);
    }
    return TUTTI_OK;
}

/* Finds the inputs for the derivatives of the caller's loss. */
static tutti_status find_seeds(tutti_session *s) {
    const tutti_graph *g = s->b->plan->shard.graph;
    if (!s->loss) return TUTTI_OK;
    for (int i = 0; i <= s->n_outputs; i++) {
        char name[TTI_MAX_NAME];
        snprintf(name, sizeof name, "seed.%s", i < s->n_outputs ? s->outputs[i].value : "count");
        const tti_node *node = tti_graph_find_source(g, name);
        size_t offset = node ? (size_t)tti_attr_int(node, "offset") : 0;
        if (i < s->n_outputs)
            s->outputs[i].seed = offset;
        else
            s->count_seed = offset;
    }
    return TUTTI_OK;
}

static tutti_status name_parameters(tutti_session *s) {
    const tti_plan *plan = s->b->plan;
    s->parameters = calloc((size_t)plan->n_slots + 1, sizeof *s->parameters);
    if (!s->parameters) return tti_fail(TUTTI_E_NOMEM, "session: out of memory");
    for (int i = 0; i < plan->n_slots; i++) {
        const tti_slot *slot = &plan->slots[i];
        s->parameters[i] = (tutti_parameter){.name = tti_arena_strdup(&s->arena, slot->param->name),
                                             .shape = slot->param->out[0]->type.shape,
                                             .first = (int64_t)slot->first,
                                             .is_buffer = slot->buffer,
                                             .decays = slot->decay,
                                             .is_frozen = slot->rule.frozen};
        s->info.n_elems += (int64_t)slot->n_elems;
    }
    return tti_arena_failed(&s->arena) ? tti_fail(TUTTI_E_NOMEM, "session: out of memory")
                                       : TUTTI_OK;
}

/* ---- creation ---- */

static tutti_status make_blueprint(tutti_session *s) {
    tti_blueprint_session desc = {
        .spec = s->spec, .has_host_loss = s->loss != NULL, .rank = -1, .local_rank = -1};
    tti_bucket_link link;
    if (s->comm) {
        TTI_TRY(tti_agree_on_link(s->comm, tti_job_config_of(s->job), &link));
        desc.link = &link;
        desc.rank = tutti_comm_rank(s->comm);
        desc.local_rank = s->core_rank;
    }
    TTI_TRY(tti_blueprint_create_for_session(s->job, &desc, &s->b));
    s->has_data = !s->spec;
    if (s->comm && s->has_data) TTI_TRY(tti_agree_on_data(s->comm, s->b->train, s->b->test));
    return TUTTI_OK;
}

static tutti_status check_memory(const tutti_session *s) {
    tti_memory_room room;
    tti_memory_find_room("", &room);
    return tti_memory_check(s->b, s->comm ? tutti_comm_rank(s->comm) : -1,
                            s->comm ? s->core_n_ranks : s->b->n_workers, &room);
}

static tutti_status start_workers(tutti_session *s) {
    s->n_workers = s->comm ? 1 : s->b->n_workers;
    s->workers = calloc((size_t)s->n_workers, sizeof *s->workers);
    if (!s->workers) return tti_fail(TUTTI_E_NOMEM, "session: out of memory");
    for (int i = 0; i < s->n_workers; i++) {
        tti_session_worker *w = &s->workers[i];
        w->session = s;
        w->rank = s->comm ? tutti_comm_rank(s->comm) : i;
        w->local_rank = s->comm ? s->core_rank : i;
        w->b = tti_blueprint_of(s->b, w->local_rank);
    }
    if (s->n_workers > 1) TTI_TRY(tutti_comm_group_create(s->n_workers, &s->group));
    if (!s->comm) TTI_TRY(tti_job_server_create(s->b, &s->server));
    if (!s->comm) TTI_TRY(tti_worker_shared_params_create(s->b, &s->shared_params));
    TTI_TRY(tti_session_threads_start(s));
    return tti_session_run(s, tti_session_worker_open, NULL);
}

static void describe(tutti_session *s) {
    const tti_plan *plan = s->b->plan;
    tutti_session_info *info = &s->info;
    int64_t b = s->b->rows_per_shard;
    info->n_workers = s->b->n_workers;
    info->n_shards = s->b->n_shards;
    info->batch = info->n_rows = s->b->config.train.batch;
    if (s->comm) {
        const tti_exec *x = s->workers[0].exec;
        int64_t last = TTI_MIN(tti_exec_last_shard(x) * b, info->batch);
        info->first_row = TTI_MIN(tti_exec_first_shard(x) * b, info->batch);
        info->n_rows = TTI_MAX(0, last - info->first_row);
    }
    info->steps_per_epoch = s->has_data ? s->b->steps_per_epoch : 0;
    info->n_inputs = s->n_inputs;
    info->n_outputs = s->n_outputs;
    info->n_parameters = plan->n_slots;
    info->n_states = plan->n_states;
    info->has_average = s->b->config.train.ema > 0;
}

static tutti_status build(tutti_session *s, const tutti_session_desc *d) {
    TTI_TRY(resolve(s, d->run_dir));
    TTI_TRY(make_spec(s, d));
    TTI_TRY(make_blueprint(s));
    TTI_TRY(check_memory(s));
    TTI_TRY(name_inputs(s));
    TTI_TRY(name_outputs(s));
    TTI_TRY(find_needed(s));
    TTI_TRY(find_seeds(s));
    TTI_TRY(name_parameters(s));
    s->run = (tti_run_state){.plateau = tti_plateau_begin()};
    tti_numerics_loss_scale(&s->b->config, &s->run.loss_scale);
    s->is_scaled = tti_blueprint_target(s->b).loss_scale;
    s->optimizer = tti_optimizer_find(s->b->config.optimizer.name);
    TTI_TRY(start_workers(s));
    describe(s);
    return TUTTI_OK;
}

static tutti_status check_desc(tutti_job *job, const tutti_session_desc *d) {
    if (!job) return tti_fail(TUTTI_E_INVALID, "tutti_session_create: job is NULL");
    if (d->size == 0 || d->size == sizeof *d) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID,
                    "tutti_session_create: desc.size is %zu, this library has %zu: the program was "
                    "compiled with another version's header",
                    d->size, sizeof *d);
}

/* The caller's job is resolved in a copy. */
static tutti_status copy_job(tutti_job *job, tutti_job **out) {
    TTI_TRY(tutti_job_check(job)); /* a copy does not have its problems */
    TTI_TRY(tti_job_copy(job, out));
    if (!tti_job_path(job)) return TUTTI_OK;
    (*out)->path = strdup(tti_job_path(job));
    return (*out)->path ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "session: out of memory");
}

static void init_locks(tutti_session *s) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&s->mutex, &attr);
    pthread_mutexattr_destroy(&attr);
    pthread_mutex_init(&s->threads.mutex, NULL);
    pthread_cond_init(&s->threads.begin, NULL);
    pthread_cond_init(&s->threads.end, NULL);
}

tutti_status tutti_session_create(tutti_job *job, const tutti_session_desc *desc,
                                  tutti_session **out) {
    static const tutti_session_desc defaults;
    const tutti_session_desc *d = desc ? desc : &defaults;
    if (!out) return tti_fail(TUTTI_E_INVALID, "tutti_session_create: out is NULL");
    *out = NULL;
    TTI_TRY(check_desc(job, d));
    tutti_session *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "session: out of memory");
    init_locks(s);
    s->is_open = true;
    s->owner = getpid();
    s->comm = d->comm;
    s->loss = d->loss;
    s->loss_user = d->loss_user;
    tutti_status st = copy_job(job, &s->job);
    if (st == TUTTI_OK) st = tti_job_say_where(s->job, build(s, d));
    if (st == TUTTI_OK && d->run_dir) st = tutti_session_load(s, d->run_dir);
    if (st != TUTTI_OK) {
        char text[TTI_SESSION_ERROR];
        snprintf(text, sizeof text, "%s", tutti_last_error());
        tutti_session_destroy(s);
        return tti_fail(st, "%s", text);
    }
    tti_clear_error();
    *out = s;
    return TUTTI_OK;
}

/* ---- the end ---- */

static void release(tutti_session *s) {
    if (s->tickets.of && s->failed == TUTTI_OK)
        (void)tti_session_settle(s, __func__); /* a device ends what it has begun */
    tti_tickets_release(&s->tickets);
    if (s->workers && s->threads.n_started == s->n_workers) {
        tutti_status st = tti_session_run(s, tti_session_worker_close, NULL);
        TTI_ASSERT(st == TUTTI_OK); /* it only frees */
    }
    tti_session_threads_stop(s);
    tti_job_server_destroy(&s->server);
    tti_shared_params_destroy(s->shared_params);
    tutti_comm_group_destroy(s->group);
    free(s->workers);
    tti_metric_set_destroy(s->evaluated);
    tti_blueprint_destroy(s->b);
    tti_data_spec_release(s->spec);
    tutti_job_destroy(s->job);
    s->evaluated = NULL;
    s->shared_params = NULL;
    s->group = NULL;
    s->workers = NULL;
    s->b = NULL;
    s->spec = NULL;
    s->job = NULL;
    s->is_open = false;
}

void tutti_session_close(tutti_session *s) {
    if (!s || tti_session_is_inherited(s) || pthread_mutex_lock(&s->mutex) != 0) return;
    if (s->is_open) release(s);
    pthread_mutex_unlock(&s->mutex);
}

void tutti_session_destroy(tutti_session *s) {
    if (!s || tti_session_is_inherited(s)) return; /* its memory goes with the process */
    tutti_session_close(s);
    pthread_mutex_destroy(&s->mutex);
    pthread_mutex_destroy(&s->threads.mutex);
    pthread_cond_destroy(&s->threads.begin);
    pthread_cond_destroy(&s->threads.end);
    free(s->outputs);
    free(s->parameters);
    tti_arena_free(&s->arena);
    free(s);
}

/* ---- facts ---- */

void tutti_session_get_info(tutti_session *s, tutti_session_info *out) {
    if (!out) return;
    *out = (tutti_session_info){0};
    if (!s || tti_session_is_inherited(s) || pthread_mutex_lock(&s->mutex) != 0) return;
    *out = s->info;
    out->step = s->step;
    out->is_open = s->is_open;
    pthread_mutex_unlock(&s->mutex);
}

static tutti_status check_index(const tutti_session *s, const char *who, int i, int n,
                                const void *out) {
    if (!s) return tti_fail(TUTTI_E_INVALID, "%s: session is NULL", who);
    if (!out) return tti_fail(TUTTI_E_INVALID, "%s: out is NULL", who);
    if (i >= 0 && i < n) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID, "%s: i is %d, and there are %d", who, i, n);
}

tutti_status tutti_session_input_at(tutti_session *s, int i, tutti_field *out) {
    TTI_TRY(check_index(s, __func__, i, s ? s->n_inputs : 0, out));
    *out = s->inputs[i];
    return TUTTI_OK;
}

tutti_status tutti_session_output_at(tutti_session *s, int i, tutti_field *out) {
    TTI_TRY(check_index(s, __func__, i, s ? s->n_outputs : 0, out));
    *out = s->outputs[i].field;
    return TUTTI_OK;
}

tutti_status tutti_session_parameter_at(tutti_session *s, int i, tutti_parameter *out) {
    TTI_TRY(check_index(s, __func__, i, s ? s->info.n_parameters : 0, out));
    *out = s->parameters[i];
    return TUTTI_OK;
}

const char *tutti_session_state_name(tutti_session *s, int k) {
    return s && s->optimizer && k >= 0 && k < s->info.n_states ? s->optimizer->states[k] : NULL;
}
