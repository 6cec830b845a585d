/* live.h - lets other processes find a run while it trains.  RUN/live names the process that has
 * the flight recorder's memory, and the descriptor.  For a run on several hosts it is the process
 * on the leader, and RUN/live-host-K names that on host K.  The memory is freed with its processes,
 * so a file that a killed run left behind refers to nothing. */
#ifndef TTI_LAUNCH_LIVE_H
#define TTI_LAUNCH_LIVE_H

#include "base/flight.h"

#define TTI_LIVE_FILE "live"

/* Writes the file for memory of this process, unless other programs cannot map it; and removes the
 * file. node: the number in live-host-K; -1: run_dir/live. */
TUTTI_NODISCARD tutti_status tti_live_write(const char *run_dir, int node,
                                            const tti_flight_memory *memory);
void tti_live_remove(const char *run_dir, int node);

/* Opens the recorder of the process on this machine that trains in run_dir; if there are several,
 * that of the leader.  TUTTI_E_CONFIG: no process trains there.  On success *out is owned by the
 * caller. */
TUTTI_NODISCARD tutti_status tti_live_open(const char *run_dir, tti_flight_memory **out);

/* Opens the recorder of the supervisor that started this process, from TUTTI_FLIGHT_FD; *out NULL:
 * there is none.  On success *out is owned by the caller. */
TUTTI_NODISCARD tutti_status tti_live_inherit(tti_flight_memory **out);

#endif /* TTI_LAUNCH_LIVE_H */
