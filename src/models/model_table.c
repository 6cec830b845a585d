/* model_table.c - the models that a job can name.  To add one: a file with its builder, a line in
 * models.h, a row here. */
#include <stddef.h>
#include <string.h>

#include "models/models.h"

static const tutti_model models[] = {
    {"lenet", "2 x (conv 3x3, relu, max-pool), 2 linear; for small images", tti_model_lenet},
    {"mlp", "linear layers of model.hidden widths with relu between", tti_model_mlp},
};

const tutti_model *tutti_model_at(int i) {
    int n = (int)(sizeof models / sizeof models[0]);
    return i >= 0 && i < n ? &models[i] : NULL;
}

const tutti_model *tutti_model_find(const char *name) {
    for (int i = 0; tutti_model_at(i); i++)
        if (strcmp(models[i].name, name) == 0) return &models[i];
    return NULL;
}
