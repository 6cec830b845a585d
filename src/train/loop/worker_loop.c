/* worker_loop.c - the loop of one worker: prepares, resumes, trains, evaluates and saves. */
#include "train/loop/worker_loop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "ckpt/ckpt.h"
#include "data/loader/resident.h"
#include "exec/exec.h"
#include "launch/stop.h"
#include "launch/supervised.h"
#include "train/job/lr_schedule.h"
#include "train/job/numerics.h"
#include "train/loop/arrivals.h"
#include "train/loop/async.h"
#include "train/loop/averaging.h"
#include "train/loop/balance.h"
#include "train/loop/callbacks.h"
#include "train/loop/corruption.h"
#include "train/loop/evaluation.h"
#include "train/loop/idle_devices.h"
#include "train/loop/kept_samples.h"
#include "train/loop/lost_device.h"
#include "train/loop/mirror.h"
#include "train/loop/phases.h"
#include "train/loop/placement.h"
#include "train/loop/snapshot.h"
#include "train/report/reporter.h"
#include "train/report/slowest.h"
#include "train/report/times.h"
#include "train/setup/feeding.h"
#include "train/setup/pretrained.h"
#include "train/setup/worker_exec.h"

/* Values of a step in flight that are needed when it ends. */
typedef struct step_at_work {
    tti_batch batch; /* its data is already released */
    double lr;
    int64_t start_ns;
} step_at_work;

typedef struct worker_loop {
    const tti_worker_loop_desc *desc;
    const tti_blueprint *b;
    const tti_job_config *c;
    tti_mesh mesh;       /* used if workers divide the model */
    tti_balance balance; /* the shard map */
    tti_exec *exec;
    tti_loader *loader;
    tti_shard_data *shards; /* [this worker's shards] */
    tti_loader_desc order;  /* order of the training batches */
    int32_t *index;         /* [shards][rows] of resident samples; then there is no loader */
    tti_reporter reporter;  /* inactive on ranks other than 0 */
    tti_run_state state;    /* state of the run, including the parts before a resume */
    int64_t saved_step;     /* step of the newest checkpoint, -1: none */
    int n_failed_saves;     /* failed saves in a row */
    int64_t n_skipped;      /* updates skipped under train.on_nan=skip, in this part of the run */
    int64_t n_left_out; /* asynchronous: skipped updates of all workers, including those caused by a
                           loss scale */
    tti_times times;
    bool times_are_due;
    tti_slowest slowest;
    int64_t data_ns, exec_ns;            /* this step: waiting for a batch; in the executor */
    bool is_scaled;                      /* gradients are multiplied by a loss scale */
    step_at_work at_work[TTI_MAX_AHEAD]; /* indexed by step: steps in flight */
    int64_t n_begun;                     /* number of steps begun; state.step of them have ended */
    int64_t at_step;                     /* the step that is being begun or ended */
    int stop_signal;
    bool has_state;  /* parameters and position are those of the run */
    bool stops;      /* a callback has requested the end */
    bool is_asked;   /* a worker has a request for on_request */
    bool has_paused; /* the loop has paused after this step for an evaluation or a checkpoint */
    bool has_lr;     /* a callback has set the learning rate below */
    double lr;
    int64_t eval_step; /* step of the last evaluation, -1: none */
    double eval_loss, eval_accuracy;
    tti_phases phases;
    tti_verify verify;
    int64_t last_end_ns;   /* end of the previous step */
    int64_t first_step_ns; /* end of the first step; 0: not yet */
    tti_step_result last;
    FILE *arrivals; /* used on rank 0 of an asynchronous run */
} worker_loop;

static bool is_alone(const worker_loop *s) {
    return !s->desc->comm || tutti_comm_n_ranks(s->desc->comm) == 1;
}

/* The rank with which this worker was started. */
static int slot_of(const worker_loop *s) {
    return s->desc->carry ? s->desc->carry->slot : s->desc->rank;
}

static bool is_async(const worker_loop *s) {
    return s->desc->server && tti_server_is_async(s->desc->server);
}

/* ---- preparation ---- */

static tutti_status make_loader(worker_loop *s) {
    tti_loader_desc desc = {.dataset = s->b->train,
                            .batch = s->c->train.batch,
                            .n_shards = s->b->n_shards,
                            .first_shard = tti_exec_first_shard(s->exec),
                            .last_shard = tti_exec_last_shard(s->exec),
                            .seed = (uint64_t)s->c->train.seed,
                            .epoch = s->state.step / s->b->steps_per_epoch,
                            .step = s->state.step % s->b->steps_per_epoch,
                            .n_threads = tti_count_loader_threads(s->desc, s->b->train),
                            .n_prefetch = (int)s->c->data.prefetch,
                            .timeout_ms = (int)s->c->parallel.phase_timeout_ms,
                            .on_wait = tti_phases_wait,
                            .user = &s->phases,
                            .flight = s->desc->flight,
                            .where = s->c->data.dir,
                            .mixup = s->c->data.mixup};
    s->order = desc;
    s->shards = calloc((size_t)(desc.last_shard - desc.first_shard), sizeof *s->shards);
    if (!s->shards) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    tti_lasting_samples *lasting = tti_carry_samples(s->desc->carry, s->desc->device_place);
    TTI_TRY(tti_samples_keep(s->b, s->exec, &s->order, is_async(s), lasting, &s->index));
    if (s->index) {
        s->reporter.is_resident = true;
        s->reporter.n_launched = tti_exec_steps_per_launch(s->exec);
        return TUTTI_OK;
    }
    if (is_async(s)) { /* the batches of a worker are not known in advance */
        desc.n_threads = 0;
        desc.epoch = desc.step = 0;
    }
    TTI_TRY(tti_feeding_open(&desc, s->exec, &s->loader));
    tti_feeding_pin(s->loader, s->exec);
    return TUTTI_OK;
}

