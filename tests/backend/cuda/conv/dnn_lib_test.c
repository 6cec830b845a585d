/* dnn_lib_test.c - a cuDNN of another major version is recognized by its number and not used.  No
 * device is needed. */
#include <stdlib.h>

#include "backend/cuda/runtime/cuda.h"
#include "t.h"

T_CASE(another_version) {
    T_UNUSED;
    tti_str text = {0};
    T_EQ(setenv("TUTTI_CUDA_PATH", TUTTI_TEST_MODULES "/dnn", 1), 0);
    tti_cuda_dnn_describe(&text);
    assert_string_equal(tti_str_text(&text),
                        "no cuDNN (version 8907 was found, version 9 is needed)");
    tti_str_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(another_version)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
