/* ckpt_save_test.c - a checkpoint that was acknowledged is never lost: not by kills at random
 * points, nor at every fault point, nor on a full disk. */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/philox.h"
#include "ckpt/ckpt_fixture.h"
#include "forked.h"

static int no_faults(void **state) {
    return tti_fault_set(NULL) == TUTTI_OK ? remove_run(state) : -1;
}

/* Names in RUN/checkpoints and its folders that end in .tmp. */
static int n_temporary;

static int count_temporary(const char *path, const struct stat *info, int kind, struct FTW *level) {
    (void)info, (void)kind, (void)level;
    size_t n = strlen(path);
    n_temporary += n > 4 && strcmp(path + n - 4, ".tmp") == 0;
    return 0;
}

static void check_nothing_temporary(void) {
    n_temporary = 0;
    assert_int_equal(nftw(run_dir, count_temporary, 8, FTW_PHYS), 0);
    T_EQ(n_temporary, 0);
}

static void check_steps(const int64_t *steps, size_t n) {
    int64_t *found;
    size_t n_found;
    T_OK(tti_ckpt_list(run_dir, &found, &n_found));
    T_EQ(n_found, n);
    for (size_t i = 0; i < n; i++) T_EQ(found[i], steps[i]);
    free(found);
}

T_CASE(round_trip) {
    T_UNUSED;
    T_OK(state_save(1000));
    check_newest(1000);
    check_nothing_temporary();
    struct stat info;
    assert_int_equal(stat(in_checkpoints("step-000001000/manifest.json"), &info), 0);
    tti_ckpt *ckpt;
    T_OK(tti_ckpt_open_dir(in_checkpoints("step-000001000"), false, &ckpt));
    assert_true(state_equals(ckpt, 1000));
    assert_string_equal(tti_ckpt_get_text(ckpt, "note"), "");
    assert_null(tti_ckpt_get_text(ckpt, "nothing"));
    T_EQ(tti_ckpt_n_tensors(ckpt, TTI_CKPT_OPTIMIZER), 2);
    tti_ckpt_close(ckpt);
    tti_ckpt_close(NULL);
}

T_CASE(nothing_to_save_is_a_checkpoint_too) {
    T_UNUSED;
    tti_ckpt_save_desc desc = {.run_dir = run_dir};
    T_OK(tti_ckpt_save(&desc));
    tti_ckpt *ckpt;
    T_OK(tti_ckpt_open(run_dir, NULL, NULL, &ckpt));
    T_OK(tti_ckpt_read(ckpt, TTI_CKPT_MODEL, NULL, 0));
    assert_string_equal(tti_ckpt_get_meta(ckpt)->backend, "");
    tti_ckpt_close(ckpt);
}

/* Tensors that lie elsewhere: data are names for them, by which they are had and handed over. */
typedef struct elsewhere {
    small_state *state;
    int n_left; /* calls that go well; then they fail */
} elsewhere;

static void *place_of(const elsewhere *e, const tti_ckpt_tensor *tensor) {
    return strcmp(tensor->data, "first") == 0 ? (void *)e->state->exp_avg
                                              : (void *)&e->state->counter;
}

static tutti_status get_bytes(void *user, const tti_ckpt_tensor *tensor, const void **bytes) {
    elsewhere *e = user;
    if (e->n_left-- == 0) return tti_fail(TUTTI_E_PEER, "nobody has it");
    *bytes = place_of(e, tensor);
    return TUTTI_OK;
}

static tutti_status put_bytes(void *user, const tti_ckpt_tensor *tensor, uint64_t first,
                              size_t n_bytes, const void *bytes) {
    elsewhere *e = user;
    bool is_first = strcmp(tensor->data, "first") == 0;
    if (e->n_left-- == 0) return tti_fail(TUTTI_E_PEER, "nobody wants it");
    T_EQ(first, 0);
    T_EQ(n_bytes, is_first ? sizeof e->state->exp_avg : sizeof e->state->counter);
    memcpy(place_of(e, tensor), bytes, n_bytes);
    return TUTTI_OK;
}

