/* run_limits_test.c - runs of more workers than can be connected are refused with the number that
 * can. */
#include "train/setup/run_limits.h"

#include "comm/shard_map.h"
#include "ps/server.h"
#include "train/small_job.h"

static tti_job_config config_of(const char *a, const char *b) {
    tutti_job *job = SMALL_JOB(a, b, "train.batch=65536");
    tti_job_config config = job->config;
    tutti_job_destroy(job);
    return config;
}

T_CASE(workers_of_a_host) {
    T_UNUSED;
    tti_job_config c = config_of("parallel.workers=4096", "parallel.shards=4096");
    T_OK(tti_run_limits_check(&c, true));
    c.parallel.spares = 1;
    T_FAILS(tti_run_limits_check(&c, true), TUTTI_E_CONFIG,
            "at most 4096 workers, and the job has 4097");
    c.parallel.spares = 0;
    c.parallel.workers = TTI_MAX_WORKERS;
    T_FAILS(tti_run_limits_check(&c, true), TUTTI_E_CONFIG, "the job has 65536; tutti plan");
}

T_CASE(workers_of_a_server) {
    T_UNUSED;
    tti_job_config c = config_of("parallel.sync=parameter-server", "parallel.workers=4");
    c.parallel.workers = TTI_MAX_SERVED;
    T_OK(tti_run_limits_check(&c, true));
    c.parallel.servers = TTI_MAX_SERVED + 1;
    T_FAILS(tti_run_limits_check(&c, true), TUTTI_E_CONFIG,
            "at most 256 threads or processes, and the job has 4097");
    c.parallel.workers = TTI_MAX_SERVED + 1;
    T_FAILS(tti_run_limits_check(&c, false), TUTTI_E_CONFIG,
            "at most 4096 workers, and the job has 4097; give parallel.sync=all-reduce");
}

T_CASE(ranks_of_a_launcher) {
    T_UNUSED;
    T_OK(tti_run_limits_check_launcher(TTI_MAX_RANKS, "rank 0 of 65536"));
    T_FAILS(tti_run_limits_check_launcher(TTI_MAX_RANKS + 1, "rank 0 of 65537"), TUTTI_E_CONFIG,
            "at most 65536 workers of a job, and this is rank 0 of 65537");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(workers_of_a_host),
                                       cmocka_unit_test(workers_of_a_server),
                                       cmocka_unit_test(ranks_of_a_launcher)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
