/* file_names.c - names that select a split, and names that are never data. */
#include "data/files/file_names.h"

#include <string.h>
#include <strings.h>

#include "base/error.h"

tti_split tti_split_of_word(const char *word, size_t n_bytes) {
    static const struct {
        const char *word;
        tti_split split;
    } words[] = {
        {"train", TTI_SPLIT_TRAIN}, {"training", TTI_SPLIT_TRAIN},  {"val", TTI_SPLIT_TEST},
        {"valid", TTI_SPLIT_TEST},  {"validation", TTI_SPLIT_TEST}, {"dev", TTI_SPLIT_TEST},
        {"test", TTI_SPLIT_TEST},   {"testing", TTI_SPLIT_TEST},
    };
    for (size_t i = 0; i < TTI_COUNT(words); i++)
        if (n_bytes == strlen(words[i].word) && strncasecmp(word, words[i].word, n_bytes) == 0)
            return words[i].split;
    return TTI_SPLIT_NONE;
}

static bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

tti_split tti_split_of_path(const char *path) {
    for (const char *p = path; *p;) {
        size_t n = 0;
        while (is_alpha(p[n])) n++;
        tti_split split = tti_split_of_word(p, n);
        if (split != TTI_SPLIT_NONE) return split;
        p += n ? n : 1;
    }
    return TTI_SPLIT_NONE;
}

bool tti_is_ignored_name(const char *name) {
    static const char *const names[] = {
        "Thumbs.db",
        "desktop.ini",
        "Icon\r",
        "__MACOSX",
        "__pycache__",
        "$RECYCLE.BIN",
        "System Volume Information",
        "lost+found",
        "@eaDir",
    };
    bool ignored = name[0] == '.';
    for (size_t i = 0; i < TTI_COUNT(names); i++) ignored |= strcasecmp(name, names[i]) == 0;
    return ignored;
}
