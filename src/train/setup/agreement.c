/* agreement.c - compares job, data, folder, cores and devices of all ranks with rank 0 before the
 * first step. */
#include "train/setup/agreement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/affinity.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "comm/progress.h"
#include "data/loader/fingerprint.h"

enum { VERDICT_BYTES = 512, MAX_JOB_BYTES = 1 << 22 };

/* Copies the line at text without its indentation. */
static const char *show_line(const char *text, char *buf, size_t n_bytes) {
    size_t n = strcspn(text, "\n"), n_indent = strspn(text, " ");
    n_indent = TTI_MIN(n_indent, n);
    snprintf(buf, n_bytes, "%.*s", (int)TTI_MIN(n - n_indent, n_bytes - 1), text + n_indent);
    return buf;
}

/* The line that starts at text, without its newline. */
static int line_length(const char *text) { return (int)strcspn(text, "\n"); }

/* True if a line opens a section, such as "train:". */
static bool opens_section(const char *line) {
    int n = line_length(line);
    return n > 0 && line[0] != ' ' && line[n - 1] == ':';
}

/* Describes the first difference of two jobs; "" if there is none. */
static void compare(int rank, const char *mine, const char *first, char verdict[VERDICT_BYTES]) {
    const char *section = "";
    char a[160], b[160];
    verdict[0] = '\0';
    while (*mine || *first) {
        int n = line_length(mine), n_first = line_length(first);
        if (n != n_first || memcmp(mine, first, (size_t)n) != 0) {
            snprintf(verdict, VERDICT_BYTES,
                     "rank %d has another job than rank 0: %.*s%s'%s' where rank 0 has '%s'", rank,
                     line_length(section), section, *section ? " " : "",
                     show_line(mine, a, sizeof a), show_line(first, b, sizeof b));
            return;
        }
        if (opens_section(mine)) section = mine;
        mine += n + (mine[n] == '\n');
        first += n_first + (first[n_first] == '\n');
    }
}

/* Sends the verdict of each rank to all ranks, so that all fail with the same message. */
static tutti_status gather_verdicts(tutti_comm *comm, const char *mine) {
    size_t n_ranks = (size_t)tutti_comm_n_ranks(comm);
    char *all = calloc(n_ranks, VERDICT_BYTES);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    tutti_status st = tutti_comm_all_gather(comm, mine, all, VERDICT_BYTES, TUTTI_U8);
    for (size_t r = 0; st == TUTTI_OK && r < n_ranks; r++)
        if (all[r * VERDICT_BYTES])
            st =
                tti_fail(TUTTI_E_CONFIG, "train: %.*s", VERDICT_BYTES - 1, all + r * VERDICT_BYTES);
    free(all);
    return st;
}

tutti_status tti_agree_on_job(tutti_comm *comm, const char *yaml) {
    char verdict[VERDICT_BYTES] = "";
    uint64_t n_bytes = strlen(yaml) + 1;
    int rank = tutti_comm_rank(comm);
    TTI_TRY(tutti_comm_broadcast(comm, &n_bytes, sizeof n_bytes, TUTTI_U8, 0));
    if (n_bytes < 1 || n_bytes > MAX_JOB_BYTES)
        return tti_fail(TUTTI_E_CONFIG, "train: a job of %llu bytes", (unsigned long long)n_bytes);
    char *first = calloc(1, (size_t)n_bytes);
    if (!first) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    if (rank == 0) memcpy(first, yaml, (size_t)n_bytes);
    tutti_status st = tutti_comm_broadcast(comm, first, (size_t)n_bytes, TUTTI_U8, 0);
    if (st == TUTTI_OK) {
        first[n_bytes - 1] = '\0';
        compare(rank, yaml, first, verdict);
        st = gather_verdicts(comm, verdict);
    }
    free(first);
    return st;
}

/* ---- data ---- */

/* The data set as one rank reads it.  Zeroed before use, because all its bytes, including padding,
 * are sent. */
