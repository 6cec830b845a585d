/* live.h - how another process finds a run while it trains: RUN/live names the process that has the
 * flight recorder's memory, and its descriptor.  The memory goes with its processes, so a file that
 * a killed run left behind leads nowhere. */
#ifndef TTI_LAUNCH_LIVE_H
#define TTI_LAUNCH_LIVE_H

#include "base/flight.h"

#define TTI_LIVE_FILE "live"

/* Writes run_dir/live for memory of this process, unless no other program can map it; removes it.
 */
TUTTI_NODISCARD tutti_status tti_live_write(const char *run_dir, const tti_flight_memory *memory);
void tti_live_remove(const char *run_dir);

/* Opens the recorder of the process that trains in run_dir.  TUTTI_E_CONFIG: none does.  On success
 * *out is owned by the caller. */
TUTTI_NODISCARD tutti_status tti_live_open(const char *run_dir, tti_flight_memory **out);

/* The memory of the supervisor that started this process, from TUTTI_FLIGHT_FD; NULL: there is
 * none.  On success *out is owned by the caller. */
TUTTI_NODISCARD tutti_status tti_live_inherit(tti_flight_memory **out);

#endif /* TTI_LAUNCH_LIVE_H */
