/* device_check_test.c - drivers and devices that cannot be used, and what is said of them.  No
 * device is needed. */
#include "backend/cuda/runtime/device_check.h"

#include "t.h"

/* CUDA's own words are in its library, which has no part in this test. */
const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorNoDevice ? "no device is detected" : "another error";
}

static tutti_status driver(int version, cudaError_t counted, int n) {
    return tti_cuda_fits_driver(
        &(tti_cuda_found){.driver = version, .runtime = 13000, .counted = counted, .n = n});
}

T_CASE(drivers) {
    T_UNUSED;
    T_OK(driver(13000, cudaSuccess, 1));
    T_OK(driver(13020, cudaSuccess, 8));
    T_FAILS(driver(0, cudaErrorInsufficientDriver, 0), TUTTI_E_UNSUPPORTED,
            "no NVIDIA driver here (libcuda.so.1): install one");
    T_FAILS(driver(11040, cudaErrorInsufficientDriver, 0), TUTTI_E_UNSUPPORTED,
            "too old: it is for CUDA 11.4, and this build needs 13.0; install a newer driver");
    T_FAILS(driver(13010, cudaErrorNoDevice, 0), TUTTI_E_UNSUPPORTED,
            "no device is detected (driver for CUDA 13.1, runtime 13.0)");
    T_FAILS(driver(13000, cudaSuccess, 0), TUTTI_E_UNSUPPORTED, "none is there");
}

T_CASE(devices) {
    T_UNUSED;
    T_OK(tti_cuda_fits_device("H200", 9, 0, cudaSuccess));
    T_OK(tti_cuda_fits_device("A100", 8, 0, cudaSuccess));
    T_FAILS(tti_cuda_fits_device("T4", 7, 5, cudaSuccess), TUTTI_E_UNSUPPORTED,
            "T4 has compute capability 7.5; 8.0 (Ampere) and later are supported");
    T_FAILS(tti_cuda_fits_device("L4", 8, 9, cudaErrorNoKernelImageForDevice), TUTTI_E_UNSUPPORTED,
            "no code for L4, compute capability 8.9: it was built for 70-real,72-virtual; build it "
            "with -DTUTTI_CUDA_ARCHS=89-real");
    T_FAILS(tti_cuda_fits_device("B200", 10, 0, cudaErrorInvalidDeviceFunction),
            TUTTI_E_UNSUPPORTED, "-DTUTTI_CUDA_ARCHS=100-real");
    T_OK(tti_cuda_fits_device("H200", 9, 0,
                              cudaErrorECCUncorrectable)); /* reported when it is used */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(drivers), cmocka_unit_test(devices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
