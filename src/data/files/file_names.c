/* file_names.c - names that select a split, and names that are never data. */
#include "data/files/file_names.h"

#include <string.h>
#include <strings.h>

#include "base/error.h"

tti_part tti_part_of_word(const char *word, size_t n_bytes) {
    static const struct {
        const char *word;
        tti_part part;
    } words[] = {
        {"train", TTI_PART_TRAIN}, {"training", TTI_PART_TRAIN},  {"val", TTI_PART_TEST},
        {"valid", TTI_PART_TEST},  {"validation", TTI_PART_TEST}, {"dev", TTI_PART_TEST},
        {"test", TTI_PART_TEST},   {"testing", TTI_PART_TEST},
    };
    for (size_t i = 0; i < TTI_COUNT(words); i++)
        if (n_bytes == strlen(words[i].word) && strncasecmp(word, words[i].word, n_bytes) == 0)
            return words[i].part;
    return TTI_PART_NONE;
}

static bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

tti_part tti_part_of_path(const char *path) {
    for (const char *p = path; *p;) {
        size_t n = 0;
        while (is_alpha(p[n])) n++;
        tti_part part = tti_part_of_word(p, n);
        if (part != TTI_PART_NONE) return part;
        p += n ? n : 1;
    }
    return TTI_PART_NONE;
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
