/* pretrained.h - loads the initial parameters of a run from model.init, a folder or file of
 * weights. */
#ifndef TTI_TRAIN_PRETRAINED_H
#define TTI_TRAIN_PRETRAINED_H

#include "exec/exec.h"
#include "train/setup/blueprint.h"

/* Replaces parameters and buffers of exec (and their averages) by those of path (ckpt/weights.h),
 * in the layout of Hugging Face, torchvision or Tutti.  The files must have exactly these tensors,
 * except those that match a pattern of model.init_except.  Otherwise TUTTI_E_CHECKPOINT lists up to
 * 10 tensors and nothing is changed.  Called by every rank. */
tutti_status tti_pretrained_load(const tti_blueprint *b, tti_exec *exec, const char *path);

/* Replaces parameters and buffers by those of model.file, which has all of them. */
tutti_status tti_imported_load(const tti_blueprint *b, tti_exec *exec);

/* Sets the initial parameters of a run: first from model.file, then from model.init; without either
 * they keep the values from the seed.  Compares them between all workers.  Called by every rank. */
tutti_status tti_first_weights_load(const tti_blueprint *b, tti_exec *exec);

#endif /* TTI_TRAIN_PRETRAINED_H */
