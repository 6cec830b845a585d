/* session_step.c - steps of a session: forward, a whole step, its two parts, evaluation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "session/session_tickets.h"
#include "session/step_call.h"
#include "train/job/lr_schedule.h"
#include "train/loop/averaging.h"
#include "train/loop/evaluation.h"

static const int64_t most_steps = INT64_C(1000000000000); /* as of train.steps */

/* ---- rows of a process group ---- */

typedef struct group_rows {
    int64_t mine, global, want; /* want: of this rank in a batch of global rows */
    int64_t most, least;        /* of global, over all ranks */
    int64_t n_wrong;            /* ranks without the rows that they should have */
} group_rows;

/* Replicas of the model divide the batch; workers that divide the model have the same rows. */
static tutti_status add_rows(tti_session_worker *w, group_rows *rows) {
    tutti_comm *data = w->b->n_model_ranks > 0 ? w->mesh.data : w->comm;
    rows->global = rows->mine;
    if (!data || tutti_comm_n_ranks(data) == 1) return TUTTI_OK;
    return tutti_comm_all_reduce(data, &rows->mine, &rows->global, 1, TUTTI_I64, TUTTI_SUM,
                                 TUTTI_ALG_AUTO);
}

/* All ranks find alike whether their rows make a batch, so that none of them begins a step that
 * another one refuses. */
static tutti_status compare_rows(tti_session_worker *w, void *arg) {
    group_rows *rows = arg;
    TTI_TRY(add_rows(w, rows));
    int64_t b = w->b->rows_per_shard, first = tti_exec_first_shard(w->exec) * b;
    int64_t last = TTI_MIN(tti_exec_last_shard(w->exec) * b, rows->global);
    rows->want = TTI_MAX(0, last - first);
    int64_t most[3] = {rows->global, -rows->global, rows->mine != rows->want};
    if (w->comm && tutti_comm_n_ranks(w->comm) > 1)
        TTI_TRY(
            tutti_comm_all_reduce(w->comm, most, most, 3, TUTTI_I64, TUTTI_MAX, TUTTI_ALG_AUTO));
    rows->most = most[0];
    rows->least = -most[1];
    rows->n_wrong = most[2];
    return TUTTI_OK;
}

/* Every rank must have the rows that its shards have in a batch of so many. */
static tutti_status agree_on_rows(tutti_session *s, tti_feed *f) {
    group_rows rows = {.mine = f->n_rows};
    if (!s->comm) return TUTTI_OK;
    TTI_TRY(tti_session_run(s, compare_rows, &rows));
    f->n_rows_global = rows.global;
    if (rows.mine != rows.want)
        return tti_fail(
            TUTTI_E_INVALID,
            "session: this rank has %lld rows of a batch of %lld, but its shards have %lld",
            (long long)rows.mine, (long long)rows.global, (long long)rows.want);
    if (rows.most != rows.least)
        return tti_fail(TUTTI_E_INVALID,
                        "session: this rank has rows of a batch of %lld, others of one of %lld; "
                        "ranks that divide the model need the same rows",
                        (long long)rows.global,
                        (long long)(rows.global == rows.most ? rows.least : rows.most));
    if (rows.n_wrong == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID,
                    "session: another rank does not have the rows of its shards in a batch of %lld",
                    (long long)rows.global);
}

/* ---- outputs ---- */

/* Whether this worker's program computes the output, and no other worker gives the same rows. */
static bool gives_output(const tti_session_worker *w, const tti_session_output *out,
                         bool training) {
    if (w->b->n_model_ranks == 0) return true;
    int place = tti_mesh_model_rank(&w->mesh.size, &w->mesh.at);
    const tti_plan *plan = tti_blueprint_plan(w->b, place);
    const tutti_graph *g = training ? plan->shard.graph : plan->eval.graph;
    return w->mesh.at.tensor == 0 && tti_graph_output(g, out->value) != NULL;
}

/* The output goes to the caller's device memory.  Values of a regression are converted here first.
 */
static bool stays_on_device(const tti_session_output *out, const tutti_tensor *tensor) {
    return tensor && tensor->device > 0 && !out->is_value;
}

