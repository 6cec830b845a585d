/* kept_samples.h - training samples that stay on a device. */
#ifndef TTI_TRAIN_KEPT_SAMPLES_H
#define TTI_TRAIN_KEPT_SAMPLES_H

#include "data/loader/loader.h"
#include "exec/exec.h"
#include "train/setup/blueprint.h"

/* Copies the training split to the device of exec, if data.resident asks for it.  Then *index is
 * memory for the sample numbers of a batch, owned by the caller. *index NULL: the samples are not
 * resident, and a loader must load the batches. lasting: as in tti_exec_keep; samples in it are not
 * read again. */
TUTTI_NODISCARD tutti_status tti_samples_keep(const tti_blueprint *b, tti_exec *exec,
                                              const tti_loader_desc *order, bool is_async,
                                              tti_lasting_samples *lasting, int32_t **index);

#endif /* TTI_TRAIN_KEPT_SAMPLES_H */
