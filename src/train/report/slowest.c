/* slowest.c - finds the slowest worker from times that are gathered periodically.  All workers must
 * gather at the same steps without extra communication.  So they compute the number of steps until
 * the next gathering from the times that all of them have just received. */
#include "train/report/slowest.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "comm/conclude.h"
#include "comm/sum_order.h"

/* Interval between gatherings in seconds; a gathering costs tens of microseconds. */
static const double window_s = 0.5;
enum { WINDOW_RANKS = 64 }; /* the cost of gathering grows with the number of workers */

/* Smaller delays, in seconds, are mostly noise. */
static const double least_s = 0.02;

enum { MOST_STEPS = 1 << 20, GROWTH = 4, MOST_ADVISED = 16 /* workers */ };

void tti_slowest_init(tti_slowest *s, tutti_comm *comm, tti_exec *exec, int64_t first_step) {
    int n_ranks = comm ? tutti_comm_n_ranks(comm) : 1;
    *s = (tti_slowest){.comm = n_ranks > 1 ? comm : NULL,
                       .exec = exec,
                       .n_ranks = n_ranks,
                       .next = first_step + 1,
                       .every = 1};
}

void tti_slowest_fini(tti_slowest *s) {
    free(s->total);
    free(s->all);
    free(s->sorted);
    s->total = s->all = NULL;
    s->sorted = NULL;
}

void tti_slowest_add(tti_slowest *s, int64_t data_ns, int64_t exec_ns, int64_t spent_ns) {
    s->own[TTI_SPENT_DATA] += (double)data_ns;
    s->own[TTI_SPENT_COMPUTE] += (double)exec_ns;
    s->own[TTI_SPENT_OTHER] += (double)(spent_ns - data_ns - exec_ns);
    s->n_adds++;
}

bool tti_slowest_is_due(const tti_slowest *s, int64_t step) { return s->comm && step >= s->next; }

tutti_status tti_slowest_pause(tti_slowest *s, tti_exec_spent *at) {
    *at = (tti_exec_spent){0};
    return s->comm ? tti_exec_get_spent(s->exec, at) : TUTTI_OK;
}

tutti_status tti_slowest_go_on(tti_slowest *s, const tti_exec_spent *at) {
    tti_exec_spent now;
    if (!s->comm) return TUTTI_OK;
    TTI_TRY(tti_exec_get_spent(s->exec, &now));
    s->before.waited_ns += now.waited_ns - at->waited_ns;
    s->before.copied_ns += now.copied_ns - at->copied_ns;
    return TUTTI_OK;
}

/* ---- the decision ---- */

/* The time of one part; for TTI_SPENT_WAIT returns the sum of all other parts instead, which is the
 * time without waits. */