/* tensors [n_outputs] of the caller, NULL: not wanted. */
static void list_outputs(const tti_session_worker *w, const tutti_tensor *const *tensors,
                         tti_output_copy *copies) {
    const tutti_session *s = w->session;
    for (int i = 0; i < s->n_outputs; i++) {
        const tti_session_output *out = &s->outputs[i];
        uint8_t *memory = stays_on_device(out, tensors[i]) ? w->device_outputs : w->outputs;
        copies[i] = (tti_output_copy){.name = out->value,
                                      .n_bytes = out->row_bytes * (size_t)w->b->rows_per_shard,
                                      .to = memory + (size_t)w->n_shards * out->first};
    }
}

/* Values of a regression in the units of the targets: in place, or to doubles of the caller. */
static void convert_values(const tutti_session *s, float *values, int64_t n_rows, double *to) {
    const tti_target_spec *target = &tti_dataset_spec(s->b->train)->target;
    for (int64_t i = 0; i < n_rows * target->n; i++) {
        int64_t k = i % target->n;
        double value = (double)values[i] * target->std[k] + target->mean[k];
        if (to)
            to[i] = value;
        else
            values[i] = (float)value;
    }
}

/* A worker's rows of one output. */
typedef struct output_rows {
    const tti_session_output *out;
    uint8_t *from;
    int64_t first, last; /* in the caller's tensor */
    const tutti_tensor *to;
} output_rows;

static bool is_double(const tutti_tensor *t) { return t->type.dtype == TUTTI_F64; }

static tutti_status deliver_rows(const tti_session_worker *w, const output_rows *r, bool converts) {
    int64_t rows = w->b->rows_per_shard;
    bool doubles = is_double(r->to);
    for (int64_t at = r->first; at < r->last; at += rows) {
        size_t row_bytes = r->out->row_bytes;
        int64_t n = TTI_MIN(r->last - at, rows);
        uint8_t *from = r->from + (size_t)(at - r->first) * row_bytes;
        size_t to_bytes = doubles ? row_bytes * sizeof(double) / sizeof(float) : row_bytes;
        uint8_t *to = (uint8_t *)r->to->data + (size_t)at * to_bytes;
        if (converts)
            convert_values(w->session, (float *)(void *)from, n,
                           doubles ? (double *)(void *)to : NULL);
        if (doubles) continue;
        if (r->to->device == 0)
            memcpy(to, from, (size_t)n * row_bytes);
        else
            TTI_TRY(tti_worker_copy(w, to, from, (size_t)n * row_bytes));
    }
    return r->to->device > 0 ? tti_worker_sync(w) : TUTTI_OK;
}

/* The rows of this worker, from its outputs to tensors [n_outputs] of the caller, NULL: not wanted.
 */
static tutti_status deliver_outputs(const tti_session_worker *w, const tti_feed *f,
                                    const tutti_tensor *const *tensors, bool training) {
    const tutti_session *s = w->session;
    tti_output_copy copies[TTI_MAX_OUTPUTS];
    list_outputs(w, tensors, copies);
    for (int k = 0; k < s->n_outputs; k++) {
        const tti_session_output *out = &s->outputs[k];
        if (!tensors[k] || !gives_output(w, out, training)) continue;
        output_rows rows = {.out = out, .from = copies[k].to, .to = tensors[k]};
        tti_feed_rows(w, f, &rows.first, &rows.last);
        TTI_TRY(deliver_rows(w, &rows, out->is_value && !training));
    }
    return TUTTI_OK;
}

/* ---- forward ---- */

typedef struct forward_call {
    tti_feed feed;
    const tutti_tensor *tensors[TTI_MAX_OUTPUTS]; /* [n_outputs] */
    bool any_on_device;
} forward_call;

static tutti_status forward_worker(tti_session_worker *w, void *arg) {
    const forward_call *call = arg;
    const tutti_session *s = w->session;
    tti_output_copy copies[TTI_MAX_OUTPUTS];
    if (call->any_on_device) TTI_TRY(tti_outputs_on_device(w));
    list_outputs(w, call->tensors, copies);
    TTI_TRY(tti_feed_put(w, &call->feed));
    tti_step_result sums = {0};
    const tti_step_desc desc = {.step = (uint64_t)s->step,
                                .shards = w->shards,
                                .shard_size = w->b->rows_per_shard,
                                .outputs = copies,
                                .n_outputs = s->n_outputs};
    TTI_TRY(tti_exec_eval(w->exec, &desc, &sums));
    return deliver_outputs(w, &call->feed, call->tensors, false);
}