/* Looks for checkpoints.  A run that was killed before its first checkpoint starts again, with the
 * same bits. */
static tutti_status find_checkpoints(worker_loop *s, bool *any) {
    int64_t *steps;
    size_t n_steps;
    TTI_TRY(tti_ckpt_list(s->desc->run_dir, &steps, &n_steps));
    free(steps);
    *any = n_steps > 0;
    return *any
               ? TUTTI_OK
               : tti_reporter_warn(&s->reporter,
                                   "there is no checkpoint yet: the run starts from the beginning");
}

/* True if a checkpoint is due after n_steps steps. */
static bool save_is_due(const worker_loop *s, int64_t n_steps) {
    int64_t every = s->c->run.checkpoint_every;
    if (every > 0) return n_steps % every == 0;
    return every == 0 && n_steps % s->b->steps_per_epoch == 0;
}

static bool evaluation_is_due(const worker_loop *s, int64_t n_steps) {
    int64_t every = s->c->train.eval_every * s->b->steps_per_epoch;
    return every > 0 && n_steps % every == 0;
}

/* Loads the state that the workers of the previous epoch have in memory, if any has one. */
static tutti_status take_over(worker_loop *s, bool *any) {
    tti_carry *carry = s->desc->carry;
    *any = false;
    if (!carry || !carry->has_changed) return TUTTI_OK;
    (void)TTI_FAULT_AT("train.take_over", carry->slot, carry->at.state.step);
    if (carry->has_partitions) { /* records of the step in the mirror may be missing */
        carry->at = (tti_carry_position){0};
        if (carry->mirror) TTI_TRY(tti_mirror_load(carry, s->desc->comm, s->exec, &carry->at, any));
    } else {
        TTI_TRY(tti_carry_share(carry, s->desc->comm, s->exec, s->b->plan, any));
    }
    if (!*any) return TUTTI_OK;
    (void)TTI_FAULT_AT("train.taken_over", carry->slot, carry->at.state.step);
    s->has_state = true;
    s->state = carry->at.state;
    s->state.shard_map = NULL; /* belongs to the previous epoch */
    s->saved_step = carry->at.saved_step;
    s->eval_step = carry->at.eval_step;
    s->eval_loss = carry->at.eval_loss;
    s->eval_accuracy = carry->at.eval_accuracy;
    s->last = carry->at.last;
    return tti_exec_check_params(s->exec, (uint64_t)s->state.step);
}

static tti_carry_position position_of(const worker_loop *s) {
    tti_carry_position at = s->desc->carry->at; /* also has the evaluation and checkpoint steps */
    at.has = 1;
    at.state = s->state;
    at.eval_step = s->eval_step;
    at.saved_step = s->saved_step;
    at.eval_loss = s->eval_loss;
    at.eval_accuracy = s->eval_accuracy;
    return at;
}

static void note_result(const worker_loop *s, const step_at_work *at) {
    tti_carry *carry = s->desc->carry;
    carry->at.last = s->last;
    carry->at.lr = at->lr;
    carry->at.n_rows = at->batch.n_rows_global;
    carry->at.step_ns = tti_now_ns() - at->start_ns;
}

/* True if the records of the last committed step must be written again: the former rank 0 may not
 * have written them, or the evaluation after the step is repeated. */
static bool misses_record(const worker_loop *s) {
    const tti_carry *carry = s->desc->carry;
    int64_t step = s->state.step;
    if (!carry || !carry->at.has || step == 0) return false;
    return s->eval_step != step && s->saved_step != step &&
           (carry->recorded != step || evaluation_is_due(s, step));
}

static tutti_status record_last_step(worker_loop *s) {
    const tti_carry_position *at = &s->desc->carry->at;
    const tti_batch batch = {.n_rows_global = at->n_rows};
    (void)TTI_FAULT_AT("train.record_again", s->desc->carry->slot, s->state.step);
    s->reporter.mark_ns = tti_now_ns() - at->step_ns;
    TTI_TRY(tti_reporter_step(&s->reporter, s->state.step, at->lr, &s->last, &batch));
    if (s->desc->rank == 0) s->desc->carry->recorded = s->state.step;
    return TUTTI_OK;
}

