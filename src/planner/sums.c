/* sums.c - costs the traffic of gradients (whole, sharded or compressed), of gathered parameters,
 * and of averages.
 *
 * Counts only network traffic, not the time of compression or of copies between device and host.
 * Every worker sends its pairs to every other worker, so each level carries the pairs for all
 * workers that are reached over it. */
#include "planner/sums.h"

#include <math.h>
#include <string.h>

#include "exec/worker/worker.h"

/* Finds the average traffic of compressed buckets. Vectors are sent uncompressed. */
static void find_compressed(const tti_exec_desc *desc, double n_flat_bytes, tti_sums *out) {
    double pairs, summed;
    out->reduced_share = (double)tti_exec_wire_bytes(desc) / sizeof(float);
    if (!tti_compress_wanted(desc, 2) || n_flat_bytes <= 0) return;
    tti_compress_kinds(desc, &pairs, &summed);
    out->reduced_share = summed / n_flat_bytes;
    out->pair_share = pairs / n_flat_bytes;
}

void tti_sums_of(const tti_exec_desc *desc, int64_t n_servers, tti_sums *out) {
    *out = (tti_sums){.zero = desc->zero, .n_servers = n_servers, .reduced_share = 1};
    find_compressed(desc, (double)desc->plan->n_flat * sizeof(float), out);
}

static double pairs_s(const tti_network *network, const int64_t *members, double n_bytes,
                      double *sent) {
    double s = 0, inside = 1; /* workers that are reached over lower levels, including the sender */
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

/* Traffic between the servers and all other workers, in one direction. Each host adds, or reads,
 * once per server range for all its members. So a server communicates with the members of its own
 * host and with one rank of each other host. */
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

/* Compressed gradients are sent to all workers, even if each owns only a partition. */
static double reduction_s(const tti_sums *sums, const tti_network *network, const int64_t *members,
                          const tti_instr *in, double n_bytes, double *sent) {
    double in_servers[TTI_N_LEVELS] = {0}, summed = n_bytes * sums->reduced_share;
    if (in->method == TTI_REDUCE_COMPRESS || in->kind == TTI_ALL_REDUCE) {
        double s = tti_network_sum_s(network, members, summed, sent);
        if (sums->pair_share > 0) s += pairs_s(network, members, n_bytes * sums->pair_share, sent);
        return s;
    }
    if (sums->n_servers > 0) return served_s(sums, network, members, summed, in_servers);
    return tti_network_half_sum_s(network, members, summed, sent);
}

double tti_sums_instr_s(const tti_sums *sums, const tti_network *network, const int64_t *members,
                        const tti_instr *in, tti_range range, double *sent) {
    double n_bytes = (double)(range.last - range.first) * sizeof(float);
    switch (in->kind) {
        case TTI_REDUCE_SCATTER:
        case TTI_ALL_REDUCE:
            return reduction_s(sums, network, members, in, n_bytes, sent);
        case TTI_ALL_GATHER:
            if (sums->n_servers > 0) return served_s(sums, network, members, n_bytes, sent);
            return tti_network_half_sum_s(network, members, n_bytes, sent);
        case TTI_AVERAGE:
            return tti_network_sum_s(network, members, n_bytes, sent);
        default:
            return 0;
    }
}

void tti_sums_text(const tti_sums *sums, const tti_sums_extent *extent, tti_str *out) {
    if (sums->n_servers > 0)
        tti_str_printf(out,
                       "%lld synchronous server%s: gradients are sent to them, parameters back; "
                       "the table shows the bytes that one server sends, and it receives as many\n",
                       (long long)sums->n_servers, sums->n_servers > 1 ? "s" : "");
    if (sums->zero > 0)
        tti_str_printf(
            out,
            "zero %d: gradients to the owners of partitions, parameters back, %.3g time%s "
            "a step\n",
            sums->zero, extent->gathered, extent->gathered > 1 ? "s" : "");
    else if (extent->averaged_bytes > 0)
        tti_str_printf(
            out, "local SGD: a mean of %.1f MiB every %g steps; the table shows the mean step\n",
            extent->averaged_bytes / 1048576.0, extent->average_every);
    if (extent->averaged_bytes <= 0 && (sums->reduced_share < 1 || sums->pair_share > 0))
        tti_str_printf(out,
                       "compressed: %.2f %% of the bytes are summed, %.2f %% are gathered as "
                       "pairs; the time of compression is not included\n",
                       100 * sums->reduced_share, 100 * sums->pair_share);
}
