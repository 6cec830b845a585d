/* simulation_text.c - prints the scaling curve: the speed of n workers relative to one, and what
 * limits it.
 *
 * There are two tables. For synchronous workers the first one shows the reductions and their
 * exposed part; for asynchronous workers, their waits and the staleness of their gradients. */
#include <math.h>

#include "base/json.h"
#include "planner/simulation.h"

static const double MIN_PRINTED = 0.005; /* smallest fraction of gradients that is printed */

/* Samples of a step of n workers, without those whose gradients are dropped. */
static double samples(const tti_simulation *s, int64_t n) {
    int64_t n_copies = n / s->replica.n_workers;
    return (double)s->b->config.train.batch *
           (double)TTI_MAX(n_copies - s->param_server.n_backup, INT64_C(1));
}

/* Speed relative to that of the same replicas without communication. */
static double efficiency(const tti_simulation *s, const tti_simulated_point *p) {
    const tti_simulated_point *one = &s->points[0];
    double alone = samples(s, one->n) / one->step_s / tti_speeds_sum(&s->speeds, 1);
    double all = alone * tti_speeds_sum(&s->speeds, p->n / s->replica.n_workers);
    return samples(s, p->n) / p->step_s / all;
}

static int count_buckets(const tti_simulation *s) {
    int n = 0;
    for (int i = 0; i < s->replica.n_stages; i++) n += s->replica.stages[i].n_buckets;
    return n;
}

static void print_head(const tti_simulation *s, tti_str *out) {
    double flat = (double)s->b->plan->n_flat * sizeof(float) / 1048576.0;
    int n_buckets = count_buckets(s);
    tti_str_printf(out, "%g samples on each %s, %d buckets of %.1f MiB together; ",
                   samples(s, s->replica.n_workers),
                   s->replica.n_workers > 1 ? "copy of the model" : "worker", n_buckets, flat);
    if (s->replica.n_workers == 1)
        tti_str_printf(out, "a single worker takes %.3f ms\n", s->points[0].step_s * 1e3);
    else
        tti_str_printf(out,
                       "%d workers with one copy take %.3f ms\nbubble %.1f %% of the time of the "
                       "stages; %.3f ms of sums and messages inside shards, %.1f MiB by a worker\n",
                       s->replica.n_workers, s->points[0].step_s * 1e3, 100 * s->replica.bubble,
                       s->replica.model_parallel_s * 1e3, s->replica.sent_bytes / 1048576.0);
}

static void print_table(const tti_simulation *s, tti_str *out) {
    print_head(s, out);
    tti_sums_extent extent = {.average_every = 1 / s->shares[s->n_shares - 1].share};
    for (int i = 0; i < s->replica.n_stages; i++) {
        const tti_simulated_stage *w = &s->replica.stages[i];
        extent.gathered = fmax(extent.gathered, w->gathered);
        extent.averaged_bytes = fmax(extent.averaged_bytes, w->averaged_bytes);
    }
    tti_sums_text(&s->sums, &extent, out);
    tti_str_printf(out, "%8s %11s %14s %8s %10s %10s   %s\n", "workers", "step, ms", "samples/s",
                   "of n x 1", "sums, ms", "exposed", "sent, MiB: host, rack, spine");
    for (int i = 0; i < s->n_points; i++) {
        const tti_simulated_point *p = &s->points[i];
        tti_str_printf(out, "%8lld %11.3f %14.0f %7.1f%% %10.3f %10.3f   %.1f, %.1f, %.1f\n",
                       (long long)p->n, p->step_s * 1e3, samples(s, p->n) / p->step_s,
                       100 * efficiency(s, p), p->sums_s * 1e3, p->exposed_s * 1e3,
                       p->sent[0] / 1048576.0, p->sent[1] / 1048576.0, p->sent[2] / 1048576.0);
    }
}

static void print_server(const tti_simulation *s, tti_str *out) {
    const tti_simulated_server *v = &s->param_server;
    tti_str_printf(out, "%lld server%s, ", (long long)v->n_servers, v->n_servers > 1 ? "s" : "");
    if (v->n_backup > 0)
        tti_str_printf(out, "a step without the last %lld workers\n", (long long)v->n_backup);
    else if (v->staleness == TTI_UNBOUNDED)
        tti_str_printf(out, "staleness unbounded; a step is as many updates as workers\n");
    else
        tti_str_printf(out, "staleness %lld; a step is as many updates as workers\n",
                       (long long)v->staleness);
}

