/* culprit.c - finds the rank that the others wait for in the progress pages of all ranks, and
 * describes what it is doing.  The page is all that remains of a dead or hanging rank. */
#include "base/clock.h"
#include "comm/progress.h"

/* A higher value means that the other ranks are more likely to wait for this rank. */
static int suspicion(const tti_progress *p) {
    if (p->left) return 0;
    if (!p->joined) return 4;
    if (p->in_call) return 1;
    /* While one thread computes, another one may wait. */
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

static void describe_busy(const tti_progress *page, int global_rank, tti_str *what) {
    if (what) tti_str_printf(what, "rank %d ", global_rank);
    if (what) tti_progress_describe(page, what);
}

bool tti_progress_find_busy(const tti_progress *pages, const int *global_ranks, int n,
                            tti_str *what) {
    int found = -1;
    for (int r = 0; r < n; r++)
        if (tti_progress_is_busier(&pages[r], found < 0 ? NULL : &pages[found])) found = r;
    if (found < 0) return false;
    describe_busy(&pages[found], global_ranks[found], what);
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

/* ---- suspects ---- */

void tti_suspects_begin(tti_suspects *s) { *s = (tti_suspects){.culprit = -1, .busiest = -1}; }

void tti_suspects_look(tti_suspects *s, int rank, const tti_progress *page) {
    tti_culprit search = {.found = -1};
    if (s->culprit >= 0) tti_culprit_look(&search, s->culprit, &s->culprit_page);
    tti_culprit_look(&search, rank, page);
    s->any_waits |= search.any_waits;
    if (search.found == rank) {
        s->culprit = rank;
        s->culprit_page = *page;
    }
    if (tti_progress_is_busier(page, s->busiest < 0 ? NULL : &s->busiest_page)) {
        s->busiest = rank;
        s->busiest_page = *page;
    }
}

void tti_suspects_merge(tti_suspects *s, const tti_suspects *more) {
    s->any_waits |= more->any_waits;
    if (more->culprit >= 0) tti_suspects_look(s, more->culprit, &more->culprit_page);
    if (more->busiest >= 0) tti_suspects_look(s, more->busiest, &more->busiest_page);
}

int tti_suspects_find_culprit(const tti_suspects *s) { return s->any_waits ? s->culprit : -1; }

bool tti_suspects_find_busy(const tti_suspects *s, int global_rank, tti_str *what) {
    if (s->busiest >= 0) describe_busy(&s->busiest_page, global_rank, what);
    return s->busiest >= 0;
}
