/* labels.h - the labels of a loss inside a model. */
#ifndef TTI_IMPORT_LABELS_H
#define TTI_IMPORT_LABELS_H

#include <stdint.h>

/* Each element of an input is a class below n_classes, or the label that the loss leaves out. */
typedef struct tti_import_labels {
    int input;                  /* of the user */
    int64_t n_classes, ignored; /* n_classes 0: there is no such loss */
} tti_import_labels;

#endif /* TTI_IMPORT_LABELS_H */
