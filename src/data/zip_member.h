/* zip_member.h - where a member of a zip archive lies, for .npz files. */
#ifndef TTI_DATA_ZIP_MEMBER_H
#define TTI_DATA_ZIP_MEMBER_H

#include "tutti/types.h"

typedef struct tti_zip_member {
    bool found, deflated;
    uint64_t offset;  /* of its bytes in the archive    */
    uint64_t n_bytes; /* of them, deflated or as it is  */
} tti_zip_member;

/* Looks for a name; found false if it is not there.  TUTTI_E_DATA if the file is no zip archive, or
 * one that is encrypted, split, 64-bit or damaged. */
tutti_status tti_zip_find(const char *path, const char *name, tti_zip_member *out);

#endif /* TTI_DATA_ZIP_MEMBER_H */
