/* mlp.c - a multi-layer perceptron.  x: [N,...] -> logits [N,n_classes]. */
#include <stdio.h>

#include "models/models.h"
#include "tutti/ops.h"

tutti_value *tti_model_mlp(tutti_graph *g, tutti_value *x, const void *user) {
    const tutti_model_params *p = user;
    x = tutti_flatten(g, x);
    for (int i = 0; i < p->n_hidden; i++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", i + 1);
        x = tutti_relu(g, tutti_linear(g, x, p->hidden[i], name));
    }
    if (p->dropout > 0) x = tutti_dropout(g, x, p->dropout, "drop");
    return tutti_linear(g, x, p->n_classes, "out");
}
