/* file_list.h - which files of a folder, a pattern or a single path make up a split.
 *
 * Names decide: a file with the word train (training) in its name is for training, one with val,
 * valid, validation or test for testing; words end where letters end, so "latest" is no test.
 * Where no name tells, or none is for testing, all files hold both splits. */
#ifndef TTI_DATA_FILE_LIST_H
#define TTI_DATA_FILE_LIST_H

#include "tutti/data.h"

typedef struct tti_file_list {
    size_t n;
    char **path; /* sorted by name; owned */
    bool both;   /* the files hold both splits */
} tti_file_list;

/* The files of desc->dir: a file, a pattern (with * ? or []), or a folder, of which the names that
 * end in suffix (".txt") or suffix.gz count.  At least one, or TUTTI_E_DATA.  format is for
 * messages. */
tutti_status tti_file_list_make(const tutti_dataset_desc *desc, const char *format,
                                const char *suffix, tti_file_list *out);

/* Of a list that was made elsewhere, those of desc->split by their names, in their order. */
tutti_status tti_file_list_choose(const tutti_dataset_desc *desc, const char *format,
                                  tti_file_list *list);

void tti_file_list_free(tti_file_list *list);

/* How much of n (rows, bytes, tokens) is for training, the first; the rest, at least 1 of more than
 * 1, is for testing.  Decided by val_fraction, 0 standing for 0.1. */
int64_t tti_split_at(const tutti_dataset_desc *desc, int64_t n);

#endif /* TTI_DATA_FILE_LIST_H */
