/* head.h - code shared by the loss of a head without logits and its kernels. */
#ifndef TTI_OPS_HEAD_H
#define TTI_OPS_HEAD_H

/* The most that cross_entropy_head raises e to: a row whose label is further below its largest
 * logit loses that much and no more.  Its sum still fits into f32, and 1 / it is not a subnormal.
 * An infinite logit makes the sum, and so the loss, infinite anyway. */
#define TTI_HEAD_MOST 60.0

#endif /* TTI_OPS_HEAD_H */
