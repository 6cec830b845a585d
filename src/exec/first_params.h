/* first_params.h - initial values of parameters and of their averages. */
#ifndef TTI_EXEC_FIRST_PARAMS_H
#define TTI_EXEC_FIRST_PARAMS_H

#include "exec/exec.h"

/* Draws the parameters that this worker has from the seed, where it keeps them: by all threads that
 * it may run, or on its device. */
tutti_status tti_exec_first_params(tti_exec *x);

#endif /* TTI_EXEC_FIRST_PARAMS_H */
