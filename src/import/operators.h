/* operators.h - the operator table: the rows of all families. */
#ifndef TTI_IMPORT_OPERATORS_H
#define TTI_IMPORT_OPERATORS_H

#include "import/graph/building.h"

tti_find_operator tti_operator_find;

#endif /* TTI_IMPORT_OPERATORS_H */
