/* instance.h - a program bound to kernels and to the memory of one compute thread. */
#ifndef TTI_EXEC_INSTANCE_H
#define TTI_EXEC_INSTANCE_H

#include "backend/backend.h"
#include "exec/program/prepared.h"
#include "exec/program/tp_calls.h"
#include "exec/program/window.h"
#include "tutti/comm.h"

typedef struct tti_instance tti_instance;

typedef struct tti_instance_desc {
    const tti_program *program; /* borrowed */
    const tti_backend *backend; /* borrowed */
    bool reference;             /* the plain-C meaning for every op */
    void *arena;   /* program->arena_bytes, borrowed; shared by programs of the compute thread */
    float *params; /* flat parameters, borrowed */
    void *low;     /* the same in 16 bits, where the program reads them so; borrowed */
    /* The program's tensor axis, borrowed; used by one compute thread only.  NULL: there is none,
     * or the program is not run. */
    tutti_comm *tensor;
    tti_device_tp *tp;        /* the same of a backend with devices */
    const tti_window *window; /* params are places of buckets; NULL: flat; borrowed */
    tti_prepared *prepared;   /* whose kernels it takes; NULL: it prepares them; borrowed */
} tti_instance_desc;

/* Selects and prepares a kernel for every step.  On success *out is owned by the caller. */
tutti_status tti_instance_create(const tti_instance_desc *desc, tti_instance **out);
void tti_instance_destroy(tti_instance *instance);

/* Sets the addresses of an input and of the gradients.  Borrowed for the next run. */
void tti_instance_set_input(tti_instance *instance, int input, const void *data);
void tti_instance_set_grads(tti_instance *instance, float *grads);

/* The same where gradients are places of buckets. */
void tti_instance_set_grad_places(tti_instance *instance, float *places, const tti_window *window);

/* Called after a step of the program, for the reduction that may now start. */
typedef void (*tti_after_step)(int step, void *user);

/* Runs every step in order.  after may be NULL. */
tutti_status tti_instance_run(tti_instance *instance, const tti_run *run, tti_after_step after,
                              void *user);

/* The same for the steps first .. last-1 only. */
tutti_status tti_instance_run_range(tti_instance *instance, const tti_run *run, int first, int last,
                                    tti_after_step after, void *user);

/* How long it was at exchanges of the host since the last call, in nanoseconds. */
int64_t tti_instance_take_exchanged(tti_instance *instance);

/* The bytes of input i and output k of a step. */
const void *tti_instance_step_in(const tti_instance *instance, int step, int i);
void *tti_instance_step_out(tti_instance *instance, int step, int k);

bool tti_instance_has_output(const tti_instance *instance, const char *name);

/* The bytes of a named output after a run; the output must exist. */
const void *tti_instance_output(const tti_instance *instance, const char *name);

/* Runs the steps first .. last-1 once more, all of them, and finds the first with a NaN or an
 * infinity in an f32 output, -1: none; ends at a step that fails.  For the message about a
 * non-finite loss, not for speed. */
tutti_status tti_instance_find_nonfinite(tti_instance *instance, const tti_run *run, int first,
                                         int last, int *step);

/* Name of the kernel chosen for step i. */
const char *tti_instance_kernel(const tti_instance *instance, int step);

#endif /* TTI_EXEC_INSTANCE_H */
