/* library.h - libraries of the toolkit, opened on demand. */
#ifndef TTI_CUDA_LIBRARY_H
#define TTI_CUDA_LIBRARY_H

#include "base/str.h"

/* The dlopen handle of the first of names, ended by NULL, that loads.  Searches the folders of
 * $TUTTI_CUDA_PATH (separated by ":"; a folder, or its lib or lib64), the loader's paths, then the
 * folders known to the build.  It stays loaded.  NULL: why says what was tried, and what to do. */
void *tti_cuda_library(const char *const *names, tti_str *why);

#endif /* TTI_CUDA_LIBRARY_H */
