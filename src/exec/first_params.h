/* first_params.h - initial values of parameters and of their averages. */
#ifndef TTI_EXEC_FIRST_PARAMS_H
#define TTI_EXEC_FIRST_PARAMS_H

#include "exec/exec.h"

/* Draws this worker's parameters from the seed, on all its threads or on its device. */
tutti_status tti_exec_first_params(tti_exec *x);

#endif /* TTI_EXEC_FIRST_PARAMS_H */
