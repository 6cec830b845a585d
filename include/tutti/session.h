/* session.h - a model on its workers, driven by the caller step by step, with tensors in and out.
 *
 * A session runs what a job describes: its model (tutti_job_set_model, model.name, model.file and
 * the like), its optimizer, and its layout (parallel.workers, zero, tensor, pipeline, devices).
 * The caller writes the loop: it feeds batches from its own memory, or lets the session read the
 * data of the job, and calls a step, or computes gradients and applies them.  docs/sessions.md has
 * programs.
 *
 * Rows:     Dimension 0 of every tensor is the batch.  A call takes 1 .. n_rows rows
 *           (tutti_session_info): the whole batch, whatever the number of workers.  If workers are
 *           processes (desc.comm), each process passes the rows of its own worker,
 *           first_row .. first_row + n_rows - 1; ranks that divide the model pass the same rows.
 *
 * Exact:    With parallel.mode=exact the parameters after a step have the bits of tutti_train on
 *           the same rows, for any number of workers.  A step with fewer than n_rows rows is the
 *           short last batch of an epoch.
 *
 * Errors:   A bad argument gives TUTTI_E_INVALID with a message that names it, and changes
 *           nothing.  After TUTTI_E_NUMERICS (a loss or gradient that is not finite) and a failure
 *           of desc.loss the parameters are unchanged and the session continues.  After the failure
 *           of a worker (TUTTI_E_PEER, TUTTI_E_TIMEOUT, TUTTI_E_NOMEM, TUTTI_E_DEVICE; TUTTI_E_DATA
 *           of the job's data) every later call except close and destroy fails with that message.
 *
 * Threads:  Calls of one session from several threads wait for each other.  Sessions are
 *           independent; those of one process share its cores or devices.  A callback must not
 *           call its own session.  After fork the child cannot use the session: calls return
 *           TUTTI_E_INVALID, close and destroy do nothing.
 *
 * Memory:   Tensors that are passed in are read or written before the call returns, and not kept:
 *           the caller may change or free them then, also after tutti_session_step_async.
 */
#ifndef TUTTI_SESSION_H
#define TUTTI_SESSION_H

#include "tutti/comm.h"
#include "tutti/eval.h"
#include "tutti/job.h"

typedef struct tutti_session tutti_session;

/* A tensor in the caller's memory: row-major, contiguous, aligned to its elements. */
typedef struct tutti_tensor {
    const char *name;
    tutti_type type; /* dtype and shape, with the rows */
    void *data;      /* only read where it is an input */
    int32_t device;  /* 0: host memory; k > 0: memory of CUDA device k - 1.  Work that fills it
                        must be complete.  Only of sessions whose workers compute on devices */
} tutti_tensor;

/* The loss of a batch, computed by the caller: outputs -> the sum of the losses of all rows, their
 * count, and d loss_sum / d outputs.  The gradient that is applied is that of loss_sum / count.
 *   outputs  [n_outputs], of the training graph, with n_rows rows each; read only
 *   inputs   [n_inputs], the rows that the session was given, in the order of desc.inputs
 *   grads    [n_outputs], of the outputs' shapes, f32, zeroed: to be filled
 * 0: success; any other value ends the call with TUTTI_E_DATA and nothing is changed.  Runs on the
 * thread that called the session. */
typedef struct tutti_host_loss {
    int64_t n_rows;
    int32_t n_outputs, n_inputs;
    const tutti_tensor *outputs;
    const tutti_tensor *inputs;
    const tutti_tensor *grads;
    double loss_sum, count; /* to be set; count > 0 */
} tutti_host_loss;
typedef int (*tutti_host_loss_fn)(void *user, tutti_host_loss *loss);

/* Zero is the default of every field. */
typedef struct tutti_session_desc {
    size_t size; /* sizeof(tutti_session_desc), for callers of other versions; 0: this one */
    /* The inputs of the model: name and type of one row, without the batch dimension; f32 or i32.
     * With n_classes they are "x" and the labels "y" (i32), as of a data set of classes or tokens;
     * else they are fields that the model finds by name (tutti_find_field), and train.loss reads
     * the target "y" (data.label).  NULL: those of the job's data, which the session then opens;
     * or, with run_dir, those of the run.  Copied. */
    const tutti_field *inputs;
    int32_t n_inputs;
    int64_t n_classes; /* labels are below it; 0: inputs are fields */
    /* A run folder: inputs as its data.json says, parameters of its newest checkpoint.  The job is
     * that of tutti_job_load_run.  NULL: none. */
    const char *run_dir;
    /* A rank of a process group, from tutti_worker_join; borrowed until the session is closed.
     * Every rank makes the same calls.  NULL: workers are threads of this process. */
    tutti_comm *comm;
    tutti_host_loss_fn loss; /* computes the loss instead of train.loss; NULL: the graph does */
    void *loss_user;
} tutti_session_desc;