static tutti_status resume(worker_loop *s) {
    bool any = false;
    TTI_TRY(take_over(s, &any));
    if (any) return TUTTI_OK;
    s->state = (tti_run_state){.plateau = tti_plateau_begin()};
    tti_numerics_loss_scale(s->c, &s->state.loss_scale);
    bool from_disk = s->desc->resume || (s->desc->carry && s->desc->carry->has_changed);
    if (from_disk) TTI_TRY(find_checkpoints(s, &any));
    if (!any) return tti_first_weights_load(s->b, s->exec);
    TTI_TRY(tti_snapshot_load(s->b, s->exec, s->desc->run_dir, &s->reporter, &s->state));
    s->saved_step = s->state.step;
    return tti_exec_check_params(s->exec, (uint64_t)s->state.step);
}

static tutti_status prepare(worker_loop *s) {
    const tti_worker_loop_desc *d = s->desc;
    bool divided = s->b->n_model_ranks > 0;
    char damaged[TTI_DAMAGED_TEXT];
    tti_find_damaged_cache(d, damaged);
    if (divided) TTI_TRY(tti_mesh_init(d->comm, &s->b->mesh, &s->mesh));
    tti_worker_desc worker = {.comm = is_async(s) ? NULL : d->comm,
                              .mesh = divided ? &s->mesh : NULL,
                              .rank = d->rank,
                              .local_rank = d->local_rank,
                              .device_place = d->device_place,
                              .local_n_ranks = d->local_n_ranks,
                              .serves_in_ranks = !d->server && tti_job_has_server(s->c),
                              .server = d->server,
                              .flight = d->flight,
                              .shared_params = d->shared_params};
    TTI_TRY(tti_balance_init(&s->balance, s->b, &worker, d->carry));
    worker.shard_map = s->reporter.shard_map = s->balance.shard_map;
    s->reporter.throughputs = &s->balance.throughputs;
    TTI_TRY(tti_worker_exec_create(s->b, &worker, &s->exec));
    if (d->carry && d->carry->mirror) TTI_TRY(tti_mirror_enter(d->carry, d->comm, s->exec));
    TTI_TRY(tti_report_places(&s->reporter, d));
    /* Loads model.init before the first record is written, so that a run that cannot begin leaves
     * no run folder. */
    bool again = d->resume || (d->carry && d->carry->has_changed);
    if (!again) TTI_TRY(resume(s));
    TTI_TRY(
        tti_reporter_open(&s->reporter, d->train, s->b, d->run_dir, d->given_dir, d->rank == 0));
    if (again) {
        TTI_TRY(resume(s));
        /* A worker may drop a written record and be lost before it has written it again. */
        bool misses = misses_record(s);
        if (d->carry && (misses || d->rank != 0)) d->carry->recorded = 0;
        TTI_TRY(tti_reporter_rewind(&s->reporter, s->state.step - misses));
    }
    s->has_state = true;
    TTI_TRY(make_loader(s));
    TTI_TRY(tti_verify_init(&s->verify, &s->phases, s->exec, &s->order));
    if (s->c->parallel.staleness != 0 && s->desc->server && d->rank == 0)
        TTI_TRY(tti_arrivals_open(s->b, d->run_dir, &s->arrivals));
    bool by_server = is_async(s) && tti_server_has_processes(d->server);
    int n_timed = by_server ? s->b->n_workers : d->comm ? tutti_comm_n_ranks(d->comm) : 1;
    bool for_all = s->balance.throughputs.n > 0; /* all workers gather their times */
    TTI_TRY(tti_times_init(&s->times, d->comm, n_timed, s->state.step, for_all));
    if (by_server) {
        s->times.exec = s->exec;
        s->times.rank = d->rank;
    }
    tti_slowest_init(&s->slowest, is_async(s) ? NULL : d->comm, s->exec, s->state.step);
    s->reporter.slowest = &s->slowest.finding;
    s->reporter.slowest_overall = &s->slowest.overall;
    tti_balance_begin(&s->balance, s->state.step);
    s->reporter.by_launcher = d->by_launcher;
    s->reporter.sums = tti_reductions_text(d, s->exec);
    s->reporter.expected_bubble = tti_exec_expected_bubble(s->exec);
    s->reporter.stages_busy = tti_exec_stages_busy(s->exec);
    /* After this, worker 0 has sent the loaded parameters to the server, and the others can
     * evaluate with them. */
    if (is_async(s)) TTI_TRY(tti_async_connect(s->exec, d->comm));
    TTI_TRY(tti_reporter_start(&s->reporter, tti_exec_memory_use(s->exec), s->state.step));
    if (misses_record(s)) TTI_TRY(record_last_step(s));
    bool goes_on = d->carry && d->carry->has_changed;
    if (d->train->resume && !goes_on)
        TTI_TRY(tti_reporter_nothing_to_train(&s->reporter, s->state.step));
    return goes_on ? TUTTI_OK : tti_warn_of_placement(&s->reporter, d, damaged);
}

/* ---- evaluation ---- */

