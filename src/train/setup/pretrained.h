/* pretrained.h - initial parameters of a run: model.init, a folder or file of weights. */
#ifndef TTI_TRAIN_PRETRAINED_H
#define TTI_TRAIN_PRETRAINED_H

#include "exec/exec.h"
#include "train/setup/blueprint.h"

/* Replaces parameters and buffers of exec (and their averages) by those of path (ckpt/weights.h),
 * in the layout of Hugging Face, of torchvision or of ours.  All of them must be there, except
 * those that match a pattern of model.init_except, and no others; if not, TUTTI_E_CHECKPOINT lists
 * up to 10 tensors and nothing has been changed.  Called by every rank. */
tutti_status tti_pretrained_load(const tti_blueprint *b, tti_exec *exec, const char *path);

/* The same from the file of model.file, which has all of them. */
tutti_status tti_imported_load(const tti_blueprint *b, tti_exec *exec);

#endif /* TTI_TRAIN_PRETRAINED_H */
