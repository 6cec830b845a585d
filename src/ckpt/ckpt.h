/* ckpt.h - checkpoints: saving the state of a run and finding it again.
 *
 *     RUN/checkpoints/step-000001000/model.safetensors       parameters by name
 *                                    optimizer.safetensors
 *                                    state.NAME.exp_avg and the
 *                                    like
 *                                    manifest.json
 *                                    metadata and CRC-32C
 *                                    checksums
 *
 * A folder named step-N with a matching manifest is a generation.  Save writes a new folder
 * (step-N.tmp), makes it durable, reads it back from the disk against the checksums, and only then
 * renames it.  It removes older generations when `keep` newer ones have been verified.  So at every
 * moment, whatever is killed, the previous generation exists, and after save has returned TUTTI_OK,
 * the new one.
 *
 * Tensors are plain host memory; this module knows neither graphs nor ranks: one rank saves.
 *
 * Errors:  TUTTI_E_CHECKPOINT (bad, missing or unwritable, with file, place, checksums found and
 *          expected), TUTTI_E_INVALID (bad arguments), TUTTI_E_NOMEM.
 * Threads: one tti_ckpt is used by one thread at a time.  If two processes save into one run at
 *          once, the second one fails. */
#ifndef TTI_CKPT_CKPT_H
#define TTI_CKPT_CKPT_H

#include "ckpt/safetensors.h"

typedef enum tti_ckpt_file { TTI_CKPT_MODEL, TTI_CKPT_OPTIMIZER, TTI_CKPT_N_FILES } tti_ckpt_file;

/* The metadata of a checkpoint.  Texts are borrowed: by save from the caller, after open from the
 * tti_ckpt. */
typedef struct tti_ckpt_meta {
    int64_t step;        /* optimizer steps done; names the folder; 0 .. 10^15 */
    int64_t epoch;       /* epochs finished                      */
    int64_t position;    /* samples of the current epoch taken   */
    int64_t n_shards;    /* V                                    */
    int64_t seed;        /* any value                            */
    uint64_t job_digest; /* of what must not change on resume    */
    uint64_t params_hash;
    const char *backend; /* description, "" or NULL: none */
} tti_ckpt_meta;

/* Free-form text kept with the checkpoint, such as {"job", the job's YAML}. */
typedef struct tti_ckpt_text {
    const char *key, *text;
} tti_ckpt_text;

typedef struct tti_ckpt_save_desc {
    const char *run_dir; /* must exist */
    tti_ckpt_meta meta;
    const tti_ckpt_text *texts;
    size_t n_texts; /* at most 64, keys unique */
    const tti_ckpt_tensor *params, *optimizer;
    size_t n_params, n_optimizer;
    int keep;                             /* generations to keep, at least 2; 0: 2 */
    const tti_ckpt_access *access;        /* of optimizer: get; NULL: they lie in memory */
    const tti_ckpt_access *params_access; /* of params, likewise */
} tti_ckpt_save_desc;

/* Saves; returns when the checkpoint is durable and verified.  After a failure no temporary files
 * remain and earlier generations are unchanged.  A generation of the same step is replaced. */
TUTTI_NODISCARD tutti_status tti_ckpt_save(const tti_ckpt_save_desc *desc);

typedef struct tti_ckpt tti_ckpt;

/* Told about each generation that was passed over, and why. */
typedef void (*tti_ckpt_warn_fn)(void *user, const char *text);

/* Opens the newest generation of a run that verifies completely: every byte has been read and
 * compared with its checksum. warn may be NULL. If no generation is good, the error is that of the
 * newest one.  On success *out is owned by the caller; on failure it is NULL. */
TUTTI_NODISCARD tutti_status tti_ckpt_open(const char *run_dir, tti_ckpt_warn_fn warn, void *user,
                                           tti_ckpt **out);

/* The same for one folder, RUN/checkpoints/step-N; with verify false only the manifest and the
 * headers are checked, which is quick. */
TUTTI_NODISCARD tutti_status tti_ckpt_open_dir(const char *dir, bool verify, tti_ckpt **out);

/* Both with verification, for which these threads read. */
TUTTI_NODISCARD tutti_status tti_ckpt_open_by(const char *run_dir, const tti_readers *readers,
                                              tti_ckpt_warn_fn warn, void *user, tti_ckpt **out);
TUTTI_NODISCARD tutti_status tti_ckpt_open_dir_by(const char *dir, const tti_readers *readers,
                                                  tti_ckpt **out);

/* Opens the newest generation whose manifest and headers can be read, without verifying its
 * tensors: enough to read the metadata.  TUTTI_E_CHECKPOINT if there is none. */
TUTTI_NODISCARD tutti_status tti_ckpt_open_newest(const char *run_dir, tti_ckpt **out);

/* Steps of the generations there are, good or bad, newest first; *out is freed with free() and NULL
 * if there are none.  A run without the folder has none. */
TUTTI_NODISCARD tutti_status tti_ckpt_list(const char *run_dir, int64_t **out, size_t *n_steps);

/* Borrowed until close. */
const char *tti_ckpt_dir(const tti_ckpt *ckpt);
const tti_ckpt_meta *tti_ckpt_get_meta(const tti_ckpt *ckpt);
const char *tti_ckpt_get_text(const tti_ckpt *ckpt, const char *key); /* NULL: none */

/* The tensors of one of its files, in file order.  entry->crc is the manifest's. */
size_t tti_ckpt_n_tensors(const tti_ckpt *ckpt, tti_ckpt_file which);
const tti_safetensors_entry *tti_ckpt_tensor_at(const tti_ckpt *ckpt, tti_ckpt_file which,
                                                size_t i);

/* Fills tensors from a file.  Names, dtypes and shapes must be exactly those of the checkpoint;
 * otherwise the error names up to 10 tensors that are missing, unexpected or of another type, and
 * no memory has been changed.  Checksums are compared again; if one differs, the contents of the
 * tensors are undefined. */
TUTTI_NODISCARD tutti_status tti_ckpt_read(const tti_ckpt *ckpt, tti_ckpt_file which,
                                           const tti_ckpt_tensor *tensors, size_t n_tensors);

/* The same for tensors that are handed over by access->put, part after part, which access->readers
 * read.  The last part of a tensor is handed over once its checksum is right. */
TUTTI_NODISCARD tutti_status tti_ckpt_read_by(const tti_ckpt *ckpt, tti_ckpt_file which,
                                              const tti_ckpt_tensor *tensors, size_t n_tensors,
                                              const tti_ckpt_access *access);

/* NULL is a no-op. */
void tti_ckpt_close(tti_ckpt *ckpt);

#endif /* TTI_CKPT_CKPT_H */