static tutti_status evaluate(worker_loop *s) {
    tti_evaluation e = {.b = s->b,
                        .exec = s->exec,
                        .server = s->desc->server,
                        .comm = s->desc->comm,
                        .phases = &s->phases,
                        .shards = s->shards,
                        .step = (uint64_t)s->state.step};
    tti_phases_begin(&s->phases, "evaluating");
    TTI_TRY(tti_evaluation_run(&e));
    (void)TTI_FAULT_AT("train.evaluated", slot_of(s), s->state.step);
    tutti_status st = tti_phases_end(&s->phases);
    double loss = e.sums.all.count > 0 ? e.sums.all.loss_sum / e.sums.all.count : 0;
    bool counts = s->b->has_accuracy && e.sums.all.count > 0;
    if (st == TUTTI_OK) st = tti_reporter_eval(&s->reporter, s->state.step, &e.sums);
    tti_metric_set_destroy(e.sums.metrics);
    TTI_TRY(st);
    if (s->desc->carry) { /* the evaluation counts only once rank 0 has recorded it; until then a
                             change of members repeats it */
        tti_phases_wait_for_peers(&s->phases, "end of evaluation");
        TTI_TRY(tti_phases_end_wait(&s->phases, tutti_comm_barrier(s->desc->comm)));
    }
    tti_plateau_desc plateau = tti_plateau_desc_of(s->c);
    tti_plateau_update(&plateau, &s->state.plateau, loss);
    s->eval_step = s->state.step;
    s->eval_loss = loss;
    s->eval_accuracy = counts ? e.sums.all.correct / e.sums.all.count : NAN;
    return TUTTI_OK;
}

/* ---- checkpoints ---- */

/* Ends tti_exec_serve of the other ranks, which wait for this even if saving failed.  Keeps the
 * error text of saving. */
static tutti_status end_serve(worker_loop *s, tutti_status saved) {
    char text[2048];
    snprintf(text, sizeof text, "%s", saved == TUTTI_OK ? "" : tutti_last_error());
    TTI_TRY(tti_exec_serve_end(s->exec));
    TTI_TRY(tti_phases_end(&s->phases));
    return saved == TUTTI_OK ? saved : tti_fail(saved, "%s", text);
}

enum { MAX_FAILED_SAVES = 3 };

/* Handles a failed save.  The run continues, because the previous checkpoint still exists, but only
 * for a few failures in a row: a crash would lose everything trained since.  The final save must
 * succeed, and saving non-finite parameters always fails. */
static tutti_status end_failed_save(worker_loop *s, tutti_status st) {
    char text[2048];
    bool is_final = s->state.step >= s->b->n_steps || s->stop_signal || s->stops;
    if (is_final || st == TUTTI_E_NUMERICS) return st;
    snprintf(text, sizeof text, "%s", tutti_last_error());
    TTI_TRY(tti_reporter_check_folder(&s->reporter));
    if (++s->n_failed_saves == MAX_FAILED_SAVES)
        return tti_fail(TUTTI_E_CHECKPOINT,
                        "%d checkpoints in a row could not be saved; the run ends, because it "
                        "could not be resumed from here: %s",
                        MAX_FAILED_SAVES, text);
    return tti_reporter_warn(&s->reporter, text);
}

static tutti_status save_now(worker_loop *s) {
    s->saved_step = s->state.step;
    TTI_TRY(tti_exec_check_params(s->exec, (uint64_t)s->state.step));
    (void)TTI_FAULT_AT("train.save", slot_of(s), s->state.step);
    if (s->desc->rank != 0) {
        tti_phases_wait_for_peers(&s->phases, "serve state");
        TTI_TRY(tti_phases_end_wait(&s->phases, tti_exec_serve(s->exec)));
        return tti_phases_end(&s->phases);
    }
    int64_t start = tti_now_ns();
    tti_phases_begin(&s->phases, "saving a checkpoint");
    s->state.shard_map = s->balance.shard_map;
    tutti_status st = tti_model_copy_wait(s->desc->model_copy);
    tti_flight_begin(s->desc->flight, TTI_THREAD_MAIN,
                     &(tti_flight_op){.name = "write files", .step = (uint64_t)s->state.step});
    if (st == TUTTI_OK)
        st = tti_snapshot_save(s->b, s->exec, s->desc->run_dir, s->desc->job_yaml, &s->state);
    tti_flight_end(s->desc->flight, TTI_THREAD_MAIN);
    st = end_serve(s, st);
    tti_reporter_pause(&s->reporter, tti_now_ns() - start);
    if (st == TUTTI_OK) {
        s->n_failed_saves = 0;
        tti_worker_report_step((uint64_t)s->state.step);
        return tti_reporter_checkpoint(&s->reporter, s->state.step);
    }
    return end_failed_save(s, st);
}

static tutti_status save(worker_loop *s) {
    int64_t before = s->saved_step;
    if (before == s->state.step) return TUTTI_OK;
    tutti_status st = save_now(s);
    if (st == TUTTI_E_PEER)
        s->saved_step = before; /* the next epoch of an elastic run saves again */
    return st;
}

/* ---- the loop ---- */

static double lr_of(const worker_loop *s, int64_t step) {
    if (s->has_lr) return s->lr;
    tti_lr_desc desc = tti_lr_desc_of(s->c, s->b->schedule_steps, s->b->steps_per_epoch);
    desc.plateau = &s->state.plateau;
    return tti_lr(&desc, step);
}