/* The facts of an open session. */
typedef struct tutti_session_info {
    int32_t n_workers, n_shards;
    int64_t batch;           /* train.batch, rows of a step over all processes */
    int64_t n_rows;          /* rows of this process: the most that a call takes */
    int64_t first_row;       /* index of its first row in the batch; 0 without desc.comm */
    int64_t step;            /* updates so far, those of steps in flight included */
    int64_t steps_per_epoch; /* of the job's data; 0: the session has none */
    int64_t n_elems;         /* elements of all trained parameters and buffers together */
    int32_t n_inputs, n_outputs, n_parameters, n_states; /* n_states: arrays of the optimizer */
    bool has_average;                                    /* train.ema */
    bool is_open;
} tutti_session_info;

/* Results of asynchronous steps that a session keeps: those of the last so many. */
#define TUTTI_SESSION_N_RESULTS 256

/* The result of a step, over the rows of all workers. */
typedef struct tutti_session_result {
    int64_t step;           /* updates after this call */
    int64_t n_rows;         /* rows of the batch, of all processes */
    double loss_sum, count; /* the mean loss is loss_sum / count */
    double correct;         /* correct predictions; NAN: the loss counts none */
    /* A step has the model's own metrics (model.metrics, tutti_add_metric); an evaluation also has
     * those of train.metrics. */
    int64_t n_metrics;
    const tutti_metric_result *metrics; /* [n_metrics]; borrowed until the next call */
    double lr;                          /* that was applied; 0: no update */
    double grad_norm;     /* of the mean gradient; 0 unless train.clip_norm or the like needs it */
    double grad_scale;    /* mean gradient = grad_scale x the gradients of tutti_session_flat */
    uint64_t params_hash; /* after the update; 0: no update */
    bool skipped; /* a dynamic loss scale (train.precision=f16) was too high: no update, and the
                     scale is halved */
} tutti_session_result;

/* Arrays that have a row for each parameter. */
typedef enum tutti_array_kind {
    TUTTI_PARAMETER, /* parameters and buffers */
    TUTTI_GRADIENT,  /* mean gradients after tutti_session_gradients; read only.  Forward,
                        evaluation,  writing, saving, and with parallel.zero reading of other kinds,
                        discard them */
    TUTTI_STATE,     /* of the optimizer: "NAME.STATE", such as "fc1.weight.exp_avg" */
    TUTTI_AVERAGE,   /* averaged parameters (train.ema) */
    TUTTI_N_ARRAY_KINDS
} tutti_array_kind;

/* All parameters and all gradients as two arrays with the same offsets; padding elements are 0. */
typedef struct tutti_flat_view {
    float *params;      /* [n_elems] */
    const float *grads; /* [n_elems]: sums, see grad_scale; 0 of buffers */
    int64_t n_elems;
} tutti_flat_view;

/* The position of a parameter in the flat arrays. */
typedef struct tutti_parameter {
    const char *name; /* borrowed until the session is destroyed */
    tutti_shape shape;
    int64_t first;  /* its first element in the flat arrays */
    bool is_buffer; /* not trained, such as a running mean */
    bool decays;    /* weight decay applies */
    bool is_frozen; /* by optimizer.freeze, or as no gradient of the loss reaches it */
} tutti_parameter;

/* The learning rate of the job's schedule at the session's step.  Without the data of the job there
 * are no epochs: the length of the schedule is schedule.steps or else train.steps, and
 * schedule.unit must be steps.  TUTTI_E_CONFIG: these are missing.  TUTTI_E_UNSUPPORTED:
 * schedule.name=plateau. */
#define TUTTI_LR_OF_JOB (-1.0)

TUTTI_EXTERN_C_BEGIN

/* ---- life ---- */

/* Starts the workers, builds the model, and sets its parameters: from the seed, model.file,
 * model.init, or the run.  job is copied; what it borrows (the user pointer of its model, its
 * samples in memory) must outlive the session.  desc may be NULL.  On success *out is owned by the
 * caller; on failure it is NULL.  TUTTI_E_CONFIG: every problem of the job; TUTTI_E_UNSUPPORTED:
 * asynchronous parameter servers, backup workers and parallel.place=processes without desc.comm. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_create(tutti_job *job,
                                                            const tutti_session_desc *desc,
                                                            tutti_session **out);

/* Ends the workers and frees their memory; every later call except destroy returns TUTTI_E_INVALID.
 * NULL and closed sessions are a no-op. */
