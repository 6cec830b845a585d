/* tutti.h - includes all public headers.
 *
 * To begin: tutti/job.h and tutti/train.h run a job; tutti/session.h drives a model step by step;
 * tutti/graph.h and tutti/ops.h build models; tutti/planner.h chooses a layout; tutti/profile.h
 * shows where the time goes; tutti/comm.h has collectives; tutti/launch.h starts ranks;
 * tutti/data.h reads data sets; tutti/ckpt.h reads checkpoints.  Each header describes its calls.
 */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include "tutti/bench.h"
#include "tutti/catalog.h"
#include "tutti/ckpt.h"
#include "tutti/comm.h"
#include "tutti/data.h"
#include "tutti/eval.h"
#include "tutti/export.h"
#include "tutti/functional.h"
#include "tutti/graph.h"
#include "tutti/job.h"
#include "tutti/launch.h"
#include "tutti/losses.h"
#include "tutti/models.h"
#include "tutti/ops.h"
#include "tutti/planner.h"
#include "tutti/profile.h"
#include "tutti/session.h"
#include "tutti/status.h"
#include "tutti/train.h"
#include "tutti/types.h"

#endif /* TUTTI_TUTTI_H */
