/* ckpt_dir.h - lists and removes the folders below RUN/checkpoints. */
#ifndef TTI_CKPT_CKPT_DIR_H
#define TTI_CKPT_CKPT_DIR_H

#include "base/arena.h"
#include "ckpt/ckpt.h"

#define TTI_CKPT_FOLDER "checkpoints"

/* A folder named like a checkpoint; whether it is good is not known. */
typedef struct tti_generation {
    int64_t step;
    bool replaced; /* "step-N.old": put aside while another of the same step took its place */
    char name[40]; /* of the folder, in RUN/checkpoints */
} tti_generation;

/* The step of a folder's name, "step-N", "step-N.old" or "step-N.tmp"; -1 if it is none. */
int64_t tti_ckpt_name_step(const char *name);

/* Newest first.  *out is freed with free(), NULL if there are none; no folder: none. */
tutti_status tti_ckpt_scan(const char *run_dir, tti_generation **out, size_t *n);

/* Removes dir/name: renames it first, so that it disappears atomically, then deletes its files.  If
 * something cannot be removed, it stays as "removed-NAME.tmp". */
void tti_ckpt_remove(const char *dir, const char *name);

/* Removes the folders of dir that a save ("step-N.tmp") or a removal ("removed-step-N.tmp") left
 * unfinished, and nothing else. */
void tti_ckpt_remove_leftovers(const char *dir);

/* Joins with '/'.  NULL only when arena is out of memory. */
char *tti_ckpt_path(tti_arena *arena, const char *dir, const char *name);

#endif /* TTI_CKPT_CKPT_DIR_H */
