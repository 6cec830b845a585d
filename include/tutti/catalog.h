/* catalog.h - lists the ops, models, formats and other tables of the library as text. */
#ifndef TUTTI_CATALOG_H
#define TUTTI_CATALOG_H

#include "tutti/status.h"

TUTTI_EXTERN_C_BEGIN

/* Prints one line per row of the table named what: "ops", "passes", "models", "formats",
 * "optimizers", "schedules", "transports" or "algorithms".  Owned by the caller, freed with free();
 * TUTTI_E_INVALID for another name, with *text NULL. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_catalog(const char *what, char **text);

TUTTI_EXTERN_C_END

#endif /* TUTTI_CATALOG_H */
