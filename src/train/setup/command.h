/* command.h - the command of workers that are processes. */
#ifndef TTI_TRAIN_COMMAND_H
#define TTI_TRAIN_COMMAND_H

#include "base/error.h"

enum { TTI_MAX_ARGV = 512 };

/* Writes the words of given followed by those of more to argv.  All arrays end with NULL; argv
 * borrows the texts. who: prefix of messages, such as "train".  TUTTI_E_INVALID: given is NULL or
 * too long. */
tutti_status tti_command_make(const char *who, char *const *given, char *const *more,
                              char *argv[TTI_MAX_ARGV]);

#endif /* TTI_TRAIN_COMMAND_H */
