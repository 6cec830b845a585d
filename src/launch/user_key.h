/* user_key.h - a secret of the user, shared by all processes of the user that see one cache folder.
 *
 * Ranks of one host derive the name of their socket from it.  The file has mode 0600 and is written
 * once; it may be removed while no job is starting. */
#ifndef TTI_LAUNCH_USER_KEY_H
#define TTI_LAUNCH_USER_KEY_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the key, a text of 64 characters, into key[n_bytes]; makes the file if it is not there.
 * False, with "": there is no cache folder, it cannot be written, or the file is not private to
 * this user. */
bool tti_user_key(char *key, size_t n_bytes);

#endif /* TTI_LAUNCH_USER_KEY_H */
