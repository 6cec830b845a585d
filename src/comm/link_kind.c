/* link_kind.c - decides which links are sparse.  This is a separate source file, not an inline
 * function, because tests replace only source files with versions that have fault points. */
#include "base/fault.h"
#include "comm/link.h"

bool tti_link_is_sparse(int n_ranks) {
    return n_ranks > TTI_FULL_RANKS || TTI_FAULT("link.sparse");
}
