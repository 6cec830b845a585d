/* kernels.c - ranks exchange their kernel levels and libraries, and all make the same choice.
 *
 * A resumed run counts as one more rank, with the kernels recorded in its newest checkpoint. */
#include "train/setup/kernels.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/levels.h"
#include "base/error.h"
#include "ckpt/ckpt.h"

static void keep(void (*describe)(tti_str *out), char *text, size_t n_bytes) {
    tti_str str = {0};
    describe(&str);
    snprintf(text, n_bytes, "%s", tti_str_text(&str));
    tti_str_free(&str);
}

/* Records the processor's kernels, which matter if any worker computes on the host. */
static void record_host(tti_kernel_record *out) {
    out->level = (int32_t)tti_cpu_get_level();
    keep(tti_cpu_describe_libraries, out->libraries, sizeof out->libraries);
    keep(tti_cpu_describe_extensions, out->extensions, sizeof out->extensions);
    keep(tti_cpu_describe_caches, out->caches, sizeof out->caches);
}

static void record_device(const tti_devices *devices, int local_rank, tti_kernel_record *out) {
    tti_str kind = {0};
    tti_devices_kind(devices, local_rank, &kind);
    snprintf(out->device, sizeof out->device, "%s", tti_str_text(&kind));
    tti_str_free(&kind);
}

/* Removes text in brackets.  It gives the reasons why a library is missing, which may differ
 * between machines. */
static void drop_reasons(char *text) {
    char *to = text;
    int depth = 0;
    for (const char *at = text; *at; at++) {
        if (*at == '(') depth++;
        if (depth == 0) *to++ = *at;
        if (*at == ')' && depth > 0) depth--;
    }
    *to = '\0';
}

static void record_stack(const tti_backend *backend, tti_kernel_record *out) {
    tti_str str = {0};
    backend->describe(&str);
    if (str.text) drop_reasons(str.text);
    snprintf(out->stack, sizeof out->stack, "%s", tti_str_text(&str));
    tti_str_free(&str);
}

/* Returns the level of the newest readable checkpoint of a run; -1 if it was made with another
 * version of oneDNN, which no level can reproduce. */
static int level_of_run(const char *run_dir) {
    int level = -1;
    tti_ckpt *ckpt;
    if (tti_ckpt_open_newest(run_dir, &ckpt) != TUTTI_OK) {
        tti_clear_error();
        return -1;
    }
    const char *saved = tti_ckpt_get_meta(ckpt)->backend;
    if (saved && tti_cpu_has_libraries(saved)) level = tti_cpu_level_in(saved);
    tti_ckpt_close(ckpt);
    return level;
}

/* Returns the first rank whose text at this offset differs from that of rank 0; 0: none. */
static int first_other(const tti_kernel_record *all, int n_ranks, size_t offset) {
    for (int r = 1; r < n_ranks; r++)
        if (strcmp((const char *)&all[r] + offset, (const char *)&all[0] + offset) != 0) return r;
    return 0;
}

/* Returns the rank with the lowest level. */
static int lowest(const tti_kernel_record *all, int n_ranks) {
    int low = 0;
    for (int r = 1; r < n_ranks; r++)
        if (all[r].level < all[low].level) low = r;
    return low;
}

/* Names two ranks and their values: "rank 2 on b has avx2, rank 0 on a amx". */
static void name_pair(const tti_kernel_record *all, int a, int b, char *out, size_t n_bytes) {
    snprintf(out, n_bytes, "rank %d on %s has %s kernels (%s;%s), rank %d on %s %s (%s;%s)", a,
             all[a].host, tti_cpu_level_name((tti_cpu_level)all[a].level), all[a].libraries,
             all[a].extensions, b, all[b].host, tti_cpu_level_name((tti_cpu_level)all[b].level),
             all[b].libraries, all[b].extensions);
}

