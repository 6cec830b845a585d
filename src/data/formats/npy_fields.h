/* npy_fields.h - the format "npy" where samples have several named fields. */
#ifndef TTI_DATA_NPY_FIELDS_H
#define TTI_DATA_NPY_FIELDS_H

#include "data/format.h"

/* Whether the job, or the run that is read again, asks for fields. */
bool tti_npy_wants_fields(const tutti_dataset_desc *desc);

/* tti_format.open of such data. */
tutti_status tti_npy_fields_open(const tutti_dataset_desc *desc, tti_source *source);

#endif /* TTI_DATA_NPY_FIELDS_H */
