/* prepared.h - the kernels of a program before its memory is allocated: the backend reports their
 * needs, and binding a program (instance.h) takes them over. */
#ifndef TTI_EXEC_PREPARED_H
#define TTI_EXEC_PREPARED_H

#include "backend/backend.h"
#include "passes/plan.h"

typedef struct tti_prepared tti_prepared;

/* Selects and prepares a kernel for every step except collectives between workers.  On success *out
 * is owned by the caller. */
TUTTI_NODISCARD tutti_status tti_prepared_create(const tti_program *program,
                                                 const tti_backend *backend, bool reference,
                                                 tti_prepared **out);

/* Releases the kernels that were not taken.  NULL is a no-op. */
void tti_prepared_destroy(tti_prepared *prepared);

/* Bytes of scratch that the program has for all its steps, one after the other; NULL: 0. */
size_t tti_prepared_scratch(const tti_prepared *prepared);

/* Kernel and state of a step, the caller's from here on.  False: it is not there. */
bool tti_prepared_take(tti_prepared *prepared, int step, const tti_kernel **kernel, void **state);

#endif /* TTI_EXEC_PREPARED_H */
