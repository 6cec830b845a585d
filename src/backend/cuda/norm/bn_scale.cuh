/* bn_scale.cuh - the factor of a channel in batch norm, for every kernel that needs it: written
 * once, so that all have the same bits. */
#ifndef TTI_BN_SCALE_CUH
#define TTI_BN_SCALE_CUH

namespace {

/* 1 / sqrt(variance + eps); count NULL: m2 is the variance, else the sum of so many squares, and of
 * none it is 0, as in ops/norm/bn_rules.h. */
template <class A>
__device__ __forceinline__ A rstd_of(const float *count, float m2, double eps) {
    if (count && !(*count > 0)) return 0;
    A variance = count ? (A)m2 / (A)*count : (A)m2;
    return (A)1 / sqrt(variance + (A)eps);
}

}  // namespace

#endif /* TTI_BN_SCALE_CUH */
