/* phases.c - declares phases to the communicator, and bounds waits for data. */
#include "train/loop/phases.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "comm/progress.h"
#include "launch/stop.h"

enum { WARN_MS = 10000, STOP_WAITS_MS = 1000 };

void tti_phases_init(tti_phases *p, const tti_worker_loop_desc *desc) {
    *p = (tti_phases){.desc = desc};
}

void tti_phases_wait_for_peers(const tti_phases *p, const char *what) {
    int n = p->desc->comm ? tutti_comm_n_ranks(p->desc->comm) : 1;
    tti_flight_begin(
        p->desc->flight, TTI_THREAD_MAIN,
        &(tti_flight_op){
            .name = what, .step = (uint64_t)p->step, .n_peers = n - 1, .waits_for_peers = n > 1});
}

tutti_status tti_phases_end_wait(const tti_phases *p, tutti_status st) {
    tti_flight_end(p->desc->flight, TTI_THREAD_MAIN);
    return st;
}

void tti_phases_begin(tti_phases *p, const char *activity) {
    p->is_declared = true;
    tti_flight_phase(p->desc->flight, activity);
    tti_comm_declare(p->desc->progress, activity);
}

void tti_phases_note(tti_phases *p, int64_t step, const char *what) {
    tti_comm_note(p->desc->progress, (uint64_t)step, what);
}

tutti_status tti_phases_end(tti_phases *p) {
    tutti_comm *comm = p->desc->comm;
    p->is_declared = false;
    tti_flight_phase(p->desc->flight, NULL);
    tti_comm_declare(p->desc->progress, NULL);
    if (!comm || tutti_comm_n_ranks(comm) == 1 || p->desc->server) return TUTTI_OK;
    /* places covers all workers: those on devices and those on the host. */
    if (p->desc->blueprint->places.n == 0) return TUTTI_OK;
    tti_phases_wait_for_peers(p, "end of phase");
    return tti_phases_end_wait(p, tti_comm_end_phase(comm));
}

static void warn(tti_phases *p, const char *what, int64_t waited_ms) {
    char text[900];
    const tutti_train_desc *train = p->desc->train;
    if (p->has_warned || !train->on_event) return;
    p->has_warned = true;
    snprintf(text, sizeof text, "rank %d has been waiting %lld ms for data: %s", p->desc->rank,
             (long long)waited_ms, what);
    tutti_event warning = {.kind = TUTTI_EVENT_WARNING, .text = text};
    train->on_event(train->user, &warning);
}

bool tti_phases_wait(void *phases, const char *what, int64_t waited_ms) {
    tti_phases *p = phases;
    int64_t limit_ms = p->desc->blueprint->config.parallel.phase_timeout_ms;
    bool is_new = p->waited_ms == 0;
    p->waited_ms = waited_ms;
    if (is_new && !p->is_declared) tti_comm_declare(p->desc->progress, "loading data");
    if (waited_ms >= TTI_MIN(WARN_MS, limit_ms / 4)) warn(p, what, waited_ms);
    if (!tti_stop_requested()) return true;
    if (p->stop_asked_ns == 0) p->stop_asked_ns = tti_now_ns();
    p->gave_up = tti_now_ns() - p->stop_asked_ns >= STOP_WAITS_MS * TTI_NS_PER_MS;
    if (p->gave_up) warn(p, what, waited_ms);
    return !p->gave_up;
}

tutti_status tti_phases_next_batch(tti_phases *p, tti_loader *loader, tti_batch *batch) {
    tti_flight_begin(
        p->desc->flight, TTI_THREAD_MAIN,
        &(tti_flight_op){.name = "load batch", .step = (uint64_t)p->step, .waits_for_loads = true});
    if (!p->is_declared) (void)TTI_FAULT_AT("train.data", p->desc->rank, p->step);
    tutti_status st = loader ? tti_loader_next(loader, batch) : TUTTI_OK;
    tti_flight_end(p->desc->flight, TTI_THREAD_MAIN);
    if (p->waited_ms == 0) return st;
    if (st != TUTTI_E_TIMEOUT && !p->is_declared) tti_comm_declare(p->desc->progress, NULL);
    p->waited_ms = 0;
    p->has_warned = false;
    if (st == TUTTI_E_TIMEOUT)
        tti_fail_context("rank %d (parallel.phase_timeout_ms=%lld): ", p->desc->rank,
                         (long long)p->desc->blueprint->config.parallel.phase_timeout_ms);
    return st;
}
