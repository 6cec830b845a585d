/* network.c - describes a cluster by nine numbers, which the option parser of jobs reads. */
#include "planner/network.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/options/option.h"
#include "base/yaml.h"

const char *const tti_level_names[TTI_N_LEVELS] = {"host", "rack", "spine"};

typedef struct config {
    struct {
        int64_t size;
        double gb_s, latency_us;
    } host, rack, spine;
} config;

#define AT(field) offsetof(config, field)
#define SPEED 1e-6, 1e6

static const tti_option rows[] = {
    {"host.size", TTI_OPTION_INT, AT(host.size), "8", 1, 1024, .also = "gpus|workers|devices",
     .help = "workers of a host"},
    {"host.gb_s", TTI_OPTION_FLOAT, AT(host.gb_s), "390", SPEED, .also = "bandwidth|gbps",
     .help = "1e9 bytes per second that a worker sends to other workers of its host"},
    {"host.latency_us", TTI_OPTION_FLOAT, AT(host.latency_us), "5", 0, 1e6, .also = "latency",
     .help = "latency of such a message in microseconds"},
    {"rack.size", TTI_OPTION_INT, AT(rack.size), "4", 1, 4096, .also = "hosts|nodes",
     .help = "hosts of a rack"},
    {"rack.gb_s", TTI_OPTION_FLOAT, AT(rack.gb_s), "45", SPEED, .also = "bandwidth|gbps",
     .help = "1e9 bytes per second that a worker sends to other hosts of its rack"},
    {"rack.latency_us", TTI_OPTION_FLOAT, AT(rack.latency_us), "8", 0, 1e6, .also = "latency",
     .help = "latency of such a message in microseconds"},
    {"spine.size", TTI_OPTION_INT, AT(spine.size), "4096", 1, 1 << 20, .also = "racks",
     .help = "racks, at most"},
    {"spine.gb_s", TTI_OPTION_FLOAT, AT(spine.gb_s), "45", SPEED, .also = "bandwidth|gbps",
     .help = "1e9 bytes per second that a worker sends to other racks"},
    {"spine.latency_us", TTI_OPTION_FLOAT, AT(spine.latency_us), "12", 0, 1e6, .also = "latency",
     .help = "latency of such a message in microseconds"},
};

static const tti_option_group groups[] = {{"host", "workers that share a host"},
                                          {"rack", "hosts under one switch"},
                                          {"spine", "the network between racks"}};

static const tti_option_table table = {.rows = rows,
                                       .n_rows = TTI_COUNT(rows),
                                       .groups = groups,
                                       .n_groups = TTI_COUNT(groups),
                                       .n_config_bytes = sizeof(config)};

/* h200: eight devices per host on NVLink, with a 400 Gb/s adapter each. ethernet: four workers per
 * host, which share 25 Gb/s. */
static const struct {
    const char *name, *yaml;
} presets[] = {
    {"h200", "{}"},
    {"ethernet",
     "host: {size: 4, gb_s: 20, latency_us: 2}\n"
     "rack: {size: 16, gb_s: 0.7, latency_us: 30}\n"
     "spine: {gb_s: 0.35, latency_us: 60}\n"},
};

static tutti_status parse(tti_options *options, const char *text, size_t n_bytes,
                          const char *source) {
    TTI_TRY(tti_options_load(options, text, n_bytes, source));
    return tti_options_check(options);
}

tutti_status tti_network_parse(const char *text, size_t n_bytes, const char *source,
                               tti_network *out) {
    config c;
    tti_options options;
    TTI_TRY(tti_options_init(&options, &table, &c));
    tutti_status st = parse(&options, text, n_bytes, source);
    tti_options_fini(&options);
    TTI_TRY(st);
    *out = (tti_network){{{c.host.size, c.host.gb_s, c.host.latency_us},
                          {c.rack.size, c.rack.gb_s, c.rack.latency_us},
                          {c.spine.size, c.spine.gb_s, c.spine.latency_us}}};
    return TUTTI_OK;
}

tutti_status tti_network_read(const char *name, tti_network *out) {
    for (size_t i = 0; i < TTI_COUNT(presets); i++)
        if (strcmp(name, presets[i].name) == 0)
            return tti_network_parse(presets[i].yaml, strlen(presets[i].yaml), name, out);
    tti_arena arena = {0};
    const char *text;
    size_t n_bytes;
    tutti_status st = tti_yaml_read_file(name, &arena, &text, &n_bytes);
    if (st == TUTTI_OK) st = tti_network_parse(text, n_bytes, name, out);
    tti_arena_free(&arena);
    return st;
}

void tti_network_members(const tti_network *network, int64_t n, int64_t stride, int64_t *members) {
    for (int i = 0; i < TTI_N_LEVELS; i++) {
        bool is_last = i == TTI_N_LEVELS - 1;
        int64_t size = network->levels[i].size, here = TTI_MAX(size / stride, 1);
        members[i] = is_last || n < here ? n : here;
        n = (n + members[i] - 1) / members[i];
        stride = TTI_MAX(stride / size, 1);
    }
}

int tti_network_level(const tti_network *network, int64_t n) {
    int level = 0;
    for (double capacity = 1; level < TTI_N_LEVELS - 1; level++) {
        capacity *= (double)network->levels[level].size;
        if ((double)n <= capacity) break;
    }
    return level;
}

double tti_network_capacity(const tti_network *network) {
    double capacity = 1;
    for (int i = 0; i < TTI_N_LEVELS; i++) capacity *= (double)network->levels[i].size;
    return capacity;
}

/* n_phases: 2 for an all-reduce; 1 for a reduce-scatter or an all-gather. */
static double move_s(const tti_network *network, const int64_t *members, double n_bytes,
                     int n_phases, double *sent) {
    double s = 0;
    for (int i = 0; i < TTI_N_LEVELS; i++) {
        const tti_level *level = &network->levels[i];
        double k = (double)members[i], moved = n_phases * (k - 1) / k * n_bytes;
        if (members[i] < 2) continue;
        s += moved / (level->gb_s * 1e9) + n_phases * ceil(log2(k)) * level->latency_us * 1e-6;
        sent[i] += moved;
        n_bytes /= k;
    }
    return s;
}

double tti_network_sum_s(const tti_network *network, const int64_t *members, double n_bytes,
                         double *sent) {
    return move_s(network, members, n_bytes, 2, sent);
}

double tti_network_half_sum_s(const tti_network *network, const int64_t *members, double n_bytes,
                              double *sent) {
    return move_s(network, members, n_bytes, 1, sent);
}

/* The time of a reduction is linear in its bytes, so two sizes determine latency and speed. */
void tti_network_link(const tti_network *network, const int64_t *members, tti_bucket_link *link) {
    const double many = 1e9;
    double sent[TTI_N_LEVELS] = {0}, latency_s = tti_network_sum_s(network, members, 0, sent),
           s = tti_network_sum_s(network, members, many, sent) - latency_s;
    if (s <= 0) return;
    link->latency_s = latency_s;
    link->bytes_s = many / s;
    snprintf(link->name, sizeof link->name, "the described network");
}
