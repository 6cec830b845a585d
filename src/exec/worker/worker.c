/* worker.c - accessors of one worker's state. */
#include "exec/worker/worker.h"

int tti_exec_n_pieces(const tti_exec *x) { return x->divided ? 1 : x->acc.n_pieces; }
