/* inputs.h - the inputs of a shard's program on a device, and its sums.
 *
 * A pipeline stage reads samples, or targets, or neither, and only the last one makes sums. */
#ifndef TTI_EXEC_INPUTS_H
#define TTI_EXEC_INPUTS_H

#include "exec/program/instance.h"

/* The inputs of a program by meaning; -1: it has none. */
typedef struct tti_inputs {
    int x, target, rows, loss_scale;
} tti_inputs;

/* The inputs of one shard, on the device; NULL: not read. */
typedef struct tti_inputs_shard {
    void *x, *target;
    int32_t *rows;
} tti_inputs_shard;

/* Bytes and rows of the input x or target of a shard; 0: it has none. */
size_t tti_inputs_bytes(const tti_program *program, const char *name);
int64_t tti_inputs_rows(const tti_program *program, const char *name);

/* Rows of a shard's samples, or, if another stage reads these, of a value that depends on them. */
int64_t tti_inputs_most_rows(const tti_program *program);

/* Sets the addresses of the next run's inputs. */
void tti_inputs_point(tti_instance *instance, const tti_inputs *inputs,
                      const tti_inputs_shard *shard, const float *loss_scale);

/* Puts it into the compute queue to take the sums of the shard that was run, if it makes any. */
tutti_status tti_inputs_collect(const tti_device_ops *ops, const tti_instance *instance,
                                double *sums /* [3] */);

#endif /* TTI_EXEC_INPUTS_H */