T_CASE(tensors_that_lie_elsewhere) {
    T_UNUSED;
    small_state s, found;
    state_init(&s, 7);
    state_init(&found, 0);
    elsewhere e = {&s, 1};
    tti_ckpt_access access = {.get = get_bytes, .put = put_bytes, .user = &e};
    tti_ckpt_save_desc desc = state_desc(&s);
    char first[] = "first", second[] = "second";
    s.optimizer[0].data = first;
    s.optimizer[1].data = second;
    desc.access = &access;
    T_FAILS(tti_ckpt_save(&desc), TUTTI_E_PEER, "nobody has it");
    e.n_left = 2;
    T_OK(tti_ckpt_save(&desc));
    check_newest(7); /* the same bytes as from memory */
    tti_ckpt *ckpt;
    T_OK(tti_ckpt_open(run_dir, NULL, NULL, &ckpt));
    e = (elsewhere){&found, 2};
    T_OK(tti_ckpt_read_by(ckpt, TTI_CKPT_OPTIMIZER, s.optimizer, 2, &access));
    assert_memory_equal(found.exp_avg, s.exp_avg, sizeof s.exp_avg);
    assert_true(found.counter == 7 && e.n_left == 0);
    e.n_left = 1;
    T_FAILS(tti_ckpt_read_by(ckpt, TTI_CKPT_OPTIMIZER, s.optimizer, 2, &access), TUTTI_E_PEER,
            "nobody wants it");
    tti_ckpt_close(ckpt);
}

/* A tensor of several parts, each of which comes in its turn. */
static tutti_status put_part(void *user, const tti_ckpt_tensor *tensor, uint64_t first,
                             size_t n_bytes, const void *bytes) {
    uint64_t *n_done = user;
    T_EQ(first, *n_done);
    assert_memory_equal((const char *)tensor->data + first, bytes, n_bytes);
    *n_done += n_bytes;
    return TUTTI_OK;
}

T_CASE(large_tensors_come_in_parts) {
    T_UNUSED;
    enum { N = 2 * TTI_PART_ELEMS + 1000 };
    small_state s;
    state_init(&s, 11);
    float *large = malloc(N * sizeof *large);
    assert_non_null(large);
    for (int i = 0; i < N; i++) large[i] = (float)i;
    tti_ckpt_tensor tensor = {"large", {TUTTI_F32, {.n_dims = 1, .dim = {N}}}, large};
    tti_ckpt_save_desc desc = state_desc(&s);
    desc.optimizer = &tensor;
    desc.n_optimizer = 1;
    T_OK(tti_ckpt_save(&desc));
    for (int n_threads = 0; n_threads <= 3; n_threads++) {
        uint64_t n_done = 0;
        tti_ckpt *ckpt;
        const tti_readers readers = {.n_threads = n_threads};
        const tti_ckpt_access access = {.put = put_part, .user = &n_done, .readers = &readers};
        T_OK(tti_ckpt_open_by(run_dir, &readers, NULL, NULL, &ckpt));
        T_OK(tti_ckpt_read_by(ckpt, TTI_CKPT_OPTIMIZER, &tensor, 1, &access));
        T_EQ(n_done, N * sizeof *large);
        tti_ckpt_close(ckpt);
    }
    free(large);
}

T_CASE(keeps_two_generations) {
    T_UNUSED;
    for (int64_t step = 1; step <= 5; step++) T_OK(state_save(step * 10));
    check_steps((int64_t[]){50, 40}, 2);
    small_state s;
    state_init(&s, 60);
    tti_ckpt_save_desc desc = state_desc(&s);
    desc.keep = 3;
    T_OK(tti_ckpt_save(&desc));
    check_steps((int64_t[]){60, 50, 40}, 3);
    check_nothing_temporary();
}

static void damage(const char *name) {
    size_t n_bytes;
    uint8_t *bytes = read_whole(in_checkpoints(name), &n_bytes);
    bytes[n_bytes - 1] ^= 1;
    write_whole(in_checkpoints(name), bytes, n_bytes);
}

T_CASE(a_damaged_generation_does_not_count) {
    T_UNUSED;
    T_OK(state_save(1));
    T_OK(state_save(2));
    damage("step-000000002/model.safetensors");
    T_OK(state_save(3));
    check_steps((int64_t[]){3, 2, 1}, 3); /* 1 is the second good one */
    T_OK(state_save(4));
    check_steps((int64_t[]){4, 3}, 2);
    damage("step-000000004/optimizer.safetensors");
    check_newest(3);
    T_OK(state_save(3)); /* resumed from 3: what is damaged must not stand before it */
    check_newest(3);
    check_steps((int64_t[]){3}, 1);
}

T_CASE(the_same_step_again) {
    T_UNUSED;
    T_OK(state_save(7));
    T_OK(state_save(7));
    check_steps((int64_t[]){7}, 1);
    check_newest(7);
    check_nothing_temporary();
    /* killed between the two renames of a replacement */
    char old[256];
    snprintf(old, sizeof old, "%s", in_checkpoints("step-000000007.old"));
    assert_int_equal(rename(in_checkpoints("step-000000007"), old), 0);
    check_newest(7);
    T_OK(state_save(7));
    check_steps((int64_t[]){7}, 1);
    /* killed after them, and the new one was damaged since */
    T_OK(tti_fault_set("ckpt.rename:fail"));
    T_FAILS(state_save(7), TUTTI_E_CHECKPOINT, "rename");
    check_steps((int64_t[]){7}, 1);
    check_newest(7);
}