static double of_rank(const double part[TTI_N_SPENT_PARTS], int which) {
    if (which < TTI_SPENT_WAIT) return part[which];
    return part[TTI_SPENT_DATA] + part[TTI_SPENT_COPY] + part[TTI_SPENT_COMPUTE] +
           part[TTI_SPENT_OTHER];
}

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The median time of the other ranks. sorted: [n_ranks], overwritten. */
static double median_of_others(const double (*spent)[TTI_N_SPENT_PARTS], int n_ranks, int rank,
                               int which, double *sorted) {
    int n = 0;
    for (int r = 0; r < n_ranks; r++)
        if (r != rank) sorted[n++] = of_rank(spent[r], which);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

/* Returns the part in which a rank exceeds the median of the others most. */
static const char *why_of(const double (*spent)[TTI_N_SPENT_PARTS], int n_ranks, int rank,
                          double *sorted) {
    static const char *const names[] = {"data", "copy", "compute", "other"};
    int most = 0;
    double more[TTI_SPENT_WAIT];
    for (int p = 0; p < TTI_SPENT_WAIT; p++) {
        more[p] = spent[rank][p] - median_of_others(spent, n_ranks, rank, p, sorted);
        if (more[p] > more[most]) most = p;
    }
    return names[most];
}

void tti_slowest_of(const double (*spent)[TTI_N_SPENT_PARTS], int n_ranks, double least_share,
                    double *sorted, tti_slowest_finding *out) {
    enum { BUSY = TTI_SPENT_WAIT };
    int rank = 0;
    double total = 0;
    *out = (tti_slowest_finding){0};
    if (n_ranks < 2) return;
    for (int r = 0; r < n_ranks; r++) {
        if (of_rank(spent[r], BUSY) > of_rank(spent[rank], BUSY)) rank = r;
        total += of_rank(spent[r], BUSY) + spent[r][TTI_SPENT_WAIT];
    }
    double late = of_rank(spent[rank], BUSY) - median_of_others(spent, n_ranks, rank, BUSY, sorted);
    double share = total > 0 ? TTI_MAX(late, 0) / (total / n_ranks) : 0;
    *out = (tti_slowest_finding){
        .known = true,
        .rank = rank,
        .why = share >= least_share ? why_of(spent, n_ranks, rank, sorted) : "none",
        .late_share = TTI_MIN(share, 1)};
}

/* ---- gathering ---- */

/* Converts times to seconds, and subtracts waiting and copying from computing. */
static void separate(const tti_slowest *s, const tti_exec_spent *now,
                     double out[TTI_N_SPENT_PARTS]) {
    double waited = (double)(now->waited_ns - s->before.waited_ns),
           copied = (double)(now->copied_ns - s->before.copied_ns);
    memcpy(out, s->own, sizeof s->own);
    out[TTI_SPENT_COPY] = copied;
    out[TTI_SPENT_WAIT] = waited;
    out[TTI_SPENT_COMPUTE] = TTI_MAX(out[TTI_SPENT_COMPUTE] - waited - copied, 0);
    for (int p = 0; p < TTI_N_SPENT_PARTS; p++) out[p] *= 1e-9;
}

/* Returns the longest time of all workers. */
static double longest(const double (*spent)[TTI_N_SPENT_PARTS], int n_ranks) {
    double most = 0;
    for (int r = 0; r < n_ranks; r++)
        most = TTI_MAX(most, of_rank(spent[r], TTI_SPENT_WAIT) + spent[r][TTI_SPENT_WAIT]);
    return most;
}

static void begin_anew(tti_slowest *s, const tti_exec_spent *now, int64_t step) {
    memset(s->own, 0, sizeof s->own);
    s->n_adds = 0;
    s->before = *now;
    s->next = step + s->every;
}

/* Returns the number of steps that take about window_s seconds. */
static int64_t steps_of_window(const tti_slowest *s, double took_s) {
    double window = window_s * TTI_MAX(1, (double)s->n_ranks / WINDOW_RANKS);
    double n = took_s > 0 ? window / took_s * (double)s->n_adds : MOST_STEPS;
    int64_t most = TTI_MIN((int64_t)MOST_STEPS, GROWTH * s->every);
    return n < 1 ? 1 : n > (double)most ? most : (int64_t)n;
}

/* Length of the vector that a worker sends: seconds of each part, and a flag that is 0 if waiting
 * is unknown. */
enum { SENT = TTI_N_SPENT_PARTS + 1 };

typedef struct judging {
    tti_slowest *of;
    bool known;
} judging;

/* Allocates the arrays of workers that compute findings. */
static tutti_status alloc_times(tti_slowest *s) {
    if (tutti_comm_rank(s->comm) > 0 && tti_comm_concludes_alone(s->comm)) return TUTTI_OK;
    s->total = calloc((size_t)s->n_ranks, sizeof *s->total);
    s->all = calloc((size_t)s->n_ranks, sizeof *s->all);
    s->sorted = calloc((size_t)s->n_ranks, sizeof *s->sorted);
    bool fits = s->total && s->all && s->sorted;
    return fits ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "train: out of memory");
}

static void add_worker(void *user, int rank, const void *theirs) {
    judging *j = user;
    const double *sent = theirs;
    if (rank == 0) j->known = true;
    memcpy(j->of->all[rank], sent, sizeof j->of->all[rank]);
    j->known = j->known && sent[TTI_N_SPENT_PARTS] != 0;
}

/* Computes the findings of the window and of the sum of all windows, in which noise averages
 * out. */
static void judge_window(tti_slowest *s, const double (*spent)[TTI_N_SPENT_PARTS]) {
    for (int r = 0; r < s->n_ranks; r++)
        for (int p = 0; p < TTI_N_SPENT_PARTS; p++) s->total[r][p] += spent[r][p];
    tti_slowest_of((const double(*)[TTI_N_SPENT_PARTS])s->total, s->n_ranks, TTI_LATE_OVERALL,
                   s->sorted, &s->overall);
    tti_slowest_of(spent, s->n_ranks, TTI_LATE_SHARE, s->sorted, &s->finding);
}

