/* state_arrays.h - numbers of the flat arrays that a checkpoint stores. */
#ifndef TTI_EXEC_STATE_ARRAYS_H
#define TTI_EXEC_STATE_ARRAYS_H

/* State array k of the optimizer is number k. */
enum {
    TTI_STATE_EMA = -1,    /* the averaged parameters */
    TTI_STATE_PARAMS = -2, /* the parameters */
};

#endif /* TTI_EXEC_STATE_ARRAYS_H */
