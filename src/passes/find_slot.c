/* find_slot.c - finds the slot of a parameter by its name.  A file of its own, because plan.c and
 * the files that it calls need it. */
#include <string.h>

#include "passes/plan.h"

int tti_plan_find_slot(const tti_plan *plan, const char *name) {
    for (int i = 0; i < plan->n_slots; i++)
        if (strcmp(plan->slots[i].param->name, name) == 0) return i;
    return -1;
}