static tutti_status check_output(const tutti_session *s, const tutti_tensor *t, int64_t n_rows,
                                 forward_call *call) {
    char want[128], got[128];
    TTI_TRY(tti_tensor_check(s, "output", t));
    for (int i = 0; i < s->n_outputs; i++) {
        const tutti_field *field = &s->outputs[i].field;
        if (strcmp(field->name, t->name) != 0) continue;
        tutti_type type = {field->type.dtype, {.n_dims = field->type.shape.n_dims + 1}};
        type.shape.dim[0] = n_rows;
        memcpy(type.shape.dim + 1, field->type.shape.dim,
               (size_t)field->type.shape.n_dims * sizeof(int64_t));
        /* A float has too few digits for values such as times. */
        bool is_double_value = is_double(t) && s->outputs[i].is_value && t->device == 0;
        if ((t->type.dtype != type.dtype && !is_double_value) ||
            !tti_shape_equal(&t->type.shape, &type.shape))
            return tti_fail(TUTTI_E_INVALID, "session: output '%s' must be %s, got %s", t->name,
                            tti_type_text(&type, want, sizeof want),
                            tti_type_text(&t->type, got, sizeof got));
        call->tensors[i] = t;
        call->any_on_device |= t->device > 0;
        return TUTTI_OK;
    }
    tti_str known = {0};
    for (int i = 0; i < s->n_outputs; i++)
        tti_str_printf(&known, "%s%s", i ? ", " : "", s->outputs[i].field.name);
    tutti_status st = tti_fail(TUTTI_E_INVALID, "session: there is no output '%s'; outputs are %s",
                               t->name, known.n_bytes ? tti_str_text(&known) : "none");
    tti_str_free(&known);
    return st;
}

static tutti_status forward(tutti_session *s, const tutti_tensor *inputs, int n_inputs,
                            const tutti_tensor *outputs, int n_outputs) {
    forward_call call = {0};
    TTI_TRY(tti_feed_check(s, inputs, n_inputs, false, &call.feed));
    if (!outputs || n_outputs < 1)
        return tti_fail(TUTTI_E_INVALID, "session: outputs is %s", outputs ? "empty" : "NULL");
    if (n_outputs > s->n_outputs)
        return tti_fail(TUTTI_E_INVALID, "session: n_outputs is %d; the session has %d outputs",
                        n_outputs, s->n_outputs);
    for (int i = 0; i < n_outputs; i++) {
        if (!outputs[i].name)
            return tti_fail(TUTTI_E_INVALID, "session: outputs[%d].name is NULL", i);
        TTI_TRY(check_output(s, &outputs[i], call.feed.n_rows, &call));
    }
    TTI_TRY(agree_on_rows(s, &call.feed));
    s->has_gradients = false;
    return tti_session_run(s, forward_worker, &call);
}

tutti_status tutti_session_forward(tutti_session *s, const tutti_tensor *inputs, int n_inputs,
                                   const tutti_tensor *outputs, int n_outputs) {
    tti_staged staged;
    TTI_TRY(tti_session_enter(s, __func__));
    tutti_status st = tti_feed_stage(s, inputs, n_inputs, &staged);
    if (st == TUTTI_OK)
        st = forward(s, tti_feed_staged(&staged, inputs), n_inputs, outputs, n_outputs);
    tti_feed_unstage(&staged);
    return tti_session_leave(s, st);
}

/* ---- batches of the job's data ---- */

static tutti_status open_loader(tti_session_worker *w) {
    const tutti_session *s = w->session;
    const tti_job_config *c = &w->b->config;
    const tti_loader_desc desc = {.dataset = w->b->train,
                                  .batch = c->train.batch,
                                  .n_shards = w->b->n_shards,
                                  .first_shard = tti_exec_first_shard(w->exec),
                                  .last_shard = tti_exec_last_shard(w->exec),
                                  .seed = (uint64_t)c->train.seed,
                                  .epoch = s->step / w->b->steps_per_epoch,
                                  .step = s->step % w->b->steps_per_epoch,
                                  .n_threads = (int)c->data.threads,
                                  .n_prefetch = (int)c->data.prefetch,
                                  .timeout_ms = (int)c->parallel.phase_timeout_ms,
                                  .on_wait = tti_phases_wait,
                                  .user = &w->phases,
                                  .where = c->data.dir,
                                  .mixup = c->data.mixup};
    if (w->loader) tti_feeding_unpin(w->loader, w->exec);
    tti_loader_destroy(w->loader);
    w->loader = NULL;
    TTI_TRY(tti_feeding_open(&desc, w->exec, &w->loader));
    tti_feeding_pin(w->loader, w->exec);
    w->loader_step = s->step;
    return TUTTI_OK;
}

