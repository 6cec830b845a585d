/* run_dir.h - the folder of a run: job.yaml, data.json, tokenizer.json, metrics.jsonl,
 * checkpoints/, log/. */
#ifndef TTI_TRAIN_RUN_DIR_H
#define TTI_TRAIN_RUN_DIR_H

#include "tutti/types.h"

/* Decides on the folder: dir itself, or for "auto" the first free runs/NAME-N.  A folder that
 * already holds a run is refused.  Creates it with checkpoints/ and log/; out has n_bytes. */
tutti_status tti_run_dir_create(const char *dir, const char *name, char *out, size_t n_bytes);

/* Says that dir holds a run: TUTTI_E_CONFIG. */
tutti_status tti_run_dir_refuse(const char *dir);

/* Removes what a run that failed before it started has left in dir, and dir if nothing else is in
 * it.  Does nothing if dir holds a run. */
void tti_run_dir_discard(const char *dir);

/* Takes dir for the one process that trains in it, until it is unlocked or the process ends; waits
 * a second for one that is about to.  TUTTI_E_CONFIG: another one trains there.  Where the file
 * system has no locks for folders, as NFS, nobody is kept out. */
tutti_status tti_run_dir_lock(const char *dir, int *lock);

/* Of a lock of -1 there is none. */
void tti_run_dir_unlock(int lock);

/* True if dir holds a run. */
bool tti_run_dir_exists(const char *dir);

#endif /* TTI_TRAIN_RUN_DIR_H */
