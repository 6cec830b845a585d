/* idle_devices.c - members publish in their progress pages that they are idle, because calls of a
 * broken group would fail. */
#include "train/loop/idle_devices.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "comm/progress.h"

enum { MOST_MS = 10000 };

static const char idle[] = "device idle";

/* True if the process is gone or a zombie: a zombie uses no device. */
static bool is_dead(int pid) {
    char state = (char)tti_process_state(pid);
    return state == 0 || state == 'Z' || state == 'X';
}

static bool is_idle(const tti_progress *page) {
    return !page->joined || page->left || strcmp(page->phase, idle) == 0 || is_dead(page->pid);
}

void tti_idle_devices_wait(tutti_comm *comm, int64_t step) {
    int64_t end_ns = tti_now_ns() + MOST_MS * TTI_NS_PER_MS;
    tti_progress page;
    tti_comm_note(comm, (uint64_t)step, idle);
    for (int i = 0; tti_comm_get_progress_here(comm, i, &page);) {
        if (is_idle(&page) || tti_now_ns() >= end_ns)
            i++;
        else
            tti_sleep_ms(1);
    }
}
