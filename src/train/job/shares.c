/* shares.c - parses parallel.shares and prints shard maps. */
#include "train/job/shares.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"

static const double MOST_WEIGHT = 1e6;

/* One weight and what follows it, *at moved behind it. */
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

const char *tti_shares_parse(const char *text, tti_shares *out) {
    static const char *const words[] = {"auto", "equal", "measured"};
    *out = (tti_shares){.kind = TTI_SHARES_GIVEN};
    for (int i = 0; i < (int)TTI_COUNT(words); i++)
        if (strcmp(text, words[i]) == 0) {
            out->kind = (tti_shares_kind)i;
            return NULL;
        }
    for (const char *at = text;; at++) {
        if (out->n == TTI_MAX_WORKERS) return "has more weights than there can be workers, 64";
        if (!take_weight(&at, &out->weight[out->n++]))
            return "expected auto, equal, measured, or a weight greater than 0 for each worker, "
                   "such as 3,1";
        if (!*at) return NULL;
    }
}

tti_shares_kind tti_shares_kind_of(const tti_job_config *c) {
    tti_shares shares;
    return tti_shares_parse(c->parallel.shares, &shares) ? TTI_SHARES_EQUAL : shares.kind;
}

bool tti_shares_given(const tti_job_config *c, int n_workers, int n_shards, tti_deal *out) {
    tti_shares shares;
    if (tti_shares_parse(c->parallel.shares, &shares) || shares.kind != TTI_SHARES_GIVEN)
        return false;
    if (shares.n != n_workers || n_workers > n_shards) return false;
    tti_deal_by_weight(shares.weight, n_workers, n_shards, out);
    return true;
}

void tti_shares_print(const tti_deal *deal, tti_str *out) {
    for (int r = 0; r < deal->n_ranks; r++)
        tti_str_printf(out, "%s%d",
                       r == 0                   ? ""
                       : r == deal->n_ranks - 1 ? " and "
                                                : ", ",
                       tti_deal_n_of(deal, r));
}
