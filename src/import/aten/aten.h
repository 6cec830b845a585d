/* aten.h - the PyTorch operators, and functions that several of them use. A comment such as "self
 * dim index" above an operator's function lists its arguments in order. */
#ifndef TTI_IMPORT_ATEN_H
#define TTI_IMPORT_ATEN_H

#include "import/graph/building.h"

/* Tables of rows, one for each family; a row without a target ends each table. */
extern const tti_operator tti_operators_attention[], tti_operators_complex[],
    tti_operators_composed[], tti_operators_divide[], tti_operators_einsum[],
    tti_operators_functions[], tti_operators_host[], tti_operators_index[], tti_operators_layers[],
    tti_operators_logic[], tti_operators_loss[], tti_operators_math[], tti_operators_names[],
    tti_operators_norm[], tti_operators_order[], tti_operators_parts[], tti_operators_random[],
    tti_operators_reduce[], tti_operators_repeat[], tti_operators_resize[], tti_operators_shape[],
    tti_operators_volume[];

/* Read a layer's argument as an f32 value; a weight or bias that is None is NULL. */
tutti_value *tti_weight_at(tti_building *b, const tti_call *c, int k);
tutti_value *tti_float_at(tti_building *b, const tti_call *c, int k);
/* Sets the result of a call whose argument 0 has the samples. */
void tti_set_result_like(tti_building *b, const tti_call *c, tutti_value *value);

/* Builds a row whose member `as` is a formula (aten_formula.c). */
void tti_build_formula(tti_building *b, const tti_call *c);

/* Sets the floor of uniform random numbers plus a probability: 1 with that probability, else 0. */
void tti_set_floor_of_noise(tti_building *b, const tti_operand *x, tti_operand *out);

/* Sets the result of an element-wise function of two operands, with numpy's broadcasting. */
void tti_set_pair(tti_building *b, tti_operand *out, tutti_value *value, tti_elem elem,
                  const tti_operand *x, const tti_operand *y);
/* Computes f of two host tensors or numbers element-wise. elem NONE: by type promotion. */
void tti_fold_pair(tti_building *b, const tti_operand *x, const tti_operand *y, tti_elem elem,
                   double (*f)(double, double), tti_operand *out);
/* Applies Python's operators to sizes, with f2 of the row. */
void tti_fold_numbers(tti_building *b, const tti_call *c);
/* floor(x / y), and x - y * floor(x / y), like Python's // and %. */
double tti_floor_quotient(double x, double y);
double tti_floor_remainder(double x, double y);
/* Iterates over the elements of view, or repeats x if it is a number. */
tti_host_walk tti_elements(const tti_operand *x, const tti_host *view);
/* Returns 1 for nonzero elements of x, else 0; dimensions with equal elements may be 1. */
tutti_value *tti_nonzero(tti_building *b, const tti_operand *x);

tutti_value *tti_product(tti_building *b, tutti_value *p, tutti_value *q);

/* Member `ordered` of rows that accept virtually sorted arguments (aten_order.c). */
bool tti_index_ordered(tti_building *b, const tti_call *c);
bool tti_argsort_ordered(tti_building *b, const tti_call *c);
bool tti_cumsum_ordered(tti_building *b, const tti_call *c);

/* Records that the result is a view of all elements of argument 0, so that a write to it changes
 * argument 0. */
void tti_record_whole_view(const tti_building *b, const tti_call *c);
/* The dimension of x that is the batch; -1: none, or it is unknown (aten_repeat.c). */
int tti_batch_dim_of(tti_building *b, const tti_operand *x);

/* Write elements to indices of a constant (aten_scatter.c). */
void tti_fold_scatter(tti_building *b, const tti_call *c);
void tti_fold_scatter_add(tti_building *b, const tti_call *c);
void tti_fold_scatter_reduce(tti_building *b, const tti_call *c);
void tti_scatter_reduce(tti_building *b, const tti_call *c); /* the same for graph values */
/* index_put with indices ids [n] of dimensions first .. first + n - 1. */
void tti_put_joined(tti_building *b, const tti_call *c, tti_operand *const *ids, int first, int n);

/* One dimension of a max pooling. */
typedef struct tti_dilated_window {
    int64_t kernel, stride, pad, dilation;
} tti_dilated_window;

/* Lays the elements of all windows along dim next to each other in x, and removes the dilation from
 * *w. */
void tti_unfold_windows(tti_building *b, tti_operand *x, int dim, tti_dilated_window *w,
                        bool rounds_up);

/* Selects rows ids of x if ids contain each row equally often and in order. False: they do not, and
 * nothing was done. */
bool tti_repeat_each(tti_building *b, const tti_operand *x, const tti_operand *ids,
                     tti_operand *out);

/* Interpolation along a dimension (aten_resize.c). Gather selects indices [n]; weigh multiplies by
 * a matrix [n_out, n]; cubic_weight is the cubic kernel at a distance. */
tutti_value *tti_gather_along(tti_building *b, tutti_value *x, int dim, const int32_t *places,
                              int64_t n);
tutti_value *tti_weigh_along(tti_building *b, tutti_value *x, int dim, const float *matrix,
                             int64_t n_out);
double tti_cubic_weight(double distance, double a);

/* Reshape, permute and slice graph values and host tensors. */
void tti_do_reshape(tti_building *b, const tti_operand *x, const tutti_shape *to, tti_operand *out);
void tti_do_permute(tti_building *b, const tti_operand *x, const int *perm, tti_operand *out);
void tti_do_slice(tti_building *b, const tti_operand *x, int dim, int64_t start, int64_t len,
                  int64_t step, tti_operand *out);

/* Macros for rows: one function for graph values and host tensors; a formula of other operators
 * (aten_formula.c); another name of an operator. */
#define TTI_BOTH(op, args, fn) \
    { .target = "aten." op, .signature = args, .build = fn, .fold = fn }
#define TTI_FORMULA(op, args, text)                                          \
    {                                                                        \
        .target = "aten." op, .signature = args, .build = tti_build_formula, \
        .fold = tti_build_formula, .as = text                                \
    }
#define TTI_NAME(op, args, other)                                                             \
    {                                                                                         \
        .target = "aten." op, .signature = args, .build = tti_build_as, .fold = tti_build_as, \
        .as = "aten." other                                                                   \
    }

#endif /* TTI_IMPORT_ATEN_H */
