/* culprit.c - finds the rank that the others wait for in the progress pages of all ranks, and
 * describes what it is doing.  A page is the only report of a dead or hanging rank. */
#include "base/clock.h"
#include "comm/progress.h"

/* Higher: more likely the reason why the others wait. */
static int suspicion(const tti_progress *p) {
    if (p->left) return 0;
    if (!p->joined) return 4;
    if (p->in_call) return 1;
    /* A thread that computes may have another one that waits. */
    if (p->in_subgroup > 0) return 2;
    return p->since_ns ? 5 : 3;
}

static unsigned long long ms_since(uint64_t ns) {
    return (unsigned long long)(((uint64_t)tti_now_ns() - ns) / 1000000);
}

void tti_progress_describe(const tti_progress *p, tti_str *out) {
    if (!p->joined)
        tti_str_add(out, "has not joined");
    else if (p->since_ns)
        tti_str_printf(out, "has been %s for %llu ms", p->activity, ms_since(p->since_ns));
    else if (p->in_call)
        tti_str_printf(out, "has been in %s for %llu ms", p->call, ms_since(p->entered_ns));
    else
        tti_str_printf(out, "is in no call; its last was %s", p->n_calls ? p->call : "none");
    if (p->phase[0]) tti_str_printf(out, " (step %llu, %s)", (unsigned long long)p->step, p->phase);
}

bool tti_progress_is_busier(const tti_progress *page, const tti_progress *than) {
    bool is_busy = !page->left && (!page->joined || page->since_ns);
    return is_busy && (!than || page->since_ns < than->since_ns);
}

bool tti_progress_find_busy(const tti_progress *pages, const int *shown, int n, tti_str *what) {
    int found = -1;
    for (int r = 0; r < n; r++)
        if (tti_progress_is_busier(&pages[r], found < 0 ? NULL : &pages[found])) found = r;
    if (found < 0) return false;
    if (what) tti_str_printf(what, "rank %d ", shown[found]);
    if (what) tti_progress_describe(&pages[found], what);
    return true;
}

void tti_culprit_look(tti_culprit *search, int rank, const tti_progress *p) {
    bool waits = p->in_call || p->in_subgroup > 0;
    search->any_waits |= p->joined && !p->left && (waits || p->n_calls == 0);
    int more = suspicion(p) - search->suspicion;
    if (more < 0 || (more == 0 && (search->found < 0 || p->entered_ns <= search->entered_ns)))
        return;
    *search = (tti_culprit){search->any_waits, rank, suspicion(p), p->entered_ns};
}

int tti_culprit_found(const tti_culprit *search) { return search->any_waits ? search->found : -1; }

int tti_progress_find_culprit(const tti_progress *pages, int n) {
    tti_culprit search = {.found = -1};
    for (int r = 0; r < n; r++) tti_culprit_look(&search, r, &pages[r]);
    return tti_culprit_found(&search);
}
