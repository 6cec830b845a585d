/* live.h - how another process finds a run while it trains: RUN/live names the process that has the
 * flight recorder's memory, and its descriptor.  Of a run on several hosts that is the one of the
 * host that leads, and RUN/live-host-K names that of another one.  The memory goes with its
 * processes, so a file that a killed run left behind leads nowhere. */
#ifndef TTI_LAUNCH_LIVE_H
#define TTI_LAUNCH_LIVE_H

#include "base/flight.h"

#define TTI_LIVE_FILE "live"

/* Writes the file for memory of this process, unless no other program can map it; removes it.
 * node: of a host that does not lead; -1: run_dir/live. */
TUTTI_NODISCARD tutti_status tti_live_write(const char *run_dir, int node,
                                            const tti_flight_memory *memory);
void tti_live_remove(const char *run_dir, int node);

/* Opens the recorder of the process of this machine that trains in run_dir, if there are several
 * that of the host that leads.  TUTTI_E_CONFIG: none does.  On success *out is owned by the caller.
 */
TUTTI_NODISCARD tutti_status tti_live_open(const char *run_dir, tti_flight_memory **out);

/* The memory of the supervisor that started this process, from TUTTI_FLIGHT_FD; NULL: there is
 * none.  On success *out is owned by the caller. */
TUTTI_NODISCARD tutti_status tti_live_inherit(tti_flight_memory **out);

#endif /* TTI_LAUNCH_LIVE_H */
