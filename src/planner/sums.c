/* sums.c - traffic of gradients (whole, sharded or compressed), of gathered parameters, and of
 * averages.
 *
 * Only network traffic: neither the time of compression nor a device's copies to its host.  Pairs
 * are sent from each worker to each other one, so every level carries them for all workers reached
 * over it. */
#include "planner/sums.h"

#include <math.h>
#include <string.h>

#include "exec/worker/worker.h"
#include "train/loop/averaging.h"
#include "train/setup/worker_exec.h"

/* Average traffic of compressed buckets; vectors are sent whole. */
static void compress(const tti_exec_desc *desc, double n_flat_bytes, tti_sums *out) {
    double pairs, summed;
    if (desc->fast && desc->wire != TUTTI_F32) out->of_sum = 0.5;
    if (!tti_compress_wanted(desc, 2) || n_flat_bytes <= 0) return;
    tti_compress_kinds(desc, &pairs, &summed);
    out->of_sum = summed / n_flat_bytes;
    out->of_pairs = pairs / n_flat_bytes;
    out->whole = true;
}

static double of_largest_part(const tti_blueprint *b) {
    size_t most = 0;
    for (int i = 0; i < b->n_parts; i++)
        most = TTI_MAX(most, tti_averaging_bytes(&b->config, tti_blueprint_plan(b, i)));
    return (double)most;
}

int64_t tti_sums_n_fetched(const tti_plan *plan, int64_t n_shard_groups) {
    bool joined = plan->stages && plan->stages->is_joined;
    for (int s = 0; s < plan->shard.n_steps; s++)
        joined = joined || (plan->shard.steps[s]->op->traits & TTI_SYNC);
    return joined ? 1 : n_shard_groups;
}

void tti_sums_of(const tti_blueprint *b, int64_t n_shard_groups, tti_sums *out) {
    const tti_job_config *c = &b->config;
    tti_exec_desc desc = tti_worker_exec_desc(b);
    double flat = (double)b->plan->n_flat * sizeof(float);
    *out = (tti_sums){.zero = desc.zero, .of_sum = 1, .mean_every = 1};
    if (desc.zero > 0) out->n_fetches = 1;
    if (desc.zero > 2) out->n_fetches = 2 * (double)tti_sums_n_fetched(b->plan, n_shard_groups);
    compress(&desc, flat, out);
    if (!desc.local) return;
    out->mean_bytes = (double)tti_averaging_bytes(c, b->plan);
    if (b->n_parts > 0) out->mean_bytes = of_largest_part(b);
    out->mean_every = (double)TTI_MAX(c->parallel.average_every, 1);
}

static double pairs_s(const tti_network *network, const int64_t *members, double n_bytes,
                      double *sent) {
    double s = 0, inside = 1; /* workers that are reached over the levels below, with itself */
    for (int i = 0; i < TTI_N_LEVELS; i++) {
        const tti_level *level = &network->levels[i];
        double k = (double)members[i], moved = inside * (k - 1) * n_bytes;
        inside *= k;
        if (members[i] < 2) continue;
        s += moved / (level->gb_s * 1e9) + ceil(log2(k)) * level->latency_us * 1e-6;
        sent[i] += moved;
    }
    return s;
}

/* Traffic between the servers and all others, one way.  Each host adds, or reads, for its members
 * once per server range; so a server communicates with its host's members and one rank of each
 * other host, and that rank with the servers elsewhere. */
static double served_s(const tti_sums *sums, const tti_network *network, const int64_t *members,
                       double n_bytes, double *sent) {
    double s = 0, inside = 1, n = 1;
    for (int i = 0; i < TTI_N_LEVELS; i++) n *= (double)members[i];
    double n_servers = fmin((double)sums->n_servers, n), range = n_bytes / n_servers;
    for (int i = 0; i < TTI_N_LEVELS; i++) {
        const tti_level *level = &network->levels[i];
        double k = (double)members[i], host = (double)members[0];
        if (members[i] < 2) continue;
        double groups = (k - 1) * (i > 0 ? inside / host : 1);
        double spoken = i > 0 ? ceil(fmin(n_servers, (k - 1) * inside) / host)
                              : (k - 1) * ceil(n_servers / host);
        s += fmax(groups, spoken) * range / (level->gb_s * 1e9) + level->latency_us * 1e-6;
        sent[i] += groups * range;
        inside *= k;
    }
    return s;
}

void tti_sums_serve(tti_sums *sums, int64_t n_servers) {
    sums->n_servers = n_servers;
    sums->n_fetches = 1;
}

double tti_sums_bucket_s(const tti_sums *sums, const tti_network *network, const int64_t *members,
                         double n_bytes, double *sent) {
    double in[TTI_N_LEVELS] = {0};
    if (sums->mean_bytes > 0) return 0;
    if (sums->n_servers > 0 && !sums->whole)
        return served_s(sums, network, members, n_bytes * sums->of_sum, in);
    if (sums->zero > 0 && !sums->whole)
        return tti_network_half_s(network, members, n_bytes * sums->of_sum, sent);
    double s = tti_network_sum_s(network, members, n_bytes * sums->of_sum, sent);
    if (sums->of_pairs > 0) s += pairs_s(network, members, n_bytes * sums->of_pairs, sent);
    return s;
}

double tti_sums_fetch_s(const tti_sums *sums, const tti_network *network, const int64_t *members,
                        double n_bytes, double *sent) {
    double once[TTI_N_LEVELS] = {0}, s;
    if (sums->n_fetches <= 0) return 0;
    s = sums->n_servers > 0 ? served_s(sums, network, members, n_bytes, once)
                            : tti_network_half_s(network, members, n_bytes, once);
    for (int i = 0; i < TTI_N_LEVELS; i++) sent[i] += once[i] * sums->n_fetches;
    return s * sums->n_fetches;
}

double tti_sums_mean_s(const tti_sums *sums, const tti_network *network, const int64_t *members,
                       double *sent) {
    double once[TTI_N_LEVELS] = {0}, s;
    if (sums->mean_bytes <= 0) return 0;
    s = tti_network_sum_s(network, members, sums->mean_bytes, once);
    for (int i = 0; i < TTI_N_LEVELS; i++) sent[i] += once[i] / sums->mean_every;
    return s / sums->mean_every;
}

void tti_sums_text(const tti_sums *sums, tti_str *out) {
    if (sums->n_servers > 0)
        tti_str_printf(
            out,
            "%lld synchronous server%s: gradients to them, parameters back; the table shows what "
            "one of them sends, as much comes to it\n",
            (long long)sums->n_servers, sums->n_servers > 1 ? "s" : "");
    if (sums->zero > 0)
        tti_str_printf(out,
                       "zero %d: gradients to the owners of parts, parameters back, %g time%s "
                       "a step\n",
                       sums->zero, sums->n_fetches, sums->n_fetches > 1 ? "s" : "");
    else if (sums->mean_bytes > 0)
        tti_str_printf(
            out, "local SGD: a mean of %.1f MiB every %g steps; the table shows the mean step\n",
            sums->mean_bytes / 1048576.0, sums->mean_every);
    if (sums->mean_bytes <= 0 && (sums->of_sum < 1 || sums->of_pairs > 0))
        tti_str_printf(out,
                       "compressed: %.2f %% of the bytes are summed, %.2f %% go from each to "
                       "each as pairs; what compressing takes is not counted\n",
                       100 * sums->of_sum, 100 * sums->of_pairs);
}
