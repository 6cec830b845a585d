/* user_key.h - a secret of the user, shared by all processes of the user that see one cache folder.
 *
 * Ranks of one host derive the name of their socket from it.  The file has mode 0600 and is written
 * once; it may be removed while no job is starting.  A file of the user that is damaged, or that
 * others can read, is replaced. */
#ifndef TTI_LAUNCH_USER_KEY_H
#define TTI_LAUNCH_USER_KEY_H

#include <stddef.h>

#include "tutti/status.h"

/* Writes the key, a text of 64 characters, into key[n_bytes]; makes the file if it is not there.
 * Processes that start together get the same key.  TUTTI_OK with "": there is no cache folder, or
 * no file can be written in it.  TUTTI_E_CONFIG: something else stands in the file's place (a link,
 * a pipe, another user's file), or a damaged file cannot be replaced; the message says what to do.
 */
TUTTI_NODISCARD tutti_status tti_user_key(char *key, size_t n_bytes);

#endif /* TTI_LAUNCH_USER_KEY_H */
