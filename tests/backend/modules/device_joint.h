/* device_joint.h - the sum between devices and the update in one, as a command of device_module.c,
 * which includes this after both. */
#ifndef TTI_TESTS_DEVICE_JOINT_H
#define TTI_TESTS_DEVICE_JOINT_H

/* joint=2: only if some of the sums are made before. */
static tutti_status peers_can_update(const void *group, const void *state, size_t first,
                                     bool *can) {
    const fake_group *g = group;
    const update *u = state;
    bool is_plain = !looks_at_norm(u) && !u->desc.complete_words &&
                    u->desc.grads == g->partials[g->peers.rank][0];
    bool reaches = !g->hosts && g->peers.algorithm != TTI_DEVICE_LIBRARY && g->peers.n_groups == 0;
    long joint = option("joint=", 0);
    *can = (joint == 1 || (joint == 2 && first > 0)) && is_plain && reaches;
    return TUTTI_OK;
}

/* Nobody may read partial sums after it. */
static void spoil_pieces(const fake_group *g) {
    for (int k = 0; k < g->peers.n_partials; k++)
        for (size_t i = 0; i < g->peers.n_flat; i++) g->partials[g->peers.rank][k][i] = NAN;
}

static bool is_broken(void) { return current->lost || current->failure; }

static void run_joint(command *c) {
    fake_group *g = c->state;
    update *u = c->dst;
    size_t n = g->peers.n_flat, begin = c->first,
           n_words =
               2 * (size_t)(c->step_sums.n_sums * c->step_sums.n_shards + 3 * c->step_sums.n_ranks);
    float *partials = u->desc.grads, *sum = malloc(n * sizeof *sum + 1);
    if (!sum) abort();
    note(fake_report_sums(&c->step_sums));
    note(fake_all_gather(g, c->step_sums.sums, n_words, 0, n_words));
    memcpy(sum, partials, begin * sizeof *sum);
    for (size_t i = begin; i < n && !is_broken(); i += FAKE_BLOCK)
        fake_sum_block(g, -1, i, TTI_MIN(n - i, FAKE_BLOCK), sum + i);
    note(fake_barrier(g));
    spoil_pieces(g);
    u->desc.grads = sum;
    if (!is_broken()) run_update(&(command){.state = u});
    u->desc.grads = partials;
    free(sum);
}

static tutti_status peers_update(void *group, void *state, const tti_device_step_sums *step_sums,
                                 size_t first) {
    return put(&(command){
        .run = run_joint, .state = group, .dst = state, .first = first, .step_sums = *step_sums});
}

#endif /* TTI_TESTS_DEVICE_JOINT_H */
