/* labels.h - the class labels of a loss inside a model. */
#ifndef TTI_IMPORT_LABELS_H
#define TTI_IMPORT_LABELS_H

#include <stdint.h>

/* Each element of the input is a class in 0 .. n_classes-1 or the label that the loss ignores. */
typedef struct tti_import_labels {
    int input;                  /* index of the user input */
    int64_t n_classes, ignored; /* n_classes 0: the model has no such loss */
} tti_import_labels;

#endif /* TTI_IMPORT_LABELS_H */
