/* consistency_test.c - a bit that flips in one worker's parameters is found, and its place named.
 */
#include "exec/workers.h"

/* Trains on until a step fails, at most three; returns the step that failed, -1: none. */
static int train_until_failure(workers *c, tti_exec *exec, int rank, int first) {
    workers_batch *batch = workers_batch_new();
    int failed = -1;
    for (int step = first; step < first + 3 && failed < 0; step++) {
        workers_fill(batch, step);
        tti_step_desc desc = workers_step(batch, exec, step);
        if (tti_exec_step(exec, &desc, &c->result[rank][0]) != TUTTI_OK) failed = step;
    }
    free(batch);
    return failed;
}

static void flip_bit(workers *c, tti_exec *exec, const char *param) {
    const tti_slot *slot = &c->plan->slots[tti_plan_find_slot(c->plan, param)];
    float *w = tti_exec_params(exec) + slot->first + slot->n_elems / 2;
    uint32_t bits;
    memcpy(&bits, w, sizeof bits);
    bits ^= 1u << 20;
    memcpy(w, &bits, sizeof bits);
}

static const char *damage_and_train(workers *c, tti_exec *exec, int rank) {
    if (workers_train(c, exec, rank)) return "the first steps failed";
    if (rank == c->n_ranks - 1) flip_bit(c, exec, "fc2.weight");
    /* The next update hashes what it wrote; the hash goes with the sums of the step after it. */
    int failed = train_until_failure(c, exec, rank, c->n_steps);
    COMM_TRUE(failed == c->n_steps + 1);
    const char *text = c->n_ranks == 2 ? "'fc2.weight' differs between rank 0 and rank 1"
                                       : "'fc2.weight' of rank 2 differs from the other ranks";
    if (!strstr(tutti_last_error(), text))
        return comm_text("got '%s', want '%s'", tutti_last_error(), text);
    COMM_TRUE(strstr(tutti_last_error(), "step 3:"));
    return NULL;
}

T_CASE(a_flipped_bit_names_tensor_rank_and_step) {
    T_UNUSED;
    for (int n_ranks = 2; n_ranks <= 3; n_ranks++)
        for (int many = 0; many < 2; many++) {
            workers c = {.net = net_mlp,
                         .target = &net_fast,
                         .n_ranks = n_ranks,
                         .n_compute_threads = 2,
                         .n_steps = 2,
                         .bucket_bytes = many ? 1 : 0,
                         .fn = damage_and_train};
            workers_run(&c);
            workers_fini(&c);
        }
}

static const char *damage_and_check(workers *c, tti_exec *exec, int rank) {
    if (workers_train(c, exec, rank)) return "the first steps failed";
    COMM_OK(tti_exec_check_params(exec, 2));
    uint64_t hash, damaged, mended;
    COMM_OK(tti_exec_params_hash(exec, &hash));
    if (rank == 1) flip_bit(c, exec, "fc1.bias");
    COMM_OK(tti_exec_params_hash(exec, &damaged));
    COMM_TRUE((damaged != hash) == (rank == 1));
    COMM_FAILS(tti_exec_check_params(exec, 2), TUTTI_E_MISMATCH,
               "step 2: parameter 'fc1.bias' of rank 1 differs from the other ranks");
    if (rank == 1) flip_bit(c, exec, "fc1.bias"); /* back again */
    COMM_OK(tti_exec_check_params(exec, 2));
    COMM_OK(tti_exec_params_hash(exec, &mended));
    COMM_TRUE(mended == hash);
    return NULL;
}

T_CASE(a_full_check_reads_what_is_in_memory) {
    T_UNUSED;
    workers c = {.net = net_mlp,
                 .target = &net_fast,
                 .n_ranks = 4,
                 .n_compute_threads = 1,
                 .n_steps = 2,
                 .fn = damage_and_check};
    workers_run(&c);
    workers_fini(&c);
}

/* The hash of the update is that of a full read. */
static const char *compare_hashes(workers *c, tti_exec *exec, int rank) {
    const char *failure = workers_train(c, exec, rank);
    if (failure) return failure;
    uint64_t hash;
    COMM_OK(tti_exec_params_hash(exec, &hash));
    COMM_TRUE(hash == c->result[rank][c->n_steps - 1].params_hash);
    COMM_OK(tti_exec_check_params(exec, 1)); /* alone: nothing to compare */
    return NULL;
}

T_CASE(both_hashes_agree) {
    T_UNUSED;
    for (int n_compute_threads = 1; n_compute_threads <= 3; n_compute_threads++) {
        workers c = {.net = net_lenet,
                     .target = &net_fast,
                     .n_ranks = 1,
                     .n_compute_threads = n_compute_threads,
                     .n_steps = 2,
                     .fn = compare_hashes};
        workers_run(&c);
        workers_fini(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flipped_bit_names_tensor_rank_and_step),
        cmocka_unit_test(a_full_check_reads_what_is_in_memory),
        cmocka_unit_test(both_hashes_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
