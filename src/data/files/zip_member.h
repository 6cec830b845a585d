/* zip_member.h - finds the bytes of a zip archive's member, for .npz files. */
#ifndef TTI_DATA_ZIP_MEMBER_H
#define TTI_DATA_ZIP_MEMBER_H

#include "data/files/byte_reader.h"

/* Looks for a name, in any case if no member has exactly this one; *found false if it is not there.
 * TUTTI_E_DATA if the file is not a zip archive, or one that is encrypted, split, 64-bit or
 * damaged: a header of any member that differs from the directory counts as damage, for a name that
 * lost a bit would be a member that is not there. */
tutti_status tti_zip_find(const char *path, const char *name, bool *found, tti_file_part *out);

/* Calls fn with the name of every member, in the order of the directory; stops at a failure of fn.
 * Errors are those of tti_zip_find. */
typedef tutti_status (*tti_zip_member_fn)(void *user, const char *name);
tutti_status tti_zip_each(const char *path, tti_zip_member_fn fn, void *user);

#endif /* TTI_DATA_ZIP_MEMBER_H */
