/* user_key.h - a secret that all processes of a user with the same cache folder share.
 *
 * Ranks of one host derive the name of their socket from it.  The file has mode 0600 and is written
 * once; it may be removed while no job is starting.  A damaged file, or one that other users can
 * read, is replaced. */
#ifndef TTI_LAUNCH_USER_KEY_H
#define TTI_LAUNCH_USER_KEY_H

#include <stddef.h>

#include "tutti/status.h"

/* Writes the key, 64 characters, into key[n_bytes]; creates the file if it does not exist.
 * Processes that start together get the same key.  TUTTI_OK with "": there is no cache folder, or
 * it is not writable.  TUTTI_E_CONFIG: the path is not a file of the user (a link, a pipe, another
 * user's file), or a damaged file cannot be replaced; the message suggests a solution. */
TUTTI_NODISCARD tutti_status tti_user_key(char *key, size_t n_bytes);

#endif /* TTI_LAUNCH_USER_KEY_H */