/* The next batch, after a change of the step the one there. */
static tutti_status take_batch(tti_session_worker *w, tti_step_desc *desc) {
    tti_batch batch;
    if (!w->loader || w->loader_step != w->session->step) TTI_TRY(open_loader(w));
    TTI_TRY(tti_phases_next_batch(&w->phases, w->loader, &batch));
    w->loader_step++;
    int first = tti_exec_first_shard(w->exec);
    for (int i = 0; i < batch.n_shards; i++) w->shards[i] = tti_shard_of(&batch, i, first);
    desc->n_rows = batch.n_rows_global;
    tti_feeding_describe(w->loader, desc);
    return TUTTI_OK;
}

/* ---- a step ---- */

static tutti_status take_rows(tti_session_worker *w, const tti_step_call *call,
                              tti_step_desc *desc) {
    if (call->from_data) return take_batch(w, desc);
    desc->n_rows = call->feed.n_rows_global;
    if (!call->keeps_feed) TTI_TRY(tti_feed_put(w, &call->feed));
    if (w->session->loss) tti_feed_put_seeds(w, &call->feed, call->seeds, call->count);
    return TUTTI_OK;
}

tutti_status tti_step_describe(tti_session_worker *w, tti_step_call *call, tti_output_copy *copies,
                               tti_step_desc *desc) {
    const tutti_session *s = w->session;
    *desc = (tti_step_desc){.step = (uint64_t)s->step,
                            .lr = call->lr,
                            .shards = w->shards,
                            .shard_size = w->b->rows_per_shard,
                            .loss_scale = s->is_scaled ? s->run.loss_scale.scale : 1,
                            .stop_on_bad = call->follows_others,
                            .outputs = copies};
    TTI_TRY(take_rows(w, call, desc));
    if (call->gives_outputs) {
        static const tutti_tensor *const on_host[TTI_MAX_OUTPUTS];
        list_outputs(w, on_host, copies);
        desc->n_outputs = s->n_outputs;
    }
    desc->average = tti_averaging_is_due(w->b, s->step + 1, &desc->average_state);
    if (w == &s->workers[0]) call->n_rows = desc->n_rows;
    return TUTTI_OK;
}

static tutti_status step_worker(tti_session_worker *w, void *arg) {
    tti_step_call *call = arg;
    tti_output_copy copies[TTI_MAX_OUTPUTS];
    tti_step_desc desc;
    w->result = (tti_step_result){0};
    TTI_TRY(tti_step_describe(w, call, copies, &desc));
    if (call->part == TTI_STEP_GRADIENTS)
        return tti_exec_compute_gradients(w->exec, &desc, &w->result);
    return tti_exec_step(w->exec, &desc, &w->result);
}

/* The rate of the job's schedule.  Without the data of the job there are no epochs. */
static tutti_status find_lr_of_job(const tutti_session *s, double *out) {
    const tti_job_config *c = &s->b->config;
    tti_lr_desc desc = tti_lr_desc_of(c, s->b->schedule_steps, s->b->steps_per_epoch);
    tti_lr_needs needs = tti_lr_schedule_find(desc.name)->needs;
    if (!s->has_data) desc.n_steps = c->schedule.steps > 0 ? c->schedule.steps : c->train.steps;
    if (needs == TTI_LR_NEEDS_EVALUATIONS)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "session: schedule.name=%s reduces the rate at evaluations of a run; pass "
                        "the learning rate of each step",
                        desc.name);
    if (needs == TTI_LR_NEEDS_LENGTH && desc.n_steps == 0)
        return tti_fail(
            TUTTI_E_CONFIG,
            "session: schedule.name=%s needs the number of steps, and a session without "
            "the job's data has no epochs; set schedule.steps, or pass the learning "
            "rate of each step",
            desc.name);
    if (needs == TTI_LR_NEEDS_EPOCHS && !desc.by_steps && !s->has_data)
        return tti_fail(TUTTI_E_CONFIG,
                        "session: schedule.name=%s counts epochs, and a session without the job's "
                        "data has none; set schedule.unit=steps, or pass the learning rate of each "
                        "step",
                        desc.name);
    *out = tti_lr(&desc, s->step);
    return TUTTI_OK;
}

