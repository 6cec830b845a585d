/* ckpt.h - describes checkpoints and verifies their checksums.
 *
 * A run keeps its state in RUN/checkpoints/step-N/: model.safetensors and optimizer.safetensors,
 * which other programs can read, and manifest.json with the checksums of both. */
#ifndef TUTTI_CKPT_H
#define TUTTI_CKPT_H

#include "tutti/types.h"

TUTTI_EXTERN_C_BEGIN

/* Describes path as text, a few lines and one line for each tensor.  path may be
 *   a run folder          all its checkpoints, valid or not, and the newest valid one in full
 *   a checkpoint folder   its manifest and its tensors
 *   a safetensors file    its tensors, with the CRC-32C of each
 * Reads every byte and compares it with its checksum, if there is one.
 *
 * On success *out is owned by the caller, freed with free(); on failure it is NULL. Returns
 * TUTTI_E_CHECKPOINT if a file is damaged (for a run: if none of its checkpoints is valid), with
 * the file, offset and checksums in tutti_last_error(); TUTTI_E_IO or TUTTI_E_NOMEM. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ckpt_describe(const char *path, char **out);

TUTTI_EXTERN_C_END

#endif /* TUTTI_CKPT_H */
