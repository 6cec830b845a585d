/* packed.h - writes the format "packed" (packed.c has its layout). */
#ifndef TTI_DATA_PACKED_H
#define TTI_DATA_PACKED_H

#include "data/dataset.h"

/* Writes the samples of ds, whose state begins with a tti_image_set, as the file of a split in
 * folder dir; with the training split also data.json.  Skipped samples are left out.  Adds a line
 * to report. */
tutti_status tti_packed_write(const tutti_dataset *ds, const char *dir, tutti_data_split split,
                              tti_str *report);

#endif /* TTI_DATA_PACKED_H */
