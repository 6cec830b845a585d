/* operators.c - the operator table: all families in one list, sorted by target once. */
#include "import/operators.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"
#include "import/import.h"
#include "import/onnx/onnx_ops.h"

enum { MAX_OPERATORS = 1024, MAX_TARGET = 128 };

static const tti_operator *const families[] = {
    tti_operators_math,           tti_operators_reduce,      tti_operators_shape,
    tti_operators_layers,         tti_operators_attention,   tti_operators_host,
    tti_operators_logic,          tti_operators_loss,        tti_operators_onnx_math,
    tti_operators_onnx_shape,     tti_operators_onnx_index,  tti_operators_onnx_layers,
    tti_operators_onnx_recurrent, tti_operators_random,      tti_operators_index,
    tti_operators_resize,         tti_operators_order,       tti_operators_volume,
    tti_operators_einsum,         tti_operators_composed,    tti_operators_names,
    tti_operators_parts,          tti_operators_divide,      tti_operators_functions,
    tti_operators_onnx_functions, tti_operators_onnx_resize, tti_operators_complex,
    tti_operators_repeat,         tti_operators_norm};

static const tti_operator *by_target[MAX_OPERATORS];
static size_t n_operators;
static pthread_once_t index_once = PTHREAD_ONCE_INIT;

static int compare_rows(const void *x, const void *y) {
    return strcmp((*(const tti_operator *const *)x)->target,
                  (*(const tti_operator *const *)y)->target);
}

static int compare_target(const void *target, const void *row) {
    return strcmp(target, (*(const tti_operator *const *)row)->target);
}

static void build_index(void) {
    for (size_t f = 0; f < TTI_COUNT(families); f++)
        for (const tti_operator *row = families[f]; row->target; row++) {
            TTI_ASSERT(n_operators < MAX_OPERATORS && row->signature && (row->build || row->fold));
            by_target[n_operators++] = row;
        }
    qsort(by_target, n_operators, sizeof by_target[0], compare_rows);
}

static const tti_operator *find(const char *target) {
    pthread_once(&index_once, build_index);
    const tti_operator *const *found =
        bsearch(target, by_target, n_operators, sizeof by_target[0], compare_target);
    return found ? *found : NULL;
}

/* Finds the row of a target. "aten.add_.Tensor" is "aten.add.Tensor" in place. */
const tti_operator *tti_operator_find(const char *target, bool *in_place) {
    char plain[MAX_TARGET];
    const tti_operator *row = find(target);
    const char *mark = strstr(target, "_.");
    *in_place = false;
    if (row || !mark || strlen(target) >= sizeof plain) return row;
    size_t n = (size_t)(mark - target);
    memcpy(plain, target, n);
    memcpy(plain + n, mark + 1, strlen(mark + 1) + 1);
    row = find(plain);
    *in_place = row != NULL;
    return row;
}

const char *tti_operator_name_at(int i) {
    pthread_once(&index_once, build_index);
    return i >= 0 && (size_t)i < n_operators ? by_target[i]->target : NULL;
}
