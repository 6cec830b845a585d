/* aten.h - the operators of PyTorch, and what other operators use of them. */
#ifndef TTI_IMPORT_ATEN_H
#define TTI_IMPORT_ATEN_H

#include "import/graph/building.h"

/* Rows by family, each ended by one without a target. */
extern const tti_operator tti_operators_attention[], tti_operators_complex[],
    tti_operators_composed[], tti_operators_divide[], tti_operators_einsum[],
    tti_operators_functions[], tti_operators_host[], tti_operators_index[], tti_operators_layers[],
    tti_operators_logic[], tti_operators_loss[], tti_operators_math[], tti_operators_names[],
    tti_operators_norm[], tti_operators_order[], tti_operators_parts[], tti_operators_random[],
    tti_operators_reduce[], tti_operators_repeat[], tti_operators_resize[], tti_operators_shape[],
    tti_operators_volume[];

/* Arguments of layers as values, f32: a weight or a bias is NULL if it is None. */
tutti_value *tti_weight_at(tti_building *b, const tti_call *c, int k);
tutti_value *tti_float_at(tti_building *b, const tti_call *c, int k);
/* The result of a call whose argument 0 is the samples'. */
void tti_set_result_like(tti_building *b, const tti_call *c, tutti_value *value);

/* Builds a row whose formula is in as (aten_formula.c). */
void tti_build_formula(tti_building *b, const tti_call *c);

/* floor of uniform numbers plus a share: 1 with that probability, else 0. */
void tti_set_floor_of_noise(tti_building *b, const tti_operand *x, tti_operand *out);

/* The result of a function of two operands by elements, with numpy's broadcasting. */
void tti_set_pair(tti_building *b, tti_operand *out, tutti_value *value, tti_elem elem,
                  const tti_operand *x, const tti_operand *y);
/* The same of host tensors and numbers, computed; elem NONE: by promotion. */
void tti_fold_pair(tti_building *b, const tti_operand *x, const tti_operand *y, tti_elem elem,
                   double (*f)(double, double), tti_operand *out);
/* The operators of Python on sizes: the f2 of their row. */
void tti_fold_numbers(tti_building *b, const tti_call *c);
/* floor(x / y), and x minus y times it, as Python's // and %. */
double tti_floor_quotient(double x, double y);
double tti_floor_remainder(double x, double y);
/* The elements of x, of which view has them unless x is a number. */
tti_host_walk tti_elements(const tti_operand *x, const tti_host *view);
/* 1 where x is not 0, else 0; dimensions of equal elements may be 1. */
tutti_value *tti_truth(tti_building *b, const tti_operand *x);

tutti_value *tti_product(tti_building *b, tutti_value *p, tutti_value *q);

/* Rows in an order (aten_order.c), and the use of them by operators (ordered). */
bool tti_index_ordered(tti_building *b, const tti_call *c);
bool tti_argsort_ordered(tti_building *b, const tti_call *c);
bool tti_cumsum_ordered(tti_building *b, const tti_call *c);

/* The dimension of x that is the batch; -1: none is, or it is not known (aten_repeat.c). */
/* Notes that the result is a view of all elements of argument 0, so that a write reaches them. */
void tti_note_whole(const tti_building *b, const tti_call *c);

int tti_batch_dim_of(tti_building *b, const tti_operand *x);

/* Elements put to places of a constant (aten_scatter.c). */
void tti_fold_scatter(tti_building *b, const tti_call *c);
void tti_fold_scatter_add(tti_building *b, const tti_call *c);
void tti_fold_scatter_reduce(tti_building *b, const tti_call *c);
void tti_scatter_reduce(tti_building *b, const tti_call *c); /* the same of values of the graph */
/* index_put with indices ids [n] of dimensions first .. first + n - 1. */
void tti_put_joined(tti_building *b, const tti_call *c, tti_operand *const *ids, int first, int n);

/* One dimension of a max pooling. */
typedef struct tti_dilated_window {
    int64_t kernel, stride, pad, dilation;
} tti_dilated_window;

/* x with the elements of all windows along dim side by side, and *w then without a dilation. */
void tti_lay_windows(tti_building *b, tti_operand *x, int dim, tti_dilated_window *w,
                     bool rounds_up);

/* x at ids along dimension 0, where ids name each row the same number of times, in order; false:
 * they do not, and nothing was done. */
bool tti_repeat_each(tti_building *b, const tti_operand *x, const tti_operand *ids,
                     tti_operand *out);

/* Interpolation along a dimension (aten_resize.c): x at places [n]; x times a matrix [n_out, n];
 * the kernel of a cubic at a distance. */
tutti_value *tti_gather_along(tti_building *b, tutti_value *x, int dim, const int32_t *places,
                              int64_t n);
tutti_value *tti_weigh_along(tti_building *b, tutti_value *x, int dim, const float *matrix,
                             int64_t n_out);
double tti_cubic_weight(double distance, double a);

/* Shapes of operands of both kinds. */
void tti_do_reshape(tti_building *b, const tti_operand *x, const tutti_shape *to, tti_operand *out);
void tti_do_permute(tti_building *b, const tti_operand *x, const int *perm, tti_operand *out);
void tti_do_slice(tti_building *b, const tti_operand *x, int dim, int64_t start, int64_t len,
                  int64_t step, tti_operand *out);

/* Rows of the tables of operators: one function for values of the graph and of the host; a formula
 * of other operators (aten_formula.c); another name of an operator. */
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