static tutti_status check_lr(const tutti_session *s, double lr, double *out) {
    if (lr == TUTTI_LR_OF_JOB) return find_lr_of_job(s, out);
    *out = lr;
    if (tti_lr_is_valid(lr)) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID, "session: lr is %g; give 0 .. %d, or TUTTI_LR_OF_JOB", lr,
                    TTI_MOST_LR);
}

void tti_step_fill_result(tutti_session *s, const tti_step_facts *facts, const tti_step_result *r,
                          tutti_session_result *out) {
    bool counts = s->b->has_accuracy && !s->loss;
    tti_step_metrics_init(&s->own, s->b->plan);
    tti_step_metrics_set(&s->own, r);
    *out = (tutti_session_result){.step = facts->step,
                                  .n_rows = facts->n_rows,
                                  .loss_sum = r->loss_sum,
                                  .count = r->count,
                                  .correct = counts ? r->correct : NAN,
                                  .n_metrics = s->own.n,
                                  .metrics = s->own.list,
                                  .lr = facts->lr,
                                  .grad_norm = r->grad_norm,
                                  .grad_scale = facts->grad_scale,
                                  .params_hash = r->params_hash,
                                  .skipped = r->skipped};
}

/* The result of the call that has just ended. */
static void fill_result(tutti_session *s, int64_t n_rows, double lr, tutti_session_result *out) {
    const tti_step_facts facts = {s->step, n_rows, lr, s->grad_scale};
    tti_step_fill_result(s, &facts, &s->workers[0].result, out);
}

/* The status of a step whose loss or gradient was not finite, as in train/loop/worker_loop.c. */
static tutti_status judge(tutti_session *s, tutti_status st) {
    const tti_step_result *r = &s->workers[0].result;
    bool skipped = st == TUTTI_E_NUMERICS && r->skipped, overflow = false;
    if (s->is_scaled && (st == TUTTI_OK || skipped))
        overflow = tti_loss_scale_handles(&s->run.loss_scale, skipped);
    if (st == TUTTI_OK || overflow) return TUTTI_OK;
    return skipped && strcmp(s->b->config.train.on_nan, "skip") == 0 ? TUTTI_OK : st;
}

static void keep_grad_scale(tutti_session *s) {
    s->grad_scale = tti_step_grad_scale(s, &s->workers[0].result);
}

static tutti_status prepare_call(tutti_session *s, const tutti_tensor *inputs, int n_inputs,
                                 tti_step_call *call) {
    TTI_TRY(tti_blueprint_check_trains(s->b));
    call->from_data = !inputs && n_inputs == 0;
    if (call->from_data && s->loss)
        return tti_fail(TUTTI_E_UNSUPPORTED, "session: desc.loss needs inputs; NULL was passed");
    if (call->from_data && !s->has_data)
        return tti_fail(TUTTI_E_INVALID,
                        "session: inputs is NULL, and the session has no data of a job; pass "
                        "inputs, or create it without desc.inputs");
    if (call->from_data) return TUTTI_OK;
    TTI_TRY(tti_feed_check(s, inputs, n_inputs, true, &call->feed));
    return agree_on_rows(s, &call->feed);
}

/* ---- the caller's loss ---- */

typedef struct loss_memory {
    tutti_tensor outputs[TTI_MAX_OUTPUTS], grads[TTI_MAX_OUTPUTS], inputs[TTI_MAX_FIELDS];
    const tutti_tensor *wanted[TTI_MAX_OUTPUTS];
    tti_feed *feed;
} loss_memory;

static tutti_status deliver_worker(tti_session_worker *w, void *arg) {
    const loss_memory *m = arg;
    return deliver_outputs(w, m->feed, m->wanted, true);
}

static void free_loss_memory(const tutti_session *s, loss_memory *m) {
    for (int i = 0; i < s->n_outputs; i++) {
        free(m->outputs[i].data);
        free(m->grads[i].data);
    }
}

