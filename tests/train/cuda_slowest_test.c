/* cuda_slowest_test.c - names the slower of two GPUs by the time that their kernels wait for each
 * other.  Exit code 77 with fewer than two. */
#include "backend/gpus.h"
#include "train/slow_worker.h"

#define ON_GPUS "parallel.devices=0,1", "model.hidden=[64]"

T_CASE(a_worker_that_waits_for_data) {
    T_UNUSED;
    SLOW_WORKER(1, "data", "train.data:delay_ms=150@2+,rank=1", "run.dir=fed", ON_GPUS,
                "data.resident=no");
    assert_true(slow_worker_is_recorded("fed", 1, "data"));
    SLOW_WORKER(0, "data", "train.data:delay_ms=150@2+,rank=0", "run.dir=kept", ON_GPUS,
                "parallel.ahead=2");
    SLOW_WORKER(1, "data", "train.data:delay_ms=150@2+,rank=1", "run.dir=parts", ON_GPUS,
                "data.resident=no", "parallel.zero=1");
}

T_CASE(a_worker_that_copies_slowly) {
    T_UNUSED;
    SLOW_WORKER(0, "copy", "device.feed:delay_ms=150@2+,rank=0", "run.dir=copied", ON_GPUS,
                "data.resident=no");
}

/* The library does not report how long it waits: the steps do. */
T_CASE(by_the_library_and_with_shares) {
    T_UNUSED;
    SLOW_WORKER(1, "data", "train.data:delay_ms=150@2+,rank=1", "run.dir=library", ON_GPUS,
                "data.resident=no", "parallel.algorithm=tree");
    SLOW_WORKER(0, "copy", "device.feed:delay_ms=150@2+,rank=0", "run.dir=shares", ON_GPUS,
                "data.resident=no", "parallel.load_weights=3,1");
}

int main(void) {
    int code = find_gpus(2);
    if (code) return code;
    const struct CMUnitTest tests[] = {IN_FOLDER(a_worker_that_waits_for_data),
                                       IN_FOLDER(a_worker_that_copies_slowly),
                                       IN_FOLDER(by_the_library_and_with_shares)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
