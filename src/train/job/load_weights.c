/* load_weights.c - parses parallel.load_weights and prints shard maps. */
#include "train/job/load_weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"

static const double MOST_WEIGHT = 1e6;

/* Reads one weight and its separator and moves *at past them. */
static bool take_weight(const char **at, double *out) {
    char word[32];
    size_t n = strcspn(*at, ",");
    if (n == 0 || n >= sizeof word) return false;
    memcpy(word, *at, n);
    word[n] = '\0';
    const char *from = word + strspn(word, " ");
    for (size_t end = strlen(word); end > 0 && word[end - 1] == ' ';) word[--end] = '\0';
    *at += n;
    return tti_parse_double(from, out) == TTI_NUMBER_OK && *out > 0 && *out <= MOST_WEIGHT;
}

static const char *parse_list(const char *text, tti_load_weights *out) {
    for (const char *at = text;; at++) {
        if (!take_weight(&at, &out->weight[out->n++]))
            return "expected auto, equal, measured, or a weight greater than 0 for each worker, "
                   "such as 3,1";
        if (!*at) return NULL;
    }
}

const char *tti_load_weights_parse(const char *text, tti_load_weights *out) {
    static const char *const words[] = {"auto", "equal", "measured"};
    *out = (tti_load_weights){.kind = TTI_LOAD_WEIGHTS_GIVEN};
    for (int i = 0; i < (int)TTI_COUNT(words); i++)
        if (strcmp(text, words[i]) == 0) {
            out->kind = (tti_load_weights_kind)i;
            return NULL;
        }
    size_t n = 1;
    for (const char *at = text; *at; at++) n += *at == ',';
    if (n > TTI_MAX_WORKERS) return "has more weights than there can be workers, 65536";
    out->weight = calloc(n, sizeof *out->weight);
    if (!out->weight) return "cannot be read: out of memory";
    const char *wrong = parse_list(text, out);
    if (wrong) tti_load_weights_free(out);
    return wrong;
}

tti_load_weights_kind tti_load_weights_kind_of(const tti_job_config *c) {
    tti_load_weights weights;
    bool is_bad = tti_load_weights_parse(c->parallel.load_weights, &weights) != NULL;
    tti_load_weights_free(&weights);
    return is_bad ? TTI_LOAD_WEIGHTS_EQUAL : weights.kind;
}

void tti_load_weights_free(tti_load_weights *weights) {
    free(weights->weight);
    weights->weight = NULL;
}

tutti_status tti_load_weights_given(const tti_job_config *c, int n_workers, int n_shards,
                                    bool *given, tti_shard_map *out) {
    tti_load_weights weights;
    tutti_status st = TUTTI_OK;
    *given = !tti_load_weights_parse(c->parallel.load_weights, &weights) &&
             weights.kind == TTI_LOAD_WEIGHTS_GIVEN && weights.n == n_workers &&
             n_workers <= n_shards;
    if (*given) st = tti_shard_map_by_weight(weights.weight, n_workers, n_shards, out);
    tti_load_weights_free(&weights);
    return st;
}

void tti_load_weights_print(const tti_shard_map *shard_map, tti_str *out) {
    for (int r = 0; r < shard_map->n_ranks; r++)
        tti_str_printf(out, "%s%d",
                       r == 0                        ? ""
                       : r == shard_map->n_ranks - 1 ? " and "
                                                     : ", ",
                       tti_shard_map_n_of(shard_map, r));
}