TUTTI_API void tutti_session_close(tutti_session *session);

/* Closes the session and frees it.  No other thread may use it.  NULL is a no-op. */
TUTTI_API void tutti_session_destroy(tutti_session *session);

/* Facts of the session, open or closed; all 0 for NULL. */
TUTTI_API void tutti_session_get_info(tutti_session *session, tutti_session_info *out);

/* Input, output or parameter i, with the type of one row of inputs and outputs; the name is
 * borrowed until the session is destroyed.  TUTTI_E_INVALID: there are fewer. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_input_at(tutti_session *session, int i,
                                                              tutti_field *out);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_output_at(tutti_session *session, int i,
                                                               tutti_field *out);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_parameter_at(tutti_session *session, int i,
                                                                  tutti_parameter *out);

/* The name of state array k of the optimizer, such as "exp_avg"; NULL: there are fewer.  Static. */
TUTTI_API const char *tutti_session_state_name(tutti_session *session, int k);

/* ---- steps ---- */

/* Computes outputs of the model in evaluation: dropout is off, norms use their running statistics,
 * parameters are the averaged ones with train.ema.
 *   inputs   by name; labels may be left out
 *   outputs  by name, with memory for as many rows as the inputs have
 * Outputs are the values that the model named (tutti_output), and "logits" of a model of the job;
 * of a model file with several outputs, all with a row for each sample, by the names of the file.
 * Values of a regression are in the unit of the target, except in a model file with several; their
 * tensor may be f64 if it is in host memory, because f32 has too few digits for times and the like.
 */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_forward(tutti_session *session,
                                                             const tutti_tensor *inputs,
                                                             int n_inputs,
                                                             const tutti_tensor *outputs,
                                                             int n_outputs);

/* One step of training: forward, backward, the sum over the workers, the update.
 *   inputs  every input, by name; dtypes f64 and f16 become f32, i64, u8 and others i32, if every
 *           value fits.  NULL with n_inputs 0: the next batch of the job's training data, in the
 *           order of tutti_train: shuffled, and continued after tutti_session_load
 *   lr      0 .. 1000, or TUTTI_LR_OF_JOB
 *   result  may be NULL
 * TUTTI_E_CONFIG: no parameter is trained, because all are frozen (optimizer.freeze with other
 * patterns than "*") or there is none; so in the other calls that train. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_step(tutti_session *session,
                                                          const tutti_tensor *inputs, int n_inputs,
                                                          double lr, tutti_session_result *result);

/* tutti_session_step without a wait for its result: returns when the inputs are copied and the step
 * is queued on the devices, so that a device computes while the caller prepares the next batch.
 *   ticket  number of the step for tutti_session_wait, from 1 on; must not be NULL
 * Two steps are in flight at most: a call waits for the step before the previous one.  The bits are
 * those of tutti_session_step.  A step completes before the call returns where each step depends on
 * the result of the previous one: on the host; with parallel.sync=local, parameter servers,
 * pipelines, parallel.offload and sums through the host; with a loss scale (train.loss_scale),
 * train.on_nan=skip and desc.loss.
 * TUTTI_E_NUMERICS: an earlier asynchronous step had a loss or gradient that is not finite.  That
 * step and the steps queued after it changed nothing, this call did nothing, and the session
 * continues from there with the next call.  The failure is returned once: by the next call of the
 * session, or by tutti_session_wait for one of these steps.  Every call other than these two waits
 * for the steps in flight. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_step_async(tutti_session *session,
                                                                const tutti_tensor *inputs,
                                                                int n_inputs, double lr,
                                                                int64_t *ticket);

/* Waits for an asynchronous step and returns its result, any number of times; result may be NULL.
 * Fails as the step has failed.  TUTTI_E_INVALID: no step has the ticket, or
 * TUTTI_SESSION_N_RESULTS later ones have begun. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_wait(tutti_session *session, int64_t ticket,
                                                          tutti_session_result *result);

/* The first half of a step: gradients summed over all workers, without an update.  Repeated calls
 * replace each other.  TUTTI_E_UNSUPPORTED: parameter servers, local SGD. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_gradients(tutti_session *session,
                                                               const tutti_tensor *inputs,
                                                               int n_inputs,
                                                               tutti_session_result *result);

/* The second half: the job's optimizer, with clipping and weight decay, at this learning rate.
 * gradients and apply together have the bits of tutti_session_step. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_apply(tutti_session *session, double lr,
                                                           tutti_session_result *result);

/* After tutti_session_gradients, for an optimizer of the caller: the arrays, until the next call.
 * The caller changes view->params and calls tutti_session_apply_flat, which gives them to all
 * workers and counts a step; no other call may come in between.  With desc.comm the parameters of
 * rank 0 count.  The arrays are in host memory; workers on GPUs copy them there and the parameters
 * back.  TUTTI_E_UNSUPPORTED: parallel.zero, tensor and pipeline, where no worker has all of them.
 */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_flat(tutti_session *session,
                                                          tutti_flat_view *view);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_apply_flat(tutti_session *session,
                                                                tutti_session_result *result);

