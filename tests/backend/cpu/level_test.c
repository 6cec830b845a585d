/* level_test.c - the level of a process: what it is called, that kernels keep to it, and that it
 * cannot change once oneDNN has begun.  That bits are those of a lesser machine is shown by
 * tests/cli/mixed_kernels_test.py. */
#include "backend/levels.h"

#include <stdlib.h>

#include "backend/cpu/cpu.h"
#include "t.h"

T_CASE(names_are_found_in_descriptions) {
    T_UNUSED;
    tti_str here = {0};
    T_EQ(tti_cpu_level_in("cpu: generic kernels, no oneDNN, 1 thread per lane"), TTI_CPU_GENERIC);
    T_EQ(tti_cpu_level_in("cpu: avx2 kernels, oneDNN 2.6.3"), TTI_CPU_AVX2);
    T_EQ(tti_cpu_level_in("cpu: avx512 kernels, oneDNN 2.6.3, AMX products"), TTI_CPU_TILES);
    T_EQ(tti_cpu_level_in("cpu: abacus kernels"), -1);
    T_EQ(tti_cpu_level_in("cuda: NVIDIA H200"), -1);
    T_EQ(tti_cpu_level_in(""), -1);
    tti_backend_cpu.describe(&here);
    T_EQ(tti_cpu_level_in(tti_str_text(&here)), tti_cpu_get_level());
    assert_true(tti_cpu_has_libraries(tti_str_text(&here)));
    assert_false(tti_cpu_has_libraries("cpu: avx2 kernels, oneDNN 0.1.2, 1 thread per lane"));
    tti_str_free(&here);
}

T_CASE(the_variable_names_a_level) {
    T_UNUSED;
    T_EQ(setenv("TUTTI_KERNELS", "avx1024", 1), 0);
    T_FAILS(tti_cpu_check_levels(), TUTTI_E_CONFIG, "'avx1024'");
    T_EQ(setenv("TUTTI_KERNELS", "avx2", 1), 0);
    T_OK(tti_cpu_check_levels());
    T_EQ(unsetenv("TUTTI_KERNELS"), 0);
    T_OK(tti_cpu_check_levels());
}

/* In this order: the last word is oneDNN's. */
T_CASE(kernels_keep_to_it) {
    T_UNUSED;
    tti_cpu_level machine = tti_cpu_get_level();
    if (machine < TTI_CPU_TILES)
        T_FAILS(tti_cpu_set_level(TTI_CPU_TILES), TUTTI_E_UNSUPPORTED, "this machine has no amx");
    for (int level = (int)machine; level >= 0; level--) {
        T_OK(tti_cpu_set_level((tti_cpu_level)level));
        T_EQ(tti_cpu_get_level(), level);
        const char *name = tti_cpu_level_name((tti_cpu_level)level);
        assert_string_equal(tti_cpu_isa_at(0)->name, level == TTI_CPU_TILES ? "avx512" : name);
        assert_true(tti_amx_is_usable() == (level == TTI_CPU_TILES));
    }
    T_EQ(tti_cpu_settle_level(), TTI_CPU_GENERIC);
    T_OK(tti_cpu_set_level(TTI_CPU_GENERIC));
    if (machine > TTI_CPU_GENERIC)
        T_FAILS(tti_cpu_set_level(machine), TUTTI_E_UNSUPPORTED, "start a new process");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_in_descriptions),
        cmocka_unit_test(the_variable_names_a_level),
        cmocka_unit_test(kernels_keep_to_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
