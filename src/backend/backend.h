/* backend.h - the seam between a plan and the hardware that runs it.
 *
 * A backend is a folder with the same file names as its twins.  It offers, for each op, an ordered
 * list of kernels, fastest first; the first whose can_run accepts a node is used, and the reference
 * is last, so every op runs everywhere.  A kernel is prepared once per node and lane, then run once
 * per shard; nothing is allocated while running. */
#ifndef TTI_BACKEND_H
#define TTI_BACKEND_H

#include "ir/graph.h"

/* What a prepared kernel is given for one run. */
typedef struct tti_kargs {
    const tti_node *node;
    void *const *in; /* [n_in] device pointers, in each value's dtype and layout, 64-byte aligned */
    void *const *out; /* [n_out]; out 0 == in 0 only for TTI_IN_PLACE and TTI_UPDATE ops */
    void *scratch; /* scratch_bytes(state), 64-byte aligned, undefined contents                  */
    const tti_run *run;
} tti_kargs;

typedef struct tti_kernel {
    const char *op;   /* name of the op it runs; "*" for the reference, which runs every op */
    const char *name; /* "onednn", "avx", "reference": shown by tutti inspect              */
    /* True if this kernel accepts the node's types, layouts and attributes.  NULL: always. */
    bool (*can_run)(const tti_node *node);
    /* Builds what the kernel keeps between runs.  NULL: it keeps nothing. */
    tutti_status (*prepare)(const tti_node *node, void **state);
    /* Bytes of scratch that run needs; NULL: none.  state is NULL where there is no prepare. */
    size_t (*scratch_bytes)(const tti_node *node, const void *state);
    tutti_status (*run)(void *state, const tti_kargs *args);
    void (*release)(void *state); /* NULL where there is no prepare; takes NULL */
} tti_kernel;

typedef struct tti_backend {
    const char *name; /* "cpu" */
    /* The kernel for a node.  reference_only: the plain-C meaning, whatever is faster. */
    const tti_kernel *(*select)(const tti_node *node, bool reference_only);
    /* True if the backend prefers N,H,W,C bytes for the 4-D values around this node. */
    bool (*prefers_channels_last)(const tti_node *node);
    /* Device memory, 64-byte aligned, zeroed.  NULL when out of memory.  release takes NULL. */
    void *(*alloc)(size_t n_bytes);
    void (*release)(void *memory, size_t n_bytes);
    /* Called once by every thread that runs kernels (denormals off, one OpenMP thread). */
    void (*thread_init)(void);
    /* A 64-bit hash of n_elems floats that stand at flat index first: of their bits, their order
     * and their place, the same on every machine.  Hashes of blocks are added mod 2^64, so the
     * order in which blocks are visited does not matter, but where they are cut does. */
    uint64_t (*hash)(const float *w, size_t n_elems, uint64_t first);
    /* The sum of squares in double, with a fixed order of additions. */
    double (*sum_squares)(const float *x, size_t n_elems);
    /* dst[i] += src[i]. */
    void (*accumulate)(float *dst, const float *src, size_t n_elems);
    /* One line for doctor and the manifest: libraries, versions, instruction set. */
    void (*describe)(tti_str *str);
} tti_backend;

/* The CPU backend, always present. */
extern const tti_backend tti_backend_cpu;

#endif /* TTI_BACKEND_H */
