/* command.h - the command of workers that are processes. */
#ifndef TTI_TRAIN_COMMAND_H
#define TTI_TRAIN_COMMAND_H

#include "base/error.h"

enum { TTI_MAX_ARGV = 512 };

/* Returns the words of given followed by those of more; all arrays end with NULL, and the texts
 * stay the caller's. who: "train", the call that received given.  TUTTI_E_INVALID: given is NULL or
 * too long. */
tutti_status tti_command_make(const char *who, char *const *given, char *const *more,
                              char *argv[TTI_MAX_ARGV]);

#endif /* TTI_TRAIN_COMMAND_H */
