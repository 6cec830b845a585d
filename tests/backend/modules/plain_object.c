/* plain_object.c - a shared object that is no module. */
#include "tutti/status.h"

TUTTI_API int tti_test_plain_object(void);

int tti_test_plain_object(void) { return 1; }