/* Prints the staleness of gradients, or the fraction that was too late, for the largest number of
 * workers. */
static void print_staleness(const tti_simulation *s, tti_str *out) {
    const tti_simulated_point *last = &s->points[s->n_points - 1];
    if (s->param_server.n_backup > 0) {
        tti_str_printf(out, "%.1f %% of the gradients of %lld workers arrive too late\n",
                       100 * last->server.dropped, (long long)last->n);
        return;
    }
    tti_str_printf(out, "updates that gradients of %lld workers lack:", (long long)last->n);
    for (int i = 0, n = 0; i < TTI_STALENESS_BINS; i++)
        if (last->server.stale[i] >= MIN_PRINTED)
            tti_str_printf(out, "%s %d%s: %.1f %%", n++ ? "," : "", i,
                           i == TTI_STALENESS_BINS - 1 ? " and more" : "",
                           100 * last->server.stale[i]);
    tti_str_add(out, "\n");
}

static void print_async(const tti_simulation *s, tti_str *out) {
    print_head(s, out);
    print_server(s, out);
    tti_str_printf(out, "%8s %11s %14s %8s %10s %10s %9s %12s   %s\n", "workers", "step, ms",
                   "samples/s", "of n x 1", "waits, ms", "link busy", "updating", "lacks, most",
                   "out of a server, MiB: host, rack, spine");
    for (int i = 0; i < s->n_points; i++) {
        const tti_simulated_point *p = &s->points[i];
        const tti_server_sim *v = &p->server;
        tti_str_printf(out, "%8lld %11.3f %14.0f %7.1f%% %10.3f %9.1f%% %8.1f%% %7.2f %4lld   ",
                       (long long)p->n, p->step_s * 1e3, samples(s, p->n) / p->step_s,
                       100 * efficiency(s, p), p->exposed_s * 1e3, 100 * v->link_busy,
                       100 * v->thread_busy, v->stale_mean, (long long)v->stale_max);
        tti_str_printf(out, "%.1f, %.1f, %.1f\n", p->sent[0] / 1048576.0, p->sent[1] / 1048576.0,
                       p->sent[2] / 1048576.0);
    }
    print_staleness(s, out);
}

static void put_server(tti_json *j, const tti_server_sim *p) {
    tti_json_object(j, "server");
    tti_json_double(j, "link_busy", p->link_busy);
    tti_json_double(j, "thread_busy", p->thread_busy);
    tti_json_double(j, "dropped", p->dropped);
    tti_json_double(j, "staleness_mean", p->stale_mean);
    tti_json_int(j, "staleness_most", p->stale_max);
    tti_json_array(j, "staleness");
    for (int i = 0; i < TTI_STALENESS_BINS && i <= p->stale_max; i++)
        tti_json_double(j, NULL, p->stale[i]);
    tti_json_end(j);
    tti_json_end(j);
}

static void put_point(tti_json *j, const tti_simulation *s, const tti_simulated_point *p) {
    tti_json_object(j, NULL);
    tti_json_int(j, "workers", p->n);
    tti_json_double(j, "step_s", p->step_s);
    tti_json_double(j, "samples_per_s", samples(s, p->n) / p->step_s);
    tti_json_double(j, "efficiency", efficiency(s, p));
    tti_json_double(j, "sums_s", p->sums_s);
    tti_json_double(j, "exposed_s", p->exposed_s);
    tti_json_array(j, "sent_bytes");
    for (int i = 0; i < TTI_N_LEVELS; i++) tti_json_double(j, NULL, p->sent[i]);
    tti_json_end(j);
    if (s->param_server.is_async) put_server(j, &p->server);
    tti_json_end(j);
}

static void print_json(const tti_simulation *s, tti_str *out) {
    tti_json j = tti_json_begin(out, 0);
    tti_json_object(&j, NULL);
    tti_json_double(&j, "bubble", s->replica.bubble);
    tti_json_double(&j, "model_parallel_s", s->replica.model_parallel_s);
    tti_json_int(&j, "buckets", count_buckets(s));
    tti_json_array(&j, "points");
    for (int i = 0; i < s->n_points; i++) put_point(&j, s, &s->points[i]);
    tti_json_end(&j);
    tti_json_end(&j);
    tti_str_add(out, "\n");
}

void tti_simulation_print(const tti_simulation *s, tti_str *out) {
    if (s->desc->json)
        print_json(s, out);
    else if (s->param_server.is_async)
        print_async(s, out);
    else
        print_table(s, out);
}
