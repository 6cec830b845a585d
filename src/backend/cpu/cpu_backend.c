/* cpu_backend.c - the CPU's tti_backend: which kernel runs a node, memory, the line for doctor.
 *
 * No arithmetic here.  The order of selection is: products on a tile unit, oneDNN, the vector files
 * in the best instruction set of this machine, these for 16-bit floats (narrow.c), the reference.
 * Every list is ordered, and the first kernel whose can_run accepts the node is taken; op "*" is
 * any op. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cpu/cpu.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#if defined(__x86_64__)
/* Denormals cost a hundred times a normal number, and gradients decay through them. */
static void flush_denormals(void) { _mm_setcsr(_mm_getcsr() | 0x8040u); /* FTZ, DAZ */ }
#else
static void flush_denormals(void) {}
#endif

void tti_cpu_thread_init(void) {
    tti_onednn_thread_init();
    flush_denormals();
}

uint64_t tti_cpu_hash_params(const float *w, size_t n_elems, uint64_t first_index) {
    return tti_cpu_isa_at(0)->hash_params(w, n_elems, first_index);
}

/* The kernel at *i of a list ended by .op == NULL; else takes the list's length off *i. */
static const tti_kernel *kernel_in(const tti_kernel *list, int *i) {
    for (; list->op; list++)
        if ((*i)-- == 0) return list;
    return NULL;
}

const tti_kernel *tti_cpu_kernel_at(int i) {
    const tti_kernel *kernel = kernel_in(tti_conv_taps_kernels, &i);
    if (!kernel) kernel = kernel_in(tti_amx_kernels, &i);
    if (!kernel) kernel = kernel_in(tti_onednn_kernels, &i);
    const tti_kernel *const *family = tti_cpu_isa_at(0)->kernels;
    for (; !kernel && *family; family++) kernel = kernel_in(*family, &i);
    if (!kernel && i-- == 0) kernel = &tti_narrow_kernel;
    if (!kernel && i == 0) kernel = &tti_reference_kernel;
    return kernel;
}

static const tti_kernel *select_kernel(const tti_node *node, bool reference_only) {
    if (node->op->traits & TTI_SOURCE) return NULL;
    if (reference_only) return &tti_reference_kernel;
    const tti_kernel *kernel;
    for (int i = 0; (kernel = tti_cpu_kernel_at(i)) != NULL; i++) {
        bool named = strcmp(kernel->op, node->op->name) == 0 || strcmp(kernel->op, "*") == 0;
        if (named && (!kernel->can_run || kernel->can_run(node))) return kernel;
    }
    return NULL;
}

/* Updates are made, so that what depends on them, such as hashes, is as it is elsewhere. */
static const tti_kernel *select_null(const tti_node *node, bool reference_only) {
    if (node->op->traits & TTI_SOURCE) return NULL;
    return node->op->traits & TTI_UPDATE ? select_kernel(node, reference_only) : &tti_null_kernel;
}

/* Both our kernels and oneDNN's are fastest with the channels innermost. */
static bool prefers_channels_last(const tti_node *node) {
    return (node->op->traits & TTI_CHANNELS_LAST) != 0 && node->n_in > 0 &&
           node->in[0]->type.dtype == TUTTI_F32;
}

enum { HUGE_BYTES = 2 << 20 };

/* A mapping that starts at a huge page, so that the kernel can use one; n_bytes is a multiple. */
static void *map_huge(size_t n_bytes) {
    size_t n_all;
    if (__builtin_add_overflow(n_bytes, (size_t)HUGE_BYTES, &n_all)) return NULL;
    char *all = mmap(NULL, n_all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return NULL;
    size_t head = (HUGE_BYTES - (uintptr_t)all % HUGE_BYTES) % HUGE_BYTES;
    if (head) munmap(all, head);
    if (head < HUGE_BYTES) munmap(all + head + n_bytes, HUGE_BYTES - head);
    madvise(all + head, n_bytes, MADV_HUGEPAGE);
    return all + head;
}

/* Whole huge pages from 2 MiB on; 0 on overflow. */
static size_t huge_bytes(size_t n_bytes) {
    size_t n;
    if (__builtin_add_overflow(n_bytes, (size_t)HUGE_BYTES - 1, &n)) return 0;
    return n / HUGE_BYTES * HUGE_BYTES;
}

static void *alloc_memory(size_t n_bytes) {
    if (n_bytes > PTRDIFF_MAX - HUGE_BYTES) return NULL;
    if (n_bytes >= HUGE_BYTES) return map_huge(huge_bytes(n_bytes));
    size_t n = (n_bytes + 63) / 64 * 64;
    void *memory = aligned_alloc(64, n ? n : 64);
    if (memory) memset(memory, 0, n ? n : 64);
    return memory;
}

static void release_memory(void *memory, size_t n_bytes) {
    if (!memory) return;
    if (n_bytes >= HUGE_BYTES)
        munmap(memory, huge_bytes(n_bytes));
    else
        free(memory);
}

static void describe(tti_str *str) {
    tti_str_printf(str, "cpu: %s kernels, ", tti_cpu_isa_at(0)->name);
    tti_onednn_describe(str);
    if (tti_amx_is_usable()) tti_str_add(str, ", AMX products");
}

static double sum_squares(const float *x, size_t n_elems) {
    return tti_cpu_isa_at(0)->sum_squares(x, n_elems);
}

static void accumulate(float *dst, const float *src, size_t n_elems) {
    tti_cpu_isa_at(0)->accumulate(dst, src, n_elems);
}

static void accumulate_rounded(float *dst, const float *src, size_t n_elems) {
    tti_cpu_isa_at(0)->accumulate_rounded(dst, src, n_elems);
}

static void describe_null(tti_str *str) { tti_str_add(str, "none: computes nothing"); }

/* All but the names and the kernels. */
#define OF_THE_HOST                                                                       \
    .prefers_channels_last = prefers_channels_last, .joins_products = tti_amx_joins,      \
    .alloc = alloc_memory, .release = release_memory, .thread_init = tti_cpu_thread_init, \
    .hash = tti_cpu_hash_params, .sum_squares = sum_squares, .accumulate = accumulate,    \
    .accumulate_rounded = accumulate_rounded

const tti_backend tti_backend_cpu = {
    .name = "cpu", .select = select_kernel, .describe = describe, OF_THE_HOST};

const tti_backend tti_backend_null = {
    .name = "null", .select = select_null, .describe = describe_null, OF_THE_HOST};