static tutti_status take_loss_memory(const tutti_session *s, tti_feed *f, loss_memory *m) {
    for (int i = 0; i < s->n_outputs; i++) {
        const tutti_field *field = &s->outputs[i].field;
        tutti_tensor t = {.name = field->name, .type.dtype = field->type.dtype};
        t.type.shape = (tutti_shape){.n_dims = field->type.shape.n_dims + 1, .dim = {f->n_rows}};
        memcpy(t.type.shape.dim + 1, field->type.shape.dim,
               (size_t)field->type.shape.n_dims * sizeof(int64_t));
        m->outputs[i] = m->grads[i] = t;
        m->outputs[i].data = calloc((size_t)f->n_rows, s->outputs[i].row_bytes);
        m->grads[i].data = calloc((size_t)f->n_rows, s->outputs[i].row_bytes);
        m->wanted[i] = &m->outputs[i];
        if (!m->outputs[i].data || !m->grads[i].data)
            return tti_fail(TUTTI_E_NOMEM, "session: out of memory for outputs");
    }
    for (int i = 0; i < s->n_inputs; i++) m->inputs[i] = *f->tensor[i];
    m->feed = f;
    return TUTTI_OK;
}

/* Runs the program for its outputs, asks the caller, and leaves the seeds in call. */
static tutti_status ask_for_loss(tutti_session *s, tti_step_call *call, loss_memory *m,
                                 tutti_host_loss *loss) {
    tti_step_part part = call->part;
    TTI_TRY(take_loss_memory(s, &call->feed, m));
    call->part = TTI_STEP_GRADIENTS;
    call->gives_outputs = true;
    call->count = 1;
    TTI_TRY(tti_session_run(s, step_worker, call));
    TTI_TRY(tti_session_run(s, deliver_worker, m));
    *loss = (tutti_host_loss){.n_rows = call->feed.n_rows,
                              .n_outputs = s->n_outputs,
                              .n_inputs = s->n_inputs,
                              .outputs = m->outputs,
                              .inputs = m->inputs,
                              .grads = m->grads};
    int code = s->loss(s->loss_user, loss);
    if (code != 0) return tti_fail(TUTTI_E_DATA, "session: desc.loss returned %d", code);
    if (!(loss->count > 0) || !isfinite(loss->count))
        return tti_fail(TUTTI_E_DATA, "session: desc.loss set count to %g; it must be above 0",
                        loss->count);
    if (!isfinite(loss->loss_sum))
        return tti_fail(TUTTI_E_NUMERICS, "session: desc.loss set loss_sum to %g", loss->loss_sum);
    call->part = part;
    call->gives_outputs = false;
    call->keeps_feed = true;
    call->seeds = m->grads;
    call->count = loss->count;
    return TUTTI_OK;
}

/* The sums that the workers report are those of the seeds; the caller's take their place. */
static tutti_status run_with_loss(tutti_session *s, tti_step_call *call) {
    loss_memory m = {0};
    tutti_host_loss loss;
    tutti_status st = ask_for_loss(s, call, &m, &loss);
    if (st == TUTTI_OK) st = tti_session_run(s, step_worker, call);
    if (st == TUTTI_OK && !s->comm) {
        s->workers[0].result.loss_sum = loss.loss_sum;
        s->workers[0].result.count = loss.count;
    }
    free_loss_memory(s, &m);
    return st;
}

static tutti_status run_call(tutti_session *s, tti_step_call *call) {
    s->has_gradients = false;
    return s->loss ? run_with_loss(s, call) : tti_session_run(s, step_worker, call);
}

/* ---- public steps ---- */

tutti_status tti_step_prepare(tutti_session *s, const tutti_tensor *inputs, int n_inputs, double lr,
                              tti_step_call *call) {
    TTI_TRY(check_lr(s, lr, &call->lr));
    return prepare_call(s, inputs, n_inputs, call);
}

tutti_status tti_step_run(tutti_session *s, tti_step_call *call) {
    TTI_TRY(judge(s, run_call(s, call)));
    keep_grad_scale(s);
    s->step++;
    return TUTTI_OK;
}

static tutti_status step(tutti_session *s, const tutti_tensor *inputs, int n_inputs, double lr,
                         tutti_session_result *result) {
    tti_step_call call = {.part = TTI_STEP_WHOLE};
    TTI_TRY(tti_step_prepare(s, inputs, n_inputs, lr, &call));
    TTI_TRY(tti_step_run(s, &call));
    if (result) fill_result(s, call.n_rows, call.lr, result);
    return TUTTI_OK;
}

