/* command.h - the command of workers that are processes. */
#ifndef TTI_TRAIN_COMMAND_H
#define TTI_TRAIN_COMMAND_H

#include "base/error.h"

enum { TTI_MAX_ARGV = 512 };

/* given (NULL-terminated) followed by more (likewise), NULL-terminated; the texts stay the
 * caller's. who: "train", whose desc has given.  TUTTI_E_INVALID: given is NULL or too long. */
tutti_status tti_command_make(const char *who, char *const *given, char *const *more,
                              char *argv[TTI_MAX_ARGV]);

#endif /* TTI_TRAIN_COMMAND_H */
