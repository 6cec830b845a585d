/* inputs.h - the inputs of a shard's program on a device, and its sums.
 *
 * A pipeline stage reads samples, or targets, or neither, and only the last one makes sums. */
#ifndef TTI_EXEC_INPUTS_H
#define TTI_EXEC_INPUTS_H

#include "exec/program/instance.h"

enum { TTI_MAX_INPUT_FIELDS = 64 };

/* An input that reads the samples: all of them (x), or the field at this offset. */
typedef struct tti_input_field_at {
    int input; /* of the program */
    size_t offset, n_bytes;
} tti_input_field_at;

/* The inputs of a program by meaning; -1: it has none. */
typedef struct tti_inputs {
    tti_input_field_at field[TTI_MAX_INPUT_FIELDS];
    int n_fields; /* 0: the program reads no samples */
    int target, rows, loss_scale;
} tti_inputs;

/* The inputs of one shard, on the device; NULL: not read. */
typedef struct tti_inputs_shard {
    void *x, *target;
    int32_t *rows;
} tti_inputs_shard;

/* The inputs that a program has.  TUTTI_E_UNSUPPORTED if there are too many fields. */
tutti_status tti_inputs_find(const tti_program *program, tti_inputs *out);

/* Bytes of a shard's samples, as far as the program reads them, and of its targets; 0: it reads
 * none. */
size_t tti_inputs_sample_bytes(const tti_program *program);
size_t tti_inputs_target_bytes(const tti_program *program);

/* Rows of a shard's samples; 0: the program reads none. */
int64_t tti_inputs_rows(const tti_program *program);

/* The same, or, if another stage reads the samples, of a value that depends on them. */
int64_t tti_inputs_most_rows(const tti_program *program);

/* Sets the addresses of the samples of the next run; x may be NULL if the program reads none. */
void tti_inputs_point_at_samples(tti_instance *instance, const tti_inputs *inputs, const void *x);

/* Sets the addresses of the next run's inputs. */
void tti_inputs_point(tti_instance *instance, const tti_inputs *inputs,
                      const tti_inputs_shard *shard, const float *loss_scale);

/* Puts it into the compute queue to take the sums of the shard that was run, if it makes any. */
tutti_status tti_inputs_collect(const tti_device_ops *ops, const tti_instance *instance,
                                double *sums /* [3] */);

#endif /* TTI_EXEC_INPUTS_H */
