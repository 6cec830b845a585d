/* module_file.h - finds this project's shared objects by name and reads their version.
 *
 * A module is tutti-NAME.so.  It is looked for in $TUTTI_MODULE_PATH alone where that is set, else
 * beside the file of the program or library, symbolic links resolved, and in the folder that it was
 * installed to.  It stays loaded. */
#ifndef TTI_BASE_MODULE_FILE_H
#define TTI_BASE_MODULE_FILE_H

#include "base/str.h"

/* Returns the contents of the open file under this name, as the caller defines them; NULL: why
 * describes the problem. handle is for dlsym. */
typedef const void *(*tti_module_ask)(void *handle, const char *name, tti_str *why);

/* The first offer of a file of this name; NULL: tried has one line for each place looked at, with
 * the reason why it did not do. */
const void *tti_module_find(const char *name, tti_module_ask ask, tti_str *tried);

/* The file that an offer is from. */
const char *tti_module_file_of(const void *offer);

#endif /* TTI_BASE_MODULE_FILE_H */
