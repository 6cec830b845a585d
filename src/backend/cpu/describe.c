/* describe.c - describes in words the properties, besides the level, on which bits depend, and
 * compares them with those of another process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "backend/levels.h"

int tti_cpu_level_in(const char *description) {
    char name[16];
    if (sscanf(description, "cpu: %15s kernels", name) != 1) return -1;
    if (strstr(description, ", AMX products")) return TTI_CPU_TILES;
    for (int i = 0; i < TTI_CPU_N_LEVELS; i++)
        if (strcmp(name, tti_cpu_level_name((tti_cpu_level)i)) == 0) return i;
    return -1;
}

bool tti_cpu_has_libraries(const char *description) {
    tti_str name = {0};
    tti_onednn_describe(&name);
    const char *at = strstr(description, tti_str_text(&name));
    bool found = at && (at[name.n_bytes] == ',' || at[name.n_bytes] == '\0');
    tti_str_free(&name);
    return found;
}

void tti_cpu_describe_libraries(tti_str *out) {
#if defined(__x86_64__)
    tti_str_add(out, "x86-64, ");
#elif defined(__aarch64__)
    tti_str_add(out, "AArch64, ");
#endif
    tti_onednn_describe(out);
}

void tti_cpu_describe_extensions(tti_str *out) {
    const char *own = getenv("ONEDNN_MAX_CPU_ISA"), *older = getenv("DNNL_MAX_CPU_ISA");
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512vnni")) tti_str_add(out, " vnni");
    if (__builtin_cpu_supports("avx512bf16")) tti_str_add(out, " bf16");
    if (tti_amx_is_there()) tti_str_add(out, " amx");
#endif
    if (own) tti_str_printf(out, " ONEDNN_MAX_CPU_ISA=%s", own);
    if (older) tti_str_printf(out, " DNNL_MAX_CPU_ISA=%s", older);
}

void tti_cpu_describe_caches(tti_str *out) {
    tti_str_printf(out, "%ld KiB, %ld KiB", sysconf(_SC_LEVEL1_DCACHE_SIZE) / 1024,
                   sysconf(_SC_LEVEL2_CACHE_SIZE) / 1024);
}