tutti_status tutti_session_step(tutti_session *s, const tutti_tensor *inputs, int n_inputs,
                                double lr, tutti_session_result *result) {
    tti_staged staged;
    TTI_TRY(tti_session_enter(s, __func__));
    tutti_status st = tti_feed_stage(s, inputs, n_inputs, &staged);
    if (st == TUTTI_OK) st = step(s, tti_feed_staged(&staged, inputs), n_inputs, lr, result);
    tti_feed_unstage(&staged);
    return tti_session_leave(s, st);
}

static tutti_status check_parts(const tutti_session *s) {
    const tti_job_config *c = &s->b->config;
    if (tti_job_has_server(c) || tti_job_is_local(c))
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "session: with parallel.sync=%s no worker has the summed gradients; use "
                        "tutti_session_step, or parallel.sync=all-reduce",
                        c->parallel.sync);
    return TUTTI_OK;
}

static tutti_status gradients(tutti_session *s, const tutti_tensor *inputs, int n_inputs,
                              tutti_session_result *result) {
    tti_step_call call = {.part = TTI_STEP_GRADIENTS};
    TTI_TRY(check_parts(s));
    TTI_TRY(prepare_call(s, inputs, n_inputs, &call));
    TTI_TRY(run_call(s, &call));
    s->has_gradients = true;
    s->gradient_rows = call.n_rows;
    keep_grad_scale(s);
    if (result) fill_result(s, call.n_rows, 0, result);
    return TUTTI_OK;
}

tutti_status tutti_session_gradients(tutti_session *s, const tutti_tensor *inputs, int n_inputs,
                                     tutti_session_result *result) {
    tti_staged staged;
    TTI_TRY(tti_session_enter(s, __func__));
    tutti_status st = tti_feed_stage(s, inputs, n_inputs, &staged);
    if (st == TUTTI_OK) st = gradients(s, tti_feed_staged(&staged, inputs), n_inputs, result);
    tti_feed_unstage(&staged);
    return tti_session_leave(s, st);
}

/* ---- the second half ---- */

typedef struct apply_call {
    double lr;
    bool keeps_params; /* the caller has updated them */
} apply_call;

static tutti_status apply_worker(tti_session_worker *w, void *arg) {
    const apply_call *call = arg;
    if (call->keeps_params) TTI_TRY(tti_exec_broadcast_params(w->exec));
    return tti_exec_apply_gradients(w->exec, call->lr, call->keeps_params, &w->result);
}

static tutti_status need_gradients(const tutti_session *s, const char *who) {
    if (s->has_gradients) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID, "%s: there are no gradients; call tutti_session_gradients",
                    who);
}

static tutti_status apply(tutti_session *s, const apply_call *call, tutti_session_result *result) {
    tti_step_result before = s->workers[0].result;
    s->has_gradients = false;
    TTI_TRY(judge(s, tti_session_run(s, apply_worker, (void *)call)));
    s->step++;
    if (s->loss) {
        s->workers[0].result.loss_sum = before.loss_sum;
        s->workers[0].result.count = before.count;
    }
    if (result) fill_result(s, s->gradient_rows, call->lr, result);
    return TUTTI_OK;
}

tutti_status tutti_session_apply(tutti_session *s, double lr, tutti_session_result *result) {
    apply_call call = {0};
    TTI_TRY(tti_session_enter(s, __func__));
    tutti_status st = need_gradients(s, __func__);
    if (st == TUTTI_OK) st = check_lr(s, lr, &call.lr);
    if (st == TUTTI_OK) st = apply(s, &call, result);
    return tti_session_leave(s, st);
}

typedef struct flat_call {
    float *grads; /* of worker 0 */
} flat_call;

static tutti_status flat_worker(tti_session_worker *w, void *arg) {
    flat_call *call = arg;
    float *grads;
    TTI_TRY(tti_exec_whole_gradients(w->exec, &grads));
    TTI_TRY(tti_exec_pull_params(w->exec));
    if (w == &w->session->workers[0]) call->grads = grads;
    return TUTTI_OK;
}