typedef struct data_record {
    char host[64], x_type[64];
    int64_t n_classes, n_samples[TUTTI_N_SPLITS];
    tti_fingerprint print[TUTTI_N_SPLITS];
} data_record;

static const char *const split_names[TUTTI_N_SPLITS] = {"training", "test"};

static tutti_status describe_data(const tutti_dataset *const sets[TUTTI_N_SPLITS],
                                  data_record *out) {
    const tutti_dataset_info *info = tutti_dataset_get_info(sets[TUTTI_TRAIN]);
    memset(out, 0, sizeof *out);
    if (gethostname(out->host, sizeof out->host - 1) != 0) snprintf(out->host, 2, "?");
    tti_type_text(&info->x, out->x_type, sizeof out->x_type);
    out->n_classes = info->n_classes;
    for (int i = 0; i < TUTTI_N_SPLITS; i++) {
        out->n_samples[i] = tutti_dataset_get_info(sets[i])->n_samples;
        TTI_TRY(tti_dataset_fingerprint(sets[i], &out->print[i]));
    }
    return TUTTI_OK;
}

static void describe_numbers(const data_record *mine, const data_record *first, const char *what,
                             int64_t a, int64_t b, int rank, char verdict[VERDICT_BYTES]) {
    snprintf(verdict, VERDICT_BYTES,
             "rank %d on %s reads other data than rank 0 on %s: %lld %s, rank 0 has %lld", rank,
             mine->host, first->host, (long long)a, what, (long long)b);
}

static void describe_prints(const data_record *mine, const data_record *first, const char *what,
                            uint32_t a, uint32_t b, int rank, char verdict[VERDICT_BYTES]) {
    snprintf(
        verdict, VERDICT_BYTES,
        "rank %d on %s reads other data than rank 0 on %s: %s have the checksum %08x, those of "
        "rank 0 %08x; give every host the same files",
        rank, mine->host, first->host, what, a, b);
}

/* Describes the first difference of the data of two ranks; "" if there is none. */
static void compare_data(int rank, const data_record *mine, const data_record *first,
                         char verdict[VERDICT_BYTES]) {
    char what[64];
    verdict[0] = '\0';
    for (int i = 0; i < TUTTI_N_SPLITS && !verdict[0]; i++) {
        snprintf(what, sizeof what, "%s samples", split_names[i]);
        if (mine->n_samples[i] != first->n_samples[i])
            describe_numbers(mine, first, what, mine->n_samples[i], first->n_samples[i], rank,
                             verdict);
    }
    if (!verdict[0] && mine->n_classes != first->n_classes)
        describe_numbers(mine, first, "classes", mine->n_classes, first->n_classes, rank, verdict);
    if (!verdict[0] && strcmp(mine->x_type, first->x_type) != 0)
        snprintf(verdict, VERDICT_BYTES,
                 "rank %d on %s reads other data than rank 0 on %s: samples %s, rank 0 has %s",
                 rank, mine->host, first->host, mine->x_type, first->x_type);
    for (int i = 0; i < TUTTI_N_SPLITS && !verdict[0]; i++) {
        const tti_fingerprint *a = &mine->print[i], *b = &first->print[i];
        snprintf(what, sizeof what, "names of %s classes or files", split_names[i]);
        if (a->names != b->names)
            describe_prints(mine, first, what, a->names, b->names, rank, verdict);
        snprintf(what, sizeof what, "contents of %s samples", split_names[i]);
        if (!verdict[0] && a->content != b->content)
            describe_prints(mine, first, what, a->content, b->content, rank, verdict);
    }
}

tutti_status tti_agree_on_data(tutti_comm *comm, const tutti_dataset *train,
                               const tutti_dataset *test) {
    const tutti_dataset *const sets[TUTTI_N_SPLITS] = {train, test};
    char verdict[VERDICT_BYTES] = "";
    data_record mine, first;
    TTI_TRY(describe_data(sets, &mine));
    first = mine;
    TTI_TRY(tutti_comm_broadcast(comm, &first, sizeof first, TUTTI_U8, 0));
    first.host[sizeof first.host - 1] = first.x_type[sizeof first.x_type - 1] = '\0';
    compare_data(tutti_comm_rank(comm), &mine, &first, verdict);
    return gather_verdicts(comm, verdict);
}