/* Handles a step whose loss or gradient was not finite.  If a dynamic loss scale may be the cause,
 * only the scale changes. */
static tutti_status handle_nonfinite(worker_loop *s, tutti_status st) {
    bool skipped = st == TUTTI_E_NUMERICS && s->last.skipped;
    bool is_reported = st == TUTTI_OK || skipped, overflow = false;
    if (s->is_scaled && is_reported)
        overflow = tti_loss_scale_handles(&s->state.loss_scale, skipped);
    if (st == TUTTI_OK || overflow) return TUTTI_OK;
    if (!skipped || strcmp(s->c->train.on_nan, "skip") != 0) return st;
    /* end_skips reports the total */
    return tti_reporter_skip(&s->reporter, &s->n_skipped, tutti_last_error());
}

static tutti_status end_skips(worker_loop *s) {
    char text[160];
    if (s->n_skipped < 2) return TUTTI_OK;
    snprintf(text, sizeof text,
             "train.on_nan=skip skipped %lld steps; the warnings name only some of them",
             (long long)s->n_skipped);
    return tti_reporter_warn(&s->reporter, text);
}

static tutti_status report_times(worker_loop *s) {
    TTI_TRY(tti_times_gather(&s->times));
    return tti_reporter_times(&s->reporter, s->state.step, &s->times);
}

static bool is_trial(const worker_loop *s) { return s->desc->train->trial_ms > 0; }

/* Only rank 0 decides, so that all workers stop at the same step. */
static bool trial_is_over(const worker_loop *s) {
    if (!is_trial(s) || s->desc->rank != 0 || s->first_step_ns == 0) return false;
    return tti_now_ns() - s->first_step_ns >= s->desc->train->trial_ms * TTI_NS_PER_MS;
}

static bool wants_stop(void *user) { return tti_stop_requested() || trial_is_over(user); }

/* True if a checkpoint, an evaluation or an average reads the parameters after n_steps steps. */
static bool reads_params(const worker_loop *s, int64_t n_steps) {
    return save_is_due(s, n_steps) || evaluation_is_due(s, n_steps) ||
           n_steps % TTI_REREAD_EVERY == 0 || n_steps >= s->b->n_steps;
}

/* True if the next step may begin before the current one has ended, because nothing depends on its
 * result.  Equal on all workers; therefore they stop at an agreed step and not when they receive a
 * signal. */
static bool may_go_ahead(const worker_loop *s) {
    int64_t n = s->n_begun - s->state.step;
    if (n == 0) return true;
    if (s->desc->carry) return false; /* the host must know the last completed step */
    bool free = !s->is_scaled && strcmp(s->c->train.on_nan, "stop") == 0 && !s->stop_signal &&
                !s->is_asked && !tti_callbacks_follow_steps(s->desc->train);
    return n < tti_exec_depth(s->exec) && free && !reads_params(s, s->n_begun) &&
           !tti_balance_may_change(&s->balance, s->exec, s->n_begun) &&
           !(is_alone(s) && tti_stop_requested()) && !is_trial(s);
}

static tutti_status begin_step(worker_loop *s) {
    step_at_work *at = &s->at_work[s->n_begun % TTI_MAX_AHEAD];
    s->at_step = s->n_begun;
    at->start_ns = tti_now_ns();
    at->lr = lr_of(s, s->n_begun);
    s->phases.step = s->n_begun;
    if (s->index) tti_resident_batch(&s->order, s->n_begun, &at->batch, s->index);
    TTI_TRY(tti_phases_next_batch(&s->phases, s->loader, &at->batch));
    int first = tti_exec_first_shard(s->exec);
    for (int i = 0; i < at->batch.n_shards; i++) s->shards[i] = tti_shard_of(&at->batch, i, first);
    tti_step_desc desc = {.step = (uint64_t)s->n_begun,
                          .lr = at->lr,
                          .shards = s->shards,
                          .index = s->index,
                          .shard_size = s->b->rows_per_shard,
                          .n_rows = at->batch.n_rows_global,
                          .loss_scale = s->is_scaled ? s->state.loss_scale.scale : 1,
                          .stop_on_bad = !s->is_scaled && strcmp(s->c->train.on_nan, "stop") == 0,
                          .vote = wants_stop(s) || tti_callbacks_requested(s->desc->train)};
    desc.average = tti_averaging_is_due(s->b, s->n_begun + 1, &desc.average_state);
    tti_feeding_describe(s->loader, &desc);
    int64_t has_batch_ns = tti_now_ns();
    s->data_ns += has_batch_ns - at->start_ns;
    bool verifies = tti_verify_is_due(s->c, s->n_begun);
    TTI_TRY(verifies ? tti_verify_begin(&s->verify, &desc, &s->last)
                     : tti_exec_begin(s->exec, &desc));
    s->exec_ns += tti_now_ns() - has_batch_ns;
    s->n_begun++;
    return TUTTI_OK;
}

/* ---- changes of throughput ---- */

