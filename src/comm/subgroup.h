/* subgroup.h - communicators over some of the ranks of another. */
#ifndef TTI_COMM_SUBGROUP_H
#define TTI_COMM_SUBGROUP_H

#include "tutti/comm.h"

/* Collective over comm: ranks that pass the same color (>= 0) become ranks 0, 1, ... of a new
 * communicator, in the order of their ranks in comm.  It fails when comm fails, and its messages
 * use the rank numbers of comm.  On success *out is owned by the caller, is NULL if a rank is the
 * only one of its color, and must be destroyed before comm.  It may be used by another thread than
 * comm. */
TUTTI_NODISCARD tutti_status tti_comm_split(tutti_comm *comm, int color, tutti_comm **out);

#endif /* TTI_COMM_SUBGROUP_H */
