/* file_list.h - which files of a folder, a pattern or a single path make up a split.
 *
 * The names of files and of folders below data.dir decide: the first word with a meaning
 * (file_names.h) says whether a file is for training or for testing.  If no name does, or none is
 * for testing, all files hold both splits. */
#ifndef TTI_DATA_FILE_LIST_H
#define TTI_DATA_FILE_LIST_H

#include "tutti/data.h"

typedef struct tti_file_list {
    size_t n;
    char **path;       /* sorted by name; owned */
    bool both;         /* the files hold both splits */
    int64_t n_ignored; /* hidden files, files of another kind, files of neither split */
} tti_file_list;

/* The files of desc->dir: a file, a pattern (with * ? or []), or a folder.  In a folder, names that
 * end in suffix (".txt") or suffix.gz count, also in folders named train, val and so on.  At least
 * one file, or TUTTI_E_DATA. format is for messages. */
tutti_status tti_file_list_make(const tutti_dataset_desc *desc, const char *format,
                                const char *suffix, tti_file_list *out);

/* Selects from an existing list the files of desc->split by their names, in their order. */
tutti_status tti_file_list_choose(const tutti_dataset_desc *desc, const char *format,
                                  tti_file_list *list);

void tti_file_list_free(tti_file_list *list);

/* The fraction that is for testing: val_fraction, 0 standing for 0.1, -1 for 0. */
double tti_test_share(const tutti_dataset_desc *desc);

/* How much of n (rows, bytes, tokens) is for training, the first; the rest, at least 1 of more than
 * 1 unless the share is 0, is for testing. */
int64_t tti_split_at(const tutti_dataset_desc *desc, int64_t n);

#endif /* TTI_DATA_FILE_LIST_H */
