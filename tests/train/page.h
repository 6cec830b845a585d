/* page.h - the page of a run, as text. */
#ifndef TTI_TESTS_TRAIN_PAGE_H
#define TTI_TESTS_TRAIN_PAGE_H

#include <stdio.h>

#include "t.h"

/* Static, until the next call. */
static inline char *page_of(const char *path) {
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* How often part stands in text. */
static inline int n_of(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) n++;
    return n;
}

#endif /* TTI_TESTS_TRAIN_PAGE_H */