/* Checks data from the network before it is used. */
static tutti_status check_records(const tti_kernel_record *all, int n_ranks) {
    for (int r = 0; r < n_ranks; r++) {
        const tti_kernel_record *k = &all[r];
        if (k->level < 0 || k->level >= TTI_CPU_N_LEVELS || k->wanted >= TTI_CPU_N_LEVELS ||
            !memchr(k->libraries, 0, sizeof k->libraries) ||
            !memchr(k->extensions, 0, sizeof k->extensions) ||
            !memchr(k->caches, 0, sizeof k->caches) || !memchr(k->host, 0, sizeof k->host) ||
            !memchr(k->device, 0, sizeof k->device) || !memchr(k->stack, 0, sizeof k->stack))
            return tti_fail(TUTTI_E_INTERNAL, "train: a damaged record of the kernels of rank %d",
                            r);
    }
    return TUTTI_OK;
}

/* In exact mode, chooses the level if ranks differ in levels or extensions, or if the resumed run
 * used a lower level. */
static void take_lowest(const tti_kernel_record *all, int n_ranks, int other, int *level,
                        char *notice, size_t n_bytes) {
    int low = lowest(all, n_ranks), wanted = all[0].wanted;
    char pair[700];
    *level = all[low].level;
    if (wanted >= 0 && wanted < *level) {
        *level = wanted;
        snprintf(notice, n_bytes,
                 "the run continues with %s kernels, those of its checkpoint, for the same bits; "
                 "this machine has %s",
                 tti_cpu_level_name((tti_cpu_level)wanted),
                 tti_cpu_level_name((tti_cpu_level)all[0].level));
        return;
    }
    name_pair(all, low ? low : other, 0, pair, sizeof pair);
    snprintf(notice, n_bytes, "all ranks compute with %s kernels, for the same bits: %s",
             tti_cpu_level_name((tti_cpu_level)*level), pair);
}

/* Finds the first two ranks on devices whose texts at this offset differ; false: none. */
static bool unlike_devices(const tti_kernel_record *all, int n_ranks, size_t offset, int *a,
                           int *b) {
    *a = 0;
    while (*a < n_ranks && !all[*a].device[0]) ++*a;
    for (*b = *a + 1; *b < n_ranks; ++*b) {
        const char *one = (const char *)&all[*a] + offset, *other = (const char *)&all[*b] + offset;
        if (all[*b].device[0] && strcmp(one, other) != 0) return true;
    }
    return false;
}

/* Compares ranks on devices.  They must be alike in exact mode, which uses the first algorithm that
 * a library proposes: it depends on the library's version and the kind of device. */
static tutti_status compare_devices(const tti_kernel_record *all, int n_ranks, bool exact,
                                    char *notice, size_t n_bytes) {
    int a, b;
    bool kinds = unlike_devices(all, n_ranks, offsetof(tti_kernel_record, device), &a, &b);
    if (!kinds && !unlike_devices(all, n_ranks, offsetof(tti_kernel_record, stack), &a, &b))
        return TUTTI_OK;
    char pair[700];
    snprintf(pair, sizeof pair, "rank %d on %s has %.200s, rank %d on %s %.200s", b, all[b].host,
             kinds ? all[b].device : all[b].stack, a, all[a].host,
             kinds ? all[a].device : all[a].stack);
    if (exact)
        return tti_fail(TUTTI_E_CONFIG,
                        "train: ranks would compute different bits, which exact mode does not "
                        "allow: %s; %s, or give parallel.mode=fast",
                        pair,
                        kinds ? "leave out the other kind with parallel.devices"
                              : "install the same driver and libraries on every host");
    snprintf(notice, n_bytes, "ranks compute on different devices: %s", pair);
    return TUTTI_OK;
}

static bool is_all_on_devices(const tti_kernel_record *all, int n_ranks) {
    int r = 0;
    while (r < n_ranks && all[r].device[0]) r++;
    return r == n_ranks;
}

