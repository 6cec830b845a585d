/* state_arrays.h - numbers of the flat arrays that a checkpoint stores. */
#ifndef TTI_EXEC_STATE_ARRAYS_H
#define TTI_EXEC_STATE_ARRAYS_H

/* State array k of the optimizer is number k. */
enum {
    TTI_STATE_EMA = -1,    /* the averaged parameters */
    TTI_STATE_PARAMS = -2, /* the parameters */
    TTI_STATE_GRADS = -4,  /* the summed gradients, after tti_exec_compute_gradients */
};

#endif /* TTI_EXEC_STATE_ARRAYS_H */