/* Loss, count, correct predictions and metrics over the test split of the job's data; step and the
 * fields of an update are 0. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_evaluate(tutti_session *session,
                                                              tutti_session_result *result);

/* ---- parameters and state ---- */

/* Copies one array out of the session, or into it: of a parameter by its name, as f32.  The type of
 * tensor must be that of the parameter; tensor->name may be NULL and is not read.  Writing
 * parameters also sets their averages. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_read(tutti_session *session,
                                                          tutti_array_kind kind, const char *name,
                                                          const tutti_tensor *tensor);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_write(tutti_session *session,
                                                           tutti_array_kind kind, const char *name,
                                                           const tutti_tensor *tensor);

/* The memory of a parameter itself, f32 on the host, until the session is closed.  A change in
 * place counts from the next call of the session, for all workers; during a call the memory must
 * not be written.  The average (train.ema) of the parameter does not change, nor do gradients that
 * are computed.  TUTTI_E_UNSUPPORTED, and tutti_session_read and _write remain: parameters on
 * devices, with desc.comm, with parameter servers, and with parallel.zero, tensor, pipeline or
 * copies=each and several workers. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_view(tutti_session *session, const char *name,
                                                          tutti_tensor *out);

/* The hash of all parameters: equal bits give equal hashes, for any number of workers and any
 * layout.  It is the params_hash of a step and of tutti_train, except with parallel.tensor, where
 * these are made of the hashes of tensor shards. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_hash(tutti_session *session, uint64_t *hash);

/* Sets the number of updates so far, which selects the learning rate of the schedule, the random
 * numbers of dropout, the bias corrections of Adam and the next batch of the job's data. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_set_step(tutti_session *session, int64_t step);

/* ---- files ---- */

/* Saves a checkpoint of the current step in run_dir, which becomes a run folder if it is not there:
 * `tutti eval`, `predict`, `export` and `train --resume` accept it.  TUTTI_E_INVALID: with
 * parallel.sync=local the workers have not averaged their parameters in this step; so in
 * save_weights. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_save(tutti_session *session,
                                                          const char *run_dir);

/* Loads parameters, optimizer state and step of the newest checkpoint, made by a session or by
 * tutti_train with the same model, optimizer, batch, shards and seed. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_load(tutti_session *session,
                                                          const char *run_dir);

/* Parameters and buffers alone: a .safetensors file; load also takes the folder of a checkpoint or
 * of Hugging Face, as model.init does. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_save_weights(tutti_session *session,
                                                                  const char *path);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_load_weights(tutti_session *session,
                                                                  const char *path);

/* ---- DLPack ---- */

/* Views the tensor of a DLPack capsule: managed is a DLManagedTensor or, with is_versioned, a
 * DLManagedTensorVersioned.  It must be contiguous, on the host or a CUDA device.  The view is
 * valid as long as the capsule; its deleter is not called.  name is borrowed. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_tensor_from_dlpack(const void *managed,
                                                                bool is_versioned, const char *name,
                                                                tutti_tensor *out);

/* A new tensor that DLPack consumers can take: in host memory, or that of CUDA device k - 1, on
 * which a worker of this process computes (device k).  *managed is a DLManagedTensor or, with
 * is_versioned, a DLManagedTensorVersioned 1.1.  Its owner calls its deleter once, on any thread,
 * also after the session is closed or destroyed: it does not use the session.  View it with
 * tutti_tensor_from_dlpack to pass it as an output of tutti_session_forward or to
 * tutti_session_read; its elements are not set.  TUTTI_E_INVALID: no worker computes on that
 * device. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_new_dlpack(tutti_session *session,
                                                                const tutti_type *type,
                                                                int32_t device, bool is_versioned,
                                                                void **managed);

/* tutti_session_read into such a tensor: a copy, which later steps do not change. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_session_read_dlpack(tutti_session *session,
                                                                 tutti_array_kind kind,
                                                                 const char *name, int32_t device,
                                                                 bool is_versioned, void **managed);

/* Calls the deleter of a managed tensor, if it has one.  NULL is a no-op. */
TUTTI_API void tutti_dlpack_release(void *managed, bool is_versioned);

TUTTI_EXTERN_C_END

#endif /* TUTTI_SESSION_H */
