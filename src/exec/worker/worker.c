/* worker.c - one worker's state, asked for by files that do not know how it lies. */
#include "exec/worker/worker.h"

int tti_exec_n_pieces(const tti_exec *x) { return x->divided ? 1 : x->acc.n_pieces; }
