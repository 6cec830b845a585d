/* run_dir.h - the folder of a run: job.yaml, data.json, samples.txt, tokenizer.json, metrics.jsonl,
 * checkpoints/, log/. */
#ifndef TTI_TRAIN_RUN_DIR_H
#define TTI_TRAIN_RUN_DIR_H

#include "tutti/types.h"

/* Creates the run folder with checkpoints/ and log/: dir itself, or for "auto" the first free
 * runs/NAME-N. Refuses a folder that already holds a run. out has n_bytes. */
tutti_status tti_run_dir_create(const char *dir, const char *name, char *out, size_t n_bytes);

/* Returns TUTTI_E_CONFIG with the message that dir already holds a run. */
tutti_status tti_run_dir_refuse(const char *dir);

/* Removes the files of a run that failed before it started, and dir if it is then empty.  Does
 * nothing if dir holds a run. */
void tti_run_dir_discard(const char *dir);

/* Locks dir for the one process that trains in it, until it is unlocked or the process ends; waits
 * a second for a process that is about to end.  TUTTI_E_CONFIG: another process trains there.  File
 * systems without folder locks, such as NFS, give no protection. */
tutti_status tti_run_dir_lock(const char *dir, int *lock);

/* Releases a lock; -1 is a no-op. */
void tti_run_dir_unlock(int lock);

/* True if dir holds a run. */
bool tti_run_dir_exists(const char *dir);

#endif /* TTI_TRAIN_RUN_DIR_H */
