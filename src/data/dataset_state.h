/* dataset_state.h - an open data set, for the files that open and read it. */
#ifndef TTI_DATA_DATASET_STATE_H
#define TTI_DATA_DATASET_STATE_H

#include "data/dataset.h"
#include "data/skip_list.h"

struct tutti_dataset {
    tti_source source;    /* opened by the format */
    tti_skip_list *skips; /* NULL: a bad sample is a failure; owned */
    bool is_kept;         /* a thread was left in a read: it is never freed */
};

#endif /* TTI_DATA_DATASET_STATE_H */
