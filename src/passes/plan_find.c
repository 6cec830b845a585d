/* plan_find.c - finds parts of a plan by name or place. */
#include <string.h>

#include "passes/plan.h"

int tti_plan_find_slot(const tti_plan *plan, const char *name) {
    for (int i = 0; i < plan->n_slots; i++)
        if (strcmp(plan->slots[i].param->name, name) == 0) return i;
    return -1;
}
