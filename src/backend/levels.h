/* levels.h - which instruction sets the kernels of this process use.
 *
 * Our kernels give the same bits with each, but products and convolutions of oneDNN and of the tile
 * unit do not.  So ranks that must have the same bits use the same level: the best of the machine,
 * or less if TUTTI_KERNELS or a call says so. */
#ifndef TTI_BACKEND_LEVELS_H
#define TTI_BACKEND_LEVELS_H

#include "base/str.h"
#include "tutti/status.h"

typedef enum tti_cpu_level {
    TTI_CPU_GENERIC, /* what every processor of this architecture has */
    TTI_CPU_AVX2,
    TTI_CPU_AVX512,
    TTI_CPU_TILES, /* avx512, and products on the tile unit (AMX) */
    TTI_CPU_N_LEVELS
} tti_cpu_level;

/* The current level of this process. */
tti_cpu_level tti_cpu_get_level(void);

/* "generic", "avx2", "avx512", "amx". */
const char *tti_cpu_level_name(tti_cpu_level level);

/* The level in a line of tti_backend_cpu.describe, and whether it is of the libraries that are
 * here; -1: there is none in it. */
int tti_cpu_level_in(const char *description);
bool tti_cpu_has_libraries(const char *description);

/* TUTTI_E_CONFIG: the variable TUTTI_KERNELS names no level. */
TUTTI_NODISCARD tutti_status tti_cpu_check_levels(void);

/* From now on uses exactly this level, which the machine must have: oneDNN is limited to it as
 * well.  TUTTI_E_UNSUPPORTED if oneDNN is in use already, with another level. */
TUTTI_NODISCARD tutti_status tti_cpu_set_level(tti_cpu_level level);

/* Describes the other properties on which bits depend: libraries, which no level makes equal;
 * extensions, which an explicit level makes equal; caches, by which oneDNN divides its work. */
void tti_cpu_describe_libraries(tti_str *out);
void tti_cpu_describe_extensions(tti_str *out);
void tti_cpu_describe_caches(tti_str *out);

/* For onednn.c, before its first primitive: the highest level that it may use, from then on; -1:
 * all. */
int tti_cpu_settle_level(void);

#endif /* TTI_BACKEND_LEVELS_H */
