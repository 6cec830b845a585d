/* instance.h - a program bound to kernels and to the memory of one compute thread. */
#ifndef TTI_EXEC_INSTANCE_H
#define TTI_EXEC_INSTANCE_H

#include "backend/backend.h"
#include "exec/program/bucket_memory.h"
#include "exec/program/collective.h"
#include "passes/plan.h"
#include "tutti/comm.h"

typedef struct tti_instance tti_instance;

enum { TTI_MAX_INPUT_FIELDS = 64 };

/* An input that reads the samples: all of a sample (x), or the field at this offset. */
typedef struct tti_input_field_at {
    int input; /* of the program */
    size_t offset, n_bytes;
} tti_input_field_at;

/* The inputs of a program by meaning; -1: the program does not have it. */
typedef struct tti_inputs {
    tti_input_field_at field[TTI_MAX_INPUT_FIELDS];
    int n_fields; /* 0: the program does not read samples */
    int target, rows, loss_scale;
} tti_inputs;

/* The inputs of one shard, in device memory; NULL: not read. */
typedef struct tti_inputs_shard {
    void *x, *target;
    int32_t *rows;
} tti_inputs_shard;

/* Finds the inputs of a program.  TUTTI_E_UNSUPPORTED: it reads too many fields. */
tutti_status tti_inputs_find(const tti_program *program, tti_inputs *out);

/* Bytes of a shard's samples that the program reads, and of its targets; 0: it reads none. */
size_t tti_inputs_sample_bytes(const tti_program *program);
size_t tti_inputs_target_bytes(const tti_program *program);

/* Rows of a shard's samples; 0: the program does not read samples. */
int64_t tti_inputs_rows(const tti_program *program);

/* The same; if another stage reads the samples: rows of a value that depends on them. */
int64_t tti_inputs_most_rows(const tti_program *program);

/* Sets the addresses of the samples of the next run; x may be NULL if the program reads none. */
void tti_inputs_point_at_samples(tti_instance *instance, const tti_inputs *inputs, const void *x);

/* Sets the addresses of the inputs of the next run. */
void tti_inputs_point(tti_instance *instance, const tti_inputs *inputs,
                      const tti_inputs_shard *shard, const float *loss_scale);

/* Enqueues the copy of the first n_sums sums of the last shard that ran to sums on the device,
 * unless another stage computes them. */
tutti_status tti_inputs_collect(const tti_device_ops *ops, const tti_instance *instance, int n_sums,
                                double *sums);

/* ---- prepares the kernels of a program before its memory is allocated, to learn how much they
 * need */

typedef struct tti_prepared tti_prepared;

/* Selects and prepares a kernel for every step except collectives between workers.  On success *out
 * is owned by the caller. */
TUTTI_NODISCARD tutti_status tti_prepared_create(const tti_program *program,
                                                 const tti_backend *backend, bool reference,
                                                 tti_prepared **out);

/* Releases the kernels that were not taken.  Accepts NULL. */
void tti_prepared_destroy(tti_prepared *prepared);

/* Bytes of scratch for all steps of the program, which run one after the other; NULL: 0. */
size_t tti_prepared_scratch(const tti_prepared *prepared);

/* Moves kernel and state of a step to the caller.  False: it was not prepared or already taken. */
bool tti_prepared_take(tti_prepared *prepared, int step, const tti_kernel **kernel, void **state);

/* ---- a program bound to kernels and to the memory of one compute thread ---- */

typedef struct tti_instance_desc {
    const tti_program *program; /* borrowed */
    const tti_backend *backend; /* borrowed */
    bool reference;             /* use the plain-C reference for every op */
    void
        *arena; /* [program->arena_bytes], borrowed; shared by all programs of the compute thread */
    float *params;    /* flat parameters, borrowed */
    void *low_copies; /* 16-bit copies of the parameters that the program reads; borrowed */
    /* The communicator of the program's tensor axis, borrowed; used by one compute thread only.
     * NULL: there is none, or the program is not run. */
    tutti_comm *tensor;
    tti_device_tp *tp; /* the same for a backend with devices */
    const tti_bucket_memory
        *bucket_memory;     /* params consists of memory for buckets; NULL: it is flat; borrowed */
    tti_prepared *prepared; /* prepared kernels to use, borrowed; NULL: prepares its own */
} tti_instance_desc;

/* Selects and prepares a kernel for every step.  On success *out is owned by the caller. */
tutti_status tti_instance_create(const tti_instance_desc *desc, tti_instance **out);
void tti_instance_destroy(tti_instance *instance);

/* Sets the addresses of an input and of the gradients for the next run.  Borrowed. */
void tti_instance_set_input(tti_instance *instance, int input, const void *data);
void tti_instance_set_grads(tti_instance *instance, float *grads);

/* The same if gradients lie in memory for buckets. */
void tti_instance_set_grad_places(tti_instance *instance, float *places,
                                  const tti_bucket_memory *memory);

/* Called after each step of the program, to start reductions that are due. */
typedef void (*tti_after_step)(int step, void *user);

/* Runs every step in order.  after may be NULL. */
tutti_status tti_instance_run(tti_instance *instance, const tti_run *run, tti_after_step after,
                              void *user);

/* The same for the steps first .. last-1 only. */
tutti_status tti_instance_run_range(tti_instance *instance, const tti_run *run, int first, int last,
                                    tti_after_step after, void *user);

/* Until the next call, every step stores first_layer plus its number in *place when it begins;
 * NULL: nothing is stored. */
void tti_instance_show_layers(tti_instance *instance, _Atomic int32_t *place, int first_layer);

/* Returns the time in collectives of the host since the last call, in nanoseconds. */
int64_t tti_instance_take_collective_ns(tti_instance *instance);

int tti_instance_n_steps(const tti_instance *instance);
const tti_node *tti_instance_node(const tti_instance *instance, int step);

/* Bytes of the first input and of output k of a step. */
const void *tti_instance_step_in(const tti_instance *instance, int step);
void *tti_instance_step_out(tti_instance *instance, int step, int k);

bool tti_instance_has_output(const tti_instance *instance, const char *name);

/* The bytes of a named output after a run; the output must exist. */
const void *tti_instance_output(const tti_instance *instance, const char *name);

/* Sum i of a shard (tti_plan_n_sums) after a run; NULL: another stage computes it. */
const float *tti_instance_sum(const tti_instance *instance, int i);

/* Runs the steps first .. last-1 once more and returns the first step with a NaN or infinity in an
 * f32 output; -1: none.  Stops at a step that fails.  Slow; used for the message about a non-finite
 * loss. */
tutti_status tti_instance_find_nonfinite(tti_instance *instance, const tti_run *run, int first,
                                         int last, int *step);

/* Name of the kernel chosen for step i. */
const char *tti_instance_kernel(const tti_instance *instance, int step);

#endif /* TTI_EXEC_INSTANCE_H */