static tutti_status rebalance(worker_loop *s) {
    TTI_ASSERT(s->n_begun == s->state.step);
    (void)TTI_FAULT_AT("train.rebalance", s->desc->rank, s->state.step);
    TTI_TRY(tti_exec_rebalance(s->exec, s->balance.shard_map));
    if (s->loader) tti_feeding_unpin(s->loader, s->exec);
    tti_loader_destroy(s->loader);
    free(s->shards);
    free(s->index);
    s->loader = NULL;
    s->shards = NULL;
    s->index = NULL;
    TTI_TRY(make_loader(s));
    s->reporter.sums = tti_reductions_text(s->desc, s->exec);
    return tti_reporter_shares(&s->reporter, s->state.step);
}

/* Looks for the slowest worker after a step in which workers have waited for each other. */
static tutti_status look_for_slowest(worker_loop *s, int64_t start_ns) {
    tti_slowest_add(&s->slowest, s->data_ns, s->exec_ns, tti_now_ns() - start_ns);
    if (s->last.partial || !tti_slowest_is_due(&s->slowest, s->state.step)) return TUTTI_OK;
    tti_phases_wait_for_peers(&s->phases, "gather times");
    return tti_phases_end_wait(&s->phases, tti_slowest_gather(&s->slowest, s->state.step));
}

/* Begins as many steps as may be in flight.  A single worker without a step in flight can stop at
 * once, with a checkpoint. */
static tutti_status begin_steps(worker_loop *s) {
    if (s->n_begun < s->state.step) s->n_begun = s->state.step; /* resumed */
    tutti_status st = TUTTI_OK;
    while (st == TUTTI_OK && may_go_ahead(s)) st = begin_step(s);
    if (!s->phases.gave_up || !is_alone(s) || s->n_begun > s->state.step) return st;
    tti_clear_error();
    s->stop_signal = tti_stop_signal();
    return TUTTI_OK;
}

static tutti_status write_metrics(worker_loop *s, const step_at_work *at) {
    tti_flight *flight = s->desc->flight;
    tti_phases_note(&s->phases, s->state.step, "write metrics");
    tti_flight_begin(flight, TTI_THREAD_MAIN,
                     &(tti_flight_op){.name = "write metrics", .step = (uint64_t)s->state.step});
    (void)TTI_FAULT_AT("train.metrics", s->desc->rank, s->state.step);
    tutti_status st = tti_reporter_step(&s->reporter, s->state.step, at->lr, &s->last, &at->batch);
    tti_flight_end(flight, TTI_THREAD_MAIN);
    return st;
}

static tutti_status note_commit(const worker_loop *s, const step_at_work *at) {
    tti_carry *carry = s->desc->carry;
    note_result(s, at);
    if (!carry->mirror) return TUTTI_OK;
    const tti_carry_position position = position_of(s);
    return tti_mirror_put(carry, s->desc->comm, s->exec, &position);
}

static void note_position(const worker_loop *s) {
    if (!s->desc->carry || !s->desc->carry->mirror || s->desc->rank != 0) return;
    const tti_carry_position position = position_of(s);
    tti_mirror_note(s->desc->carry->mirror, &position);
}

static tutti_status one_step(worker_loop *s) {
    int64_t start_ns = tti_now_ns();
    s->data_ns = s->exec_ns = 0;
    if (s->desc->carry) TTI_TRY(tti_comm_check_reported(s->desc->comm));
    if (TTI_FAULT_AT("train.other_call", s->desc->rank, s->state.step))
        TTI_TRY(tutti_comm_barrier(s->desc->comm));
    TTI_TRY(begin_steps(s));
    if (s->n_begun == s->state.step) return TUTTI_OK; /* stop before another step */
    step_at_work *at = &s->at_work[s->state.step % TTI_MAX_AHEAD];
    s->at_step = s->state.step;
    int64_t begun_ns = tti_now_ns();
    tutti_status st = tti_verify_is_due(s->c, s->state.step)
                          ? tti_verify_end(&s->verify, at->lr, &s->last)
                          : tti_exec_end(s->exec, &s->last);
    s->exec_ns += tti_now_ns() - begun_ns;
    TTI_TRY(handle_nonfinite(s, st));
    s->state.step++;
    if (s->desc->carry) TTI_TRY(note_commit(s, at));
    if (s->first_step_ns == 0) s->first_step_ns = tti_now_ns();
    TTI_TRY(tti_verify_reread(&s->verify, s->state.step, &s->last));
    /* Votes request a stop, unless the program has on_request, which may request something else. */
    s->is_asked |= s->last.n_votes > 0;
    if (s->is_asked && !s->desc->train->on_request) s->stop_signal = tti_stop_signal_of_any();
    TTI_TRY(write_metrics(s, at));
    if (s->desc->carry && s->desc->rank == 0) s->desc->carry->recorded = s->state.step;
    int64_t since = TTI_MAX(at->start_ns, s->last_end_ns);
    s->last_end_ns = tti_now_ns();
    tti_flight_commit(s->desc->flight, (uint64_t)s->state.step, s->last_end_ns - since);
    tti_times_add(&s->times, &s->last, at->batch.wait_ns, s->last_end_ns - since);
    bool is_last = s->state.step >= s->b->n_steps || s->stop_signal;
    TTI_TRY(look_for_slowest(s, start_ns));
    /* If workers do not communicate in this step, they do not wait for each other either. */
    s->times_are_due |= is_last || tti_times_is_due(&s->times, s->state.step);
    if (!s->times_are_due || s->last.partial) return TUTTI_OK;
    s->times_are_due = false;
    tti_phases_wait_for_peers(&s->phases, "gather times");
    TTI_TRY(tti_phases_end_wait(&s->phases, report_times(s)));
    if (is_last) return TUTTI_OK;
    bool changes;
    TTI_TRY(tti_balance_follow(&s->balance, s->exec, &s->times, s->state.step, &changes));
    return changes ? rebalance(s) : TUTTI_OK;
}

