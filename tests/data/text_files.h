/* text_files.h - folders and small files for the tests of text data. */
#ifndef TTI_TESTS_TEXT_FILES_H
#define TTI_TESTS_TEXT_FILES_H

#include <dirent.h>

#include "data/idx_files.h"

static inline void t_put(const char *dir, const char *name, const void *bytes, size_t n_bytes) {
    t_write(t_path(dir, name), bytes, n_bytes);
}

static inline void t_put_text(const char *dir, const char *name, const char *text) {
    t_put(dir, name, text, strlen(text));
}

/* Removes the files of a folder, and the folder. */
static inline void t_clear_dir(const char *dir) {
    DIR *folder = opendir(dir);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.') unlink(t_path(dir, entry->d_name));
    closedir(folder);
    rmdir(dir);
}

#endif /* TTI_TESTS_TEXT_FILES_H */
