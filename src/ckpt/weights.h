/* weights.h - folders of weights in the form that other programs exchange.
 *
 *     FOLDER/model.safetensors
 *     FOLDER/model-00001-of-00003.safetensors ...    and model.safetensors.index.json:
 *            {"metadata":{"total_size":BYTES},"weight_map":{"TENSOR":"FILE", ...}}
 *     FOLDER/config.json     settings that shapes do not determine, such as heads
 *
 * Every input may be hostile: files of an index are looked for in its own folder only.  Symbolic
 * links are followed, since caches of downloaded models consist of them.
 *
 * Errors:  TUTTI_E_CHECKPOINT (missing, damaged or cannot be read), TUTTI_E_IO (cannot be written),
 *          TUTTI_E_NOMEM, with the path.
 * Threads: open weights may be read by several threads at once. */
#ifndef TTI_CKPT_WEIGHTS_H
#define TTI_CKPT_WEIGHTS_H

#include "base/files/read_ahead.h"
#include "base/json_read.h"
#include "ckpt/safetensors.h"

enum { TTI_WEIGHTS_MAX_FILES = 1024 };

typedef struct tti_weights tti_weights;

/* Opens a folder or one .safetensors file; headers are read, tensors are not.  On success *out is
 * owned by the caller; on failure it is NULL. */
TUTTI_NODISCARD tutti_status tti_weights_open(const char *path, tti_weights **out);

/* NULL is a no-op. */
void tti_weights_close(tti_weights *weights);

/* Tensors by name in strcmp's order; an entry is borrowed until close. */
size_t tti_weights_n(const tti_weights *weights);
const tti_safetensors_entry *tti_weights_at(const tti_weights *weights, size_t i);

/* The place of a name, -1 if it is not there.  Aliases in "__metadata__" are followed. */
int64_t tti_weights_find(const tti_weights *weights, const char *name);

/* The elements of tensor i, of any floating dtype, as f32 [n_elems]. */
TUTTI_NODISCARD tutti_status tti_weights_read(const tti_weights *weights, size_t i, float *dst);

/* The same for n tensors, at [n], whose elements go to take in parts; tensor is a number in at.
 * readers NULL: the calling thread reads. */
TUTTI_NODISCARD tutti_status tti_weights_read_parts(const tti_weights *weights, const size_t *at,
                                                    int n, const tti_readers *readers,
                                                    tti_take_part_fn take, void *user);

/* The folder's config.json, owned by the caller (json_decref); NULL if there is none. */
TUTTI_NODISCARD tutti_status tti_weights_config(const tti_weights *weights, json_t **root);

typedef struct tti_weights_written {
    int n_files;      /* of tensors */
    uint64_t n_bytes; /* of tensors */
} tti_weights_written;

/* Writes tensors into an existing folder: one file, or several with an index if one would hold more
 * than max_file_bytes of tensors (0: no limit; a larger tensor gets its own file).  Durable on
 * return. */
TUTTI_NODISCARD tutti_status tti_weights_write(const char *dir, const tti_ckpt_tensor *tensors,
                                               size_t n_tensors, uint64_t max_file_bytes,
                                               tti_weights_written *out);

#endif /* TTI_CKPT_WEIGHTS_H */