/* ---- the run folder ---- */

tutti_status tti_agree_on_dir(tutti_comm *comm, tutti_status mine, char *dir, size_t n_bytes) {
    char verdict[VERDICT_BYTES] = "";
    if (mine != TUTTI_OK) snprintf(verdict, sizeof verdict, "%s", tutti_last_error());
    TTI_TRY(tutti_comm_broadcast(comm, verdict, sizeof verdict, TUTTI_U8, 0));
    if (mine != TUTTI_OK) return mine;
    if (verdict[0])
        return tti_fail(TUTTI_E_PEER, "train: rank 0: %.*s", VERDICT_BYTES - 1, verdict);
    TTI_TRY(tutti_comm_broadcast(comm, dir, n_bytes, TUTTI_U8, 0));
    dir[n_bytes - 1] = '\0';
    return TUTTI_OK;
}

tutti_status tti_agree_on_cores(tutti_comm *comm, int *local_rank, int *local_n_ranks) {
    tti_comm_place place;
    tti_cores cores;
    tti_comm_get_place(comm, &place);
    tti_cores_allowed(&cores);
    int n_ranks = tutti_comm_n_ranks(comm), rank = tutti_comm_rank(comm);
    size_t n_bytes = (size_t)cores.n * sizeof *cores.id;
    int64_t mine = (int64_t)tti_crc32c(0, cores.id, n_bytes) << 16 | place.host;
    int64_t *all = calloc((size_t)n_ranks, sizeof *all);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    tutti_status st = tutti_comm_all_gather(comm, &mine, all, 1, TUTTI_I64);
    *local_rank = *local_n_ranks = 0;
    for (int r = 0; st == TUTTI_OK && r < n_ranks; r++) {
        *local_rank += r < rank && all[r] == mine;
        *local_n_ranks += all[r] == mine;
    }
    free(all);
    return st;
}

/* ---- devices ---- */

typedef struct rank_device {
    int64_t host, identity;
} rank_device;

static bool is_first_of_its_kind(const rank_device *all, int rank) {
    for (int r = 0; r < rank; r++)
        if (all[r].host == all[rank].host && all[r].identity == all[rank].identity) return false;
    return true;
}

tutti_status tti_agree_on_devices(tutti_comm *comm, uint64_t identity, int *n_devices) {
    tti_comm_place place;
    tti_comm_get_place(comm, &place);
    int n_ranks = tutti_comm_n_ranks(comm);
    rank_device mine = {place.host, (int64_t)identity};
    rank_device *all = calloc((size_t)n_ranks, sizeof *all);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    tutti_status st = tutti_comm_all_gather(comm, &mine, all, 2, TUTTI_I64);
    *n_devices = 0;
    for (int r = 0; st == TUTTI_OK && r < n_ranks; r++)
        *n_devices += all[r].host == mine.host && all[r].identity && is_first_of_its_kind(all, r);
    free(all);
    return st;
}

/* ---- the link ---- */

/* If rank 0 finds no devices, it fails like all others when it looks for its own device. */
tutti_status tti_agree_on_link(tutti_comm *comm, const tti_job_config *config,
                               tti_bucket_link *out) {
    tti_comm_place place;
    tti_devices devices;
    memset(out, 0, sizeof *out);
    tti_comm_get_place(comm, &place);
    TTI_TRY(tti_devices_find(config, &devices));
    if (tutti_comm_rank(comm) == 0)
        tti_bucket_link_of(config, &devices, tutti_comm_n_ranks(comm), place.n_hosts, out);
    return tutti_comm_broadcast(comm, out, sizeof *out, TUTTI_U8, 0);
}