/* Returns the duration of the window to all workers.  Only workers that compute findings keep the
 * finding. */
static void finish(void *user, void *result) {
    judging *j = user;
    const double(*all)[TTI_N_SPENT_PARTS] = (const double(*)[TTI_N_SPENT_PARTS])j->of->all;
    double took_s = longest(all, j->of->n_ranks);
    if (!j->known)
        j->of->finding = (tti_slowest_finding){0};
    else if (took_s >= least_s)
        judge_window(j->of, all);
    memcpy(result, &took_s, sizeof took_s);
}

static tutti_status judge(tti_slowest *s, const tti_exec_spent *now, double *took_s) {
    double mine[SENT] = {0};
    judging j = {.of = s};
    separate(s, now, mine);
    mine[TTI_N_SPENT_PARTS] = now->known;
    return tti_comm_conclude(s->comm, &(tti_conclusion){.mine = mine,
                                                        .n_bytes = sizeof mine,
                                                        .result = took_s,
                                                        .n_result = sizeof *took_s,
                                                        .add = add_worker,
                                                        .finish = finish,
                                                        .user = &j});
}

tutti_status tti_slowest_gather(tti_slowest *s, int64_t step) {
    tti_exec_spent now;
    double took = 0;
    TTI_TRY(tti_exec_get_spent(s->exec, &now));
    if (!s->has_begun) {
        s->has_begun = true;
        begin_anew(s, &now, step);
        return alloc_times(s);
    }
    TTI_TRY(judge(s, &now, &took));
    s->every = steps_of_window(s, took);
    begin_anew(s, &now, step);
    return TUTTI_OK;
}

/* ---- advice at the end ---- */

static bool can_advise(const tti_slowest *s) {
    static const double least_total_s = 20;
    if (!s->total || !s->overall.known || s->n_ranks > MOST_ADVISED) return false;
    if (strcmp(s->overall.why, "compute") != 0) return false;
    if (TTI_FAULT_AT("slowest.advise", s->overall.rank, -1)) return true;
    return of_rank(s->total[s->overall.rank], TTI_SPENT_WAIT) >= least_total_s;
}

/* Returns the fraction of the total step time that the slowest worker would have saved. */
static double shortened_by(const tti_slowest *s, const tti_throughput *speeds,
                           const tti_shard_map *now, const tti_shard_map *better) {
    double whole = longest((const double(*)[TTI_N_SPENT_PARTS])s->total, s->n_ranks);
    return (tti_shard_map_seconds(now, speeds) - tti_shard_map_seconds(better, speeds)) / whole;
}

/* The number of partial sums that workers add between them. */
static int n_partial_sums(const tti_shard_map *map) {
    tti_sum_walk walk = tti_sum_walk_begin(map);
    tti_term term;
    int n = 0;
    while (tti_sum_walk_next(&walk, &term)) n++;
    return n;
}

tutti_status tti_slowest_advise(const tti_slowest *s, const tti_shard_map *now, bool exact,
                                tti_str *text) {
    tti_throughput speeds[MOST_ADVISED];
    tti_shard_map better = {0};
    if (!can_advise(s)) return TUTTI_OK;
    for (int r = 0; r < s->n_ranks; r++) {
        double seconds = s->total[r][TTI_SPENT_COMPUTE] / tti_shard_map_n_of(now, r);
        if (!(seconds > 0)) return TUTTI_OK;
        speeds[r] = (tti_throughput){seconds, 1};
    }
    TTI_TRY(tti_shard_map_by_throughput(speeds, s->n_ranks, tti_shard_map_n_shards(now), &better));
    double share = shortened_by(s, speeds, now, &better);
    if (share >= TTI_LATE_OVERALL) {
        tti_str_printf(text, "rank %d computes more slowly than the others; parallel.load_weights=",
                       s->overall.rank);
        for (int r = 0; r < s->n_ranks; r++)
            tti_str_printf(text, "%s%d", r ? "," : "", tti_shard_map_n_of(&better, r));
        tti_str_printf(text, " would shorten the computing of a step by %.1f %% of the step",
                       100 * share);
        if (exact)
            tti_str_printf(text,
                           ", with the same bits; %d partial sums would be added instead of %d",
                           n_partial_sums(&better), n_partial_sums(now));
    }
    tti_shard_map_free(&better);
    return TUTTI_OK;
}