static double lr_at(void *user, int64_t step) { return lr_of(user, step); }

/* Trains to the next checkpoint, evaluation or the end. */
static tutti_status async_stretch(worker_loop *s) {
    bool stopped;
    tti_async_desc desc = {.b = s->b,
                           .exec = s->exec,
                           .comm = s->desc->comm,
                           .loader = s->loader,
                           .phases = &s->phases,
                           .shards = s->shards,
                           .reporter = &s->reporter,
                           .times = &s->times,
                           .arrivals = s->arrivals,
                           .scale = s->is_scaled ? &s->state.loss_scale : NULL,
                           .n_skipped = &s->n_skipped,
                           .n_left_out = &s->n_left_out,
                           .wants_stop = wants_stop,
                           .lr = lr_at,
                           .user = s};
    if (s->first_step_ns == 0) s->first_step_ns = tti_now_ns();
    s->at_step = s->state.step;
    TTI_TRY(tti_async_run(&desc, &s->state.step, &stopped));
    if (stopped) s->stop_signal = tti_stop_signal_of_any();
    return report_times(s);
}

/* Evaluates, saves or reports after a step, if due. */
static tutti_status between_steps(worker_loop *s) {
    int64_t step = s->state.step;
    bool evaluates = evaluation_is_due(s, step) && s->eval_step != step;
    bool saves = save_is_due(s, step) && s->saved_step != step;
    tti_exec_spent at;
    s->has_paused = s->state.step < s->b->n_steps && !is_trial(s) && (evaluates || saves);
    if (!s->has_paused) return TUTTI_OK;
    TTI_TRY(tti_slowest_pause(&s->slowest, &at));
    if (evaluates) TTI_TRY(evaluate(s));
    if (saves) TTI_TRY(save(s));
    note_position(s);
    return tti_slowest_go_on(&s->slowest, &at);
}

/* ---- callbacks of the program ---- */

static tutti_train_progress progress_of(const worker_loop *s, tti_step_metrics *own) {
    const tti_step_result *r = &s->last;
    int64_t done = TTI_MAX(s->state.step, 1) - 1;
    bool counts = s->b->has_accuracy && r->count > 0;
    tti_step_metrics_init(own, s->b->plan);
    tti_step_metrics_set(own, r);
    return (tutti_train_progress){.step = s->state.step,
                                  .n_steps = s->b->n_steps,
                                  .epoch = done / s->b->steps_per_epoch,
                                  .steps_per_epoch = s->b->steps_per_epoch,
                                  .loss = r->count > 0 ? r->loss_sum / r->count : NAN,
                                  .accuracy = counts ? r->correct / r->count : NAN,
                                  .lr = s->at_work[done % TTI_MAX_AHEAD].lr,
                                  .n_metrics = own->n,
                                  .metrics = own->list,
                                  .has_eval = s->eval_step == s->state.step,
                                  .eval_loss = s->eval_loss,
                                  .eval_accuracy = s->eval_accuracy};
}

static tutti_status consult(worker_loop *s, tutti_train_fn fn) {
    tti_step_metrics own;
    const tutti_train_progress progress = progress_of(s, &own);
    tutti_train_control control;
    bool stops = fn && wants_stop(s);
    TTI_TRY(tti_callbacks_consult(&s->phases, fn, &progress, &stops, &control));
    if (control.set_lr) s->has_lr = true, s->lr = control.lr;
    s->stops |= control.stop;
    if (stops) s->stop_signal = tti_stop_signal_of_any();
    return control.save ? save(s) : TUTTI_OK;
}

static tutti_status call_back(worker_loop *s, int64_t before) {
    if (s->state.step == before) return TUTTI_OK;
    TTI_TRY(consult(s, s->desc->train->on_step));
    bool is_end = s->state.step % s->b->steps_per_epoch == 0 || s->state.step >= s->b->n_steps;
    if (is_end) TTI_TRY(consult(s, s->desc->train->on_epoch));
    if (!(s->is_asked || s->has_paused) || s->n_begun > s->state.step) return TUTTI_OK;
    s->is_asked = false;
    return consult(s, s->desc->train->on_request);
}

