/* network_fuzz.c - any bytes as the description of a cluster: an answer, never a crash; and what is
 * accepted gives times that are numbers. */
#include <math.h>
#include <stdlib.h>

#include "planner/network.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    tti_network network;
    tutti_status st = tti_network_parse((const char *)data, n_bytes, "fuzz", &network);
    if (st != TUTTI_OK && *tutti_last_error() == '\0') abort();
    for (int64_t n = 1; st == TUTTI_OK && n <= 1 << 20; n *= 4) {
        int64_t members[TTI_N_LEVELS];
        double sent[TTI_N_LEVELS] = {0};
        tti_network_members(&network, n, 1 + n % 7, members);
        double s = tti_network_sum_s(&network, members, 1e9, sent);
        if (!isfinite(s) || s < 0 || members[0] * members[1] * members[2] < n) abort();
    }
    return 0;
}
