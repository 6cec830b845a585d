/* types.h - element types, shapes, and the type of a value.
 *
 * A type is dtype + shape.  Shapes are row-major, at most TUTTI_MAX_DIMS dimensions; a
 * dimension may be 0 (an empty batch), and a shape without dimensions is a scalar.
 * Axes in comments: N batch, C channels, H height, W width, T time, K inner dimension.
 */
#ifndef TUTTI_TYPES_H
#define TUTTI_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/status.h"

#define TUTTI_MAX_DIMS 8

/* name, text (also in files and in the text form of a graph), bytes, is floating point */
#define TUTTI_DTYPE_MAP(X)   \
    X(F32, "f32", 4, true)   \
    X(F64, "f64", 8, true)   \
    X(F16, "f16", 2, true)   \
    X(BF16, "bf16", 2, true) \
    X(I32, "i32", 4, false)  \
    X(I64, "i64", 8, false)  \
    X(U8, "u8", 1, false)

typedef enum tutti_dtype {
#define TUTTI_DTYPE_ENUM(name, text, bytes, is_float) TUTTI_##name,
    TUTTI_DTYPE_MAP(TUTTI_DTYPE_ENUM)
#undef TUTTI_DTYPE_ENUM
        TUTTI_N_DTYPES
} tutti_dtype;

typedef struct tutti_shape {
    int n_dims;                  /* 0 .. TUTTI_MAX_DIMS; 0: a scalar */
    int64_t dim[TUTTI_MAX_DIMS]; /* each >= 0, outermost first       */
} tutti_shape;

typedef struct tutti_type {
    tutti_dtype dtype;
    tutti_shape shape;
} tutti_type;

TUTTI_EXTERN_C_BEGIN

/* Returns the bytes of one element, 0 for a value outside the enum. */
TUTTI_API size_t tutti_dtype_bytes(tutti_dtype dtype);

/* Returns "f32", "i32" and so on; "?" for a value outside the enum. */
TUTTI_API const char *tutti_dtype_text(tutti_dtype dtype);

/* Returns the product of the dimensions; 1 for a scalar.  Shapes made by the library never overflow
 * int64_t: every constructor checks that. */
TUTTI_API int64_t tutti_shape_n_elems(const tutti_shape *shape);

TUTTI_EXTERN_C_END

/* A shape literal: TUTTI_SHAPE(32, 1, 28, 28). */
#define TUTTI_SHAPE(...) \
    ((tutti_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})

#endif /* TUTTI_TYPES_H */