static tutti_status train(worker_loop *s) {
    TTI_TRY(tti_callbacks_check(s->desc->train, is_async(s)));
    if (s->desc->carry && s->desc->carry->at.has && s->state.step > 0) TTI_TRY(between_steps(s));
    while ((s->state.step < s->b->n_steps && !s->stop_signal && !s->stops) ||
           s->n_begun > s->state.step) {
        int64_t before = s->state.step;
        TTI_TRY(is_async(s) ? async_stretch(s) : one_step(s));
        TTI_TRY(between_steps(s));
        TTI_TRY(call_back(s, before));
    }
    if (is_trial(s) || s->desc->train->keeps_nothing) return TUTTI_OK;
    TTI_TRY(save(s));
    return s->stop_signal ? TUTTI_OK : evaluate(s);
}

static tutti_status finish(worker_loop *s, tutti_train_result *result) {
    TTI_TRY(tti_report_memory(s->desc, s->exec, result));
    TTI_TRY(tti_exec_check_params(s->exec, (uint64_t)s->state.step));
    TTI_TRY(end_skips(s));
    uint64_t hash;
    TTI_TRY(tti_exec_whole_hash(s->exec, &hash));
    if (s->desc->rank == 0) result->stopped_early = s->stops && s->state.step < s->b->n_steps;
    /* On several hosts each supervisor exits with the code of a stopped run. */
    bool is_first = s->desc->carry && s->desc->carry->epoch > 0 && s->desc->local_rank == 0;
    if (is_first) result->stop_signal = s->stop_signal;
    TTI_TRY(tti_advise_load_weights(&s->reporter, s->desc, &s->slowest, s->balance.shard_map));
    return tti_reporter_end(&s->reporter, s->state.step, hash, s->stop_signal, result);
}

/* Ends a step that a device may have completed although the host has not ended it. */
static tutti_status salvage_step(worker_loop *s) {
    bool ended;
    tti_step_result result;
    tutti_status st = tti_exec_salvage(s->exec, &result, &ended);
    if (!ended || s->desc->carry->has_partitions)
        return st; /* partitions are restored from the mirror */
    s->last = result;
    TTI_TRY(handle_nonfinite(s, st));
    note_result(s, &s->at_work[s->state.step % TTI_MAX_AHEAD]);
    s->state.step++;
    return TUTTI_OK;
}

static tutti_status keep_state(worker_loop *s) {
    tti_carry *carry = s->desc->carry;
    carry->has_changed = true;
    if (!s->has_state) return TUTTI_OK;
    TTI_TRY(salvage_step(s));
    carry->at = position_of(s);
    if (!carry->has_partitions) TTI_TRY(tti_carry_keep(carry, s->exec, s->b->plan));
    if (s->b->devices.n > 0) tti_idle_devices_wait(s->desc->comm, s->state.step);
    return TUTTI_OK;
}

tutti_status tti_worker_loop_run(const tti_worker_loop_desc *desc, tutti_train_result *result) {
    worker_loop s = {.desc = desc,
                     .b = desc->blueprint,
                     .c = &desc->blueprint->config,
                     .saved_step = -1,
                     .eval_step = -1};
    s.is_scaled = tti_blueprint_target(s.b).loss_scale;
    tti_reporter_init(&s.reporter, desc->start_ns);
    tti_phases_init(&s.phases, desc);
    tti_flight_enter(desc->flight, "loading the model");
    tti_comm_record(desc->comm, desc->flight);
    tti_flight_serve_stacks(desc->flight);
    tti_phases_begin(&s.phases, "loading the model");
    tutti_status st = prepare(&s);
    if (st == TUTTI_OK) st = tti_phases_end(&s.phases);
    if (st == TUTTI_OK && desc->carry) tti_worker_report_training();
    if (st == TUTTI_OK) st = train(&s);
    if (st == TUTTI_OK) st = finish(&s, result);
    if (st != TUTTI_OK && tti_async_leaves(s.exec, st)) {
        tti_clear_error(); /* worker 0 has reported this failure, so the others ignore it */
        st = TUTTI_OK;
    }
    bool goes_on = st == TUTTI_E_PEER && desc->carry;
    if (goes_on && keep_state(&s) != TUTTI_OK) goes_on = false;
    if (st != TUTTI_OK && s.phases.gave_up) result->exit_code = 128 + tti_stop_signal();
    if (st != TUTTI_OK && !goes_on) {
        tti_worker_report_failure((uint64_t)s.at_step, tutti_last_error());
        if (!desc->carry) /* in an elastic run the others continue */
            tti_lost_device_advise(desc->run_dir, desc->given_dir, tti_job_is_exact(s.c),
                                   desc->rank == 0 ? -1 : s.saved_step, st);
        tti_reporter_failed(&s.reporter, s.state.step, st);
    }
    if (s.loader && s.exec) tti_feeding_unpin(s.loader, s.exec);
    tti_loader_destroy(s.loader);
    tti_exec_destroy(s.exec);
    tti_balance_fini(&s.balance);
    tti_slowest_fini(&s.slowest);
    tti_times_fini(&s.times);
    tti_mesh_fini(&s.mesh);
    tti_reporter_close(&s.reporter);
    tti_arrivals_close(s.arrivals);
    free(s.shards);
    free(s.index);
    tti_comm_record(desc->comm, NULL);
    tti_flight_leave(desc->flight);
    return st;
}
