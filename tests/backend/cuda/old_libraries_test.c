/* old_libraries_test.c - a cublasLt of another major version and an NCCL that is too old are
 * recognized and not used.  No device is needed. */
#include <stdlib.h>

#include "backend/cuda/comm/nccl.h"
#include "backend/cuda/runtime/cuda.h"
#include "t.h"

static int use_libraries(void **state) {
    T_UNUSED;
    return setenv("TUTTI_CUDA_PATH", TUTTI_TEST_MODULES "/blas:" TUTTI_TEST_MODULES "/nccl", 1);
}

T_CASE(another_cublas) {
    T_UNUSED;
    tti_str text = {0};
    tti_cuda_blas_describe(&text);
    assert_string_equal(tti_str_text(&text),
                        "no cublasLt (cublasLt is of version 11, 12 or 13 is needed)");
    tti_str_free(&text);
}

T_CASE(an_old_nccl) {
    T_UNUSED;
    tti_str text = {0}, why = {0};
    tti_nccl_describe(&text);
    assert_string_equal(tti_str_text(&text), "no NCCL (NCCL has no ncclSend: it is too old)");
    assert_false(tti_nccl_load(&why));
    assert_string_equal(tti_str_text(&why), "NCCL has no ncclSend: it is too old");
    tti_str_free(&text);
    tti_str_free(&why);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(another_cublas),
                                       cmocka_unit_test(an_old_nccl)};
    return cmocka_run_group_tests(tests, use_libraries, NULL);
}