static tutti_status check_flat(const tutti_session *s) {
    const tti_job_config *c = &s->b->config;
    if (c->parallel.zero == 0 && s->b->n_model_ranks == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "tutti_session_flat: with parallel.%s no worker has all parameters; use "
                    "tutti_session_apply",
                    c->parallel.zero > 0 ? "zero" : "tensor or pipeline");
}

static tutti_status flat(tutti_session *s, tutti_flat_view *view) {
    flat_call call = {0};
    if (!view) return tti_fail(TUTTI_E_INVALID, "tutti_session_flat: view is NULL");
    TTI_TRY(need_gradients(s, "tutti_session_flat"));
    TTI_TRY(check_flat(s));
    TTI_TRY(tti_session_run(s, flat_worker, &call));
    *view = (tutti_flat_view){tti_exec_params(s->workers[0].exec), call.grads,
                              (int64_t)s->b->plan->n_flat};
    s->gives_flat = true;
    return TUTTI_OK;
}

tutti_status tutti_session_flat(tutti_session *s, tutti_flat_view *view) {
    TTI_TRY(tti_session_enter(s, __func__));
    return tti_session_leave(s, flat(s, view));
}

tutti_status tutti_session_apply_flat(tutti_session *s, tutti_session_result *result) {
    const apply_call call = {.keeps_params = true};
    TTI_TRY(tti_session_enter(s, __func__));
    tutti_status st = need_gradients(s, __func__);
    if (st == TUTTI_OK && !s->has_flat)
        st = tti_fail(TUTTI_E_INVALID,
                      "%s: call tutti_session_flat, change the parameters of its view, and make no "
                      "other call in between",
                      __func__);
    if (st == TUTTI_OK) st = apply(s, &call, result);
    return tti_session_leave(s, st);
}

/* ---- evaluation ---- */

static tutti_status evaluate_worker(tti_session_worker *w, void *arg) {
    int64_t *n_rows = arg;
    tti_evaluation e = {.b = w->b,
                        .exec = w->exec,
                        .server = w->server,
                        .comm = w->comm,
                        .phases = &w->phases,
                        .shards = w->shards,
                        .step = (uint64_t)w->session->step};
    tti_phases_begin(&w->phases, "evaluating");
    TTI_TRY(tti_evaluation_run(&e));
    w->result = e.sums.all;
    if (w == &w->session->workers[0]) {
        *n_rows = e.sums.n_rows;
        tti_metric_set_destroy(w->session->evaluated);
        w->session->evaluated = e.sums.metrics;
    } else {
        tti_metric_set_destroy(e.sums.metrics);
    }
    return tti_phases_end(&w->phases);
}

static tutti_status evaluate(tutti_session *s, tutti_session_result *result) {
    int64_t n_rows = 0;
    if (!result) return tti_fail(TUTTI_E_INVALID, "tutti_session_evaluate: result is NULL");
    if (!s->has_data || s->loss)
        return tti_fail(
            TUTTI_E_INVALID,
            "tutti_session_evaluate: the session has no data of a job, or a loss of the "
            "caller; use tutti_session_forward");
    s->has_gradients = false;
    TTI_TRY(tti_session_run(s, evaluate_worker, &n_rows));
    s->grad_scale = 0;
    fill_result(s, n_rows, 0, result);
    result->step = 0;
    result->params_hash = 0;
    int n_metrics = 0;
    result->metrics = NULL;
    if (s->evaluated) TTI_TRY(tti_metric_set_finish(s->evaluated, &result->metrics, &n_metrics));
    result->n_metrics = n_metrics;
    return TUTTI_OK;
}

tutti_status tutti_session_evaluate(tutti_session *s, tutti_session_result *result) {
    TTI_TRY(tti_session_enter(s, __func__));
    return tti_session_leave(s, evaluate(s, result));
}

tutti_status tutti_session_set_step(tutti_session *s, int64_t step) {
    TTI_TRY(tti_session_enter(s, __func__));
    tutti_status st =
        step >= 0 && step <= most_steps
            ? TUTTI_OK
            : tti_fail(TUTTI_E_INVALID, "tutti_session_set_step: step is %lld, not 0 .. %lld",
                       (long long)step, (long long)most_steps);
    if (st == TUTTI_OK) {
        s->step = step;
        s->has_gradients = false;
    }
    return tti_session_leave(s, st);
}
