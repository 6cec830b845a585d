/* lost_device.c - advice after a device failure, which ends the run because this process can no
 * longer use the device.  A checkpoint is renamed to its final name only when it is complete, and
 * nothing is saved after a failure, so the newest checkpoint is valid.  Only rank 0 saves, and the
 * others do not wait for it: a worker that fails directly after a checkpoint may run this code
 * before the checkpoint has its final name. */
#include "train/loop/lost_device.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/str.h"
#include "ckpt/ckpt.h"

/* Returns the step of the newest checkpoint, -1: none. */
static int64_t newest_step(const char *run_dir) {
    int64_t *steps = NULL, newest = -1;
    size_t n_steps = 0;
    if (tti_ckpt_list(run_dir, &steps, &n_steps) == TUTTI_OK && n_steps > 0) newest = steps[0];
    free(steps);
    return newest;
}

/* Appends the checkpoint from which the run can continue. */
static void append_checkpoint(tti_str *text, int64_t newest, int64_t saving) {
    if (saving > newest) {
        tti_str_printf(text,
                       "The checkpoint of step %lld was still being written: the run continues "
                       "from it if it is complete, else ",
                       (long long)saving);
        if (newest >= 0)
            tti_str_printf(text, "from that of step %lld", (long long)newest);
        else
            tti_str_add(text, "it starts again");
    } else if (newest >= 0) {
        tti_str_printf(text, "The checkpoint of step %lld is good", (long long)newest);
    } else {
        tti_str_add(text, "There is no checkpoint yet, so the run starts again");
    }
}

void tti_lost_device_advise(const char *run_dir, const char *given_dir, bool exact, int64_t saving,
                            tutti_status status) {
    tti_str text = {0};
    if (status != TUTTI_E_DEVICE) return;
    tti_str_printf(&text, "%s.  ", tutti_last_error());
    append_checkpoint(&text, newest_step(run_dir), saving);
    tti_str_printf(&text,
                   ": tutti train --resume %.300s%s.  If the device fails again, name others in "
                   "parallel.devices; see nvidia-smi and the kernel's log (Xid) for the cause",
                   given_dir, exact ? " gives the same bits" : "");
    tti_fail(status, "%s", tti_str_text(&text));
    tti_str_free(&text);
}