tutti_status tti_kernels_decide(const tti_kernel_record *all, int n_ranks, bool exact, int *level,
                                char *notice, size_t n_bytes) {
    char pair[700];
    *level = -1;
    *notice = '\0';
    TTI_TRY(check_records(all, n_ranks));
    TTI_TRY(compare_devices(all, n_ranks, exact, notice, n_bytes));
    if (*notice || is_all_on_devices(all, n_ranks)) return TUTTI_OK;
    int library = first_other(all, n_ranks, offsetof(tti_kernel_record, libraries));
    int other = first_other(all, n_ranks, offsetof(tti_kernel_record, extensions));
    int cache = first_other(all, n_ranks, offsetof(tti_kernel_record, caches));
    for (int r = 1; r < n_ranks && !other; r++)
        if (all[r].level != all[0].level) other = r;
    if (library && exact) {
        name_pair(all, library, 0, pair, sizeof pair);
        return tti_fail(
            TUTTI_E_CONFIG,
            "train: ranks would compute different bits, which exact mode does not allow: %s; "
            "install the same build on every host, or give parallel.mode=fast",
            pair);
    }
    bool was_less = all[0].wanted >= 0 && all[0].wanted < all[lowest(all, n_ranks)].level;
    if (exact && (other || was_less)) {
        take_lowest(all, n_ranks, other, level, notice, n_bytes);
    } else if (library || other) {
        name_pair(all, library ? library : other, 0, pair, sizeof pair);
        snprintf(notice, n_bytes, "ranks compute with different kernels: %s", pair);
    } else if (exact && cache) {
        snprintf(
            notice, n_bytes,
            "processors have different caches (rank %d on %s: %s, rank 0 on %s: %s): oneDNN "
            "divides its work by cache sizes, so bits may depend on which rank computes a shard",
            cache, all[cache].host, all[cache].caches, all[0].host, all[0].caches);
    }
    return TUTTI_OK;
}

void tti_kernels_text(const tti_devices *devices, int n_workers, char *out, size_t n_bytes) {
    tti_kernel_record here = {0};
    if (devices->n > 0) {
        tti_str kinds = {0};
        tti_devices_kinds(devices, n_workers, &kinds);
        record_stack(devices->backend, &here);
        snprintf(out, n_bytes, "%s (%s)", tti_str_text(&kinds), here.stack);
        tti_str_free(&kinds);
        return;
    }
    record_host(&here);
    snprintf(out, n_bytes, "%s (%s;%s)", tti_cpu_level_name((tti_cpu_level)here.level),
             here.libraries, here.extensions);
}

/* Gathers the records.  Without a communicator, each worker of this machine has the values of this
 * process, except for its device. */
static tutti_status gather(const tti_kernel_query *q, const tti_kernel_record *mine, int n_ranks,
                           tti_kernel_record *all) {
    if (q->comm) return tutti_comm_all_gather(q->comm, mine, all, sizeof *mine, TUTTI_U8);
    for (int r = 0; r < n_ranks; r++) {
        all[r] = *mine;
        record_device(q->devices, r, &all[r]);
    }
    return TUTTI_OK;
}

/* Fills the record of this rank.  Device libraries are compared only between machines, because
 * loading them here would delay the start. */
static void describe_here(const tti_kernel_query *q, tti_kernel_record *out) {
    memset(out, 0, sizeof *out); /* all bytes are sent, including padding */
    out->wanted = -1;
    if (gethostname(out->host, sizeof out->host - 1) != 0) snprintf(out->host, 2, "?");
    if (q->comm) record_device(q->devices, q->local_rank, out);
    if (out->device[0]) record_stack(q->devices->backend, out);
    if (q->devices->n > 0 && !q->devices->mixed) return;
    record_host(out);
    bool first = !q->comm || tutti_comm_rank(q->comm) == 0;
    if (q->run_dir && first) out->wanted = level_of_run(q->run_dir);
}

tutti_status tti_agree_on_kernels(const tti_kernel_query *q, char *notice, size_t n_bytes) {
    int level = -1, n_ranks = q->comm ? tutti_comm_n_ranks(q->comm)
                                      : TTI_MAX(TTI_MIN(q->n_workers, q->devices->n), 1);
    tti_kernel_record mine, *all = calloc((size_t)n_ranks, sizeof *all);
    *notice = '\0';
    if (!all) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    describe_here(q, &mine);
    tutti_status st = gather(q, &mine, n_ranks, all);
    if (st == TUTTI_OK) st = tti_kernels_decide(all, n_ranks, q->exact, &level, notice, n_bytes);
    if (st == TUTTI_OK && level >= 0) st = tti_cpu_set_level((tti_cpu_level)level);
    free(all);
    return st;
}
