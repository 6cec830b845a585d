/* job_fuzz.c - any bytes as a job file, or as an assignment: an answer, never a crash; and a job
 * that is accepted prints to a text that reads back to the same job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/job/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void require(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "job_fuzz: %s: %s\n", what, tutti_last_error());
    abort();
}

static tutti_job *new_job(void) {
    tutti_job *job = NULL;
    require(tutti_job_create(&job) == TUTTI_OK, "create");
    return job;
}

static void check_round_trip(tutti_job *job) {
    tutti_job *back = new_job();
    char *text = tutti_job_print(job, true);
    require(text, "print");
    require(tti_job_load_text(back, text, strlen(text), "printed") == TUTTI_OK, "read back");
    require(tutti_job_check(back) == TUTTI_OK, "check what was printed");
    char *a = tutti_job_print(job, false), *b = tutti_job_print(back, false);
    require(a && b && !strcmp(a, b), "the same job");
    free(text);
    free(a);
    free(b);
    tutti_job_destroy(back);
}

/* The first byte chooses: a file, or assignments, one per line. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    if (n_bytes == 0) return 0;
    tutti_job *job = new_job();
    char *text = malloc(n_bytes);
    require(text, "malloc");
    memcpy(text, data + 1, n_bytes - 1);
    text[n_bytes - 1] = '\0';
    tutti_status st = TUTTI_OK;
    if (data[0] == '=')
        for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
            tutti_job_set(job, line, "command line");
    else
        st = tti_job_load_text(job, text, n_bytes - 1, "fuzz");
    if (st == TUTTI_OK) st = tutti_job_check(job);
    if (st == TUTTI_OK) check_round_trip(job);
    require(st == TUTTI_OK || st == TUTTI_E_CONFIG, "status");
    require(st == TUTTI_OK || *tutti_last_error(), "a message");
    if (st == TUTTI_OK) { /* workers as many as cores may be too many or too few */
        st = tti_job_resolve(job, 7);
        require(st == TUTTI_OK || st == TUTTI_E_CONFIG, "resolve");
        if (st == TUTTI_OK) require(tutti_job_check(job) == TUTTI_OK, "resolved");
    }
    free(text);
    tutti_job_destroy(job);
    return 0;
}
