/* level.c - the instruction sets that this process uses.  This is process state because oneDNN's
 * limit is, too, and can be set only once. */
#include "backend/levels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if TTI_HAVE_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "backend/cpu/cpu.h"
#include "base/error.h"

static const char *const names[TTI_CPU_N_LEVELS] = {"generic", "avx2", "avx512", "amx"};

static struct {
    pthread_once_t once;
    pthread_mutex_t lock;
    int machine;       /* its best */
    _Atomic int level; /* in use   */
    bool is_limited;   /* by the variable or a call: oneDNN is limited too */
    bool is_settled;   /* it has been */
} here = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

extern const tti_cpu_isa tti_cpu_isa_generic;

#if TTI_HAVE_AMX
enum { ASK_PERMISSION = 0x1023, TILE_DATA = 18 }; /* arch_prctl(2): ARCH_REQ_XCOMP_PERM */

static bool has_tiles(void) {
    const unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & amx_bf16) && (d & amx_tile);
}

bool tti_amx_is_there(void) {
    return has_tiles() && syscall(SYS_arch_prctl, ASK_PERMISSION, TILE_DATA) == 0;
}
#else
bool tti_amx_is_there(void) { return false; }
#endif

#if defined(__x86_64__)
extern const tti_cpu_isa tti_cpu_isa_avx2, tti_cpu_isa_avx512;

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static int best_of_machine(void) {
    if (!has_avx512()) return has_avx2() ? TTI_CPU_AVX2 : TTI_CPU_GENERIC;
    return tti_amx_is_there() ? TTI_CPU_TILES : TTI_CPU_AVX512;
}

const tti_cpu_isa *tti_cpu_isa_at(int i) {
    tti_cpu_level level = tti_cpu_get_level();
    if (level >= TTI_CPU_AVX512 && i-- == 0) return &tti_cpu_isa_avx512;
    if (level >= TTI_CPU_AVX2 && i-- == 0) return &tti_cpu_isa_avx2;
    return i == 0 ? &tti_cpu_isa_generic : NULL;
}
#else
static int best_of_machine(void) { return TTI_CPU_GENERIC; }

const tti_cpu_isa *tti_cpu_isa_at(int i) { return i == 0 ? &tti_cpu_isa_generic : NULL; }
#endif

bool tti_amx_is_usable(void) { return tti_cpu_get_level() >= TTI_CPU_TILES; }

/* -1: no name of a level. */
static int level_called(const char *name) {
    for (int i = 0; i < TTI_CPU_N_LEVELS; i++)
        if (strcmp(name, names[i]) == 0) return i;
    return -1;
}

/* TUTTI_KERNELS; -1: it is not set, or names none. */
static int level_asked_for(void) {
    const char *name = getenv("TUTTI_KERNELS");
    return name && *name ? level_called(name) : -1;
}

static void find_level(void) {
    int asked = level_asked_for();
    here.machine = best_of_machine();
    here.is_limited = asked >= 0 && asked < here.machine;
    if (here.is_limited) here.machine = asked; /* as if there were no more */
    atomic_store(&here.level, here.machine);
}

tti_cpu_level tti_cpu_get_level(void) {
    pthread_once(&here.once, find_level);
    return (tti_cpu_level)atomic_load_explicit(&here.level, memory_order_relaxed);
}

const char *tti_cpu_level_name(tti_cpu_level level) { return names[level]; }

tutti_status tti_cpu_check_levels(void) {
    const char *name = getenv("TUTTI_KERNELS");
    if (!name || !*name || level_asked_for() >= 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "TUTTI_KERNELS is '%s': give generic, avx2, avx512 or amx, the most that "
                    "kernels may use, or leave it out",
                    name);
}

/* Under the lock. */
static tutti_status set_level(tti_cpu_level level) {
    if ((int)level > here.machine)
        return tti_fail(TUTTI_E_UNSUPPORTED, "this machine has no %s kernels, only %s",
                        names[level], names[here.machine]);
    if (here.is_settled && (!here.is_limited || (int)level != atomic_load(&here.level)))
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "kernels of this process already use %s and cannot change to %s: start a "
                        "new process with TUTTI_KERNELS=%s",
                        names[atomic_load(&here.level)], names[level], names[level]);
    here.is_limited = true;
    atomic_store(&here.level, level);
    return TUTTI_OK;
}

tutti_status tti_cpu_set_level(tti_cpu_level level) {
    (void)tti_cpu_get_level();
    pthread_mutex_lock(&here.lock);
    tutti_status st = set_level(level);
    pthread_mutex_unlock(&here.lock);
    return st;
}

int tti_cpu_settle_level(void) {
    int level = tti_cpu_get_level();
    pthread_mutex_lock(&here.lock);
    here.is_settled = true;
    if (!here.is_limited) level = -1;
    pthread_mutex_unlock(&here.lock);
    return level;
}
