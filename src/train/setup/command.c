/* command.c - builds the command of worker processes: the caller's command, which starts this
 * program again, followed by arguments of the supervisor. */
#include "train/setup/command.h"

#include <stddef.h>

tutti_status tti_command_make(const char *who, char *const *given, char *const *more,
                              char *argv[TTI_MAX_ARGV]) {
    int n = 0;
    if (!given)
        return tti_fail(TUTTI_E_INVALID,
                        "%s: parallel.place=processes needs the command of a worker "
                        "(tutti_%s_desc.worker_argv)",
                        who, who);
    for (int part = 0; part < 2; part++)
        for (char *const *word = part ? more : given; *word; word++) {
            if (n == TTI_MAX_ARGV - 1)
                return tti_fail(TUTTI_E_INVALID, "%s: the command of a worker has over %d words",
                                who, TTI_MAX_ARGV - 1);
            argv[n++] = *word;
        }
    argv[n] = NULL;
    return TUTTI_OK;
}
