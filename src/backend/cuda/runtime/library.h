/* library.h - libraries of the toolkit, opened when they are needed. */
#ifndef TTI_CUDA_LIBRARY_H
#define TTI_CUDA_LIBRARY_H

#include "base/str.h"

/* The handle of dlopen for the first of names, ended by NULL, that loads.  Looked for in the
 * folders of $TUTTI_CUDA_PATH (":" between them; a folder, or its lib or lib64), where the loader
 * looks, then in the folders known when this was built.  It stays loaded.  NULL: why says what was
 * tried, and what to do. */
void *tti_cuda_library(const char *const *names, tti_str *why);

#endif /* TTI_CUDA_LIBRARY_H */
