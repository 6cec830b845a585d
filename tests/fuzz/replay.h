/* replay.h - the fuzz targets in fuzz_replay. */
#ifndef TTI_TESTS_REPLAY_H
#define TTI_TESTS_REPLAY_H

#include <stddef.h>
#include <stdint.h>

typedef struct t_target {
    const char *name;
    int (*run)(const uint8_t *data, size_t n_bytes); /* its LLVMFuzzerTestOneInput */
} t_target;

extern const t_target t_targets[]; /* the last one has no name; tests/CMakeLists.txt writes it */

#endif /* TTI_TESTS_REPLAY_H */
