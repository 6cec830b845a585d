/* nearest.h - finds the most similar name: the edit distance behind "did you mean". */
#ifndef TTI_BASE_NEAREST_H
#define TTI_BASE_NEAREST_H

enum { TTI_NEAREST_MAX = 64, TTI_NOT_NEAR = 1 << 20 };

/* Insertions, deletions, replacements and swaps of neighbours that turn a into b; a case change
 * counts nothing, and '-' is as good as '_'.  TTI_NOT_NEAR if a or b is longer than
 * TTI_NEAREST_MAX bytes. */
int tti_edit_distance(const char *a, const char *b);

/* How far typed is from name, for suggestions: the edit distance if that is at most a third of
 * name's length (at least 1), 1 if one is the other with a word added ("batch_size": "batch"),
 * otherwise TTI_NOT_NEAR. */
int tti_nearness(const char *typed, const char *name);

#endif /* TTI_BASE_NEAREST_H */