T_CASE(bad_arguments) {
    T_UNUSED;
    small_state s;
    state_init(&s, 1);
    tti_ckpt_save_desc desc = state_desc(&s);
    desc.keep = 1;
    T_FAILS(tti_ckpt_save(&desc), TUTTI_E_INVALID, "keep 1");
    desc = state_desc(&s);
    desc.meta.step = -1;
    T_FAILS(tti_ckpt_save(&desc), TUTTI_E_INVALID, "step -1");
    desc = state_desc(&s);
    s.texts[1].key = "job";
    T_FAILS(tti_ckpt_save(&desc), TUTTI_E_INVALID, "two texts named 'job'");
    state_init(&s, 1);
    s.params[1].name = "fc1.weight";
    T_FAILS(tti_ckpt_save(&desc), TUTTI_E_INVALID, "two tensors are named 'fc1.weight'");
    s.params[1].name = "a\nb";
    T_FAILS(tti_ckpt_save(&desc), TUTTI_E_CHECKPOINT, "control characters");
    check_steps(NULL, 0);
    check_nothing_temporary();
    desc.run_dir = "/nonexistent/run";
    T_FAILS(tti_ckpt_save(&desc), TUTTI_E_CHECKPOINT, "/nonexistent/run/checkpoints: cannot make");
}

