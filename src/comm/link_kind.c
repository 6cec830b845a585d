/* link_kind.c - which links are sparse.  A file of its own, so that the fault point has an effect:
 * tests link sources with fault points that were compiled with them, and headers are not among
 * these. */
#include "base/fault.h"
#include "comm/link.h"

bool tti_link_is_sparse(int n_ranks) {
    return n_ranks > TTI_FULL_RANKS || TTI_FAULT("link.sparse");
}
