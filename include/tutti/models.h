/* models.h - models that are chosen by name, and what they are told.
 *
 * A model is one C function that builds a graph with the calls of tutti/ops.h; these are built in.
 * A caller's own function goes to tutti_job_set_model. */
#ifndef TUTTI_MODELS_H
#define TUTTI_MODELS_H

#include "tutti/job.h"

enum { TUTTI_MODEL_MAX_HIDDEN = 16 };

/* What a built-in model is told through its user pointer. */
typedef struct tutti_model_params {
    int64_t n_classes;                      /* width of the logits, >= 1              */
    int n_hidden;                           /* mlp: hidden layers                     */
    int64_t hidden[TUTTI_MODEL_MAX_HIDDEN]; /* mlp: their widths                      */
    double dropout;                         /* probability before the last layer; 0: none */
} tutti_model_params;

typedef struct tutti_model {
    const char *name;
    const char *doc;      /* one line */
    tutti_model_fn build; /* its user is a const tutti_model_params * */
} tutti_model;

TUTTI_EXTERN_C_BEGIN

/* Models in alphabetic order: i = 0, 1, ... until NULL. */
TUTTI_API const tutti_model *tutti_model_at(int i);

/* The model of that name; NULL if there is none. */
TUTTI_API const tutti_model *tutti_model_find(const char *name);

TUTTI_EXTERN_C_END

#endif /* TUTTI_MODELS_H */
