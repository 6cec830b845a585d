/* file_names.h - the meaning of file and folder names, the same for every format.
 *
 * Case does not matter: Train/, TRAIN.txt and X_train.npy are for training. */
#ifndef TTI_DATA_FILE_NAMES_H
#define TTI_DATA_FILE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

typedef enum tti_split { TTI_SPLIT_NONE, TTI_SPLIT_TRAIN, TTI_SPLIT_TEST } tti_split;

/* The split that a whole word names: train, training; val, valid, validation, dev, test, testing.
 */
tti_split tti_split_of_word(const char *word, size_t n_bytes);

/* The split that the first such word in a path names.  Words are runs of letters: "latest" does not
 * name the test split. */
tti_split tti_split_of_path(const char *path);

/* Whether a file or folder is never data: hidden (".DS_Store", "._1.jpg", ".ipynb_checkpoints"), or
 * written by a system or an archiver ("Thumbs.db", "desktop.ini", "__MACOSX"). */
bool tti_is_ignored_name(const char *name);

#endif /* TTI_DATA_FILE_NAMES_H */