T_CASE(two_savers) {
    T_UNUSED;
    T_OK(state_save(1));
    int fd = open(in_checkpoints(""), O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    T_FAILS(state_save(2), TUTTI_E_CHECKPOINT, "another process is saving");
    close(fd);
    T_OK(state_save(2));
}

/* Fails, one after the other, each call that a save makes. */
T_CASE(every_injected_failure) {
    T_UNUSED;
    static const char *const codes[] = {"ENOSPC", "EIO"};
    int64_t step = 1, n_failed = 0;
    T_OK(state_save(step));
    for (size_t c = 0; c < 2; c++)
        for (int n = 1;; n++) {
            char fault[64];
            snprintf(fault, sizeof fault, "*:fail=%s@%d", codes[c], n);
            T_OK(tti_fault_set(fault));
            tutti_status st = state_save(step + 1);
            bool fired = tti_fault_n_fired() > 0;
            T_OK(tti_fault_set(NULL));
            if (!fired) {
                T_OK(st);
                break;
            }
            tti_ckpt *ckpt;
            T_OK(tti_ckpt_open(run_dir, NULL, NULL, &ckpt));
            int64_t found = tti_ckpt_get_meta(ckpt)->step;
            tti_ckpt_close(ckpt);
            /* after OK the new one; after a failure the old one, or the new one already */
            if (found != step && found != step + 1)
                fail_msg("%s: step %lld", fault, (long long)found);
            if (st == TUTTI_OK) T_EQ(found, step + 1);
            if (st != TUTTI_OK) {
                T_EQ(st, TUTTI_E_CHECKPOINT);
                n_failed++;
                check_nothing_temporary();
            }
            step = found;
            check_newest(step);
        }
    assert_true(n_failed >= 2 * 20);
}

/* The same with SIGKILL: what is left behind is harmless and goes with the next save. */
T_CASE(killed_at_every_point) {
    T_UNUSED;
    T_OK(state_save(1));
    int64_t step = 1;
    for (int n = 1;; n++) {
        pid_t pid = fork();
        if (pid == 0) {
            char fault[64];
            snprintf(fault, sizeof fault, "*:kill@%d", n);
            _exit(tti_fault_set(fault) == TUTTI_OK && state_save(step + 1) == TUTTI_OK ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        tti_ckpt *ckpt;
        T_OK(tti_ckpt_open(run_dir, NULL, NULL, &ckpt));
        int64_t found = tti_ckpt_get_meta(ckpt)->step;
        assert_true(state_equals(ckpt, found));
        tti_ckpt_close(ckpt);
        assert_true(found == step || found == step + 1);
        step = found;
        if (WIFEXITED(status)) {
            T_EQ(WEXITSTATUS(status), 0);
            assert_true(n > 20);
            break;
        }
    }
    T_OK(state_save(step + 1));
    check_nothing_temporary();
    check_newest(step + 1);
}

/* Saves one generation after the other and reports each that was acknowledged. */
static void save_for_ever(int64_t step, int fd) {
    while (state_save(++step) == TUTTI_OK)
        if (write(fd, &step, sizeof step) != sizeof step) break;
    _exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

T_CASE(killed_at_random_times) {
    T_UNUSED;
    enum { N_KILLS = 200 };
    int64_t acknowledged = 10, n_saves = 0, start_ns = now_ns();
    for (int64_t step = 1; step <= acknowledged; step++) T_OK(state_save(step));
    int64_t save_ns = (now_ns() - start_ns) / acknowledged;
    for (uint64_t i = 0; i < N_KILLS; i++) {
        int fd[2];
        assert_int_equal(pipe(fd), 0);
        pid_t pid = fork();
        if (pid == 0) {
            close(fd[0]);
            save_for_ever(acknowledged, fd[1]);
        }
        close(fd[1]);
        /* Killed at a random time of a save: the delay is the input of the test. */
        int64_t wait_ns = (int64_t)(tti_philox_draw(3, 4, i).v[0] % 3000) * save_ns / 1000;
        nanosleep(&(struct timespec){wait_ns / 1000000000, wait_ns % 1000000000}, NULL);
        kill(pid, SIGKILL);
        int64_t step;
        int64_t before = n_saves;
        while (read(fd[0], &step, sizeof step) == sizeof step) acknowledged = step, n_saves++;
        close(fd[0]);
        /* A machine may become busy, or idle, on the way. */
        if (n_saves == before) save_ns += save_ns / 4;
        if (n_saves > before + 3) save_ns -= save_ns / 4;
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        tti_ckpt *ckpt;
        T_OK(tti_ckpt_open(run_dir, NULL, NULL, &ckpt));
        int64_t found = tti_ckpt_get_meta(ckpt)->step;
        assert_true(found == acknowledged || found == acknowledged + 1);
        assert_true(state_equals(ckpt, found));
        tti_ckpt_close(ckpt);
        acknowledged = found;
    }
    assert_true(n_saves >= N_KILLS / 10 && n_saves <= 10 * N_KILLS); /* some lived, most died */
}

/* In a child with a file system of its own: 0 passed, FORKED_SKIPPED not permitted, else the failed
 * line. */
static int on_full_disk(void) {
    if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS)) return FORKED_SKIPPED;
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) return FORKED_SKIPPED;
    if (mount("tmpfs", run_dir, "tmpfs", 0, "size=256k")) return FORKED_SKIPPED;
    static uint8_t data[200000]; /* one fits, two do not */
    tti_ckpt_tensor tensor = {"big", {TUTTI_U8, TUTTI_SHAPE(sizeof data)}, data};
    tti_ckpt_save_desc desc = {
        .run_dir = run_dir, .meta.step = 1, .params = &tensor, .n_params = 1};
    if (tti_ckpt_save(&desc) != TUTTI_OK) return __LINE__ & 127;
    desc.meta.step = 2;
    if (tti_ckpt_save(&desc) != TUTTI_E_CHECKPOINT) return __LINE__ & 127;
    if (!strstr(tutti_last_error(), "bytes needed, ")) return __LINE__ & 127;
    int64_t *steps;
    size_t n;
    if (tti_ckpt_list(run_dir, &steps, &n) != TUTTI_OK || n != 1) return __LINE__ & 127;
    free(steps);
    n_temporary = 0;
    if (nftw(run_dir, count_temporary, 8, FTW_PHYS) || n_temporary) return __LINE__ & 127;
    tti_ckpt *ckpt;
    if (tti_ckpt_open(run_dir, NULL, NULL, &ckpt) != TUTTI_OK) return __LINE__ & 127;
    tti_ckpt_close(ckpt);
    return 0;
}

T_CASE(real_full_disk) {
    T_UNUSED;
    t_forked(on_full_disk);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh_run, no_faults)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(round_trip),
        CASE(nothing_to_save_is_a_checkpoint_too),
        CASE(tensors_that_lie_elsewhere),
        CASE(large_tensors_come_in_parts),
        CASE(keeps_two_generations),
        CASE(a_damaged_generation_does_not_count),
        CASE(the_same_step_again),
        CASE(bad_arguments),
        CASE(two_savers),
        cmocka_unit_test_setup_teardown(every_injected_failure, fresh_run_in_memory, no_faults),
        cmocka_unit_test_setup_teardown(killed_at_every_point, fresh_run_in_memory, no_faults),
        cmocka_unit_test_setup_teardown(killed_at_random_times, fresh_run_in_memory, no_faults),
        CASE(real_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
